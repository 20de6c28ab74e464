"""The text for people about an automation: one word for its state and one plain sentence. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

import msgspec

from rota.core.automations.failure_policy import Outage
from rota.core.automations.model import (
    RECONCILIATION,
    RESOLUTIONS,
    CodeState,
    DeployedAutomation,
    EventName,
    HandlerRun,
    LedgerRow,
    RefusedDeploy,
)
from rota.core.automations.phases import Mutation, Phase
from rota.core.automations.planner import DeployedHandler, due_of
from rota.core.plurals import counted
from rota.core.runs.lifecycle import Status
from rota.core.runs.model import Run
from rota.core.runs.stored_errors import read_error
from rota.core.time.describe import describe
from rota.core.time.instants import DAY, HOUR, MINUTE, SECOND, moment
from rota.core.time.spec import Spec

_SPEC = msgspec.json.Decoder(Spec)


class Word(StrEnum):
    """The state of an automation, as people see it."""

    RUNNING = "Running"
    IDLE = "Idle"
    ATTENTION = "Needs attention"
    STOPPED = "Stopped"


class Said(NamedTuple):
    """The word, the sentence, and what a person can do about it."""

    word: Word
    sentence: str
    actions: tuple[str, ...] = ()


# Failures after which an open run may sleep and is tried again; the last two only with
# `skip_after`.
RETRIED = ("transient", "timeout", "logic", "internal")
# The same reason, where the stored error says more.
BY_TYPE = {"ReadFailed": "A read failed", "Rejected": "The counterpart refused a change"}

# Why an open run waits for a person → how the sentence begins, and what can be done.
WAITS: dict[str, tuple[str, tuple[str, ...]]] = {
    "auth": ("Waiting for you to renew credentials", ("try-again",)),
    "permission": ("Waiting for you to grant a permission", ("try-again",)),
    "approval": ("Waiting for your approval", ("approve", "reject")),
    RECONCILIATION: ("It is unknown whether a change happened", RESOLUTIONS),
    "logic": ("The code failed", ("try-again", "skip", "deploy")),
    "transient": ("It kept failing and was given up", ("try-again", "skip")),
    "timeout": ("It kept taking too long and was given up", ("try-again", "skip")),
    "internal": ("An internal error stopped it", ("try-again", "skip")),
    "crashes": ("It crashed its worker too often", ("try-again", "skip")),
}


def say(
    automation: DeployedAutomation,
    open_run: Run | None,
    handlers: Sequence[DeployedHandler],
    *,
    error: str | None,
    mutation: LedgerRow | None,
    skips: Sequence[EventName] = (),
    code: CodeState = CodeState(),  # noqa: B008 - immutable
    now: int,
) -> Said:
    """The state of an automation in words. `skips` are the events that a skip would leave out;
    `code` says whether a worker can run it."""
    status, reason = (None, None) if open_run is None else (open_run.status, open_run.reason)
    word = word_of(automation.status, status, reason)
    said = Said(word, *_say(automation, open_run, handlers, error, mutation, skips, now))
    idle = open_run is not None and open_run.status not in (Status.RUNNING, Status.WAITING)
    if automation.status == "active" and idle and code.is_missing:
        known = any(worker.version is not None for worker in code.others)
        actions = ("restart", "rollback") if known else ("restart",)
        said = Said(Word.ATTENTION, missing_code(automation.version, code), actions)
    if code.refused is None:
        return said
    return said._replace(sentence=f"{said.sentence}; {refusal(code.refused)}")


def missing_code(version: int, code: CodeState) -> str:
    """That workers are running, and none of them has this version."""
    sentence = f"No worker has version {version} of its code"
    if not code.others:
        return sentence
    first = code.others[0]
    has = "code that was never deployed" if first.version is None else f"version {first.version}"
    more = f", and {len(code.others) - 1} more like it" if len(code.others) > 1 else ""
    return f"{sentence}: worker {first.worker} has {has}{more}"


def refusal(refused: RefusedDeploy) -> str:
    """That a deploy was refused, and the first of its problems."""
    first, *more = refused.problems
    return f"a deploy was refused: {first}" + (f" (and {len(more)} more)" if more else "")


def _say(
    automation: DeployedAutomation,
    open_run: Run | None,
    handlers: Sequence[DeployedHandler],
    error: str | None,
    mutation: LedgerRow | None,
    skips: Sequence[EventName],
    now: int,
) -> tuple[str, tuple[str, ...]]:
    """The sentence and the actions."""
    if automation.status == "archived":
        return "Archived", ("resume",)
    waiting = open_run is not None and open_run.status == Status.WAITING
    if automation.status == "paused" and not waiting:
        return "Paused by you", ("resume",)
    if open_run is None:
        return "It has no open run: none followed its last run", ("resume",)
    if waiting:
        return _waits(open_run, error, mutation, skips)
    if open_run.status in (Status.RUNNING, Status.PENDING):
        taken = open_run.status == Status.RUNNING
        return "Running now" if taken else "Waiting for a worker", ()
    in_ = how_long((open_run.available_at or now) - now)
    if open_run.reason == "reconciliation":
        return _looks(mutation, in_), _answers(mutation)
    if open_run.reason in RETRIED:
        actions = ("try-again", "skip") if skips else ("try-again",)
        return _tries(automation.outage, error, in_), actions
    return _next_check(open_run, handlers, now), ()


def word_of(status: str, run_status: str | None, run_reason: str | None) -> Word:
    """The word alone, from the states of an automation and of its open run."""
    if status == "archived" or (status == "paused" and run_status != Status.WAITING):
        return Word.STOPPED
    if run_status is None or run_status == Status.WAITING:
        return Word.ATTENTION
    busy = run_status in (Status.RUNNING, Status.PENDING)
    goes_on = run_reason in ("reconciliation", *RETRIED)
    return Word.RUNNING if busy or goes_on else Word.IDLE


def can_skip(open_run: Run | None) -> bool:
    """Whether it stops in a way that leaving out events may clear."""
    if open_run is None or open_run.reason == "reconciliation":
        return False
    if open_run.status == Status.SLEEPING:
        return open_run.reason in RETRIED
    return (
        open_run.status == Status.WAITING
        and "skip" in WAITS.get(open_run.reason or "", ("", ()))[1]
    )


def _tries(outage: Outage | None, error: str | None, in_: str) -> str:
    message = read_error(error).get("message", "") if error else ""
    begins = f"Trying again in {in_}"
    if outage is not None:
        since = f"{moment(outage.since):%Y-%m-%d %H:%M} UTC"
        begins = f"Waiting for {outage.of} since {since}; next try in {in_}"
    return f"{begins}: {message}" if message else begins


def _looks(mutation: LedgerRow | None, in_: str) -> str:
    if mutation is not None and mutation.safety == "idempotent":
        return f"Calling {mutation.tool} again with the same key in {in_}"
    return f"Finding out whether a change happened; next check in {in_}"


def _answers(mutation: LedgerRow | None) -> tuple[str, ...]:
    """The answers that a person can give about a change in doubt. A tool that cannot look is not
    tried again. An idempotent one keeps its key, and "did not happen" would give it another."""
    safety = None if mutation is None else mutation.safety
    never = {"unknowable": "try-again", "idempotent": "did-not-happen"}.get(safety or "")
    return tuple(one for one in WAITS[RECONCILIATION][1] if one != never)


def _waits(
    open_run: Run, error: str | None, mutation: LedgerRow | None, skips: Sequence[EventName]
) -> tuple[str, tuple[str, ...]]:
    begins, actions = WAITS.get(
        open_run.reason or "", (f"Stopped: {open_run.reason}", ("try-again",))
    )
    detail = read_error(error) if error else {}
    message = detail.get("message", "")
    if open_run.reason == "approval" and mutation is not None:
        return f"{begins}: {mutation.title or mutation.tool}", actions
    if open_run.reason == "reconciliation" and mutation is not None:
        begins = f"{begins}: {mutation.title or mutation.tool}"
        if message and mutation.safety == "idempotent":
            begins = f"{begins} ({message})"  # what the counterpart refuses; a person can change it
        return begins, _answers(mutation)
    if open_run.reason in ("auth", "permission"):
        begins += _account(detail)
    if not skips:  # an action that clears nothing is none
        actions = tuple(one for one in actions if one != "skip")
    if open_run.reason == "logic":
        begins = BY_TYPE.get(detail.get("type", ""), begins)
    return f"{begins}: {message}" if message else begins, actions


def _account(detail: dict[str, str]) -> str:
    """For which service and account a person has to act, as far as the tool said it."""
    account = f" (account {detail['account']})" if detail.get("account") else ""
    return f" for {detail['service']}{account}" if detail.get("service") else account


_NOT_APPLIED: dict[str, str] = {
    Mutation.APPLIED: "",
    Mutation.PROPOSED: " (waits for approval)",
    Mutation.IN_FLIGHT: " (in progress)",
    Mutation.NEEDS_RECONCILE: " (outcome unknown)",
    Mutation.INDETERMINATE: " (outcome unknown)",
}


def deed(run: HandlerRun, change: LedgerRow | None) -> str:
    """One sentence about a handler run: "Processed 3 emails → added to spreadsheet"."""
    done = run.phase == Phase.COMMITTED
    if run.kind == "producer":
        found = counted(run.published_count, "event")
        return f"Published {found}" if run.published_count else "Checked" if done else "Checking"
    plan = msgspec.json.decode(run.prepared) if run.prepared else {}
    taken = [_of_topic(len(ids), topic) for topic, ids in plan.get("reservations", {}).items()]
    if not taken:
        return "Took no events" if done else "Preparing"
    parts = [f"{'Processed' if done else 'Took'} {' and '.join(taken)}"]
    if change is not None and change.status != Mutation.FAILED:
        title = change.title or change.tool
        parts.append(title + _NOT_APPLIED.get(change.status, f" ({change.status})"))
    if run.published_count:
        parts.append(f"published {counted(run.published_count, 'event')}")
    return " → ".join(parts)


def _of_topic(count: int, topic: str) -> str:
    plural = count != 1 and topic.endswith("s")
    return f"{count} {topic}" if plural else f"{counted(count, 'event')} of {topic}"


def _next_check(open_run: Run, handlers: Sequence[DeployedHandler], now: int) -> str:
    if open_run.available_at is None:
        return "Waiting for events"
    in_ = how_long(open_run.available_at - now)
    soonest = min(
        (one for one in handlers if due_of(one) is not None),
        key=lambda one: (due_of(one) or (0,))[0] or 0,
        default=None,
    )
    is_check = soonest is None or soonest.kind == "producer"
    return f"Next {'check' if is_check else 'wake-up'} in {in_}"


def schedule_words(handlers: Sequence[DeployedHandler]) -> str:
    """When it checks, in words."""
    texts = [describe(_SPEC.decode(one.spec)) for one in handlers if one.spec]
    return "Checks " + " and ".join(dict.fromkeys(texts)) if texts else "Runs when events arrive"


def how_long(duration_us: int) -> str:
    """A rough duration for people: "3 min", "2 h", "now"."""
    for size, word in ((DAY, "d"), (HOUR, "h"), (MINUTE, "min"), (SECOND, "s")):
        if duration_us >= size:
            return f"{round(duration_us / size)} {word}"
    return "a moment"
