"""Notifications for people: see what was recorded, and which rules it went to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rota.client.connection import ClientPart
from rota.core.notifications.model import KINDS, KindName, Notification
from rota.core.runs.model import Run
from rota.store.notifications import record

_LAST = "~"  # above every id


class RecordedNotification(NamedTuple):
    """A notification, and the names of the rules that wanted it; None: not dispatched yet."""

    notification: Notification
    rules: list[str] | None

    @property
    def receivers(self) -> str:
        """The rules that it went to, as the end of a sentence."""
        if self.rules is None:
            return "is not dispatched yet"
        return f"went to {', '.join(self.rules)}" if self.rules else "fits no rule"


class Notifications(ClientPart):
    """The recorded notifications of a namespace."""

    async def list(
        self, *, kinds: Sequence[KindName] = (), before_id: str | None = None, limit: int = 50
    ) -> list[RecordedNotification]:
        """List notifications, newest first.

        Args:
            kinds: Only these kinds.
            before_id: The last id of the page before.
            limit: At most so many.
        """
        rows = await self._database.read(
            record.listing, namespace=self._namespace, kinds=kinds or KINDS,
            before_id=before_id or _LAST, limit=limit,
        )  # fmt: skip
        return [_recorded(one, rules) for one, rules in rows]

    async def latest(self, run: Run) -> RecordedNotification | None:
        """The newest notification about a stopped run. None if the run continues, or if no rule
        wants the kind.

        Args:
            run: A run, as `app.runs.get` returns it.
        """
        found = await self._database.read(record.latest, run)
        return None if found is None else _recorded(*found)


def _recorded(one: Notification, rules: str | None) -> RecordedNotification:
    names = None if rules is None else [name for name in rules.split(", ") if name]
    return RecordedNotification(one, names)
