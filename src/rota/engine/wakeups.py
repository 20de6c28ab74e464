"""Wake-ups: who wants to look again, and why. They only save time; polling alone is enough.

Topics: `ready` (there may be work), `timer` (something sleeps until sooner than known),
`done` (a run ended), `cancel` (a held run may have been called off), `schedule` (a schedule was
made or changed), `*` (anything). After `ready` there may stand the id of the run it is about.
"""

from __future__ import annotations

from collections.abc import Callable

from rota.store.backend.database import Database

READY, TIMER, DONE, CANCEL, SCHEDULE, ANY = "ready", "timer", "done", "cancel", "schedule", "*"


class Wakeups:
    """Carries a word to everyone in this process who listens, and to other processes."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._listeners: list[Callable[[str], None]] = []
        self._listening = False

    def subscribe(self, listener: Callable[[str], None]) -> None:
        """Call `listener` with every topic from now on."""
        self._listeners.append(listener)

    def unsubscribe(self, listener: Callable[[str], None]) -> None:
        """Stop calling `listener`; a stop that is cut short and repeated may say so twice."""
        if listener in self._listeners:
            self._listeners.remove(listener)

    def tell(self, topic: str) -> None:
        """Tell this process and the others."""
        self.heard(topic)
        self._database.tell(topic)

    def tell_others(self, topic: str) -> None:
        """Tell the other processes; here everybody knows already."""
        self._database.tell(topic)

    def heard(self, topic: str) -> None:
        """Tell this process only (the word came from outside)."""
        for listener in list(self._listeners):
            listener(topic)

    async def listen(self) -> None:
        """Begin to hear other processes, once."""
        if not self._listening:
            self._listening = True
            await self._database.listen(self.heard)
