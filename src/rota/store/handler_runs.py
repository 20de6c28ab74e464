"""One turn of an automation: begin, checkpoints, commit or stop. Each is one transaction, under
the automation's lock and the run's claim. A worker that lost its lease changes nothing.

Settling a turn and giving birth to the next one is one act, together with state, events and
schedule: a restart has nothing to recover.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from rota.core.automation import Automation, HandlerRun, LedgerRow, NewEvent, NewInput, Plan
from rota.core.lifecycle import Status, Trigger
from rota.core.model import Claim, Outcome
from rota.core.phases import (
    CONSUMER,
    DECIDED,
    PRODUCER,
    UNCERTAIN,
    EventStatus,
    Left,
    Mutation,
    Phase,
    Way,
    take_up,
)
from rota.core.planner import Handler, choose, in_line
from rota.core.retry import RetryPolicy, next_try_us
from rota.errors import LeaseLost
from rota.store import automations, deploys, events, mutations, runs
from rota.store.automations import Rest, put_turn, rest_of
from rota.store.database import Tx
from rota.store.events import Place

# How many columns of a held turn are the automation's.
_OWN = len(Automation.__struct_fields__)


class Work(NamedTuple):
    """A handler run to perform, from where it stands."""

    automation: Automation
    handler: Handler | None  # None: it is no longer declared
    run: HandlerRun
    way: Way
    mutation: LedgerRow | None


class Settled(NamedTuple):
    """The turn is over: when the next one is due."""

    next_at: int | None = None
    stale: bool = False  # another version of the code is deployed


class Notes(NamedTuple):
    """What a run leaves for people: its log lines, and what the host remarked."""

    logs: str | None = None
    remark: str | None = None


class Held(NamedTuple):
    """A turn at work that is ours: its automation, locked, with its handlers by name."""

    automation: Automation
    handlers: dict[str, Handler]

    @property
    def place(self) -> Place:
        """Which automation."""
        return Place(self.automation.namespace, self.automation.name)


def lost(claim: Claim) -> LeaseLost:
    """Somebody else has taken over: nothing of ours counts."""
    return LeaseLost(f"{claim.id}: the run is no longer held by this worker", run_id=claim.id)


async def hold(tx: Tx, claim: Claim) -> Held:
    """Lock the automation and make sure that its run is ours."""
    rows = await tx.rows(
        "hold_turn", namespace=claim.namespace, name=claim.name, run_id=claim.id,
        claim_count=claim.claim_count,
    )  # fmt: skip
    if not rows:
        raise lost(claim)
    found = [Handler(*row[_OWN:]) for row in rows]
    return Held(Automation(*rows[0][:_OWN]), {one.name: one for one in found})


async def begin(
    tx: Tx, claim: Claim, *, digest: str, recoveries_max: int, now: int, new_ids: Iterator[str]
) -> Work | Settled:
    """Decide what this turn is for, and write it down before any of it happens."""
    held = await hold(tx, claim)
    automation = held.automation
    if automation.digest != digest:
        return Settled(stale=True)
    if automation.status != "active":
        return await _sleep(tx, claim, held, now)
    if claim.recoveries >= max(1, recoveries_max):
        text = f"its worker died {claim.recoveries} times while it ran"
        await _settle(tx, Outcome(claim, "ask", reason="crashes", error=_error(text)), now)
        return Settled()
    last = await _last_run(tx, claim)
    mutation = await mutations.of_chain(tx, claim.root_id) if last else None
    way = take_up(_left(claim, last, mutation))
    if last is None or way is Way.CHOOSE:
        return await _choose(tx, claim, held, now)
    handler = held.handlers.get(last.handler)
    if way is Way.AGAIN or (way is Way.ON and handler is None):
        await _let_go(tx, claim, mutation, now)
        if handler is None:
            return await _choose(tx, claim, held, now)
        return await _start(tx, claim, automation, handler, _again(claim), now)
    return await _go_on(tx, claim, Work(automation, handler, last, way, mutation), now, new_ids)


def is_first(claim: Claim) -> bool:
    """Whether it is the first claim of its chain's first run: nothing can have been left."""
    return claim.claim_count == 1 and claim.root_id == claim.id


async def _last_run(tx: Tx, claim: Claim) -> HandlerRun | None:
    if is_first(claim):
        return None
    rows = await tx.rows("last_handler_run", root_id=claim.root_id)
    return HandlerRun(*rows[0]) if rows else None


async def _go_on(
    tx: Tx, claim: Claim, work: Work, now: int, new_ids: Iterator[str]
) -> Work | Settled:
    if work.way is Way.GIVE_WAY:
        return await _give_way(tx, claim, work.automation, now, next(new_ids))
    if work.way is Way.ASK:
        await _settle(tx, Outcome(claim, "ask", reason="approval"), now)
        return Settled()
    if work.run.run_id == claim.id:
        return work
    return work._replace(run=await _adopt(tx, claim, work, now))


