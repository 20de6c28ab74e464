"""The content of an overview: counts, charts, queues, workers, and the work that waits for a
person.

Every method here reads a bounded number of rows, however many runs are stored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from rota.client.answers import every_automation
from rota.client.automation_views import AutomationView
from rota.client.connection import ClientPart
from rota.client.doctor import absence, live_workers, served
from rota.client.run_pages import RunList
from rota.core.automations.text import Word
from rota.core.runs.filters import RunFilter, checked_filter
from rota.core.runs.ids import created_at_of as created_at
from rota.core.runs.lifecycle import Status, Trigger
from rota.core.runs.model import Queue, Run, WorkerRecord
from rota.core.runs.names import checked_limit, checked_search
from rota.core.runs.stored_errors import error_line
from rota.core.time.instants import DAY, SECOND, Duration, micros, moment, shown
from rota.errors import BadInput
from rota.store import metrics as store
from rota.store.metrics import NewestRun
from rota.store.runs import code_versions, lists, workers

RECENT_MAX = 2_000
BUCKETS_MAX = 200
ATTENTION_MAX = 200


class RecentCounts(NamedTuple):
    """Open runs by status, exactly; runs that ended by status, among those created since
    `since`. `is_whole` is False when more were created than were counted."""

    open: dict[str, int]
    ended: dict[str, int]
    since: datetime
    is_whole: bool


class ActivityBucket(NamedTuple):
    """A part of a chart. Runs count where they ended; failures are failed and crashed runs."""

    start: datetime
    completed: int
    failed: int
    late_s_max: float | None  # the longest delay of an occurrence that began in it


class ActivitySeries(NamedTuple):
    """The buckets of a chart, oldest first. They begin at `since`, which is later than requested if
    more runs were created than the query reads."""

    buckets: list[ActivityBucket]
    since: datetime
    is_whole: bool


class QueueState(NamedTuple):
    """A queue that is declared, served or waited in."""

    name: str
    is_paused: bool
    pending: int
    running: int
    oldest_at: datetime | None  # since when its oldest pending run could be claimed
    limits: Queue | None
    worker_count: int  # workers that are alive and serve it


class WorkerState(NamedTuple):
    """A worker, and whether it is alive by the age of its heartbeat: alive, draining, silent (no
    heartbeat), gone (its process has ended), stopped."""

    worker: WorkerRecord
    state: str
    heartbeat_age_s: float
    queues: list[str]
    busy: int  # slots in use
    pinned_runs: int = 0  # open runs that only workers of its version may continue
    is_drained: bool = False  # a worker of another version is online, and no open run needs this


class AttentionItem(NamedTuple):
    """Something that waits for an operator. `kind` is run, pipeline, automation or schedule;
    `action` is the one verb that continues it."""

    kind: str
    name: str
    sentence: str
    since: datetime
    action: str
    run_id: str | None = None
    mutation_id: str | None = None  # what an answer has to name as `expected`
    reason: str | None = None  # why the open run of an automation waits


class Overview(ClientPart):
    """The state of one namespace."""

    async def counts(self, *, within: Duration = "1d") -> RecentCounts:
        """Count runs: open ones exactly, ended ones among the newest.

        Args:
            within: The time to look back for runs that ended.

        Returns:
            The counts.
        """
        now = self._now()
        since = max(0, now - _window(within))
        namespace = self._namespace
        opened = await self._database.read(store.open_runs, namespace=namespace, now=now)
        recent = await self._database.read(
            store.recent, namespace=namespace, since=since, limit=RECENT_MAX
        )
        ended = Counter(
            run.status
            for run in recent.runs
            if run.namespace == namespace and run.finished_at is not None
        )
        counts: Counter[str] = Counter()
        for row in opened:
            counts[row.status] += row.run_count
        return RecentCounts(dict(counts), dict(ended), *_reach(recent.runs, since))

    async def activity(self, *, within: Duration = "1d", buckets: int = 24) -> ActivitySeries:
        """Count ended runs, failures and lateness over time, for a chart.

        Args:
            within: The time to look back.
            buckets: The number of points.

        Returns:
            The series.
        """
        if type(buckets) is not int or not 1 <= buckets <= BUCKETS_MAX:
            raise BadInput(
                f"buckets={shown(buckets)} is out of range", hint=f"Give 1 to {BUCKETS_MAX}."
            )
        now = self._now()
        width = max(SECOND, _window(within) // buckets)
        first = max(0, now - width * buckets)
        namespace = self._namespace
        found = await self._database.read(
            store.recent, namespace=namespace, since=first, limit=RECENT_MAX
        )
        chart = _Chart(first, width, buckets)
        for run in found.runs:
            if run.namespace == namespace:
                chart.add(run)
        for run_id in found.unsuccessful_ids:
            chart.fail(created_at(run_id))
        return ActivitySeries(chart.buckets(), *_reach(found.runs, first))

    async def queues(self) -> Sequence[QueueState]:
        """Every queue that is declared, served or waited in, by name."""
        client = self._client
        namespace, now = self._namespace, self._now()
        opened = await self._database.read(store.open_runs, namespace=namespace, now=now)
        declared = {row.name: row for row in await client.queues()}
        live = live_workers(await client.workers(), client.settings, now)
        alive = [name for row in live for name in served(row)]
        names = {*declared, *alive, *(row.queue for row in opened if row.queue)}
        states = []
        for name in sorted(names):
            rows = [row for row in opened if row.queue == name]
            oldest = [row.oldest_at for row in rows if row.status == Status.PENDING]
            queue = declared.get(name)
            states.append(QueueState(
                name, bool(queue and queue.paused), _sum(rows, Status.PENDING),
                _sum(rows, Status.RUNNING), moment(min(oldest)) if oldest else None, queue,
                alive.count(name),
            ))  # fmt: skip
        return states

    async def workers(
        self, *, everyone: bool = False, search: str = "", after: str = "", limit: int = 1_000
    ) -> Sequence[WorkerState]:
        """List workers with their liveness, in the order of their start.

        Args:
            everyone: Also those that have stopped.
            search: A part of the name of their machine.
            after: The id of the last worker of the page before.
            limit: The most workers to return, up to 1,000.
        """
        client = self._client
        namespace, now = self._namespace, self._now()
        rows = await self._database.read(
            workers.listing, namespace=namespace, everyone=everyone,
            search=checked_search(search), after=checked_search(after, "after"),
            limit=checked_limit(limit),
        )  # fmt: skip
        busy = await self._database.read(store.busy_slots, namespace=namespace)
        pinned = await self._database.read(code_versions.pinned_counts, namespace=namespace)
        liveness = {row.id: _liveness(row, absence(row, client.settings, now)) for row in rows}
        online = {row.version for row in rows if liveness[row.id] == "alive"}
        return [
            WorkerState(
                row, liveness[row.id], max(0, now - row.heartbeat_at) / SECOND, served(row),
                busy.get(row.id, 0), pinned.get(row.version, 0),
                not pinned.get(row.version) and bool(online - {row.version}),
            )
            for row in rows
        ]  # fmt: skip

    async def attention(self) -> Sequence[AttentionItem]:
        """Everything that waits for an operator, oldest first. Runs and schedules: 200 at most.

        A child run that crashed is omitted: its parent reports it.
        """
        client = self._client
        namespace, now = self._namespace, self._now()
        items: list[AttentionItem] = []
        for kind in ("workflow", "pipeline"):
            waiting = await self._database.read(
                lists.page, RunFilter(status=Status.WAITING, kind=kind), namespace=namespace,
                before="~", limit=ATTENTION_MAX,
            )  # fmt: skip
            items += map(_waiting, waiting.runs)
        async for view in every_automation(client.automations):
            if view.said.word is Word.ATTENTION:
                items.append(_automation(view))
        crashed = await self._database.read(
            store.last_failures, Status.CRASHED, namespace=namespace,
            since=max(0, now - 7 * DAY), limit=ATTENTION_MAX, top_level=True,
        )  # fmt: skip
        items += map(_quarantined, crashed.runs)
        for row in await self._database.read(
            store.stopped_schedules, namespace=namespace, limit=ATTENTION_MAX
        ):
            sentence = f"Does not fire: {row.reason or ''}"
            items.append(
                AttentionItem("schedule", row.name, sentence, moment(row.created_at), "update")
            )
        return sorted(items, key=lambda item: (item.since, item.kind, item.name))

    async def failures(
        self, *, since: datetime, limit: int = 50, top_level: bool = False
    ) -> RunList:
        """List runs that failed or crashed and have no later attempt, newest first.

        Args:
            since: Only runs created since then.
            limit: The most runs to return, of failed and crashed ones each, up to 1,000.
            top_level: Omit child runs and runs of automations.

        Returns:
            The `runs`. `looked_back_to` is set if more have failed than were searched.
        """
        since_at = checked_filter(since=since).since_at or 0
        found = [
            await self._database.read(
                store.last_failures, status, namespace=self._namespace, since=since_at,
                limit=checked_limit(limit), top_level=top_level,
            )
            for status in (Status.FAILED, Status.CRASHED)
        ]  # fmt: skip
        runs = sorted((run for one in found for run in one.runs), key=lambda run: run.id)
        ends = [one.searched_to for one in found if one.searched_to is not None]
        return RunList(runs[::-1], None, moment(max(ends)) if ends else None)


def _automation(view: AutomationView) -> AttentionItem:
    run = view.open_run
    return AttentionItem(
        "automation", view.automation.name, view.sentence,
        moment(run.created_at if run else view.automation.updated_at),
        view.said.actions[0] if view.said.actions else "show", run.id if run else None,
        view.mutation.id if view.mutation else None, run.reason if run else None,
    )  # fmt: skip


def _reach(runs: Sequence[NewestRun], since: int) -> tuple[datetime, bool]:
    """The instant from which all runs were read, and whether it is the requested one."""
    is_whole = len(runs) < RECENT_MAX
    return moment(since if is_whole else runs[-1].created_at), is_whole


def _window(within: Duration) -> int:
    window = micros(within)
    if not 0 < window <= 366 * DAY:
        raise BadInput(f"within={shown(within)} is out of range", hint="Give up to 366d.")
    return window


def _sum(rows: Sequence[store.OpenRuns], status: Status) -> int:
    return sum(row.run_count for row in rows if row.status == status)


def _liveness(row: WorkerRecord, absent: str | None) -> str:
    if row.status == "offline":
        return "stopped"
    return absent or ("draining" if row.status == "draining" else "alive")


def _kind(run: Run) -> str:
    return "pipeline" if run.kind == "pipeline" else "run"


def _waiting(run: Run) -> AttentionItem:
    why = f": {error_line(run.error)}" if run.error else f" ({run.reason})" if run.reason else ""
    since = run.available_at or run.started_at or run.created_at
    return AttentionItem(
        _kind(run), run.name, f"Waits for you{why}", moment(since), "retry", run.id
    )


def _quarantined(run: Run) -> AttentionItem:
    sentence = "Crashed too often: nothing tries it again"
    since = moment(run.finished_at or run.created_at)
    return AttentionItem(_kind(run), run.name, sentence, since, "retry", run.id)


class _Chart:
    """Buckets that are being filled."""

    def __init__(self, first: int, width: int, count: int) -> None:
        self._first, self._width = first, width
        self._completed, self._failed = [0] * count, [0] * count
        self._late: list[float | None] = [None] * count

    def add(self, run: NewestRun) -> None:
        """Count the end of a run, and how late its occurrence began."""
        if run.status == Status.COMPLETED and run.finished_at is not None:
            self._completed[self._index(run.finished_at)] += 1
        if run.trigger == Trigger.SCHEDULE and run.due_at is not None and run.started_at:
            index = self._index(run.started_at)
            late = max(0, run.started_at - run.due_at) / SECOND
            self._late[index] = max(late, self._late[index] or 0.0)

    def fail(self, at: int) -> None:
        """Count a failure by the creation of its run: the index has no other time."""
        self._failed[self._index(at)] += 1

    def _index(self, at: int) -> int:
        """The bucket of an instant; the first and the last one also have what lies outside."""
        return max(0, min((at - self._first) // self._width, len(self._failed) - 1))

    def buckets(self) -> list[ActivityBucket]:
        """All buckets, oldest first."""
        parts = zip(self._completed, self._failed, self._late, strict=True)
        return [
            ActivityBucket(moment(self._first + number * self._width), done, failed, late)
            for number, (done, failed, late) in enumerate(parts)
        ]
