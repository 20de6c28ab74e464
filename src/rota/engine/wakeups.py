"""Wake-ups: topics for which listeners poll at once. They only save time; polling is enough.

Topics: `ready` (there may be work), `timer` (a sleeper is due sooner than known), `done` (a run
ended); `cancel` (a held run may have been cancelled), `schedule` (a schedule was made or changed),
`log` (user code has logged something), `*` (anything).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Concatenate, ParamSpec, TypeVar

from rota.core.runs.notified_workers import Fleet, WakeupCall, is_asked, read_call, wider
from rota.store.backend.database import READY, Database, Tx

P = ParamSpec("P")
T = TypeVar("T")

TIMER, DONE, CANCEL, SCHEDULE, ANY = "timer", "done", "cancel", "schedule", "*"
LOG = "log"

__all__ = ["ANY", "CANCEL", "DONE", "LOG", "READY", "SCHEDULE", "TIMER", "Wakeups"]


class Wakeups:
    """Passes topics to every listener in this process, and to other processes."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._listeners: list[Callable[[str], None]] = []
        self._listening = False
        # The worker of this process, once it knows its fleet, and the last call that reached it.
        self.fleet: Fleet | None = None
        self._call: WakeupCall | None = None

    def subscribe(self, listener: Callable[[str], None]) -> None:
        """Call `listener` with every topic from now on."""
        self._listeners.append(listener)

    def unsubscribe(self, listener: Callable[[str], None]) -> None:
        """Stop calling `listener`. A second call does nothing: a stop may be repeated."""
        if listener in self._listeners:
            self._listeners.remove(listener)

    def notify_soon(self, topic: str) -> None:
        """Notify this process now and the others soon. For loops that continue."""
        self.notified(topic)
        self._database.notify_soon(topic)

    def notify_others(self, topic: str) -> None:
        """Notify the other processes soon; listeners here know already."""
        self._database.notify_soon(topic)

    async def announce(self, *topics: str) -> None:
        """Notify this process, and the others before this returns: the event loop of a client may
        stop then."""
        for topic in topics:
            self.notified(topic)
        await self._database.notify(topics)

    async def write(
        self,
        topics: tuple[str, ...],
        function: Callable[Concatenate[Tx, P], Awaitable[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Run a store function, then announce the topics."""
        value = await self._database.write(function, *args, **kwargs)
        await self.announce(*topics)
        return value

    def notified(self, topic: str) -> None:
        """Notify the listeners of this process only."""
        for listener in list(self._listeners):
            listener(topic)

    async def listen(self) -> None:
        """Begin to listen to other processes, once."""
        if not self._listening:
            self._listening = True
            await self._database.listen(self._notified)

    def ask_more(self) -> None:
        """Notify more workers of the fleet: the worker of this process cannot take all runs."""
        call, self._call = self._call, None
        topic = wider(self.fleet, call) if call is not None and self.fleet is not None else None
        if topic is not None:
            self._database.notify_soon(topic)

    def _notified(self, payload: str) -> None:
        """Deliver a notification, if this process is one of those that it asks."""
        call = read_call(payload)
        if call.topic == READY:
            if self.fleet is not None and not is_asked(self.fleet, call):
                return
            self._call = call
        self.notified(call.topic)
