"""Begins handler runs: records what each will do before it does anything. One transaction holds the
locks of the automations and the claims of the runs, so a worker that lost its lease changes
nothing. Runs that begin at the same time share the transaction and its statements.

The later steps are in `checkpoint`, and the end in `commit`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from rota.core.automations.failure_policy import skips_killer
from rota.core.automations.model import DeployedAutomation, HandlerRun, LedgerRow
from rota.core.automations.phases import CONSUMER, PRODUCER, Left, Mutation, Phase, Way, take_up
from rota.core.automations.planner import DeployedHandler, choose, due_consumer_count
from rota.core.runs.lifecycle import Status, Trigger
from rota.core.runs.model import Claim, Outcome
from rota.core.typed import json_text
from rota.errors import LeaseLost
from rota.store.automations import effects, events
from rota.store.automations.events import AutomationKey
from rota.store.automations.state import NewOpenRun, NextStart, next_start_of, put_open_runs
from rota.store.backend.database import Tx
from rota.store.runs.settle import settle_runs

# The number of columns of a held open run that belong to the automation.
_OWN = len(DeployedAutomation.__struct_fields__)


class Work(NamedTuple):
    """A handler run to execute, from its current phase."""

    automation: DeployedAutomation
    handler: DeployedHandler | None  # None: it is no longer declared
    run: HandlerRun
    way: Way
    mutation: LedgerRow | None
    killer: bool = False  # this run killed its worker once more, and is not executed again


class HandlerRunSettled(NamedTuple):
    """The open run is over: when the next one is due."""

    next_at: int | None = None
    stale: bool = False  # another version of the code is deployed
    is_news: bool = False  # the notification loop has work


class Notes(NamedTuple):
    """The records that a run leaves for people: its log lines, and the remarks of the host."""

    logs: str | None = None
    remark: str | None = None


class Held(NamedTuple):
    """A running open run of this worker: its locked automation, and its handlers by name."""

    automation: DeployedAutomation
    handlers: dict[str, DeployedHandler]

    @property
    def key(self) -> AutomationKey:
        """Which automation."""
        return AutomationKey(self.automation.namespace, self.automation.name)


async def hold(tx: Tx, claim: Claim) -> Held:
    """Lock the automation and make sure that its run is held by this worker."""
    held = await hold_all(tx, [claim])
    if not held:
        raise claim.lost()
    return held[claim.id]


async def hold_all(tx: Tx, claims: Sequence[Claim]) -> dict[str, Held]:
    """The same for several runs, by run id; those that are no longer ours are missing."""
    items = [(one.id, one.claim_count, one.lease_owner) for one in claims]
    found: dict[str, Held] = {}
    for run_id, *row in await tx.many("hold_open_runs", items):
        if run_id not in found:
            found[run_id] = Held(DeployedAutomation(*row[:_OWN]), {})
        handler = DeployedHandler(*row[_OWN:])
        found[run_id].handlers[handler.name] = handler
    return found


class Beginning(NamedTuple):
    """A claimed open run, and facts from this worker's code."""

    claim: Claim
    digest: str
    skip_after: Mapping[str, int] = {}  # by consumer


class Group(NamedTuple):
    """Handler runs that begin in one transaction: shared values, and the rows to insert."""

    recoveries_max: int
    now: int
    new_ids: Iterator[str]
    puts: list[HandlerRun]


async def begin_all(
    tx: Tx,
    beginnings: Sequence[Beginning],
    *,
    recoveries_max: int,
    now: int,
    new_ids: Iterator[str],
) -> list[Work | HandlerRunSettled | LeaseLost]:
    """Decide what each open run will do, and record it before anything happens."""
    held = await hold_all(tx, [one.claim for one in beginnings])
    group = Group(recoveries_max, now, new_ids, [])
    answers: list[Work | HandlerRunSettled | LeaseLost] = []
    for one in beginnings:
        ours = held.get(one.claim.id)
        answers.append(await _begin(tx, one, ours, group) if ours else one.claim.lost())
    await _put_runs(tx, beginnings[0].claim.namespace, group)
    return answers


async def _begin(tx: Tx, one: Beginning, held: Held, group: Group) -> Work | HandlerRunSettled:
    claim, automation, now = one.claim, held.automation, group.now
    if automation.digest != one.digest:
        return HandlerRunSettled(stale=True)
    if automation.status != "active":
        return await _sleep(tx, claim, held, now)
    last = await _last_run(tx, claim)
    mutation = await effects.of_chain(tx, claim.root_id) if last else None
    way = take_up(_left(claim, last, mutation))
    handler = held.handlers.get(last.handler) if last else None
    killer = handler is not None and _is_killer(one, last, way, group)
    if not killer and claim.recoveries >= max(1, group.recoveries_max):
        text = died_of(claim.recoveries)
        await settle(tx, Outcome(claim, "ask", reason="crashes", error=host_error(text)), now)
        return HandlerRunSettled()
    if last is None or way is Way.CHOOSE:
        return await _choose(tx, claim, held, group)
    if way is Way.AGAIN or (way is Way.ON and handler is None):
        await let_go(tx, claim, mutation, now)
        if handler is None:
            return await _choose(tx, claim, held, group)
        if killer:
            return Work(automation, handler, last, way, None, killer)
        return _start(claim, automation, handler, _again(claim), group)
    return await _go_on(tx, claim, Work(automation, handler, last, way, mutation), group)


def _is_killer(one: Beginning, last: HandlerRun | None, way: Way, group: Group) -> bool:
    """Whether to skip the item of the last run: never if its change may have happened."""
    return (
        last is not None
        and way is Way.AGAIN
        and skips_killer(
            one.skip_after.get(last.handler), one.claim.recoveries, group.recoveries_max
        )
    )


