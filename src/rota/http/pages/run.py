"""The page of one run: attempts, steps, error, log, children, and what can be done about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from http import HTTPStatus
from typing import Any

from rota.core.runs.lifecycle import CONTINUED, OPEN, Status
from rota.core.runs.model import LogLine, Run, StoredStep
from rota.core.runs.progress import described, progress_of, result_of
from rota.core.runs.stored_errors import cause_line, error_line, own_frames, read_error
from rota.core.time.instants import SECOND, instant
from rota.errors import RotaError
from rota.explain.run import RunExplainer, RunState
from rota.http.pages import chart
from rota.http.pages.forms import read_json
from rota.http.pages.run_row import TRIGGERS, RunRowView, run_row, run_took, tags_of
from rota.http.pages.status import STATES, StatusView, run_state, state_of
from rota.http.pages.text import (
    MISSING,
    Stamp,
    Value,
    WallClock,
    clipped,
    counted,
    duration,
    schedule_href,
    sentence,
    stored_value,
    took,
)
from rota.http.pages.view import clock_of, form_target, link, page
from rota.http.pages.why_view import run_walk
from rota.http.request import Answer, Redirect, WebRequest

STEPS_MAX = 200
CHILDREN_MAX = 20
LOG_MAX = 1_000
ATTEMPTS_MAX = 50
CAUSE_WIDTH = 300
LIVE = "run"


@dataclass(frozen=True)
class Fact:
    """A name and a value, in a list of facts."""

    name: str
    text: str = ""
    href: str = ""
    is_id: bool = False
    tags: tuple[str, ...] = ()


@dataclass(frozen=True)
class AttemptView:
    """One attempt of the chain."""

    id: str
    label: str
    state: StatusView
    at: Stamp | None
    took: str
    note: str
    is_here: bool


@dataclass(frozen=True)
class StepView:
    """One step, with its bar."""

    key: str
    name: str
    state: StatusView
    took: str
    note: str
    error: bool
    child: str
    depth: int
    output: Value
    bars: list[chart.Bar]


@dataclass(frozen=True)
class ErrorView:
    """The error of a failed run."""

    type: str
    message: str
    kind: str
    trace: list[tuple[str, bool]]  # its rows; the marked one is where the error arose
    advice: str


@dataclass(frozen=True)
class LogRow:
    """One line that the run's code has logged."""

    key: str
    at: Stamp | None
    level: str
    level_class: str
    text: str


async def show(request: WebRequest, problem: RotaError | None = None) -> Answer:
    """The page."""
    client, clock = request.client, clock_of(request)
    run = await client.runs.get(request.parameters["run_id"])
    if run.kind == "schedule":
        return Redirect(schedule_href(run.name))
    if run.kind == "pipeline":
        return Redirect(f"/pipeline-runs/{run.id}")
    chain = await client.runs.chain(run.id)
    last = chain[-1]
    state = await RunExplainer(client, request.zone).of(last)
    steps = await client.runs.steps(run)
    ticks, shown = step_views(run, steps, clock)
    children, further = await child_rows(request, run)
    log = [log_row(line, clock) for line in await client.runs.logs(run.id, limit=LOG_MAX)]
    return page(
        request,
        "run.html",
        title=f"{run.name} {run.id[-8:]}",
        place="runs",
        live=LIVE,
        problem=problem,
        problem_status=HTTPStatus.CONFLICT,
        run=run,
        state=run_state(run),
        sentence=sentence_of(run, last, state, steps, clock),
        follows=follows_of(run, last, state, steps),
        why=run_walk(state, run.name) if last.status in WAITS else [],
        attempts=[
            attempt_view(attempt, number, run, clock)
            for number, attempt in [*enumerate(chain, 1)][-ATTEMPTS_MAX:]
        ],
        steps=shown,
        ticks=ticks,
        steps_line=steps_line(run, steps, clock),
        steps_footer=steps_footer(run, steps),
        error=error_view(run),
        log=log,
        log_line=f"{counted(len(log), 'line')}, kept per attempt" if log else "kept per attempt",
        facts=facts_of(run, chain, clock),
        input=stored_value(run.input),
        output=stored_value(run.output),
        output_none=_no_output(run),
        steps_none=_no_steps(run),
        children=children,
        children_line=f"{len(children)} shown" if further else str(len(children)),
        children_next=further,
        can_cancel=run.kind == "workflow" and last.status in OPEN,
        can_retry=run.kind == "workflow" and last.status in RETRIED,
        retry_label=retry_label(last, steps),
        can_copy=run.kind == "workflow",
        signal=signal_of(state, last),
        typed=_typed(request, problem),
        cause=cause_of(run) if last.id == run.id else "",
    )


