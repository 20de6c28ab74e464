"""The beginning of a turn: what it is for, written down before any of it happens. One transaction
under the automation's lock and the run's claim; a worker that lost its lease changes nothing.

What follows is in `checkpoints`, and its end in `handler_ends`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from rota.core.automations.model import DeployedAutomation, HandlerRun, LedgerRow
from rota.core.automations.phases import CONSUMER, PRODUCER, Left, Mutation, Phase, Way, take_up
from rota.core.automations.planner import DeployedHandler, choose, in_line
from rota.core.runs.lifecycle import Status, Trigger
from rota.core.runs.model import Claim, Outcome
from rota.errors import LeaseLost
from rota.store.automations import effects, events
from rota.store.automations.events import AutomationKey
from rota.store.automations.state import Rest, put_turn, rest_of
from rota.store.backend.database import Tx
from rota.store.runs import transitions

# How many columns of a held turn are the automation's.
_OWN = len(DeployedAutomation.__struct_fields__)


class Work(NamedTuple):
    """A handler run to perform, from where it stands."""

    automation: DeployedAutomation
    handler: DeployedHandler | None  # None: it is no longer declared
    run: HandlerRun
    way: Way
    mutation: LedgerRow | None


class HandlerRunSettled(NamedTuple):
    """The turn is over: when the next one is due."""

    next_at: int | None = None
    stale: bool = False  # another version of the code is deployed


class Notes(NamedTuple):
    """What a run leaves for people: its log lines, and what the host remarked."""

    logs: str | None = None
    remark: str | None = None


class Held(NamedTuple):
    """A turn at work that is ours: its automation, locked, with its handlers by name."""

    automation: DeployedAutomation
    handlers: dict[str, DeployedHandler]

    @property
    def place(self) -> AutomationKey:
        """Which automation."""
        return AutomationKey(self.automation.namespace, self.automation.name)


def lost(claim: Claim) -> LeaseLost:
    """Somebody else has taken over: nothing of ours counts."""
    return LeaseLost(f"{claim.id}: the run is no longer held by this worker", run_id=claim.id)


async def hold(tx: Tx, claim: Claim) -> Held:
    """Lock the automation and make sure that its run is ours."""
    rows = await tx.rows(
        "hold_turn", namespace=claim.namespace, name=claim.name, run_id=claim.id,
        claim_count=claim.claim_count, lease_owner=claim.lease_owner,
    )  # fmt: skip
    if not rows:
        raise lost(claim)
    found = [DeployedHandler(*row[_OWN:]) for row in rows]
    return Held(DeployedAutomation(*rows[0][:_OWN]), {one.name: one for one in found})


async def begin(
    tx: Tx, claim: Claim, *, digest: str, recoveries_max: int, now: int, new_ids: Iterator[str]
) -> Work | HandlerRunSettled:
    """Decide what this turn is for, and write it down before any of it happens."""
    held = await hold(tx, claim)
    automation = held.automation
    if automation.digest != digest:
        return HandlerRunSettled(stale=True)
    if automation.status != "active":
        return await _sleep(tx, claim, held, now)
    if claim.recoveries >= max(1, recoveries_max):
        text = f"its worker died {claim.recoveries} times while it ran"
        await settle(tx, Outcome(claim, "ask", reason="crashes", error=_error(text)), now)
        return HandlerRunSettled()
    last = await _last_run(tx, claim)
    mutation = await effects.of_chain(tx, claim.root_id) if last else None
    way = take_up(_left(claim, last, mutation))
    if last is None or way is Way.CHOOSE:
        return await _choose(tx, claim, held, now)
    handler = held.handlers.get(last.handler)
    if way is Way.AGAIN or (way is Way.ON and handler is None):
        await let_go(tx, claim, mutation, now)
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
) -> Work | HandlerRunSettled:
    if work.way is Way.GIVE_WAY:
        return await _give_way(tx, claim, work.automation, now, next(new_ids))
    if work.way is Way.ASK:
        await settle(tx, Outcome(claim, "ask", reason="approval"), now)
        return HandlerRunSettled()
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


async def let_go(tx: Tx, claim: Claim, mutation: LedgerRow | None, now: int) -> None:
    """Release what the chain holds; what was only proposed is off."""
    await events.release(tx, claim.root_id, now=now)
    if mutation is not None and mutation.status == Mutation.PROPOSED:
        await effects.move(tx, mutation, Mutation.FAILED, now=now, resolved_by="never called")


async def _choose(tx: Tx, claim: Claim, held: Held, now: int) -> Work | HandlerRunSettled:
    handlers = list(held.handlers.values())
    several = in_line(handlers, now=now) > 1
    oldest = await events.oldest(tx, held.place) if several else {}
    turn = choose(handlers, oldest, now=now)
    if turn is None:
        return await _sleep(tx, claim, held, now)
    return await _start(tx, claim, held.automation, held.handlers[turn.name], turn.cause, now)


async def _start(
    tx: Tx,
    claim: Claim,
    automation: DeployedAutomation,
    handler: DeployedHandler,
    cause: str,
    now: int,
) -> Work:
    phase = PRODUCER[0] if handler.kind == "producer" else CONSUMER[0]
    run = HandlerRun(
        claim.id, claim.root_id, automation.name, handler.name, handler.kind, automation.version,
        cause, phase, handler.marked, None, handler.state, None, None, None, None, 0, 0, now, None,
    )  # fmt: skip
    await _put_run(tx, automation, run, now)
    return Work(automation, handler, run, Way.CHOOSE, None)


async def _put_run(tx: Tx, automation: DeployedAutomation, run: HandlerRun, now: int) -> None:
    await tx.rows(
        "put_handler_run", run_id=run.run_id, root_id=run.root_id, namespace=automation.namespace,
        automation=run.automation, handler=run.handler, kind=run.kind, version=run.version,
        cause=run.cause, phase=run.phase, seen=run.seen, prepared=run.prepared,
        state_before=run.state_before, reserved_count=run.reserved_count, now=now,
    )  # fmt: skip


async def _adopt(tx: Tx, claim: Claim, work: Work, now: int) -> HandlerRun:
    """A new run goes on with what the one before it has prepared and reserved."""
    await events.transfer(tx, claim.root_id, claim.id, now=now)
    await effects.adopt(tx, claim)
    run = replace(
        work.run, run_id=claim.id, cause=_again(claim), version=work.automation.version,
        logs=None, remark=None, error_kind=None, started_at=now, finished_at=None,
        phase=Phase.EMITTING if work.way is Way.EMIT else Phase.MUTATING,
    )  # fmt: skip
    await _put_run(tx, work.automation, run, now)
    return run


async def _sleep(tx: Tx, claim: Claim, held: Held, now: int) -> HandlerRunSettled:
    """There is nothing to do after all: the same row rests on."""
    at = rest_of(held.automation, held.handlers.values(), now)
    if at.status == Status.PENDING:  # it became due between two looks; claimed again at once
        await settle(tx, Outcome(claim, "release"), now)
        return HandlerRunSettled(now)
    await settle(tx, Outcome(claim, "suspend", reason=at.reason, wake_at=at.available_at), now)
    return HandlerRunSettled(at.available_at)


async def _give_way(
    tx: Tx, claim: Claim, automation: DeployedAutomation, now: int, new_id: str
) -> HandlerRunSettled:
    """It turned out that the effect did not happen: this run is over, another starts afresh."""
    await events.release(tx, claim.root_id, now=now)
    error = _error("the side effect did not happen; a new run starts afresh")
    await settle(tx, Outcome(claim, "fail", reason="not applied", error=error), now)
    at = Rest(Status.PENDING, None, now, Trigger.RETRY)
    await succeed(tx, claim, automation, new_id, at, now)
    return HandlerRunSettled(now)


async def succeed(
    tx: Tx, claim: Claim, automation: DeployedAutomation, new_id: str, at: Rest, now: int
) -> None:
    """Give the chain its next run."""
    await put_turn(
        tx, automation, new_id, at, now=now, retry_of=claim.id, root_id=claim.root_id,
        attempt=claim.attempt + 1,
    )  # fmt: skip


async def settle(tx: Tx, outcome: Outcome, now: int) -> None:
    """End or suspend the run, or LeaseLost."""
    settled = await transitions.settle(tx, [outcome], now=now, alone=False, continues=True)
    if outcome.claim.id not in settled.ids:
        raise lost(outcome.claim)


def _error(message: str, kind: str = "host") -> str:
    fields = {"type": "Host", "message": message, "kind": kind, "trace": ""}
    return encoded(fields)


def encoded(value: object) -> str:
    """As JSON text."""
    return msgspec.json.encode(value).decode()
