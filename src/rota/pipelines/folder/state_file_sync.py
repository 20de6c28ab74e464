"""The state file of a pipeline as a projection of the store: outcomes of runs, next occurrence.

The projection is pure. A file that cannot be written now is written later; the schedule continues.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeGuard

import msgspec
from msgspec import UNSET

from rota.core.runs.lifecycle import Status as RunStatus
from rota.core.runs.model import Schedule
from rota.core.runs.stored_errors import read_error
from rota.core.time.instants import iso
from rota.pipelines.folder.schedule_sync import DISABLED
from rota.pipelines.folder.state_file import (
    STATE_FILE,
    LoadedState,
    RunRecord,
    ScheduleState,
    Status,
    begun,
    ended,
    interrupted,
    load_state,
    planned,
    save_state,
)
from rota.pipelines.outcome import PipelineResult
from rota.pipelines.run.conditions import AFTER
from rota.store.schedules.attempts import Attempt

log = logging.getLogger("rota.pipelines")

ARCHIVE = ".schedule-state.archived.json"
WAITING = "waiting"  # the outcome of an execution that a person has to continue


# -- executions ----------------------------------------------------------------------------


def result_of(attempt: Attempt) -> PipelineResult | None:
    """The result of a try, if it has one."""
    if attempt.output is None:
        return None
    try:
        return msgspec.json.decode(attempt.output, type=PipelineResult)
    except msgspec.MsgspecError:
        return None


def outcome_of(attempt: Attempt) -> str:
    """The outcome of a try: completed, partial, failed or cancelled."""
    if attempt.status == RunStatus.COMPLETED:
        return attempt.reason if attempt.reason == "partial" else "completed"
    return "cancelled" if attempt.status == RunStatus.CANCELLED else "failed"


def error_of(attempt: Attempt) -> str | None:
    """The reason why a try did not succeed, in a sentence; None when it did."""
    result = result_of(attempt)
    if attempt.status == RunStatus.COMPLETED:
        if result is None or result.outcome == "completed":
            return None
        return f"{result.failed} of {result.total} items failed"
    if attempt.status == RunStatus.CANCELLED:
        return f"cancelled {attempt.reason}" if attempt.reason else "cancelled"
    if attempt.error is not None:
        stored = read_error(attempt.error)
        return stored["message"] or stored["type"]
    return "its worker died" if attempt.status == RunStatus.CRASHED else attempt.status


def with_start(state: ScheduleState, attempts: Sequence[Attempt]) -> ScheduleState:
    """The state with an execution in progress. Its further tries change nothing."""
    tries = _uncounted(state, attempts)
    last = state.last_run
    if not tries or (_is_open(last, attempts[0].root_id) and last.outcome != WAITING):
        return state
    return begun(state, tries[0].started_at or 0, run_id=attempts[0].root_id)


def _is_open(record: RunRecord | None, run_id: str) -> TypeGuard[RunRecord]:
    """Whether a record is about this execution, and without its end."""
    return record is not None and record.run_id == run_id and record.completed_at is None


def record_of_wait(attempts: Sequence[Attempt]) -> RunRecord:
    """The record of an execution that waits for a person."""
    first, last = attempts[0], attempts[-1]
    return RunRecord(
        started_at=iso(first.started_at or last.started_at or 0), completed_at=None, success=False,
        error=error_of(last), run_id=first.root_id, outcome=WAITING, trigger=first.trigger,
    )  # fmt: skip


def with_end(
    state: ScheduleState, attempts: Sequence[Attempt], *, history_max: int
) -> ScheduleState:
    """The state with the end of an execution, unless the history holds it already."""
    last = attempts[-1]
    if last.status == RunStatus.SKIPPED:
        return _unbegun(state, last.root_id)
    tries = _uncounted(state, attempts)
    if not tries or last.finished_at is None:
        return state  # it is counted, or was cancelled before it began
    result = result_of(last)
    return ended(
        state, started_at=tries[0].started_at or 0, completed_at=last.finished_at,
        error=error_of(last), items=None if result is None else result.processed,
        result_file=None if result is None else result.result_file,
        retry_attempt=len(tries) - 1 or None, run_id=last.root_id, history_max=history_max,
        outcome=outcome_of(last), trigger=attempts[0].trigger,
    )  # fmt: skip


def has(state: ScheduleState, run_id: str) -> bool:
    """Whether the end of an execution is in the history already."""
    return any(run.run_id == run_id for run in state.history)


def _unbegun(state: ScheduleState, run_id: str) -> ScheduleState:
    """The state without an execution that was skipped at its very beginning."""
    if not _is_open(state.last_run, run_id):
        return state
    return msgspec.structs.replace(state, last_run=state.history[0] if state.history else None)


def _uncounted(state: ScheduleState, attempts: Sequence[Attempt]) -> list[Attempt]:
    """The tries that the history does not hold: all, or those after a person's retry."""
    older = {run.started_at for run in state.history if run.run_id is UNSET}
    tries = [
        attempt
        for attempt in attempts
        if has_begun(attempt) and iso(attempt.started_at or 0) not in older
    ]
    mine = [run for run in state.history if run.run_id == attempts[0].root_id]
    counted = sum(1 + (run.retry_attempt or 0) for run in mine)
    return tries[counted:]


