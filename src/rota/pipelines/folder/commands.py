"""Queries and commands about scheduled pipelines, whether a scheduler runs or not.

A scheduler that runs is notified of every change through the store, and writes the state files.
Otherwise the process that makes a change writes them.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from rota.client.schedule_view import ahead
from rota.core.runs.lifecycle import Status
from rota.core.runs.stored_errors import read_error
from rota.core.suggest import did_you_mean
from rota.core.time.instants import LAST, moment
from rota.errors import UnknownSchedule, UsageError, WrongState
from rota.pipelines import usage
from rota.pipelines.definition.schedule_block import ScheduleBlock
from rota.pipelines.folder import lock_file, state_file_sync
from rota.pipelines.folder.registry import PipelineRegistry
from rota.pipelines.folder.schedule_sync import DISABLED
from rota.pipelines.folder.scheduled_pipeline import ScheduledPipeline
from rota.pipelines.folder.state_file import RunRecord, ScheduleState, read_time
from rota.pipelines.usage import PipelineUsage
from rota.store.schedules import templates as store
from rota.store.schedules.outcomes import read_range

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
    note: str | UnsetType = UNSET  # why it is paused
    problem: str | UnsetType = UNSET


class Upcoming(NamedTuple):
    """An execution to come."""

    schedule_id: str
    pipeline_id: str
    next_run: datetime


class Skipped(NamedTuple):
    """An execution that did not take place, and why. A long row of them is one, at its last."""

    due_at: int
    reason: str
    occurrences: int


class ScheduleCommands:
    """Shows and manages the schedules of a folder. Without a client, it reads only the files."""

    def __init__(
        self, client: Client | None, registry: PipelineRegistry, *, now: Callable[[], int]
    ) -> None:
        self._client = client
        self.registry = registry
        self.now = now
        self._files = state_file_sync.StateFileSync()

    # -- queries ---------------------------------------------------------------------------

    async def list_schedules(self) -> list[Scheduled]:
        """All scheduled pipelines, by name."""
        await self._read()
        return [self._shown(entry) for _, entry in sorted(self.registry.entries.items())]

    async def get_schedule(self, schedule_id: str) -> Scheduled | None:
        """One scheduled pipeline, by the id of its schedule or of its pipeline."""
        await self._read()
        entry = self.registry.of(schedule_id)
        return None if entry is None else self._shown(entry)

    async def show(self, schedule_id: str) -> Scheduled:
        """One scheduled pipeline; UnknownSchedule with the nearest names when there is none."""
        return self._shown(await self._entry(schedule_id))

    async def get_upcoming(self, limit: int = UPCOMING) -> list[Upcoming]:
        """The next executions, across all schedules, soonest first; not one that is overdue."""
        await self._read()
        upcoming = [self._upcoming(entry) for entry in self.registry.entries.values()]
        merged = heapq.merge(
            *upcoming, key=lambda execution: (execution.next_run, execution.schedule_id)
        )
        return list(itertools.islice(merged, limit))

    def _upcoming(self, entry: ScheduledPipeline) -> Iterator[Upcoming]:
        """The next executions of one schedule; only the first, if the store does not know it."""
        if entry.state.next_run is None:
            return
        if entry.row is None:
            first = moment(read_time(entry.state.next_run))
            yield Upcoming(entry.schedule_id, entry.pipeline_id, first)
            return
        for at, *_ in ahead(entry.row, self.now(), LAST):
            yield Upcoming(entry.schedule_id, entry.pipeline_id, moment(at))

    async def get_history(self, schedule_id: str, limit: int | None = None) -> list[RunRecord]:
        """Executions that have ended or wait for a person, newest first."""
        entry = await self._entry(schedule_id)
        waiting = [chain for chain in entry.under_way if state_file_sync.waits(chain)]
        records = [state_file_sync.record_of_wait(chain) for chain in waiting]
        return [*reversed(records), *entry.state.history][:limit]

    async def skipped(self, schedule_id: str, limit: int) -> list[Skipped]:
        """Executions that were skipped, newest first, as far as the store has them."""
        entry = await self._entry(schedule_id)
        if self._client is None or entry.row is None:
            return []
        rows = await self._client.schedules.history(
            entry.schedule_id, limit=limit, outcome=Status.SKIPPED
        )
        return [
            Skipped(
                row.due_at or row.created_at,
                read_error(row.error)["message"] if row.error else row.reason or "",
                read_range(row)[2],
            )
            for row in rows
        ]

    async def spent(self, schedule_id: str) -> PipelineUsage | None:
        """The cost of its executions, as far as the store has them."""
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

    async def write_state(self, schedule_id: str) -> None:
        """Write the state file, where no scheduler does it."""
        await self._after(await self._entry(schedule_id))

    # -- inside ----------------------------------------------------------------------------

    @property
    def _open(self) -> Client:
        if self._client is None:
            raise UsageError(
                "this folder has no database yet",
                hint="Start the scheduler: `rota scheduler start`.",
            )
        return self._client

    async def _entry(self, schedule_id: str) -> ScheduledPipeline:
        await self._read()
        entry = self.registry.of(schedule_id)
        if entry is None:
            raise self._unknown(schedule_id)
        return entry

    async def _stored(self, schedule_id: str) -> ScheduledPipeline:
        """An entry that the store knows as its file is now. A scheduler of the folder syncs it;
        otherwise it is synced here."""
        entry = await self._entry(schedule_id)
        if not self._has_scheduler:
            await self.registry.sync([entry.folder.name], now=self.now())
            entry = self.registry.of(entry.pipeline_id) or entry
        return entry

    def _unknown(self, schedule_id: str) -> UsageError:
        broken = self.registry.broken.get(schedule_id)
        if broken is not None:
            return UnknownSchedule(
                f"pipeline {schedule_id} is broken, so it has no schedule: {broken}",
                hint=f"Fix it; `rota pipeline validate {schedule_id}` lists its problems.",
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
        """The entry after a change. Without a scheduler of the folder, its file is written here."""
        await self._read()
        fresh = self.registry.of(entry.pipeline_id)
        if fresh is not None and not self._has_scheduler:
            self._files.save_all([(fresh.folder, fresh.state)])
        return self._shown(fresh or entry)

    async def _read(self) -> None:
        """Read the registry again. A scheduler that runs keeps it, and overrides this."""
        await self.registry.read(now=self.now())

    @property
    def _has_scheduler(self) -> bool:
        return is_looked_after(self.registry.root, now=self.now())

    def _shown(self, entry: ScheduledPipeline) -> Scheduled:
        row = entry.row
        wait_ms: int | UnsetType = UNSET
        if entry.state.next_run is not None:
            wait_ms = max(0, read_time(entry.state.next_run) - self.now()) // 1000
        rests = entry.state.status in ("paused", "disabled")
        return Scheduled(
            schedule_id=entry.schedule_id, pipeline_id=entry.pipeline_id,
            pipeline_name=entry.title, pipeline_directory=str(entry.folder),
            config=entry.config, state=entry.state,
            next_run_in=wait_ms,
            note=(row.reason or UNSET) if row is not None and rests else UNSET,
            problem=entry.problem or UNSET,
        )  # fmt: skip


def is_looked_after(root: Path, *, now: int) -> bool:
    """Whether a living scheduler holds the lock of the folder."""
    return lock_file.living(root, now=now) is not None
