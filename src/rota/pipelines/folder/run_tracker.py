"""Tracks the executions of a folder's schedules on all workers: events and state files.

It polls the store. A notification only makes the next poll earlier.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec import UNSET

from rota.core.runs.lifecycle import Status
from rota.core.runs.model import Schedule
from rota.core.time.instants import iso
from rota.pipelines.folder import state_file_sync
from rota.pipelines.folder.events import (
    AnyEvent,
    Events,
    ExecutionComplete,
    ExecutionError,
    ExecutionStart,
)
from rota.pipelines.folder.registry import PipelineRegistry
from rota.pipelines.folder.scheduled_pipeline import ScheduledPipeline
from rota.store.backend.database import Tx
from rota.store.schedules import attempts as executions
from rota.store.schedules.attempts import Attempt, CreatedExecution

if TYPE_CHECKING:
    from rota.client.client import Client

log = logging.getLogger("rota.pipelines")

OVERLAP_US = 60_000_000
REMEMBERED = 10_000  # chains with reported events; one may be taken up again later


@dataclass
class ReportedAttempts:
    """How many attempts of a chain were reported: their starts, and their ends."""

    starts: int = 0
    ends: int = 0
    waits: bool = False  # that it waits for a person was reported


class TrackedRuns(NamedTuple):
    """The result of one poll of the store."""

    rows: dict[str, Schedule]  # by id; without deleted ones
    open_roots: list[tuple[str, str]]  # schedule and root
    triggered: list[tuple[str, str]]  # the same of what was started by hand, ended or not
    created: list[CreatedExecution]
    chains: dict[str, list[Attempt]]


class RunTracker:
    """Reports the executions of the schedules of a registry, each start and end once."""

    def __init__(self, client: Client, registry: PipelineRegistry, events: Events) -> None:
        self._client = client
        self._registry = registry
        self._events = events
        self._files = state_file_sync.StateFileSync()
        self._reported: dict[str, ReportedAttempts] = {}
        self._open: dict[str, ScheduledPipeline] = {}
        self._since: dict[str, int] = {}  # by schedule: occurrences after this are new
        self._dues: dict[str, int | None] = {}  # by schedule: `due_at` at the last poll
        self._begun_at: int | None = None
        self._polled_at = 0
        self._awaited: dict[str, asyncio.Task[None]] = {}
        self._news: list[AnyEvent] = []
        self.nudge = asyncio.Event()

    @property
    def open_count(self) -> int:
        """Executions that have not ended."""
        return len(self._open)

    @property
    def begun_count(self) -> int:
        """Executions that are in progress."""
        under_way = [chain for e in self._registry.entries.values() for chain in e.under_way]
        return sum(state_file_sync.has_begun(chain[-1]) for chain in under_way)

    # -- tracked schedules -----------------------------------------------------------------

    def take(self, entry: ScheduledPipeline) -> None:
        """Track a schedule from here on; its earlier executions are not reported any more."""
        assert entry.row is not None
        for chain in entry.under_way:
            past = [attempt for attempt in chain if attempt.is_final]
            begun = [each for each in chain if each.is_final or state_file_sync.has_begun(each)]
            waits = state_file_sync.waits(chain)
            self._reported.setdefault(
                chain[0].root_id, ReportedAttempts(len(begun), len(past), waits)
            )
        now = self._client.clock.now()
        self._begun_at = now if self._begun_at is None else self._begun_at
        self._since.setdefault(entry.row.id, entry.row.started_at or now)
        self._expect(entry.row)

    def _expect(self, row: Schedule) -> None:
        """Report the occurrence that a schedule waits for, and all later ones. After an edit it may
        be earlier than the occurrence that the schedule waited for before."""
        if row.due_at is not None and row.id in self._since:
            self._since[row.id] = min(self._since[row.id], row.due_at - 1)

    def drop(self, entry: ScheduledPipeline) -> None:
        """Forget a schedule that is gone. Executions in progress are tracked to their end."""
        self._files.forget(entry.folder)
        if entry.row is not None:
            self._since.pop(entry.row.id, None)

    async def write(self) -> None:
        """Write the state files that have changed, beside the loop: a disk may be slow."""
        entries = list(self._registry.entries.values())
        changed = [(e.folder, e.state) for e in entries if self._files.differs(e.folder, e.state)]
        if not changed:
            return
        writing = asyncio.ensure_future(asyncio.to_thread(self._files.save_all, changed))
        try:
            await asyncio.shield(writing)
        except asyncio.CancelledError:
            await writing  # otherwise an older state might be written after a newer one
            raise

    def close(self) -> None:
        """Stop waiting for the ends of executions."""
        for task in self._awaited.values():
            task.cancel()
        self._awaited.clear()

    # -- polling ---------------------------------------------------------------------------

    async def follow(self) -> list[str]:
        """Poll once, report what is new, and write what has changed. Returns the pipelines with a
        schedule in their files that is gone from the store."""
        entries = {e.row.id: e for e in self._registry.entries.values() if e.row is not None}
        rows = [entry.row for entry in entries.values() if entry.row is not None]
        seen = await self._client.connection.database.read(
            _poll,
            rows,
            since=self._since,
            dues=self._dues,
            triggered_since=self._triggers_since(),
            known=list(self._open),
        )
        self._note_created(seen.created, entries)
        for row_id, row in seen.rows.items():
            entries[row_id].row = row
            self._expect(row)
        self._dues = {row_id: row.due_at for row_id, row in seen.rows.items()}
        for schedule_id, root_id in seen.open_roots:
            self._open.setdefault(root_id, entries[schedule_id])
        for schedule_id, root_id in seen.triggered:
            entry = entries[schedule_id]
            # An execution that ended at the instant this daemon began was reported by another.
            if root_id not in self._reported and not state_file_sync.has(entry.state, root_id):
                self._open.setdefault(root_id, entry)
        self._advance(seen.chains)
        for entry in entries.values():
            self._place(entry, seen.chains)
        self._await_ends()
        try:
            await self.write()
        finally:  # events come after the files, so a listener can read them
            news, self._news = self._news, []
            for event in news:
                self._events.emit(event)
        return [e.folder.name for row_id, e in entries.items() if row_id not in seen.rows]

    def _triggers_since(self) -> int:
        """The instant since which starts by hand are new. Clocks of machines differ, and commits
        take time, so it is a little before the last poll.
        """
        now = self._client.clock.now()
        if self._begun_at is None:
            self._begun_at = now
        before, self._polled_at = self._polled_at, now
        return max(self._begun_at, before - OVERLAP_US)

    def _note_created(
        self, created: Sequence[CreatedExecution], entries: dict[str, ScheduledPipeline]
    ) -> None:
        for execution in created:
            entry = entries.get(execution.schedule_id)
            if entry is None:
                continue
            self._since[execution.schedule_id] = max(
                self._since[execution.schedule_id], execution.due_at
            )
            if execution.status == Status.SKIPPED:
                self._log_skip(entry, execution.due_at, execution.reason)
            elif execution.root_id not in self._reported:
                self._open.setdefault(execution.root_id, entry)

    def _log_skip(self, entry: ScheduledPipeline, due_at: int | None, why: str | None) -> None:
        when = "an execution" if due_at is None else iso(due_at)
        log.info("schedule %s: %s was skipped: %s", entry.schedule_id, when, why)

    def _advance(self, chains: dict[str, list[Attempt]]) -> None:
        for root_id, entry in list(self._open.items()):
            attempts = chains.get(root_id)
            if attempts is None:  # pruned, or its schedule was deleted with it
                del self._open[root_id]
                continue
            self._report(entry, attempts)
            if attempts[-1].status == Status.SKIPPED:
                self._log_skip(entry, attempts[-1].due_at, state_file_sync.error_of(attempts[-1]))
            if attempts[-1].is_final:
                del self._open[root_id]
                entry.state = state_file_sync.with_end(
                    entry.state, attempts, history_max=self._registry.history_max
                )
        while len(self._reported) > REMEMBERED:
            self._reported.pop(next(iter(self._reported)))

    def _place(self, entry: ScheduledPipeline, chains: dict[str, list[Attempt]]) -> None:
        assert entry.row is not None
        roots = [root for root, owner in self._open.items() if owner is entry]
        entry.under_way = [chains[root] for root in roots if root in chains]
        entry.state = state_file_sync.projected(entry.state, entry.row, entry.under_way)

    def _await_ends(self) -> None:
        """Poll again as soon as an execution ends, in this process or elsewhere."""
        for root_id in self._awaited.keys() - self._open.keys():
            self._awaited.pop(root_id).cancel()
        for root_id in self._open.keys() - self._awaited.keys():
            self._awaited[root_id] = asyncio.create_task(self._nudge_after(root_id))

    async def _nudge_after(self, root_id: str) -> None:
        with contextlib.suppress(Exception):
            await self._client.connection.results.wait(root_id)
        self.nudge.set()

    # -- events ----------------------------------------------------------------------------

    def _report(self, entry: ScheduledPipeline, attempts: Sequence[Attempt]) -> None:
        reported = self._reported.setdefault(attempts[0].root_id, ReportedAttempts())
        for number, attempt in enumerate(attempts):
            if number >= reported.starts and state_file_sync.has_begun(attempt):
                reported.starts = number + 1
                self._report_start(entry, attempt, number)
            if number >= reported.ends and attempt.is_final:
                reported.ends = number + 1
                if reported.starts > number:
                    self._report_end(entry, attempts, number)
        waits = state_file_sync.waits(attempts)
        if waits and not reported.waits:
            self._report_wait(entry, attempts[-1])
        reported.waits = waits

    def _report_start(self, entry: ScheduledPipeline, attempt: Attempt, number: int) -> None:
        self._news.append(
            ExecutionStart(
                at=attempt.started_at or 0, schedule_id=entry.schedule_id,
                pipeline_id=entry.pipeline_id, run_id=attempt.root_id, trigger=attempt.trigger,
                retry_attempt=number or UNSET,
            )
        )  # fmt: skip

    def _report_wait(self, entry: ScheduledPipeline, attempt: Attempt) -> None:
        self._news.append(
            ExecutionError(
                at=self._client.clock.now(), schedule_id=entry.schedule_id,
                pipeline_id=entry.pipeline_id, run_id=attempt.root_id,
                error=state_file_sync.error_of(attempt) or attempt.status, will_retry=False,
                waits=True,
            )
        )  # fmt: skip

    def _report_end(
        self, entry: ScheduledPipeline, attempts: Sequence[Attempt], number: int
    ) -> None:
        attempt = attempts[number]
        at = attempt.finished_at or self._client.clock.now()
        if attempt.status == Status.COMPLETED:
            started_at = attempts[0].started_at or attempt.started_at or at
            self._news.append(
                ExecutionComplete(
                    at=at, schedule_id=entry.schedule_id, pipeline_id=entry.pipeline_id,
                    run_id=attempt.root_id, result=_result(attempt),
                    duration=max(0, at - started_at) // 1000,
                )
            )  # fmt: skip
            return
        again = number + 1 < len(attempts)
        self._news.append(
            ExecutionError(
                at=at, schedule_id=entry.schedule_id, pipeline_id=entry.pipeline_id,
                run_id=attempt.root_id, error=state_file_sync.error_of(attempt) or attempt.status,
                will_retry=again, retry_attempt=number + 1 if again else UNSET,
            )
        )  # fmt: skip


def _result(attempt: Attempt) -> Any:
    """The output of a run; a `PipelineResult` if it is one."""
    result = state_file_sync.result_of(attempt)
    if result is not None:
        return result
    return None if attempt.output is None else msgspec.json.decode(attempt.output)


async def _poll(
    tx: Tx,
    polled: list[Schedule],
    *,
    since: dict[str, int],
    dues: dict[str, int | None],
    triggered_since: int,
    known: list[str],
) -> TrackedRuns:
    """The schedules, open executions and new ones, in one transaction. A schedule that waits for
    the same occurrence as before has no new execution."""
    ids = [row.id for row in polled]
    if not ids:
        return TrackedRuns({}, [], [], [], await executions.chains(tx, known) if known else {})
    rows = await executions.current_rows(tx, polled)
    open_roots = await executions.open_chains(tx, ids)
    triggered = await executions.triggered_by_hand(tx, ids, triggered_since)
    created: list[CreatedExecution] = []
    for row_id, row in rows.items():
        is_new = row_id not in dues or dues[row_id] != row.due_at
        if row_id in since and is_new:
            created += await executions.created_since(tx, row_id, since[row_id])
    roots = {root for _, root in [*open_roots, *triggered]} | set(known)
    roots |= {execution.root_id for execution in created if execution.status != Status.SKIPPED}
    chains = await executions.chains(tx, sorted(roots)) if roots else {}
    return TrackedRuns(rows, open_roots, triggered, created, chains)