def caught_up(
    state: ScheduleState, chains: Iterable[Sequence[Attempt]], *, history_max: int
) -> ScheduleState:
    """The state with executions that ended while no process wrote it; chains come newest first."""
    over = [chain for chain in chains if chain[-1].is_final and chain[-1].finished_at is not None]
    over.sort(key=lambda chain: chain[-1].finished_at or 0)
    full = len(state.history) >= history_max
    oldest = state.history[-1].completed_at if full else None
    for chain in over:
        # In a full history the oldest ones may have been counted and forgotten.
        if oldest is None or iso(chain[-1].finished_at or 0) > oldest:
            state = with_end(state, chain, history_max=history_max)
    return state


def projected(
    state: ScheduleState, row: Schedule, open_chains: Sequence[Sequence[Attempt]]
) -> ScheduleState:
    """The state with the content of the store: executions in progress, and the schedule."""
    for chain in open_chains:
        if waits(chain):  # for a person: `lastRun` holds the reason
            state = msgspec.structs.replace(state, last_run=record_of_wait(chain))
        else:
            state = with_start(state, chain)
    rests = row.status == RunStatus.PAUSED
    is_disabled = rests and row.reason == DISABLED
    state = planned(state, None if rests else row.available_at)
    failing = any(len(chain) > 1 or waits(chain) for chain in open_chains)
    last = state.last_run
    failed_last = last is not None and last.completed_at is not None and not last.success
    status: Status = "idle"
    if any(has_begun(chain[-1]) and not chain[-1].is_final for chain in open_chains):
        status = "running"
    elif is_disabled:
        status = "disabled"
    elif rests:
        status = "paused"
    elif failing or failed_last:
        status = "error"
    return msgspec.structs.replace(state, status=status, enabled=not is_disabled)


RESTING = (RunStatus.PENDING, RunStatus.WAITING, RunStatus.SKIPPED)


def has_begun(attempt: Attempt) -> bool:
    """Whether a try is or was in progress. A try that waits for another pipeline or for a person
    is not. Nor is one that a stopping scheduler has handed over."""
    waits = attempt.status == RunStatus.SLEEPING and attempt.reason == AFTER
    rests = waits or attempt.status in RESTING
    return attempt.started_at is not None and not rests


def waits(chain: Sequence[Attempt]) -> bool:
    """Whether an execution waits for a person."""
    return chain[-1].status == RunStatus.WAITING


# -- the file ------------------------------------------------------------------------------


def peek(folder: Path) -> ScheduleState | None:
    """The content of the file, if it can be read. Changes nothing."""
    try:
        return msgspec.json.decode((folder / STATE_FILE).read_bytes(), type=ScheduleState)
    except (OSError, msgspec.MsgspecError, UnicodeError, RecursionError):
        return None


def take_over(
    folder: Path, *, schedule_id: str, pipeline_id: str, is_known: bool, now: int
) -> LoadedState:
    """The state to continue from, under this schedule's id; one that was archived comes back.

    If the store knows the schedule, it also knows what became of a run that was in progress.
    """
    archived = folder / ARCHIVE
    if not (folder / STATE_FILE).exists() and archived.exists():
        archived.replace(folder / STATE_FILE)
    loaded = load_state(folder, schedule_id=schedule_id, pipeline_id=pipeline_id)
    state = loaded.state if is_known else interrupted(loaded.state, now)
    renamed = msgspec.structs.replace(state, schedule_id=schedule_id, pipeline_id=pipeline_id)
    return loaded._replace(state=renamed)


def archive(folder: Path) -> None:
    """Keep the state of a pipeline without a schedule under another name."""
    try:
        (folder / STATE_FILE).replace(folder / ARCHIVE)
    except FileNotFoundError:
        pass
    except OSError as error:
        log.warning("the state of %s stays where it is: %s", folder, error)


def clean_up(folder: Path) -> None:
    """Remove the state of a pipeline that is gone."""
    for name in (STATE_FILE, ARCHIVE):
        try:
            (folder / name).unlink(missing_ok=True)
        except OSError as error:
            log.warning("%s cannot be removed: %s", folder / name, error)


class StateFileSync:
    """Writes state files when they have changed."""

    def __init__(self) -> None:
        self._written: dict[Path, ScheduleState] = {}
        self._unwritten: set[Path] = set()

    def differs(self, folder: Path, state: ScheduleState) -> bool:
        """Whether the file has to be written. It is not written where the folder is gone: that
        would make the folder again."""
        is_there = self._written.get(folder) == state and (folder / STATE_FILE).exists()
        return not is_there and folder.is_dir()

    def save_all(self, states: Sequence[tuple[Path, ScheduleState]]) -> None:
        """Write state files. One that fails is reported once, and the others are written."""
        for folder, state in states:
            try:
                save_state(folder, state)
            except OSError as error:
                self._complain(folder, error)
                continue
            if folder in self._unwritten:
                self._unwritten.discard(folder)
                log.info("%s is written again", folder / STATE_FILE)
            self._written[folder] = state

    def _complain(self, folder: Path, error: OSError) -> None:
        if folder not in self._unwritten:
            log.warning(
                "%s cannot be written: %s. The schedule continues; the file follows when it can.",
                folder / STATE_FILE, error.strerror or error,
            )  # fmt: skip
        self._unwritten.add(folder)

    def forget(self, folder: Path) -> None:
        """Forget what was written for a pipeline."""
        self._written.pop(folder, None)
        self._unwritten.discard(folder)