def died_of(times: int) -> str:
    """The sentence about a run that kills its workers."""
    return f"its worker died {times} times while it ran"


def is_first(claim: Claim) -> bool:
    """Whether it is the first claim of its chain, so that no earlier state exists."""
    return claim.claim_count == 1 and claim.root_id == claim.id


async def _last_run(tx: Tx, claim: Claim) -> HandlerRun | None:
    if is_first(claim):
        return None
    rows = await tx.rows("last_handler_run", root_id=claim.root_id)
    return HandlerRun(*rows[0]) if rows else None


async def _go_on(tx: Tx, claim: Claim, work: Work, group: Group) -> Work | HandlerRunSettled:
    if work.way is Way.GIVE_WAY:
        return await _give_way(tx, claim, work.automation, group.now, next(group.new_ids))
    if work.way is Way.ASK:
        await settle(tx, Outcome(claim, "ask", reason="approval"), group.now)
        return HandlerRunSettled()
    if work.run.run_id == claim.id:
        return work
    return work._replace(run=await _adopt(tx, claim, work, group))


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
    """Release the events of the chain, and drop a change that was only proposed."""
    await events.release(tx, claim.root_id, now=now)
    if mutation is not None and mutation.status == Mutation.PROPOSED:
        dropped = mutation.moved(Mutation.FAILED, now=now, resolved_by="never called")
        await effects.move(tx, mutation, dropped)


async def _choose(tx: Tx, claim: Claim, held: Held, group: Group) -> Work | HandlerRunSettled:
    handlers, now = list(held.handlers.values()), group.now
    several = due_consumer_count(handlers, now=now) > 1
    oldest = await events.oldest(tx, held.key) if several else {}
    planned = choose(handlers, oldest, now=now)
    if planned is None:
        return await _sleep(tx, claim, held, now)
    return _start(claim, held.automation, held.handlers[planned.name], planned.cause, group)


def _start(
    claim: Claim,
    automation: DeployedAutomation,
    handler: DeployedHandler,
    cause: str,
    group: Group,
) -> Work:
    phase = PRODUCER[0] if handler.kind == "producer" else CONSUMER[0]
    run = HandlerRun(
        claim.id, claim.root_id, automation.name, handler.name, handler.kind, automation.version,
        cause, phase, handler.marked, None, handler.state, None, None, None, None, 0, 0, group.now,
        None,
    )  # fmt: skip
    group.puts.append(run)
    return Work(automation, handler, run, Way.CHOOSE, None)


async def _put_runs(tx: Tx, namespace: str, group: Group) -> None:
    items = [
        (run.run_id, run.root_id, run.automation, run.handler, run.kind, run.version, run.cause,
         run.phase, run.seen, run.prepared, run.state_before, run.reserved_count)
        for run in group.puts
    ]  # fmt: skip
    await tx.many("put_handler_runs", items, namespace=namespace, now=group.now)


async def _adopt(tx: Tx, claim: Claim, work: Work, group: Group) -> HandlerRun:
    """Let a new run continue with the plan and events of the previous run."""
    await events.transfer(tx, claim.root_id, claim.id, now=group.now)
    await effects.adopt(tx, claim)
    run = replace(
        work.run, run_id=claim.id, cause=_again(claim), version=work.automation.version,
        logs=None, remark=None, error_kind=None, started_at=group.now, finished_at=None,
        phase=Phase.EMITTING if work.way is Way.EMIT else Phase.MUTATING,
    )  # fmt: skip
    group.puts.append(run)
    return run


async def _sleep(tx: Tx, claim: Claim, held: Held, now: int) -> HandlerRunSettled:
    """There is nothing to do: suspend the same row again."""
    at = next_start_of(held.automation, held.handlers.values(), now)
    if at.status == Status.PENDING:  # it became due meanwhile; claimed again at once
        await settle(tx, Outcome(claim, "release"), now)
        return HandlerRunSettled(now)
    await settle(tx, Outcome(claim, "suspend", reason=at.reason, wake_at=at.available_at), now)
    return HandlerRunSettled(at.available_at)


async def _give_way(
    tx: Tx, claim: Claim, automation: DeployedAutomation, now: int, new_id: str
) -> HandlerRunSettled:
    """It turned out that the effect did not happen: this run is over, another starts afresh."""
    await events.release(tx, claim.root_id, now=now)
    error = host_error("the side effect did not happen; a new run starts from the beginning")
    await settle(tx, Outcome(claim, "fail", reason="not applied", error=error), now)
    at = NextStart(Status.PENDING, None, now, Trigger.RETRY)
    await succeed(tx, claim, automation, new_id, at, now)
    return HandlerRunSettled(now)


async def succeed(
    tx: Tx, claim: Claim, automation: DeployedAutomation, new_id: str, at: NextStart, now: int
) -> None:
    """Give the chain its next run."""
    planned = NewOpenRun(automation, new_id, at, claim.id, claim.root_id, claim.attempt + 1)
    await put_open_runs(tx, [planned], now=now)


async def settle(tx: Tx, outcome: Outcome, now: int) -> None:
    """End or suspend the run, or LeaseLost."""
    await settle_all(tx, [outcome], now)


async def settle_all(tx: Tx, outcomes: Sequence[Outcome], now: int) -> None:
    """The same for several; LeaseLost if one of them is not ours."""
    settled = await settle_runs(tx, outcomes, now=now, alone=False, continues=True)
    for outcome in outcomes:
        if outcome.claim.id not in settled.ids:
            raise outcome.claim.lost()


def host_error(message: str, kind: str = "host") -> str:
    """A stored error that the host itself reports."""
    fields = {"type": "Host", "message": message, "kind": kind, "trace": ""}
    return json_text(fields)
