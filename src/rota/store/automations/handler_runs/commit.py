"""The end of a turn: commit or stop. Settling it and giving birth to the next one is one act,
together with state, events and schedule: a restart has nothing to recover.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from rota.core.automations.failure_policy import (
    AfterFailure,
    EffectivePolicy,
    FailedAttempt,
    Outage,
    after_failure,
)
from rota.core.automations.model import DeployedAutomation, HandlerPlan, NewEvent, NewInput
from rota.core.automations.phases import DECIDED, UNCERTAIN, EventStatus, Mutation, Phase
from rota.core.automations.planner import DeployedHandler
from rota.core.notifications.model import NotificationKind
from rota.core.runs.lifecycle import Status, Trigger
from rota.core.runs.model import Claim, Outcome
from rota.core.time.instants import after as plus
from rota.store.automations import deploy, effects, events
from rota.store.automations import state as automations
from rota.store.automations.events import Published
from rota.store.automations.handler_runs.begin import (
    HandlerRunSettled,
    Held,
    Notes,
    Work,
    encoded,
    hold,
    is_first,
    let_go,
    settle,
    succeed,
)
from rota.store.automations.handler_runs.skip import LeftOut, SkipTarget, leave_out
from rota.store.automations.state import Rest, put_turn, rest_of
from rota.store.backend.database import Tx
from rota.store.notifications import record


class Commit(NamedTuple):
    """Everything a handler run leaves when it succeeds."""

    plan: HandlerPlan
    state: str | None
    keeps_state: bool
    events: Sequence[NewEvent]
    inputs: Sequence[NewInput]
    next_run_at: int | None
    notes: Notes


async def commit(
    tx: Tx, claim: Claim, work: Work, done: Commit, *, now: int, new_ids: Iterator[str]
) -> HandlerRunSettled:
    """State, events, inputs, used events, schedule, this run's end and the next turn: one act."""
    held = await hold(tx, claim)
    handler = held.handlers.get(work.run.handler)
    if handler is not None and handler.kind != work.run.kind:
        handler = None  # another one of that name
    told = Published([], {})
    if _is_rejected(work):
        await events.release_corrected(tx, claim.id, now=now)
    if tx.dialect.fuses and handler is not None and _only_takes(done):
        changed: DeployedHandler | None = await _close(tx, claim, work, done, handler, now)
    else:
        told = await _use_and_publish(tx, claim, work, done, held, now, new_ids)
        changed = await _keep(tx, claim, work, done, handler, now) if handler else None
        end = _end_of(claim, work, done, len(told.events), now)
        await tx.rows("commit_handler_run", **end)
    output = encoded({"handler": work.run.handler})
    await settle(tx, Outcome(claim, "complete", output=output), now)
    if not is_first(claim):
        await record.recovered(tx, [claim], now=now)
    await automations.count_troubles(tx, held.automation, failures=0, fixes=0)
    at = rest_of(held.automation, _after_run(held, told.readers, changed), now)
    await put_turn(tx, held.automation, next(new_ids), at, now=now)
    return HandlerRunSettled(at.available_at)


async def _use_and_publish(
    tx: Tx, claim: Claim, work: Work, done: Commit, held: Held, now: int, new_ids: Iterator[str]
) -> Published:
    took = done.plan.count > 0
    inherited = await events.inherited(tx, claim.id) if took and done.events else ()
    if took:
        await events.use(tx, claim.id, _used(work), now=now)
    return await events.publish(
        tx, held.place, done.events, new_ids=new_ids, created_by=claim.id, now=now,
        inherited=inherited, inputs=done.inputs,
    )  # fmt: skip


def _is_rejected(work: Work) -> bool:
    """Whether a person refused the proposed change: nothing was called."""
    return work.mutation is not None and work.mutation.resolved_by == "rejected"


def _used(work: Work) -> EventStatus:
    skipped = work.mutation is not None and work.mutation.status == Mutation.SKIPPED
    return EventStatus.SKIPPED if skipped else EventStatus.CONSUMED


