"""Checkpoints of a handler run between its beginning and its end: each is one transaction under the
run's claim, which it locks. They concern this run's chain alone, so the automation is not locked:
others publish to it meanwhile. On PostgreSQL the usual checkpoints are one statement. Each
checkpoint may be repeated, because its answer may have been lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rota.core.automations.model import HandlerPlan, LedgerRow
from rota.core.automations.phases import Mutation, Phase
from rota.core.runs.model import Claim
from rota.core.typed import json_text
from rota.errors import WrongState
from rota.store.automations import effects, events
from rota.store.automations.events import AutomationKey
from rota.store.automations.handler_runs.begin import Notes, Work, is_first
from rota.store.backend.database import Tx


async def prepared(
    tx: Tx,
    claim: Claim,
    work: Work,
    plan: HandlerPlan,
    notes: Notes,
    seen: Mapping[tuple[str, str], int],
    *,
    now: int,
) -> None:
    """Checkpoint: the plan, the reservation of its events and the wake time, all or nothing.
    `seen` are the revisions of the events as `prepare` saw them."""
    key = AutomationKey(claim.namespace, claim.name)
    named = _held(claim) | {
        "phase": Phase.PREPARED, "prepared": json_text(plan), "remark": notes.remark,
        "logs": notes.logs, "reserved_count": plan.count,
    }  # fmt: skip
    wanted = events.Reservation(plan.reservations, seen)
    if tx.dialect.fuses:
        [(held, moved)] = await tx.many(
            "note_prepared", wanted.items, **key._asdict(),
            handler=work.run.handler, wake_at=plan.wake_at, now=now, alone=True, **named,
        )  # fmt: skip
        if not held:
            raise claim.lost()
        if not moved:
            await events.complain(tx, key, claim.id, wanted)
        return
    if not await tx.rows("prepare_handler_run", **named):
        raise claim.lost()
    await events.reserve(tx, key, claim.id, wanted, now=now)
    if work.handler is not None and work.handler.wake_at == plan.wake_at:
        return
    await tx.rows("set_wake", **key._asdict(), name=work.run.handler, wake_at=plan.wake_at)


async def call_begins(
    tx: Tx, claim: Claim, wanted: effects.Wanted, *, approval: bool, now: int
) -> LedgerRow:
    """Checkpoint: the ledger knows of the call before it is made. If approval is needed, the exact
    parameters are stored as a proposal. An approval never covers other parameters."""
    status = Mutation.PROPOSED if approval else Mutation.IN_FLIGHT
    if is_first(claim):
        return await _first_call(tx, claim, wanted, status, now)
    await _move(tx, claim, Phase.MUTATING)
    before = await effects.all_of_chain(tx, claim.root_id)
    row = effects.what_matters(before)
    if row is not None and row.status == Mutation.PROPOSED:
        same = (row.tool, row.params) == (wanted.tool, wanted.params)
        if same and row.approved_at is not None:
            called = row.moved(Mutation.IN_FLIGHT, now=now)
            await effects.move(tx, row, called)
            return called
        if same:
            return row
        await effects.move(tx, row, row.moved(Mutation.FAILED, now=now, resolved_by="changed"))
    put = await effects.put(tx, claim, wanted, status, number=len(before) + 1, now=now)
    return put or await _put_before(tx, claim, wanted)


async def _first_call(
    tx: Tx, claim: Claim, wanted: effects.Wanted, status: Mutation, now: int
) -> LedgerRow:
    """The chain has no past: its ledger is empty."""
    if not tx.dialect.fuses:
        await _move(tx, claim, Phase.MUTATING)
        put = await effects.put(tx, claim, wanted, status, number=1, now=now)
        return put or await _put_before(tx, claim, wanted)
    rows = await tx.rows(
        "begin_call", **_held(claim), **wanted._asdict(), phase=Phase.MUTATING,
        id=effects.entry_id(claim, 1), root_id=claim.root_id, namespace=claim.namespace,
        status=status, now=now, alone=True,
    )  # fmt: skip
    return LedgerRow(*rows[0]) if rows else await _put_before(tx, claim, wanted)


async def _put_before(tx: Tx, claim: Claim, wanted: effects.Wanted) -> LedgerRow:
    """The entry that this very run wrote and got no answer for: nothing was called since."""
    await _hold(tx, claim)
    row = await effects.of_chain(tx, claim.root_id)
    own = row is not None and row.run_id == claim.id
    if row is None or not own or (row.tool, row.params) != (wanted.tool, wanted.params):
        raise WrongState(f"run {claim.id} has another side effect in the ledger")
    return row


async def call_ended(tx: Tx, claim: Claim, row: LedgerRow, after: LedgerRow) -> None:
    """Checkpoint: what became of the call. Applied moves the phase in the same transaction."""
    if after.status != Mutation.APPLIED:
        await _hold(tx, claim)
        await effects.move(tx, row, after)
        return
    if not tx.dialect.fuses:
        await _move(tx, claim, Phase.MUTATED)
        await effects.move(tx, row, after)
        return
    [(held, moved)] = await tx.rows(
        "end_call", **_held(claim), **effects.arrow(after), phase=Phase.MUTATED, alone=True
    )
    if not held:
        raise claim.lost()
    if not moved:
        raise effects.moved_on(row)


def _held(claim: Claim) -> dict[str, Any]:
    """The claim as statements check it."""
    return {"run_id": claim.id, "claim_count": claim.claim_count, "lease_owner": claim.lease_owner}


async def _hold(tx: Tx, claim: Claim) -> None:
    if not await tx.rows("held_run", **_held(claim)):
        raise claim.lost()


async def _move(tx: Tx, claim: Claim, phase: Phase) -> None:
    if not await tx.rows("move_handler_run", **_held(claim), phase=phase):
        raise claim.lost()