RETRIED = (Status.FAILED, Status.CRASHED, Status.CANCELLED, Status.WAITING)
WAITS = OPEN - {Status.RUNNING}


# -- sentences ----------------------------------------------------------------------------------


def sentence_of(
    run: Run, last: Run, state: RunState, steps: Sequence[StoredStep], clock: WallClock
) -> str:
    """The state of the run in one sentence; the clause of `rota why` where a run is open."""
    if run.reason == CONTINUED:
        return "It continued as new: another run of its chain followed, without its history."
    if run.id != last.id:
        return f"Attempt {run.attempt} ended: {run.label.replace(':', ', ')}."
    ended = clock.stamp(run.finished_at)
    if ended is None:
        return sentence(state.clause)
    tries = f", in attempt {run.attempt}" if run.attempt > 1 else ""
    if run.status == Status.FAILED:
        failed = [step for step in steps if step.status == "failed"]
        where = f", at step {step_name(failed[-1].key)}" if failed else ""
        return f"Failed {ended.ago}{tries}{where}."
    if run.status == Status.COMPLETED:
        return f"Completed {ended.ago}{tries}, after {took(run.started_at, run.finished_at)}."
    return sentence(state.clause)


def cause_of(run: Run) -> str:
    """The error of a failed run as a sentence, without the step that the page names before it."""
    if run.status != Status.FAILED or run.error is None:
        return ""
    return sentence(clipped(cause_line(run.error), CAUSE_WIDTH))


def follows_of(run: Run, last: Run, state: RunState, steps: Sequence[StoredStep]) -> str:
    """The next event without an action, or that there is none."""
    if run.id != last.id:
        newest = "The newest run" if last.segment != run.segment else f"Attempt {last.attempt}"
        return f"{newest} followed; it is {last.status}."
    if last.status in (Status.FAILED, Status.CRASHED):
        done = sum(step.status == "completed" and not _is_shadow(step) for step in steps)
        are = "is" if done == 1 else "are"
        kept = f" {counted(done, 'finished step')} {are} kept for the next one." if done else ""
        return f"Nothing will happen by itself: no attempt is left.{kept}"
    if last.status == Status.SLEEPING:
        return "No worker is held."
    return ""


def retry_label(last: Run, steps: Sequence[StoredStep]) -> str:
    """The button: where the next attempt begins."""
    failed = [step for step in steps if step.status == "failed"]
    if failed:
        return f"Retry from step {clipped(step_name(failed[-1].key), 32)}"
    return "Try again" if last.status == Status.WAITING else "Retry"


def signal_of(state: RunState, last: Run) -> str | None:
    """The signal to send; None when the run has ended."""
    if last.kind != "workflow" or last.is_final:
        return None
    waiting: Any = state.facts.get("signals")
    return str(waiting[0]) if waiting else None if last.status == Status.RUNNING else ""


@dataclass(frozen=True)
class RunForm:
    """The typed text of a form that was refused: of a signal or a cancel."""

    name: str = ""
    value: str = ""
    reason: str = ""
    grace: str = ""


def _typed(request: WebRequest, problem: RotaError | None) -> RunForm:
    if problem is None:
        return RunForm()
    form = request.form()
    return RunForm(**{field.name: form.get(field.name) for field in fields(RunForm)})


# -- parts --------------------------------------------------------------------------------------


def attempt_view(attempt: Run, number: int, here: Run, clock: WallClock) -> AttemptView:
    """An attempt of the chain."""
    state = run_state(attempt)
    if attempt.error:
        note = error_line(attempt.error).partition(":")[0]
    else:
        note = attempt.reason or ""
    return AttemptView(
        attempt.id, f"{number} · {state.word}", state,
        clock.stamp(attempt.started_at or attempt.created_at), run_took(attempt, clock),
        clipped(note, 40), attempt.id == here.id,
    )  # fmt: skip


def step_views(
    run: Run, steps: Sequence[StoredStep], clock: WallClock
) -> tuple[list[chart.Tick], list[StepView]]:
    """The steps that this attempt ran or kept, on its time axis."""
    own = [step for step in steps if _is_part(step, run)]
    first = run.started_at or min((step.started_at for step in own), default=clock.now)
    last = max(
        run.finished_at or (clock.now if not run.is_final else first),
        *(step.finished_at or step.started_at for step in own),
        first + SECOND // 1000,
    )  # fmt: skip
    shown = [_step(step, run, clock, first, last) for step in own[-STEPS_MAX:]]
    return chart.span_ticks(last - first), shown