def _left(claim: Claim, last: HandlerRun | None, mutation: LedgerRow | None) -> Left | None:
    if last is None:
        return None
    return Left(
        Phase(last.phase),
        own=last.run_id == claim.id,
        mutation=None if mutation is None else Mutation(mutation.status),
        found_out=mutation is not None and mutation.resolved_by in ("reconcile", "person"),
        approved=mutation is not None and mutation.approved_at is not None,
    )


def _again(claim: Claim) -> str:
    return claim.trigger if claim.trigger == Trigger.RECOVERY else Trigger.RETRY


async def _let_go(tx: Tx, claim: Claim, mutation: LedgerRow | None, now: int) -> None:
    await events.release(tx, claim.root_id, now=now)
    if mutation is not None and mutation.status == Mutation.PROPOSED:
        await mutations.move(tx, mutation, Mutation.FAILED, now=now, resolved_by="never called")


async def _choose(tx: Tx, claim: Claim, held: Held, now: int) -> Work | Settled:
    handlers = list(held.handlers.values())
    several = in_line(handlers, now=now) > 1
    oldest = await events.oldest(tx, held.place) if several else {}
    turn = choose(handlers, oldest, now=now)
    if turn is None:
        return await _sleep(tx, claim, held, now)
    return await _start(tx, claim, held.automation, held.handlers[turn.name], turn.cause, now)


async def _start(
    tx: Tx, claim: Claim, automation: Automation, handler: Handler, cause: str, now: int
) -> Work:
    phase = PRODUCER[0] if handler.kind == "producer" else CONSUMER[0]
    run = HandlerRun(
        claim.id, claim.root_id, automation.name, handler.name, handler.kind, automation.version,
        cause, phase, handler.marked, None, handler.state, None, None, None, None, 0, 0, now, None,
    )  # fmt: skip
    await _put_run(tx, automation, run, now)
    return Work(automation, handler, run, Way.CHOOSE, None)


async def _put_run(tx: Tx, automation: Automation, run: HandlerRun, now: int) -> None:
    await tx.rows(
        "put_handler_run", run_id=run.run_id, root_id=run.root_id, namespace=automation.namespace,
        automation=run.automation, handler=run.handler, kind=run.kind, version=run.version,
        cause=run.cause, phase=run.phase, seen=run.seen, prepared=run.prepared,
        state_before=run.state_before, reserved_count=run.reserved_count, now=now,
    )  # fmt: skip


async def _adopt(tx: Tx, claim: Claim, work: Work, now: int) -> HandlerRun:
    """A new run goes on with what the one before it has prepared and reserved."""
    await events.transfer(tx, claim.root_id, claim.id, now=now)
    await mutations.adopt(tx, claim)
    run = replace(
        work.run, run_id=claim.id, cause=_again(claim), version=work.automation.version,
        logs=None, remark=None, error_kind=None, started_at=now, finished_at=None,
        phase=Phase.EMITTING if work.way is Way.EMIT else Phase.MUTATING,
    )  # fmt: skip
    await _put_run(tx, work.automation, run, now)
    return run


async def _sleep(tx: Tx, claim: Claim, held: Held, now: int) -> Settled:
    """There is nothing to do after all: the same row rests on."""
    at = rest_of(held.automation, held.handlers.values(), now)
    if at.status == Status.PENDING:  # it became due between two looks; claimed again at once
        await _settle(tx, Outcome(claim, "release"), now)
        return Settled(now)
    await _settle(tx, Outcome(claim, "suspend", reason=at.reason, wake_at=at.available_at), now)
    return Settled(at.available_at)


async def _give_way(tx: Tx, claim: Claim, automation: Automation, now: int, new_id: str) -> Settled:
    """It turned out that the effect did not happen: this run is over, another starts afresh."""
    await events.release(tx, claim.root_id, now=now)
    error = _error("the side effect did not happen; a new run starts afresh")
    await _settle(tx, Outcome(claim, "fail", reason="not applied", error=error), now)
    at = Rest(Status.PENDING, None, now, Trigger.RETRY)
    await _succeed(tx, claim, automation, new_id, at, now)
    return Settled(now)


async def _succeed(
    tx: Tx, claim: Claim, automation: Automation, new_id: str, at: Rest, now: int
) -> None:
    await put_turn(
        tx, automation, new_id, at, now=now, retry_of=claim.id, root_id=claim.root_id,
        attempt=claim.attempt + 1,
    )  # fmt: skip


async def _settle(tx: Tx, outcome: Outcome, now: int) -> None:
    settled = await runs.settle(tx, [outcome], now=now, alone=False)
    if outcome.claim.id not in settled.ids:
        raise lost(outcome.claim)


