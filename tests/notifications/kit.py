"""A hook that keeps every notification, for the tests of notifications."""

from __future__ import annotations

from typing import Any

from rota import Rota
from rota.core.notifications.model import Notification


class Kept(list[Notification]):
    """The arguments of a hook."""

    @property
    def kinds(self) -> list[str]:
        """The kinds, in order."""
        return [str(one.kind) for one in self]

    @property
    def lines(self) -> list[tuple[str, str, str]]:
        """Kind, source and name, in order."""
        return [(str(one.kind), one.source, one.name) for one in self]


def keep(app: Rota, *kinds: Any, **filters: Any) -> Kept:
    """Register a hook that keeps what it gets."""
    kept = Kept()

    @app.on_notification(*kinds, name="kept", **filters)
    async def hook(notification: Notification) -> None:
        kept.append(notification)

    return kept