def _end_of(claim: Claim, work: Work, done: Commit, published: int, now: int) -> dict[str, Any]:
    stored = (
        done.plan.count > 0 or work.run.kind == "producer"
    )  # the plan is there, or there is none
    return {
        "run_id": claim.id, "logs": done.notes.logs, "remark": done.notes.remark,
        "prepared": None if stored else encoded(done.plan), "state_after": done.state,
        "published_count": published, "now": now,
    }  # fmt: skip


def _after_run(
    held: Held, marks: Mapping[str, int], changed: DeployedHandler | None
) -> list[DeployedHandler]:
    """The handlers as this transaction leaves them, without reading them again."""
    after = {
        name: replace(one, marked=marks[name]) if name in marks else one
        for name, one in held.handlers.items()
    }
    if changed is not None:
        after[changed.name] = changed
    return list(after.values())


def _only_takes(done: Commit) -> bool:
    return done.plan.count > 0 and not done.events and not done.inputs


async def _close(
    tx: Tx, claim: Claim, work: Work, done: Commit, handler: DeployedHandler, now: int
) -> DeployedHandler:
    """Used events, what the handler keeps, and the end of its run, in one statement."""
    used = _used(work)
    words = _kept(claim, work, done) | _end_of(claim, work, done, 0, now)
    [(marked, cleared)] = await tx.rows("close_consumer", act=used, status=used, **words)
    return replace(handler, wake_at=done.plan.wake_at, marked=marked, cleared=cleared)


async def _keep(
    tx: Tx, claim: Claim, work: Work, done: Commit, handler: DeployedHandler, now: int
) -> DeployedHandler:
    """What the handler keeps and waits for from now on."""
    if handler.kind == "producer":
        await tx.rows(
            "commit_producer", namespace=claim.namespace, automation=claim.name,
            name=handler.name, run_id=claim.id, state=done.state,
            keeps_state=int(done.keeps_state), next_run_at=done.next_run_at, now=now,
        )  # fmt: skip
        return replace(handler, next_run_at=done.next_run_at, queued_at=None)
    words = _kept(claim, work, done)
    [(marked, cleared)] = await tx.rows("commit_consumer", now=now, **words)
    return replace(handler, wake_at=done.plan.wake_at, marked=marked, cleared=cleared)


def _kept(claim: Claim, work: Work, done: Commit) -> dict[str, Any]:
    """What a consumer keeps, and how far it has looked."""
    return {
        "namespace": claim.namespace, "automation": claim.name, "name": work.run.handler,
        "run_id": claim.id, "state": done.state, "keeps_state": int(done.keeps_state),
        "wake_at": done.plan.wake_at, "took": int(done.plan.count > 0), "seen": work.run.seen,
    }  # fmt: skip


class NewFix(NamedTuple):
    """A new version of some functions, found by the hook and checked."""

    graph: str
    source: str
    comment: str


class Stop(NamedTuple):
    """Why a handler run could not go on, how far it had got, and what may follow."""

    phase: Phase
    kind: str
    error: str
    notes: Notes
    failed: FailedAttempt = FailedAttempt()
    waits_for: str | None = None  # the counterpart that does not answer
    asks: bool = False  # a person has to act; then the same run goes on
    wake_at: int | None = None  # the same run looks again then
    fix: NewFix | None = None
    refused: Sequence[str] = ()  # ids of events that it could not read
    next_run_at: int | None = None  # of a producer, if this check is left out
    dead_letter: str | None = None  # the topic that receives what is left out


