"""The verbs of people about scheduled pipelines, with or without a scheduler that runs.

While a scheduler runs, it is notified of every change through the store and writes the state files.
Otherwise the process that changes something writes them.
"""

from __future__ import annotations

import heapq
from collections.abc import Awaitable, Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from rota.core.runs.lifecycle import Status
from rota.core.runs.stored_errors import read_error
from rota.core.schedules.intent import Intent, jitter_us
from rota.core.suggest import did_you_mean
from rota.core.time.instants import moment
from rota.core.time.recurrence import next_after
from rota.errors import UnknownSchedule, UsageError, WrongState
from rota.pipelines import usage
from rota.pipelines.definition.schedule_block import ScheduleBlock
from rota.pipelines.folder import lock_file, state_file_sync
from rota.pipelines.folder.registry import PipelineRegistry
from rota.pipelines.folder.schedule_sync import DISABLED
from rota.pipelines.folder.scheduled_pipeline import ScheduledPipeline
from rota.pipelines.folder.state_file import RunRecord, ScheduleState, read_time
from rota.pipelines.usage import PipelineUsage
from rota.schedules import definition
from rota.store.schedules import templates as store

if TYPE_CHECKING:
    from rota.client.client import Client

UPCOMING = 10


class Scheduled(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The state of one scheduled pipeline. `problem`: its file is broken, and the last good
    definition is in force."""

    schedule_id: str
    pipeline_id: str
    pipeline_name: str
    pipeline_directory: str
    config: ScheduleBlock
    state: ScheduleState
    next_run_in: int | UnsetType = UNSET  # milliseconds
    note: str | UnsetType = UNSET  # why it rests
    problem: str | UnsetType = UNSET


class Upcoming(NamedTuple):
    """An execution to come."""

    schedule_id: str
    pipeline_id: str
    next_run: datetime


class Skipped(NamedTuple):
    """An execution that did not take place, and why; a long row of them is one, at its last."""

    due_at: int
    reason: str
    occurrences: int


class ScheduleCommands:
    """Shows and manages schedules. Without a client, only the files are looked at."""

    def __init__(
        self, client: Client | None, registry: PipelineRegistry, *, now: Callable[[], int]
    ) -> None:
        self._client = client
        self.registry = registry
        self.now = now
        self._files = state_file_sync.StateFileSync()
        # A running scheduler keeps the registry itself; otherwise it is read again every time.
        self.syncs = True  # whether a verb first brings the store in step with the file
        self.refresh: Callable[[], Awaitable[None]] = self._read
        self.on_change: Callable[[ScheduledPipeline], Awaitable[None]] = self._wrote

    # -- looking ---------------------------------------------------------------------------

    async def listing(self) -> list[Scheduled]:
        """All scheduled pipelines, by name."""
        await self.refresh()
        return [self._shown(entry) for _, entry in sorted(self.registry.entries.items())]

    async def get(self, schedule_id: str) -> Scheduled | None:
        """One of them, by the id of its schedule or of its pipeline."""
        await self.refresh()
        entry = self.registry.of(schedule_id)
        return None if entry is None else self._shown(entry)

    async def show(self, schedule_id: str) -> Scheduled:
        """The same; UnknownSchedule with the nearest names when there is none."""
        return self._shown(await self._entry(schedule_id))

    async def upcoming(self, limit: int = UPCOMING) -> list[Upcoming]:
        """The next executions, across all schedules, soonest first."""
        await self.refresh()
        now = self.now()
        found: list[tuple[int, str, str, Intent, int]] = []
        for entry in self.registry.entries.values():
            if entry.row is None or entry.state.next_run is None:
                continue
            intent = definition.found(entry.row).intent
            spread = jitter_us(entry.row.name, intent.policies)
            due_at = entry.row.due_at
            if due_at is not None:
                key = (due_at + spread, entry.schedule_id, entry.pipeline_id, intent, spread)
                heapq.heappush(found, key)
        return self._merged(found, limit, now) if found else self._plain(limit)

    def _merged(
        self, found: list[tuple[int, str, str, Intent, int]], limit: int, now: int
    ) -> list[Upcoming]:
        chosen: list[Upcoming] = []
        while found and len(chosen) < limit:
            at, schedule_id, pipeline_id, intent, spread = heapq.heappop(found)
            chosen.append(Upcoming(schedule_id, pipeline_id, moment(at)))
            due_at = next_after(intent.spec, max(at - spread, now))
            if due_at is not None:
                heapq.heappush(found, (due_at + spread, schedule_id, pipeline_id, intent, spread))
        return chosen

    def _plain(self, limit: int) -> list[Upcoming]:
        """The next execution of each, by the files alone."""
        found = [
            Upcoming(e.schedule_id, e.pipeline_id, moment(read_time(e.state.next_run)))
            for e in self.registry.entries.values()
            if e.state.next_run is not None
        ]
        return sorted(found, key=lambda one: one.next_run)[:limit]

    async def history(self, schedule_id: str, limit: int | None = None) -> list[RunRecord]:
        """Executions that have ended or wait for a person, newest first."""
        entry = await self._entry(schedule_id)
        waiting = [chain for chain in entry.under_way if state_file_sync.waits(chain)]
        records = [state_file_sync.record_of_wait(chain) for chain in waiting]
        return [*reversed(records), *entry.state.history][:limit]

    async def skipped(self, schedule_id: str, limit: int) -> list[Skipped]:
        """Executions that were skipped, newest first, as far as the store remembers them."""
        entry = await self._entry(schedule_id)
        if self._client is None or entry.row is None:
            return []
        rows = await self._client.schedules.history(entry.schedule_id, limit=limit)
        return [
            Skipped(
                row.due_at or row.created_at,
                read_error(row.error)["message"] if row.error else row.reason or "",
                store.read_range(row)[2],
            )
            for row in rows
            if row.status == Status.SKIPPED
        ]

    async def spent(self, schedule_id: str) -> PipelineUsage | None:
        """The cost of its executions, as far as the store remembers them."""
        entry = await self._entry(schedule_id)
        if self._client is None or entry.row is None:
            return None
        return await usage.of_schedule(self._client, entry.schedule_id)

    # -- commands --------------------------------------------------------------------------

    async def pause(self, schedule_id: str, *, note: str = "") -> Scheduled:
        """Skip upcoming executions until it is resumed; one in progress continues."""
        entry = await self._stored(schedule_id)
        await self._open.schedules.pause(entry.schedule_id, note=note)
        return await self._after(entry)

    async def resume(self, schedule_id: str) -> Scheduled:
        """Continue with the next execution."""
        entry = await self._stored(schedule_id)
        if entry.row is not None and entry.row.reason == DISABLED:
            raise WrongState(
                f"schedule {entry.schedule_id} is disabled in its file",
                hint=f"Set enabled: true in {entry.folder / 'pipeline.yaml'}.",
            )
        await self._open.schedules.resume(entry.schedule_id)
        return await self._after(entry)

    async def trigger(self, schedule_id: str) -> str:
        """Start an execution now, beside the schedule; returns the run's id."""
        entry = await self._stored(schedule_id)
        return await self._open.schedules.trigger(entry.schedule_id)

    async def cancel(self, schedule_id: str) -> list[str]:
        """Cancel the executions that are in progress or wait for their turn."""
        entry = await self._stored(schedule_id)
        assert entry.row is not None
        roots = await self._open.connection.database.read(store.open_roots, [entry.row.id])
        if not roots:
            raise WrongState(
                f"nothing of schedule {entry.schedule_id} is running",
                hint=f"See `rota scheduler history {entry.pipeline_id}`.",
            )
        cancelled: list[str] = []
        for root_id in dict.fromkeys(roots):
            cancelled += await self._open.runs.cancel(root_id)
        await self._after(entry)
        return cancelled

    async def write_down(self, schedule_id: str) -> None:
        """Bring the state file up to date, where no scheduler does it."""
        await self.on_change(await self._entry(schedule_id))

    # -- inside ----------------------------------------------------------------------------

    @property
    def _open(self) -> Client:
        if self._client is None:
            raise UsageError("there is no database yet", hint="Start a scheduler first.")
        return self._client

    async def _entry(self, schedule_id: str) -> ScheduledPipeline:
        await self.refresh()
        entry = self.registry.of(schedule_id)
        if entry is None:
            raise self._unknown(schedule_id)
        return entry

    async def _stored(self, schedule_id: str) -> ScheduledPipeline:
        """An entry that the store knows as its file is now; where a scheduler looks after the
        folder, it sees to that."""
        entry = await self._entry(schedule_id)
        if self.syncs and not is_looked_after(self.registry.root, now=self.now()):
            await self.registry.sync([entry.folder.name], now=self.now())
            entry = self.registry.of(entry.pipeline_id) or entry
        return entry

    def _unknown(self, schedule_id: str) -> UsageError:
        broken = self.registry.broken.get(schedule_id)
        if broken is not None:
            return UnknownSchedule(
                f"pipeline {schedule_id} is broken, so it has no schedule: {broken}",
                hint=f"Fix it; `rota pipeline validate {schedule_id}` tells all that is wrong.",
            )
        if schedule_id in self.registry.names:
            return UnknownSchedule(
                f"pipeline {schedule_id} has no schedule",
                hint="Add a `schedule:` block with `cron:` to its pipeline.yaml.",
            )
        names = list(self.registry.entries)
        known = [*names, *(entry.schedule_id for entry in self.registry.entries.values())]
        return UnknownSchedule(
            f"there is no schedule {schedule_id!r}{did_you_mean(schedule_id, known)}",
            hint=f"There are: {', '.join(names)}." if names else "This folder has none.",
        )

    async def _after(self, entry: ScheduledPipeline) -> Scheduled:
        await self.on_change(entry)
        fresh = self.registry.of(entry.pipeline_id) or entry
        return self._shown(fresh)

    async def _read(self) -> None:
        await self.registry.read(now=self.now())

    async def _wrote(self, entry: ScheduledPipeline) -> None:
        await self._read()
        fresh = self.registry.of(entry.pipeline_id)
        if fresh is not None and not is_looked_after(self.registry.root, now=self.now()):
            self._files.save_all([(fresh.folder, fresh.state)])

    def _shown(self, entry: ScheduledPipeline) -> Scheduled:
        next_run = entry.state.next_run
        wait_us = UNSET if next_run is None else (read_time(next_run) - self.now())
        rests = entry.row is not None and entry.state.status in ("paused", "disabled")
        return Scheduled(
            schedule_id=entry.schedule_id, pipeline_id=entry.pipeline_id,
            pipeline_name=entry.title, pipeline_directory=str(entry.folder),
            config=entry.config, state=entry.state,
            next_run_in=UNSET if wait_us is UNSET else max(0, wait_us) // 1000,
            note=(entry.row.reason or UNSET) if rests and entry.row else UNSET,
            problem=entry.problem or UNSET,
        )  # fmt: skip


def is_looked_after(root: Path, *, now: int) -> bool:
    """Whether a scheduler is alive that keeps this folder."""
    return lock_file.living(root, now=now) is not None
