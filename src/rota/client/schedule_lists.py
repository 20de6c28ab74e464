"""Lists of schedules by name, in pages. `app.schedules` has these methods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from rota.client.schedule_view import ScheduleView, view_of
from rota.core.runs.lifecycle import Status
from rota.core.runs.names import checked_search
from rota.store.schedules import templates

if TYPE_CHECKING:
    from rota.client.client import Client

COUNT_MAX = 10_000


class ListedCounts(NamedTuple):
    """The number of schedules, and of those that are paused; 10,000 means that or more."""

    total: int
    paused: int


class ScheduleLists:
    """Lists of the schedules of one namespace."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def list(
        self, *, after: str = "", limit: int = 1000, search: str = "", paused: bool = False
    ) -> Sequence[ScheduleView]:
        """List schedules by name.

        Args:
            after: The last name of the page before.
            limit: At most so many.
            search: A part of the name.
            paused: Only those that are paused.
        """
        rows = await self._client.connection.database.read(
            templates.listing, namespace=self._client.settings.namespace, after=after, limit=limit,
            search=checked_search(search), status=Status.PAUSED if paused else "",
        )  # fmt: skip
        return [view_of(row) for row in rows]

    async def count(self, *, search: str = "") -> ListedCounts:
        """Count schedules, up to 10,000.

        Args:
            search: A part of the name.
        """
        found = await self._client.connection.database.read(
            templates.count, namespace=self._client.settings.namespace,
            search=checked_search(search), limit=COUNT_MAX,
        )  # fmt: skip
        return ListedCounts(*found)
