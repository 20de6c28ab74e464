"""`.schedule-state.json`: what a pipeline's schedule did and will do, beside the pipeline.

A copied folder keeps its history by it. The changes are pure; times are arguments.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from rota.core.time.instants import instant, iso, iso_if_known
from rota.pipelines.files import write_whole

STATE_FILE = ".schedule-state.json"
VERSION = 1
HISTORY_MAX = 50

Status: TypeAlias = Literal["idle", "running", "paused", "error", "disabled"]


class RunRecord(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One execution. Times are ISO 8601 in UTC, durations milliseconds."""

    started_at: str
    completed_at: str | None
    success: bool
    duration: int | UnsetType = UNSET
    result_file: str | UnsetType = UNSET
    items_processed: int | UnsetType = UNSET
    error: str | UnsetType | None = UNSET
    retry_attempt: int | UnsetType = UNSET
    run_id: str | UnsetType = UNSET  # its id in the database
    outcome: str | UnsetType = UNSET  # completed, partial, failed, cancelled, waiting
    trigger: str | UnsetType = UNSET  # schedule, manual and others


class Stats(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Totals over all executions, also those that the history has forgotten."""

    total_runs: int = 0
    successful_runs: int = 0
    failed_runs: int = 0
    last_failure: str | None = None
    average_duration: float | UnsetType = UNSET  # milliseconds


class ScheduleState(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The whole file."""

    version: int = VERSION
    schedule_id: str
    pipeline_id: str
    status: Status = "idle"
    enabled: bool = True
    last_run: RunRecord | None = None
    next_run: str | None = None
    stats: Stats = Stats()
    history: list[RunRecord] = msgspec.field(default_factory=list)  # newest first


class LoadedState(NamedTuple):
    """A state, and a warning about the file it was read from."""

    state: ScheduleState
    fresh: bool  # it does not come from a file
    warning: str | None = None


# -- the file ------------------------------------------------------------------------------


def load_state(folder: Path, *, schedule_id: str, pipeline_id: str) -> LoadedState:
    """The state of a pipeline's folder; a new one when there is none, or none that can be read.

    A file that cannot be read is quarantined, not overwritten.
    """
    path = folder / STATE_FILE
    new = ScheduleState(schedule_id=schedule_id, pipeline_id=pipeline_id)
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return LoadedState(new, fresh=True)
    try:
        state = msgspec.json.decode(raw, type=ScheduleState)
        if state.version != VERSION:
            raise msgspec.ValidationError(f"it has version {state.version}, not {VERSION}")
        _check_times(state)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        corrupt = path.with_name(f"{STATE_FILE}.corrupt")
        path.replace(corrupt)
        return LoadedState(
            new,
            fresh=True,
            warning=f"{path} cannot be read ({error}); it is now {corrupt.name}, "
            "and the schedule begins again",
        )
    return LoadedState(state, fresh=False)


def save_state(folder: Path, state: ScheduleState) -> None:
    """Write the state; the old one stays when this fails."""
    text = msgspec.json.format(msgspec.json.encode(state), indent=2).decode()
    write_whole(folder / STATE_FILE, [text, "\n"])


def _check_times(state: ScheduleState) -> None:
    runs = [state.last_run] if state.last_run else []
    for run in [*runs, *state.history]:
        read_time(run.started_at)
    if state.next_run is not None:
        read_time(state.next_run)


def read_time(text: str) -> int:
    """A time of the file as an instant."""
    read = datetime.fromisoformat(text)
    if read.tzinfo is None:
        raise ValueError(f"{text!r} has no offset")
    return instant(read)


# -- changes -------------------------------------------------------------------------------


def begun(state: ScheduleState, started_at: int, *, run_id: str | None = None) -> ScheduleState:
    """The state after the start of an execution: `lastRun` holds it without an end."""
    record = RunRecord(
        started_at=iso(started_at), completed_at=None, success=False,
        run_id=UNSET if run_id is None else run_id,
    )  # fmt: skip
    return msgspec.structs.replace(state, status="running", last_run=record)


def ended(
    state: ScheduleState,
    *,
    started_at: int,
    completed_at: int,
    error: str | None = None,
    items: int | None = None,
    result_file: str | None = None,
    retry_attempt: int | None = None,
    run_id: str | None = None,
    outcome: str | None = None,
    trigger: str | None = None,
    history_max: int = HISTORY_MAX,
) -> ScheduleState:
    """The state after the end of an execution, with all its tries."""
    record = RunRecord(
        started_at=iso(started_at),
        completed_at=iso(completed_at),
        success=error is None,
        duration=(completed_at - started_at) // 1000,
        result_file=UNSET if result_file is None else result_file,
        items_processed=UNSET if items is None else items,
        error=error,
        retry_attempt=UNSET if retry_attempt is None else retry_attempt,
        run_id=UNSET if run_id is None else run_id,
        outcome=UNSET if outcome is None else outcome,
        trigger=UNSET if trigger is None else trigger,
    )
    return msgspec.structs.replace(
        state,
        status="idle" if error is None else "error",
        last_run=record,
        next_run=None,
        stats=_counted(state.stats, record),
        history=[record, *state.history][:history_max],
    )


def _counted(stats: Stats, record: RunRecord) -> Stats:
    before = stats.average_duration
    total = stats.total_runs + 1
    duration = 0 if record.duration is UNSET else record.duration
    average = duration if before is UNSET else before + (duration - before) / total
    return Stats(
        total_runs=total,
        successful_runs=stats.successful_runs + record.success,
        failed_runs=stats.failed_runs + (not record.success),
        last_failure=stats.last_failure if record.success else record.started_at,
        average_duration=round(float(average), 1),
    )


def planned(state: ScheduleState, next_at: int | None) -> ScheduleState:
    """The state with the time of the next execution; None: there is none."""
    return msgspec.structs.replace(state, next_run=iso_if_known(next_at))


def interrupted(state: ScheduleState, now: int) -> ScheduleState:
    """The state after a crash: the history holds the execution in progress as failed."""
    run = state.last_run
    if state.status != "running" or run is None or run.completed_at is not None:
        return state
    return ended(
        state,
        started_at=min(read_time(run.started_at), now),
        completed_at=now,
        error="the scheduler stopped while it was running",
    )
