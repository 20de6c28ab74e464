"""A run in a list: its state, and the reason in a few words. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from rota.core.pipelines.names import pipeline_id_of
from rota.core.runs.lifecycle import Status, Trigger
from rota.core.runs.model import Run
from rota.core.runs.stored_errors import cause_line
from rota.core.schedules.intent import Policies
from rota.explain.skipped import detailed, skip_clause
from rota.http.pages.status import StatusView, run_state
from rota.http.pages.text import Stamp, WallClock, clipped, rough, took

WHY_WIDTH = 160
TRIGGERS: dict[str, str] = {
    Trigger.MANUAL: "started by hand",
    Trigger.SCHEDULE: "by its schedule",
    Trigger.EVENT: "by an event",
    Trigger.WAKE: "woken",
    Trigger.RETRY: "a retry",
    Trigger.RECOVERY: "recovered from a lost worker",
    Trigger.BACKFILL: "by a backfill",
    Trigger.DEPLOY: "by a deploy",
    Trigger.CHILD: "by another run",
    Trigger.DETACHED: "by another run, which it outlives",
    Trigger.FORK: "a fork",
    Trigger.CONTINUE: "a continuation",
}


@dataclass(frozen=True)
class RunRowView:
    """One row of a list of runs."""

    id: str
    name: str
    href: str
    state: StatusView
    why: str
    queue: str
    attempt: int
    tags: tuple[str, ...]
    created: Stamp | None
    took: str
    age: str
    mark: str  # bad | warn | "": the edge of the row


def run_row(run: Run, clock: WallClock) -> RunRowView:
    """The row of a run."""
    state = run_state(run)
    begun = run.started_at
    return RunRowView(
        id=run.id,
        name=pipeline_id_of(run.name),
        href=run_href(run),
        state=state,
        why=clipped(reason_of(run, clock), WHY_WIDTH),
        queue=run.queue,
        attempt=run.attempt,
        tags=tags_of(run),
        created=clock.stamp(run.created_at),
        took=run_took(run, clock),
        age=rough(
            clock.now - (begun if begun and run.status == Status.RUNNING else run.created_at)
        ),
        mark=state.tone if state.tone in ("bad", "warn") else "",
    )


def run_href(run: Run) -> str:
    """The page of a run."""
    return f"/pipeline-runs/{run.id}" if run.kind == "pipeline" else f"/runs/{run.id}"


def run_took(run: Run, clock: WallClock) -> str:
    """How long a run took, or takes so far."""
    until = run.finished_at or (clock.now if run.status == Status.RUNNING else None)
    return took(run.started_at, until)


def tags_of(run: Run) -> tuple[str, ...]:
    """The tags as `key=value`."""
    if not run.tags:
        return ()
    tags = msgspec.json.decode(run.tags)
    if not isinstance(tags, dict):
        return ()
    return tuple(f"{key}={value}" for key, value in list(tags.items())[:5])


def reason_of(run: Run, clock: WallClock) -> str:
    """The reason of the run's state, from its own row: a list asks nothing further."""
    match run.status:
        case Status.FAILED | Status.CRASHED:
            return cause_line(run.error) if run.error else (run.reason or "")
        case Status.CANCELLED:
            return f"cancelled: {run.reason}"
        case Status.WAITING:
            return f"waits for an operator: {run.reason}"
        case Status.SLEEPING:
            return _sleeps(run, clock)
        case Status.PENDING:
            return f"ready for {rough(clock.now - (run.available_at or run.created_at))}"
        case Status.SKIPPED:
            return detailed(skip_clause(run.reason or "", Policies()), run)
    return _created(run, clock)


def _sleeps(run: Run, clock: WallClock) -> str:
    words = {
        "retry": "tries again", "signal": "waits for a signal", "child": "waits for a child",
        "several": "waits for several things", "turn": "queued behind an earlier run",
    }  # fmt: skip
    what = words.get(run.reason or "", "sleeps")
    if run.available_at is None:
        return what
    stamp = clock.stamp(run.available_at)
    assert stamp is not None
    ends = "" if run.reason == "retry" else " until"
    return f"{what}{ends} {stamp.day}, {stamp.ago}"


def _created(run: Run, clock: WallClock) -> str:
    text = TRIGGERS.get(run.trigger, run.trigger)
    if run.due_at is not None and run.trigger == Trigger.SCHEDULE:
        text = f"{text}, due {clock.day(run.due_at)}"
    return f"{text} · {run.external_id}" if run.external_id else text
