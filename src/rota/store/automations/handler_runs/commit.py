"""The end of handler runs: commit or stop. Settling a run and inserting the next one is one act,
together with state, events and schedule: a restart has nothing to recover.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

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
from rota.core.notifications.model import Details, NotificationKind
from rota.core.plurals import counted, some
from rota.core.runs.lifecycle import Status, Trigger
from rota.core.runs.model import Claim, Outcome
from rota.core.time.instants import after as plus
from rota.core.typed import json_text
from rota.errors import LeaseLost
from rota.store.automations import deploy, effects, events
from rota.store.automations import state as automations
from rota.store.automations.events import AutomationKey, Published
from rota.store.automations.handler_runs.begin import (
    HandlerRunSettled,
    Held,
    Notes,
    Work,
    hold,
    hold_all,
    is_first,
    let_go,
    settle,
    settle_all,
    succeed,
)
from rota.store.automations.handler_runs.skip import LeftOut, SkipTarget, leave_out, set_apart
from rota.store.automations.state import NewOpenRun, NextStart, next_start_of, put_open_runs
from rota.store.backend.database import Row, Tx
from rota.store.notifications import record


class Commit(NamedTuple):
    """All results of a handler run that succeeded."""

    plan: HandlerPlan
    state: str | None  # None: the handler keeps its state
    events: Sequence[NewEvent]
    inputs: Sequence[NewInput]
    next_run_at: int | None
    notes: Notes
    not_taken: Sequence[str] = ()  # topics with an event that was offered alone and not taken


class Ending(NamedTuple):
    """A handler run that succeeded, and its results."""

    claim: Claim
    work: Work
    done: Commit

    @property
    def publishes(self) -> bool:
        """Whether it has events or inputs to store."""
        return bool(self.done.events or self.done.inputs)


async def commit_all(
    tx: Tx, endings: Sequence[Ending], *, now: int, new_ids: Iterator[str]
) -> list[HandlerRunSettled | LeaseLost]:
    """Write all that these runs leave, their ends and the next open runs, in one transaction. Runs
    that end at the same time share its statements."""
    held = await hold_all(tx, [one.claim for one in endings])
    ours = [one for one in endings if one.claim.id in held]
    ends = await _close(tx, ours, held, now, new_ids)
    outcomes = [
        Outcome(one.claim, "complete", output=json_text({"handler": one.work.run.handler}))
        for one in ours
    ]
    await settle_all(tx, outcomes, now)
    again = [one.claim for one in ours if not is_first(one.claim)]
    await record.recovered(tx, again, now=now)
    rests: dict[str, NextStart] = {}
    for one in ours:
        automation = held[one.claim.id].automation
        await automations.count_troubles(tx, automation, failures=0, fixes=0)
        rests[one.claim.id] = next_start_of(automation, ends[one.claim.id], now)
    open_runs = [NewOpenRun(held[key].automation, next(new_ids), at) for key, at in rests.items()]
    await put_open_runs(tx, open_runs, now=now)
    return [
        HandlerRunSettled(rests[one.claim.id].available_at)
        if one.claim.id in rests
        else one.claim.lost()
        for one in endings
    ]


async def _close(
    tx: Tx, ours: Sequence[Ending], held: Mapping[str, Held], now: int, new_ids: Iterator[str]
) -> dict[str, list[DeployedHandler]]:
    """Store what the runs leave; returns the handlers of each automation as they are then."""
    for one in ours:
        mutation = one.work.mutation
        if mutation is not None and mutation.resolved_by == "rejected":  # nothing was called
            await events.release_corrected(tx, one.claim.id, now=now)
        if one.done.not_taken:
            await events.put_together(tx, held[one.claim.id].key, one.done.not_taken)
    rows = [_end_of(one) for one in ours]
    published = {one.claim.id: Published([], {}) for one in ours}
    if tx.dialect.fuses and not any(one.publishes for one in ours):
        kept = await tx.many("close_handler_runs", rows, now=now)
    else:
        published |= await _use_and_publish(tx, ours, now, new_ids)
        ours = [await _with_unused(tx, one, published[one.claim.id]) for one in ours]
        rows = [_end_of(one, len(published[one.claim.id].events)) for one in ours]
        await tx.many("commit_handler_runs", rows, now=now)
        kept = await tx.many("commit_handlers", rows, now=now)
    marks = {automation: marks for automation, *marks in kept}
    return {
        one.claim.id: _after_run(
            held[one.claim.id],
            published[one.claim.id].readers,
            _changed(one, held[one.claim.id], marks.get(one.claim.name)),
        )
        for one in ours
    }  # fmt: skip


def _changed(one: Ending, held: Held, marks: Sequence[int] | None) -> DeployedHandler | None:
    """The handler as its run leaves it; None: it is gone, or another one has its name."""
    if marks is None:
        return None
    [marked, cleared] = marks
    return replace(
        held.handlers[one.work.run.handler], next_run_at=one.done.next_run_at, queued_at=None,
        wake_at=one.done.plan.wake_at, marked=marked, cleared=cleared,
    )  # fmt: skip


async def _use_and_publish(
    tx: Tx, ours: Sequence[Ending], now: int, new_ids: Iterator[str]
) -> dict[str, Published]:
    """Use the events of these runs and publish theirs; returns what was published, by run id."""
    takers = [one for one in ours if one.done.plan.count]
    inherited = {
        one.claim.id: await events.inherited(tx, one.claim.id) for one in takers if one.done.events
    }
    await events.use(tx, [_end_of(one) for one in takers], now=now)
    return {
        one.claim.id: await events.publish(
            tx, AutomationKey(one.claim.namespace, one.claim.name), one.done.events,
            new_ids=new_ids, created_by=one.claim.id, now=now,
            inherited=inherited.get(one.claim.id, ()), inputs=one.done.inputs,
        )
        for one in ours
        if one.publishes
    }  # fmt: skip


_OVER = (EventStatus.CONSUMED, EventStatus.SKIPPED)


async def _with_unused(tx: Tx, one: Ending, published: Published) -> Ending:
    """The same with a remark about events of `next` that changed nothing, because their ids were
    used. Producers publish what they see again and again, so theirs are not worth one."""
    if one.work.run.kind == "producer" or len(published.events) == len(one.done.events):
        return one
    new = {(event.topic, event.message_id) for event in published.events}
    key = AutomationKey(one.claim.namespace, one.claim.name)
    used: list[str] = []
    for event in one.done.events:
        if (event.topic, event.message_id) not in new:
            found = await events.named(tx, key, event.topic, [event.message_id])
            is_over = any(one.status in _OVER for one in found)
            used += [f"{event.topic}/{event.message_id}"] if is_over else []
    if not used:
        return one
    says = f"{counted(len(used), 'event')} had a used id and changed nothing: {some(used)}"
    remark = "; ".join(filter(None, [one.done.notes.remark, says]))
    return one._replace(done=one.done._replace(notes=one.done.notes._replace(remark=remark)))


def _used(work: Work) -> EventStatus:
    skipped = work.mutation is not None and work.mutation.status == Mutation.SKIPPED
    return EventStatus.SKIPPED if skipped else EventStatus.CONSUMED


def _end_of(one: Ending, published_count: int = 0) -> Row:
    """The item of a handler run in the statements of a commit."""
    claim, work, done = one
    took = done.plan.count > 0
    stored = took or work.run.kind == "producer"  # the plan is stored already, or there is none
    return (
        claim.id, claim.namespace, claim.name, work.run.handler, work.run.kind, done.state,
        int(done.state is None), done.next_run_at, done.plan.wake_at, int(took), work.run.seen,
        _used(work), done.notes.logs, done.notes.remark,
        None if stored else json_text(done.plan), published_count,
    )  # fmt: skip


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


class NewFix(NamedTuple):
    """A new version of some functions, found by the hook and checked."""

    graph: str
    source: str
    comment: str


class Stop(NamedTuple):
    """Why a handler run could not continue, how far it had got, and what may follow."""

    phase: Phase
    kind: str
    error: str
    notes: Notes
    failed: FailedAttempt = FailedAttempt()
    waits_for: str | None = None  # the counterpart that does not answer
    asks: bool = False  # a person has to act; then the same run continues
    wake_at: int | None = None  # the same run looks again then
    fix: NewFix | None = None
    refused: Sequence[str] = ()  # ids of events that it could not read
    seen: Sequence[str] = ()  # ids of events that `prepare` had read when it failed
    next_run_at: int | None = None  # of a producer, if this check is skipped
    dead_letter: str | None = None  # the topic that receives what is skipped


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
    """End or suspend a run that could not continue. Its phase stays; its events are released unless
    the world may have changed because of them."""
    held = await hold(tx, claim)
    await events.note_refused(tx, claim.id, stop.refused, now=now)
    if stop.asks or stop.wake_at is not None:
        await _stopped(tx, work, stop, stop.notes.remark, None)
        verb = "ask" if stop.asks else "suspend"
        await settle(
            tx, Outcome(claim, verb, stop.kind, error=stop.error, wake_at=stop.wake_at), now
        )
        return HandlerRunSettled(stop.wake_at, is_news=True)
    mutation = await effects.of_chain(tx, claim.root_id)
    free = mutation is None or mutation.status not in UNCERTAIN | DECIDED
    if free:
        await let_go(tx, claim, mutation, now)
    count = _counted(held.automation, stop, now)
    after = after_failure(policy, stop.failed, number=count.number, chance=chance)
    left_out = None
    if after.skips and free and stop.fix is None:
        target = SkipTarget(
            held.key, work.run, held.handlers.get(work.run.handler), stop.error,
            stop.failed.crashes or count.number, stop.dead_letter, stop.next_run_at,
        )  # fmt: skip
        left_out = await set_apart(tx, target, stop.seen)
        if left_out is None:
            left_out = await leave_out(tx, target, now=now, new_ids=new_ids)
    remarks = [stop.notes.remark, left_out.remark if left_out else None]
    await _stopped(tx, work, stop, "; ".join(filter(None, remarks)) or None, now)
    await settle(tx, Outcome(claim, "fail", reason=stop.kind, error=stop.error), now)
    if left_out is not None:
        skips = [_skipped(claim, stop, count, left_out)] if left_out.items else []
        await record.record(tx, skips, now=now)
        return await _begin_again(tx, held, left_out, now, next(new_ids))
    at = await _after(tx, held.automation, stop, count, after, now)
    await succeed(tx, claim, held.automation, next(new_ids), at, now)
    if at.status == Status.WAITING:
        kind = NotificationKind.NEEDS_ATTENTION
        cause = record.stopped(claim, kind, reason=stop.kind, error=stop.error)
        await record.record(tx, [cause], now=now)
    begins = count.outage is not None and count.outage.tries == 1
    return HandlerRunSettled(at.available_at, is_news=begins)


def _skipped(claim: Claim, stop: Stop, count: _Count, left_out: LeftOut) -> record.Cause:
    details = Details(
        error=record.error_text(stop.error), items=left_out.items, dead_letters=left_out.letters,
        failures=stop.failed.crashes or count.number,
    )  # fmt: skip
    kind = NotificationKind.SKIPPED
    return record.Cause(kind, claim.id, record.subject_of(claim), details, claim.claim_count)


async def _stopped(
    tx: Tx, work: Work, stop: Stop, remark: str | None, finished_at: int | None
) -> None:
    await tx.rows(
        "stop_handler_run", run_id=work.run.run_id, phase=stop.phase, logs=stop.notes.logs,
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
    if before is None or before.of != stop.waits_for:
        before = Outage(stop.waits_for, now, 0)
    return _Count(automation.failures, before._replace(tries=before.tries + 1))


async def _begin_again(
    tx: Tx, held: Held, left_out: LeftOut, now: int, new_id: str
) -> HandlerRunSettled:
    """End the chain after a skip; a new open run continues with the next work."""
    await automations.count_troubles(tx, held.automation, failures=0, fixes=0)
    at = next_start_of(held.automation, _after_run(held, left_out.readers, left_out.changed), now)
    await put_open_runs(tx, [NewOpenRun(held.automation, new_id, at)], now=now)
    return HandlerRunSettled(at.available_at, is_news=True)


async def _after(
    tx: Tx,
    automation: DeployedAutomation,
    stop: Stop,
    count: _Count,
    after: AfterFailure,
    now: int,
) -> NextStart:
    """How the next attempt begins: at once with a fix, after a pause, or when a person says so."""
    fixes = automation.fixes
    at = NextStart(Status.WAITING, stop.kind, None, Trigger.RETRY)
    if stop.fix is not None:
        await deploy.put_fix(tx, automation, *stop.fix, now=now)
        fixes += 1
        at = NextStart(Status.PENDING, None, now, Trigger.RETRY)
    elif after.pause_us is not None:
        at = NextStart(Status.SLEEPING, stop.kind, plus(now, after.pause_us), Trigger.RETRY)
    await automations.count_troubles(
        tx, automation, failures=count.failures, fixes=fixes, outage=count.outage
    )
    return at
