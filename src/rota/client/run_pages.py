"""Pages about runs for the surfaces. `app.runs` has these methods."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple, Unpack, cast

from rota.client.connection import ClientPart
from rota.core.pipelines.item_chunks import readable
from rota.core.runs.filters import RunFilter, RunSelection, checked_filter
from rota.core.runs.model import LogLine, Run, StoredStep
from rota.core.runs.names import checked_key, checked_limit, checked_position
from rota.core.suggest import check_options
from rota.core.time.instants import moment, shown
from rota.errors import BadInput
from rota.store.backend.database import Tx
from rota.store.runs import history, lists, logs, steps
from rota.store.schedules.outcomes import with_outcomes

# Python programs may ask for long lists; pages of surfaces are shorter.
LIST_MAX = 100_000
# Runs that a search finds by their ids, however old they are.
BY_ID_MAX = 20


class RunFilters(RunSelection, total=False):
    """The filters of `list`; `before` is the last id of the page before."""

    before: str
    limit: int


class RunList(NamedTuple):
    """One page of runs, newest first. `next` is the cursor of the page after it, None at the end.
    `looked_back_to` is set if the search reached its bound before the page was full.
    `by_id` belongs to the first page of a search: up to 20 runs of any age with an id or external
    id that begins with the text. It may overlap with `runs`."""

    runs: list[Run]
    next: str | None
    looked_back_to: datetime | None
    by_id: Sequence[Run] = ()


class RunPages(ClientPart):
    """Reads about the runs of one namespace."""

    async def get(self, run_id: str) -> Run:
        """Return one run: by its external id the newest of its chain.

        Args:
            run_id: An id, a beginning or an end of one, or an external id.

        Returns:
            The run, with its input, output and error as JSON.

        Raises:
            UnknownRun: No run has this id, or several have it.

        Example:
            run = await app.runs.get("order-7")
        """
        return await self._database.read(history.get, namespace=self._namespace, run_id=run_id)

    async def newest(self, run_id: str) -> Run:
        """Return the newest run of a chain: retries, recoveries and continuations included.

        Args:
            run_id: The id of any attempt.

        Raises:
            UnknownRun: No run has this id.

        Example:
            status = (await app.runs.newest(run.id)).label
        """
        run = await self.get(run_id)
        found = await self._database.read(history.newest, root_id=run.root_id)
        if found is None:  # pruned or archived a moment ago: the error says which
            found = await self.get(run.id)
        return found

    async def _segment(self, run_id: str | Run) -> str:
        """Return the id under which the steps of a run are stored.

        Args:
            run_id: An id. That of a first run, or an external id, names the whole chain, and so
                its newest segment. A `Run` names its own.
        """
        if isinstance(run_id, Run):
            return run_id.segment
        run = await self.get(run_id)
        return (run if run.id != run.root_id else await self.newest(run.id)).segment

    async def list(self, **filters: Unpack[RunFilters]) -> list[Run]:
        """Return runs, newest first. A rare filter is searched for to the end of the history.

        Args:
            filters: name, status, queue, kind, tag, schedule, external_id, error, root_id, search,
                since, until, before (the last id of the page before), limit.

        Raises:
            BadInput: There is no such status or kind, or a value cannot be stored.
            UnknownSchedule: No schedule has this name.

        Example:
            failed = await app.runs.list(status="failed", limit=20)
        """
        check_options(filters, RunFilters, self.list)
        limit = checked_limit(filters.pop("limit", 50), LIST_MAX)
        before = filters.pop("before", "")
        wanted = checked_filter(**cast(RunSelection, filters))
        beyond = wanted.beyond_id
        next_id: str | None = min(checked_key(before, "before"), beyond) if before else beyond
        found: list[Run] = []
        schedule_id = await self._schedule_id(wanted)
        while next_id is not None and len(found) < limit:
            part = await self._database.read(
                lists.page, wanted, namespace=self._namespace, before=next_id,
                limit=limit - len(found), schedule_id=schedule_id, window=lists.LONG_WINDOW,
            )  # fmt: skip
            found += part.runs
            next_id = part.next_id
        return found

    async def page(
        self, *, after: str | None = None, limit: int = 50, **filters: Unpack[RunSelection]
    ) -> RunList:
        """Return one page of runs, newest first, at the same cost however many are stored.

        A page looks at a bounded number of runs. If that was not enough to fill it,
        `looked_back_to` says how far it looked, and `next` looks further.

        Args:
            after: `next` of the page before; None begins with the newest run.
            limit: The most runs to return, up to 1,000.
            filters: name, status, queue, kind, tag, schedule, external_id, error, root_id, search,
                since, until.

        Raises:
            BadInput: There is no such status or kind, or a value cannot be stored.
            StaleCursor: `after` belongs to other filters.
            UnknownSchedule: No schedule has this name.

        Example:
            page = await app.runs.page(name="ingest", error="TimeoutError", limit=20)
        """
        check_options(filters, RunSelection, self.page)
        wanted = checked_filter(**filters)
        schedule_id = await self._schedule_id(wanted)
        found = await self._database.read(
            lists.page, wanted, namespace=self._namespace,
            before=wanted.id_after(after), limit=checked_limit(limit), schedule_id=schedule_id,
            window=lists.SEARCH_WINDOW if wanted.search else lists.WINDOW,
        )  # fmt: skip
        by_id: Sequence[Run] = ()
        if wanted.search and after is None:
            by_id = await self._database.read(
                lists.beginning, wanted, namespace=self._namespace,
                limit=BY_ID_MAX, schedule_id=schedule_id,
            )  # fmt: skip
        return RunList(
            found.runs,
            None if found.next_id is None else wanted.cursor(found.next_id),
            None if found.looked_back_to is None else moment(found.looked_back_to),
            by_id,
        )

    async def _schedule_id(self, wanted: RunFilter) -> str:
        if not wanted.schedule:
            return ""
        return (await self._client.schedules.get(wanted.schedule)).schedule.id

    async def children(self, run_id: str, *, after: str = "", limit: int = 100) -> Sequence[Run]:
        """Return the runs that a run started as its children, oldest first.

        A row has the id of the first attempt, and the status and result of the newest one.

        Args:
            run_id: The id of any attempt of the parent.
            after: The id of the last child of the page before.
            limit: The most children to return, up to 1,000.

        Raises:
            UnknownRun: No run has this id.

        Example:
            children = await app.runs.children(run.id)
        """
        run = await self.get(run_id)
        return await self._database.read(
            _children, run.root_id, after=checked_key(after, "after") if after else "",
            limit=checked_limit(limit),
        )  # fmt: skip

    async def steps_page(
        self, run_id: str, *, after: str = "", limit: int = 200
    ) -> Sequence[StoredStep]:
        """Return one page of the recorded steps of a run, in order.

        Args:
            run_id: The id of any attempt. The first one names the chain: its newest segment.
            after: The key of the last step of the page before.
            limit: The most steps to return, up to 1,000.

        Raises:
            UnknownRun: No run has this id.
            BadInput: The run has no step with the key `after`.

        Example:
            first = await app.runs.steps_page(run.id, limit=50)
        """
        found = await self._database.read(
            steps.page, root_id=await self._segment(run_id),
            after=checked_key(after, "after") if after else "",
            limit=checked_limit(limit),
        )  # fmt: skip
        if found is None:
            raise BadInput(
                f"run {run_id} has no step {shown(after)}",
                hint="Pass the key of the last step of the page before.",
            )
        return [readable(step) for step in found]

    async def logs(self, run_id: str, *, after: int = 0, limit: int = 200) -> Sequence[LogLine]:
        """Return the log lines of one attempt, oldest first.

        Args:
            run_id: The id of the attempt.
            after: The last position that is known already; 0 begins at the first line.
            limit: The most lines to return, up to 1,000.

        Raises:
            UnknownRun: No run has this id.

        Example:
            lines = await app.runs.logs(run.id, after=last.position)
        """
        run = await self.get(run_id)
        return await self._database.read(
            logs.page, run_id=run.id, after=checked_position(after), limit=checked_limit(limit)
        )


async def _children(tx: Tx, root_id: str, *, after: str, limit: int) -> list[Run]:
    firsts = await history.children(tx, root_id=root_id, after=after, limit=limit)
    return await with_outcomes(tx, firsts)