def _error(message: str, kind: str = "host") -> str:
    fields = {"type": "Host", "message": message, "kind": kind, "trace": ""}
    return _encoded(fields)


# -- the end -----------------------------------------------------------------------------------


class Commit(NamedTuple):
    """Everything a handler run leaves when it succeeds."""

    plan: Plan
    state: str | None
    keeps_state: bool
    events: Sequence[NewEvent]
    inputs: Sequence[NewInput]
    next_run_at: int | None
    notes: Notes


async def commit(
    tx: Tx, claim: Claim, work: Work, done: Commit, *, now: int, new_ids: Iterator[str]
) -> Settled:
    """State, events, inputs, used events, schedule, this run's end and the next turn: one act."""
    held = await hold(tx, claim)
    took = done.plan.count > 0
    inherited = await events.inherited(tx, claim.id) if took and done.events else ()
    if took:
        skipped = work.mutation is not None and work.mutation.status == Mutation.SKIPPED
        used = EventStatus.SKIPPED if skipped else EventStatus.CONSUMED
        await events.use(tx, claim.id, used, now=now)
    told = await events.publish(
        tx, held.place, done.events, new_ids=new_ids, created_by=claim.id, now=now,
        inherited=inherited, inputs=done.inputs,
    )  # fmt: skip
    changed = await _keep(tx, claim, work, done, held, now)
    await tx.rows(
        "commit_handler_run", run_id=claim.id, logs=done.notes.logs, remark=done.notes.remark,
        prepared=_encoded(done.plan) if work.run.kind == "consumer" and not took else None,
        state_after=done.state, published_count=len(told.event_ids), now=now,
    )  # fmt: skip
    output = _encoded({"handler": work.run.handler})
    await _settle(tx, Outcome(claim, "complete", output=output), now)
    await automations.count_troubles(tx, held.automation, failures=0, fixes=0)
    at = rest_of(held.automation, _after_run(held, told.readers, changed), now)
    await put_turn(tx, held.automation, next(new_ids), at, now=now)
    return Settled(at.available_at)


def _after_run(held: Held, marks: Mapping[str, int], changed: Handler | None) -> list[Handler]:
    """The handlers as this transaction leaves them, without reading them again."""
    after = {
        name: replace(one, marked=marks[name]) if name in marks else one
        for name, one in held.handlers.items()
    }
    if changed is not None:
        after[changed.name] = changed
    return list(after.values())


async def _keep(
    tx: Tx, claim: Claim, work: Work, done: Commit, held: Held, now: int
) -> Handler | None:
    """What the handler keeps and waits for from now on; None when it is no longer declared."""
    before = held.handlers.get(work.run.handler)
    if before is None or before.kind != work.run.kind:
        return None
    place = held.place
    if before.kind == "producer":
        await tx.rows(
            "commit_producer", namespace=place.namespace, automation=place.automation,
            name=before.name, run_id=claim.id, state=done.state,
            keeps_state=int(done.keeps_state), next_run_at=done.next_run_at, now=now,
        )  # fmt: skip
        return replace(before, next_run_at=done.next_run_at, queued_at=None)
    [(marked, cleared)] = await tx.rows(
        "commit_consumer", namespace=place.namespace, automation=place.automation,
        name=before.name, run_id=claim.id, state=done.state,
        keeps_state=int(done.keeps_state), wake_at=done.plan.wake_at,
        took=int(done.plan.count > 0), seen=work.run.seen, now=now,
    )  # fmt: skip
    return replace(before, wake_at=done.plan.wake_at, marked=marked, cleared=cleared)


def _encoded(value: object) -> str:
    return msgspec.json.encode(value).decode()


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
) -> Settled:
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
        await _settle(
            tx, Outcome(claim, verb, stop.kind, error=stop.error, wake_at=stop.wake_at), now
        )
        return Settled(stop.wake_at)
    mutation = await mutations.of_chain(tx, claim.root_id)
    if mutation is None or mutation.status not in UNCERTAIN | DECIDED:
        await _let_go(tx, claim, mutation, now)
    await _settle(tx, Outcome(claim, "fail", reason=stop.kind, error=stop.error), now)
    at = await _after(tx, automation, stop, policy, chance, now)
    await _succeed(tx, claim, automation, new_id, at, now)
    return Settled(at.available_at)


async def _after(
    tx: Tx, automation: Automation, stop: Stop, policy: RetryPolicy, chance: float, now: int
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
        await deploys.put_fix(tx, automation, *stop.fix, now=now)
        fixes += 1
        at = Rest(Status.PENDING, None, now, Trigger.RETRY)
    elif wait_us is not None:
        at = Rest(Status.SLEEPING, stop.kind, now + wait_us, Trigger.RETRY)
    await automations.count_troubles(tx, automation, failures=failures, fixes=fixes)
    return at