async def stop(
    tx: Tx,
    claim: Claim,
    work: Work,
    stop: Stop,
    *,
    policy: EffectivePolicy,
    chance: float,
    now: int,
    new_ids: Iterator[str],
) -> HandlerRunSettled:
    """End or suspend a run that could not go on. Its phase stays; its events are released unless
    the world may have changed because of them."""
    held = await hold(tx, claim)
    await events.note_refused(tx, claim.id, stop.refused, now=now)
    if stop.asks or stop.wake_at is not None:
        await _stopped(tx, claim, stop, stop.notes.remark, None)
        verb = "ask" if stop.asks else "suspend"
        await settle(
            tx, Outcome(claim, verb, stop.kind, error=stop.error, wake_at=stop.wake_at), now
        )
        return HandlerRunSettled(stop.wake_at)
    mutation = await effects.of_chain(tx, claim.root_id)
    free = mutation is None or mutation.status not in UNCERTAIN | DECIDED
    if free:
        await let_go(tx, claim, mutation, now)
    count = _counted(held.automation, stop, now)
    after = after_failure(policy, stop.failed, number=count.number, chance=chance)
    left_out = None
    if after.skips and free and stop.fix is None:
        target = SkipTarget(
            held.place, work.run, held.handlers.get(work.run.handler), stop.error, count.number,
            stop.dead_letter, stop.next_run_at,
        )  # fmt: skip
        left_out = await leave_out(tx, target, now=now, new_ids=new_ids)
    remarks = [stop.notes.remark, left_out.remark if left_out else None]
    await _stopped(tx, claim, stop, "; ".join(filter(None, remarks)) or None, now)
    await settle(tx, Outcome(claim, "fail", reason=stop.kind, error=stop.error), now)
    if left_out is not None:
        return await _begin_again(tx, held, left_out, now, next(new_ids))
    at = await _after(tx, held.automation, stop, count, after, now)
    await succeed(tx, claim, held.automation, next(new_ids), at, now)
    if at.status == Status.WAITING:
        kind = NotificationKind.NEEDS_ATTENTION
        cause = record.stopped(claim, kind, reason=stop.kind, error=stop.error)
        await record.record(tx, [cause], now=now)
    return HandlerRunSettled(at.available_at)


async def _stopped(
    tx: Tx, claim: Claim, stop: Stop, remark: str | None, finished_at: int | None
) -> None:
    await tx.rows(
        "stop_handler_run", run_id=claim.id, phase=stop.phase, logs=stop.notes.logs,
        remark=remark, error_kind=stop.kind, finished_at=finished_at,
    )  # fmt: skip


class _Count(NamedTuple):
    """The failures in a row, this one included; an outage is counted apart from the code's."""

    failures: int
    outage: Outage | None

    @property
    def number(self) -> int:
        return self.failures if self.outage is None else self.outage.tries


def _counted(automation: DeployedAutomation, stop: Stop, now: int) -> _Count:
    if stop.waits_for is None:
        return _Count(automation.failures + 1, None)
    before = automation.outage
    same = before is not None and before.of == stop.waits_for
    since = before.since if before is not None and same else now
    return _Count(automation.failures, Outage(stop.waits_for, since, automation.waits_count + 1))


async def _begin_again(
    tx: Tx, held: Held, left_out: LeftOut, now: int, new_id: str
) -> HandlerRunSettled:
    """What stood in the way is left out: the chain is over, and a new one takes what is next."""
    await automations.count_troubles(tx, held.automation, failures=0, fixes=0)
    at = rest_of(held.automation, _after_run(held, left_out.readers, left_out.changed), now)
    await put_turn(tx, held.automation, new_id, at, now=now)
    return HandlerRunSettled(at.available_at)


async def _after(
    tx: Tx,
    automation: DeployedAutomation,
    stop: Stop,
    count: _Count,
    after: AfterFailure,
    now: int,
) -> Rest:
    """How the next attempt begins: at once with a fix, after a pause, or when a person says so."""
    fixes = automation.fixes
    at = Rest(Status.WAITING, stop.kind, None, Trigger.RETRY)
    if stop.fix is not None:
        await deploy.put_fix(tx, automation, *stop.fix, now=now)
        fixes += 1
        at = Rest(Status.PENDING, None, now, Trigger.RETRY)
    elif after.pause_us is not None:
        at = Rest(Status.SLEEPING, stop.kind, plus(now, after.pause_us), Trigger.RETRY)
    await automations.count_troubles(
        tx, automation, failures=count.failures, fixes=fixes, outage=count.outage
    )
    return at
