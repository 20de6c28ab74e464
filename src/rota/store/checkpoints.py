"""Checkpoints of a handler run between its beginning and its end: each is one transaction under
the run's claim, which it locks. They concern this run's chain alone, so the automation is not
locked: others publish to it meanwhile.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from rota.core.automation import LedgerRow, Plan
from rota.core.model import Claim
from rota.core.phases import Mutation, Phase
from rota.store import events, mutations
from rota.store.database import Tx
from rota.store.events import Place
from rota.store.handler_runs import Notes, Work, is_first, lost


async def prepared(tx: Tx, claim: Claim, work: Work, plan: Plan, notes: Notes, *, now: int) -> None:
    """Checkpoint: the plan, the reservation of its events and the wake time, all or nothing."""
    held = await tx.rows(
        "prepare_handler_run", run_id=claim.id, claim_count=claim.claim_count,
        phase=Phase.PREPARED, prepared=msgspec.json.encode(plan).decode(), remark=notes.remark,
        logs=notes.logs, reserved_count=plan.count,
    )  # fmt: skip
    if not held:
        raise lost(claim)
    place = Place(claim.namespace, claim.name)
    await events.reserve(tx, place, claim.id, plan.reservations, now=now)
    if work.handler is not None and work.handler.wake_at == plan.wake_at:
        return
    await tx.rows(
        "set_wake", namespace=place.namespace, automation=place.automation,
        name=work.run.handler, wake_at=plan.wake_at,
    )  # fmt: skip


async def call_begins(
    tx: Tx, claim: Claim, wanted: mutations.Wanted, *, approval: bool, now: int
) -> LedgerRow:
    """Checkpoint: the ledger knows of the call before it is made. Where a person must agree, the
    exact parameters are proposed instead; agreeing to others is not agreeing."""
    await _move(tx, claim, Phase.MUTATING)
    before = [] if is_first(claim) else await mutations.all_of_chain(tx, claim.root_id)
    row = mutations.what_matters(before)
    if row is not None and row.status == Mutation.PROPOSED:
        same = (row.tool, row.params) == (wanted.tool, wanted.params)
        if same and row.approved_at is not None:
            await mutations.move(tx, row, Mutation.IN_FLIGHT, now=now)
            return replace(row, status=Mutation.IN_FLIGHT)
        if same:
            return row
        await mutations.move(tx, row, Mutation.FAILED, now=now, resolved_by="changed")
    status = Mutation.PROPOSED if approval else Mutation.IN_FLIGHT
    return await mutations.put(tx, claim, wanted, status, number=len(before) + 1, now=now)


async def call_ended(
    tx: Tx,
    claim: Claim,
    row: LedgerRow,
    status: Mutation,
    *,
    now: int,
    result: str | None = None,
    error: str | None = None,
    resolved_by: str = "tool",
    reconcile_count: int | None = None,
) -> LedgerRow:
    """Checkpoint: what became of the call. Applied moves the phase in the same transaction."""
    if status is Mutation.APPLIED:
        await _move(tx, claim, Phase.MUTATED)
    elif not await tx.rows("held_run", run_id=claim.id, claim_count=claim.claim_count):
        raise lost(claim)
    await mutations.move(
        tx, row, status, now=now, result=result, error=error, resolved_by=resolved_by,
        reconcile_count=reconcile_count,
    )  # fmt: skip
    count = row.reconcile_count if reconcile_count is None else reconcile_count
    return replace(
        row, status=status, result=result, error=error, resolved_by=resolved_by, updated_at=now,
        reconcile_count=count,
    )  # fmt: skip


async def _move(tx: Tx, claim: Claim, phase: Phase) -> None:
    moved = await tx.rows(
        "move_handler_run", run_id=claim.id, claim_count=claim.claim_count, phase=phase
    )
    if not moved:
        raise lost(claim)