def _is_part(step: StoredStep, run: Run) -> bool:
    """Whether the page of this attempt shows it: the attempt ran it or kept it."""
    if _is_shadow(step) or step.run_attempt > run.attempt:
        return False
    return step.run_attempt == run.attempt or not step.is_forgotten


def _is_shadow(step: StoredStep) -> bool:
    """Whether it only records that a child ended: the child's own row says so too."""
    return step.kind == "result" or (bool(step.child_id) and step.key.startswith("result "))


def step_name(key: str) -> str:
    """A key for people: `charge`, and `charge (3)` for its third call."""
    key, _, forgotten = key.partition(" (attempt ")  # it handled a failure of that attempt
    if forgotten:
        return f"{step_name(key)} (attempt {forgotten}"
    name, _, index = key.removeprefix("start ").partition("#")
    numbers = [int(part) for part in index.split(".") if part.isdigit()]
    call = max(numbers, default=0)
    return f"{name} ({call + 1})" if call else name


def _step(step: StoredStep, run: Run, clock: WallClock, first: int, last: int) -> StepView:
    kept = step.run_attempt < run.attempt or step.started_at < first
    state = _step_state(step, run, clock.now)
    ended = step.finished_at or (clock.now if state.word == "Running" else step.started_at)
    if kept:
        bars = [chart.lane_bar(first, first, first=first, last=last, tone="rest")]
    else:
        bars = [chart.lane_bar(step.started_at, ended, first=first, last=last, tone=state.tone)]
    notes = []
    if (progress := progress_of(step)) and (stamp := clock.stamp(instant(progress.at))):
        notes.append(f"{described(progress)}, {stamp.ago}")
    if step.error:
        notes.append(clipped(error_line(step.error), 120))
    elif step.attempt > 1:
        notes.append(f"try {step.attempt}")
    return StepView(
        step.key, step_name(step.key), state,
        "kept" if kept else took(step.started_at, step.finished_at),
        "; ".join(notes), bool(step.error), step.child_id or "", 1 if step.kind == "child" else 0,
        stored_value(result_of(step)), bars,
    )  # fmt: skip


def _step_state(step: StoredStep, run: Run, now: int) -> StatusView:
    if step.kind == "step" and step.status == "waiting":
        return STATES["ended" if run.is_final else "running"]
    if step.kind == "sleep" or step.status == "waiting":
        over = step.wake_at is not None and step.wake_at <= now
        return STATES["completed"] if over and step.kind == "sleep" else STATES["sleeping"]
    return state_of(step.status, None)


def steps_line(run: Run, steps: Sequence[StoredStep], clock: WallClock) -> str:
    """`8.9 s · 3 executed, 2 kept`."""
    shown = [step for step in steps if _is_part(step, run)]
    own = sum(step.run_attempt == run.attempt for step in shown)
    kept = len(shown) - own
    parts = [run_took(run, clock), f"{own} executed" + (f", {kept} kept" if kept else "")]
    return " · ".join(part for part in parts if part != MISSING)


def steps_footer(run: Run, steps: Sequence[StoredStep]) -> str:
    """The meaning of the grey bars, and how many rows are omitted."""
    notes = []
    if any(step.run_attempt < run.attempt for step in steps):
        notes.append("Grey: kept from an earlier attempt, not executed again.")
    if len(steps) > STEPS_MAX:
        notes.append(f"The last {STEPS_MAX} of {len(steps):,} steps are shown.")
    return " ".join(notes)


_CAUSED = "The above exception was the direct cause of the following exception:"


def error_view(run: Run) -> ErrorView | None:
    """The error of this attempt."""
    if run.error is None:
        return None
    error = read_error(run.error)
    notes = str(error.get("notes", ""))
    rows = own_frames(error["trace"].rstrip().removesuffix(notes).rstrip())
    wrapped = error["type"] == "StepFailed" and _CAUSED in rows
    own = rows[: rows.index(_CAUSED)] if wrapped else rows  # the error of the step comes first
    code = [at for at, row in enumerate(own) if row.startswith("    ") and row.strip(" ^~")]
    marked = code[-1] if code else -1
    trace = [(row, at == marked) for at, row in enumerate(rows)]
    advice = notes.removeprefix("Hint: ")
    if "rota run show" in advice:  # this page shows what that command shows
        advice = ""
    return ErrorView(error["type"], error["message"], error["kind"], trace, advice)


