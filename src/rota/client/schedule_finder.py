"""Schedules by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from rota.client.schedule_view import ScheduleView, view_of
from rota.core.runs.lifecycle import Status
from rota.core.runs.names import checked_name, checked_search
from rota.core.suggest import suggestion
from rota.errors import UnknownSchedule
from rota.store.schedules import templates as store

if TYPE_CHECKING:
    from rota.client.client import Client


COUNT_MAX = 10_000


class ListedCounts(NamedTuple):
    """The number of schedules, and of those that are paused; 10,000 means that or more."""

    total: int
    paused: int


class ScheduleFinder:
    """Finds the schedules of one namespace."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def get(self, name: str) -> ScheduleView:
        """Find a schedule by name.

        Args:
            name: The schedule.

        Raises:
            UnknownSchedule: There is no schedule of that name.
        """
        checked_name(name, "schedule name")
        found = await self._client.connection.database.read(
            store.find, namespace=self._client.settings.namespace, name=name
        )
        if found is None:
            raise await self._unknown(name)
        return view_of(found)

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
            store.listing, namespace=self._client.settings.namespace, after=after, limit=limit,
            search=checked_search(search), status=Status.PAUSED if paused else "",
        )  # fmt: skip
        return [view_of(row) for row in rows]

    async def count(self, *, search: str = "") -> ListedCounts:
        """Count schedules, up to 10,000.

        Args:
            search: A part of the name.
        """
        found = await self._client.connection.database.read(
            store.count, namespace=self._client.settings.namespace, search=checked_search(search),
            limit=COUNT_MAX,
        )  # fmt: skip
        return ListedCounts(*found)

    async def _unknown(self, name: str) -> UnknownSchedule:
        names = [shown.schedule.name for shown in await self.list()]
        hint = suggestion(name, names)
        return UnknownSchedule(f"there is no schedule {name!r}", hint=hint, name=name)
