"""Settlement: the end of runs that a worker holds, and what follows from it.

Every change names the status and the claim it expects. No changed row means a lost claim.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter, itemgetter
from typing import NamedTuple

from rota.core.runs.claim_positions import claim_order
from rota.core.runs.lifecycle import FINAL, RULES, Status
from rota.core.runs.model import Claim, Outcome
from rota.core.runs.options import recovers
from rota.store.backend.database import Row, Tx
from rota.store.notifications import record
from rota.store.runs import code_versions
from rota.store.runs.cancel import cancel_children
from rota.store.runs.chain_ends import EndedChain, after_ends
from rota.store.runs.claim import Claimed, ClaimRequest, claim, values_of
from rota.store.runs.payloads import INLINE_BYTES_MAX, big_bodies, inline_body
from rota.store.runs.signals import leave_signals
from rota.store.runs.start import start_runs

_completion = attrgetter("claim.id", "claim.claim_count", "output")


class SettleResult(NamedTuple):
    """Ids of settled runs that this worker held; whether others should poll for work."""

    ids: frozenset[str]
    woke: bool
    cancelled: bool = False  # whether children were cancelled that other workers may hold


async def settle_runs(
    tx: Tx, outcomes: Sequence[Outcome], *, now: int, alone: bool = True, continues: bool = False
) -> SettleResult:
    """End what is held: apply each verb under its claim, then what follows from it.

    A run that is no longer ours changes nothing, has no successor, and is not in the answer. Rows
    are locked by id, as renewals do. `continues`: the caller starts the next attempt itself."""
    owner = outcomes[0].claim.lease_owner if outcomes else ""
    kinds: tuple[list[Outcome], list[Outcome]] = ([], [])
    for outcome in outcomes:
        kinds[_is_minimal(outcome, owner)].append(outcome)
    others, plain = kinds
    items, alone = sorted(map(_completion, plain)), alone and not others
    count = await tx.change("complete_runs", items, alone=alone, worker_id=owner, now=now)
    done = await _completed(tx, items, count, alone=alone)
    if not others:
        return SettleResult(done, woke=False)
    settled = await _settle_others(tx, others, now, continues)
    return settled._replace(ids=done | settled.ids)


async def settle_and_claim(
    tx: Tx, outcomes: Sequence[Outcome], request: ClaimRequest
) -> tuple[SettleResult, Claimed]:
    """Settle what ended and claim what comes next, in one commit."""
    [(queue, free), *more] = request.queues
    fuses = tx.dialect.fuses and not more and queue not in request.limited
    if outcomes and fuses and all(_is_minimal(o, request.worker_id) for o in outcomes):
        return await _settle_and_claim_at_once(
            tx, outcomes, request, queue, min(free, request.runs_max)
        )
    settled = await settle_runs(tx, outcomes, now=request.now, alone=False)
    return settled, await claim(tx, request, alone=False)


async def _settle_and_claim_at_once(
    tx: Tx, outcomes: Sequence[Outcome], request: ClaimRequest, queue: str, limit: int
) -> tuple[SettleResult, Claimed]:
    """The minimal case of `settle_and_claim` as one statement."""
    items = sorted(map(_completion, outcomes))
    values = values_of(request, queue, limit)
    if queue in request.after:
        rows = await tx.many(request.query("complete_and_claim_after"), items, alone=True, **values)
    else:
        rows = await tx.many(request.query("complete_and_claim"), items, alone=True, **values)
    done = await _completed(tx, items, rows[0][0], alone=True)
    claims = [Claim(*row[1:]) for row in rows if row[1] is not None]
    claims.sort(key=claim_order)
    return SettleResult(done, woke=False), Claimed(claims)


def _is_minimal(outcome: Outcome, owner: str) -> bool:
    """A completion by this worker without consequences, with an output that fits into the row."""
    claim, output = outcome.claim, outcome.output
    if outcome.verb != "complete" or outcome.reason is not None or claim.lease_owner != owner:
        return False
    if claim.parent_id is not None or claim.schedule_id is not None:
        return False
    if claim.options is not None and recovers(claim.options):
        return False
    return output is None or len(output) <= INLINE_BYTES_MAX


async def _completed(tx: Tx, items: Sequence[Row], count: int, *, alone: bool) -> frozenset[str]:
    """Which of these claims have completed their runs, if so many have."""
    if count != len(items):
        items = await tx.many("completed_of", items, alone=alone)
    return frozenset([item[0] for item in items])


async def _settle_others(
    tx: Tx, outcomes: Sequence[Outcome], now: int, continues: bool
) -> SettleResult:
    bodies = big_bodies(
        (o.claim.id, part, body)
        for o in outcomes
        for part, body in (("output", o.output), ("error", o.error))
    )
    items = sorted((_settle_row(one, now) for one in outcomes), key=itemgetter(0))
    status = {row[0]: row[1] for row in await tx.many("settle_runs", items)}
    await tx.many("put_payloads", [row for row in bodies if row[0] in status])
    ours = [o for o in outcomes if o.claim.id in status]
    await code_versions.refuse(tx, ours, now=now)
    await tx.many("forget_failures", [(o.claim.segment, key) for o in ours for key in o.again])
    await tx.many("forget_handling", [(o.claim.segment, key) for o in ours for key in o.handling])
    woke = any(value == Status.PENDING for value in status.values())
    continued = [o for o in ours if o.verb == "continue" and o.retry is not None]
    await leave_signals(tx, continued)
    await tx.many(
        "move_end_requests", [(o.claim.segment, o.retry.id) for o in continued if o.retry]
    )
    woke |= await _follow(tx, ours, now)
    over = [o.claim.root_id for o in ours if o.verb in ("fail", "cancel") and o.retry is None]
    cancelled = await cancel_children(tx, over, now)
    woke |= await record.settled(tx, ours, now=now, continues=continues)
    return SettleResult(frozenset(status), woke, bool(cancelled))


def _settle_row(outcome: Outcome, now: int) -> Row:
    target = RULES[outcome.verb].target
    return (
        outcome.claim.id, outcome.claim.claim_count, outcome.claim.lease_owner, target,
        outcome.reason, outcome.wake_at, inline_body(outcome.output), inline_body(outcome.error),
        now if target in FINAL else None,
    )  # fmt: skip


async def _follow(tx: Tx, outcomes: Sequence[Outcome], now: int) -> bool:
    """Insert the retries and continuations; wake the parents of chains that have ended."""
    retries = [outcome.retry for outcome in outcomes if outcome.retry]
    await start_runs(tx, retries, now=now, alone=False)
    after = [EndedChain.of(o) for o in outcomes if not o.retry and RULES[o.verb].target in FINAL]
    return await after_ends(tx, after, now) or bool(retries)
