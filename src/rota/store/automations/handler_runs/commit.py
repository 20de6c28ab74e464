"""The end of a turn: commit or stop. Settling it and giving birth to the next one is one act,
together with state, events and schedule: a restart has nothing to recover.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from rota.core.automations.model import DeployedAutomation, HandlerPlan, NewEvent, NewInput
from rota.core.automations.phases import DECIDED, UNCERTAIN, EventStatus, Mutation, Phase
from rota.core.automations.planner import DeployedHandler
from rota.core.notifications.model import NotificationKind
from rota.core.runs.lifecycle import Status, Trigger
from rota.core.runs.model import Claim, Outcome
from rota.core.runs.retry import RetryPolicy, next_try_us
from rota.core.time.instants import after
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
    """Why a handler run could not go on, and how far it had got."""

    phase: Phase
    kind: str
    error: str
    notes: Notes
    retried: bool = False  # by itself, after a pause
    asks: bool = False  # a person has to act; then the same run goes on
    retry_after_s: float | None = None
    wake_at: int | None = None  # the same run looks again then
    fix: NewFix | None = None
    refused: Sequence[str] = ()  # ids of events that it could not read


async def stop(
    tx: Tx,
    claim: Claim,
    stop: Stop,
    *,
    policy: RetryPolicy,
    chance: float,
    now: int,
    new_id: str,
) -> HandlerRunSettled:
    """End or suspend a run that could not go on. Its phase stays; its events are released unless
    the world may have changed because of them."""
    automation = (await hold(tx, claim)).automation
    over = not stop.asks and stop.wake_at is None
    await tx.rows(
        "stop_handler_run", run_id=claim.id, phase=stop.phase, logs=stop.notes.logs,
        remark=stop.notes.remark, error_kind=stop.kind, finished_at=now if over else None,
    )  # fmt: skip
    await events.note_refused(tx, claim.id, stop.refused, now=now)
    if not over:
        verb = "ask" if stop.asks else "suspend"
        await settle(
            tx, Outcome(claim, verb, stop.kind, error=stop.error, wake_at=stop.wake_at), now
        )
        return HandlerRunSettled(stop.wake_at)
    mutation = await effects.of_chain(tx, claim.root_id)
    if mutation is None or mutation.status not in UNCERTAIN | DECIDED:
        await let_go(tx, claim, mutation, now)
    await settle(tx, Outcome(claim, "fail", reason=stop.kind, error=stop.error), now)
    at = await _after(tx, automation, stop, policy, chance, now)
    await succeed(tx, claim, automation, new_id, at, now)
    if at.status == Status.WAITING:
        kind = NotificationKind.NEEDS_ATTENTION
        cause = record.stopped(claim, kind, reason=stop.kind, error=stop.error)
        await record.record(tx, [cause], now=now)
    return HandlerRunSettled(at.available_at)


async def _after(
    tx: Tx, automation: DeployedAutomation, stop: Stop, policy: RetryPolicy, chance: float, now: int
) -> Rest:
    """How the next attempt begins: at once with a fix, after a pause, or when a person says so."""
    failures, fixes = automation.failures + 1, automation.fixes
    wait_us = None
    if stop.retried:
        wait_us = next_try_us(
            policy, attempt=failures, error_names=(), retry_after_s=stop.retry_after_s,
            chance=chance,
        )  # fmt: skip
    at = Rest(Status.WAITING, stop.kind, None, Trigger.RETRY)
    if stop.fix is not None:
        await deploy.put_fix(tx, automation, *stop.fix, now=now)
        fixes += 1
        at = Rest(Status.PENDING, None, now, Trigger.RETRY)
    elif wait_us is not None:
        at = Rest(Status.SLEEPING, stop.kind, after(now, wait_us), Trigger.RETRY)
    await automations.count_troubles(tx, automation, failures=failures, fixes=fixes)
    return at