_LEVELS = {"warning": "w", "error": "e", "critical": "e"}


def log_row(line: LogLine, clock: WallClock) -> LogRow:
    """A line that user code has logged."""
    level = line.level.lower()
    return LogRow(
        str(line.position), clock.stamp(line.at), level.replace("warning", "warn"),
        _LEVELS.get(level, ""), line.message,
    )  # fmt: skip


def facts_of(run: Run, chain: Sequence[Run], clock: WallClock) -> list[Fact]:
    """The facts about the run."""
    first = chain[0]
    started = run.started_at
    waited = None if started is None else started - (run.available_at or run.created_at)
    trigger = TRIGGERS.get(first.trigger, first.trigger)
    facts = [
        Fact("Run", run.id, is_id=True),
        Fact("Chain", first.id, f"/runs/{first.id}", is_id=True) if len(chain) > 1 else None,
        _link("Continues", run.retry_of if run.segment_id == run.id else None),
        _link("Continued as", next((one.id for one in chain if one.retry_of == run.id), None))
        if run.reason == CONTINUED
        else None,
        Fact("Why", trigger),
        Fact("Parent", first.parent_id or "", f"/runs/{first.parent_id}", is_id=True)
        if first.parent_id
        else None,
        Fact("Due", clock.day(run.due_at)) if run.due_at else None,
        Fact("Created", clock.day(run.created_at)),
        Fact("Waited", f"{duration(waited)} for a slot") if waited and waited > 0 else None,
        Fact("External id", first.external_id, is_id=True) if first.external_id else None,
        Fact("Queue", run.queue, link("/runs", queue=run.queue)),
        Fact("Priority", str(run.priority)) if run.priority else None,
        Fact("Key", run.limit_key, is_id=True) if run.limit_key else None,
        Fact("Worker", run.lease_owner, "/workers", is_id=True) if run.lease_owner else None,
        Fact("Tags", tags=tags_of(first)) if first.tags else None,
        Fact("Version", run.version, is_id=True) if run.version else None,
    ]
    return [fact for fact in facts if fact is not None]


def _link(name: str, run_id: str | None) -> Fact | None:
    return None if run_id is None else Fact(name, run_id, f"/runs/{run_id}", is_id=True)


def _no_output(run: Run) -> str:
    if run.reason == CONTINUED:
        return "None: the run continued as new."
    if run.status == Status.COMPLETED:
        return "None: it returned nothing."
    if not run.is_final:
        return "None yet."
    verb = run.status if run.status in (Status.FAILED, Status.CRASHED) else f"was {run.status}"
    return f"None: the run {verb}."


def _no_steps(run: Run) -> str:
    if run.status == Status.RUNNING:
        return "No step has ended yet. A step appears here with its result."
    return "No step was recorded." if run.is_final else "It has not begun."


async def child_rows(request: WebRequest, run: Run) -> tuple[list[RunRowView], str]:
    """The runs that this one has started, oldest first, and the address of the next page."""
    clock, after_id = clock_of(request), request.query.get("children")
    children = await request.client.runs.children(run.id, after=after_id, limit=CHILDREN_MAX + 1)
    rows = [run_row(child, clock) for child in children[:CHILDREN_MAX]]
    if len(children) <= CHILDREN_MAX:
        return rows, ""
    return rows, link(f"/runs/{run.id}", children=rows[-1].id)


# -- forms --------------------------------------------------------------------------------------


@form_target(show)
async def retry(request: WebRequest) -> str:
    """One more attempt."""
    run = await request.client.runs.retry(request.parameters["run_id"])
    last = (await request.client.runs.chain(run.id))[-1]
    return f"/runs/{last.id}?done=retried"


@form_target(show)
async def cancel(request: WebRequest) -> str:
    """End the open attempt, at once or after its code has cleaned up."""
    run_id, form = request.parameters["run_id"], request.form()
    reason = form.get("reason").strip() or f"by {request.identity.name}"
    grace = form.get("grace").strip() or None
    await request.client.runs.cancel(run_id, reason=reason, grace=grace)
    if grace is not None:
        return f"/runs/{run_id}?done=asked_to_end"
    return f"/runs/{run_id}?done=cancelled"


@form_target(show)
async def signal(request: WebRequest) -> str:
    """Send a signal."""
    run_id, form = request.parameters["run_id"], request.form()
    value = read_json(form.get("value"), "the value")
    await request.client.runs.signal(run_id, form.get("name"), value)
    return f"/runs/{run_id}?done=signalled"
