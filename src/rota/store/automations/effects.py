"""The ledger of side effects: written before the call, settled after it, kept as long as its run.

A unique index allows a chain one side effect that is not certain to have failed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from rota.core.automations.model import LedgerRow
from rota.core.automations.phases import LEDGER, Mutation
from rota.core.runs.model import Claim
from rota.errors import WrongState
from rota.store.backend.database import Tx


class Wanted(NamedTuple):
    """A side effect that a handler asks for."""

    automation: str
    handler: str
    tool: str
    safety: str
    params: str
    title: str | None


async def all_of_chain(tx: Tx, root_id: str) -> list[LedgerRow]:
    """A chain's ledger, oldest entry first."""
    rows = await tx.rows("mutations_of_chains", root_ids=[root_id])
    return [LedgerRow(*row) for row in rows]


async def of_chain(tx: Tx, root_id: str) -> LedgerRow | None:
    """The relevant entry of a chain's ledger: its one live entry, or otherwise its last failure."""
    return what_matters(await all_of_chain(tx, root_id))


async def of_chains(tx: Tx, root_ids: Sequence[str]) -> dict[str, LedgerRow]:
    """The same for several chains, by their roots; those without an entry are skipped."""
    found: dict[str, list[LedgerRow]] = {}
    for row in await tx.rows("mutations_of_chains", root_ids=list(root_ids)):
        entry = LedgerRow(*row)
        found.setdefault(entry.root_id, []).append(entry)
    return {root: one for root, rows in found.items() if (one := what_matters(rows)) is not None}


def what_matters(rows: Sequence[LedgerRow]) -> LedgerRow | None:
    """The one live entry of a chain, or its last failure."""
    live = [row for row in rows if row.status != Mutation.FAILED]
    return next(reversed(live or rows), None)


async def put(
    tx: Tx, claim: Claim, wanted: Wanted, status: Mutation, *, number: int, now: int
) -> LedgerRow | None:
    """Write the chain's entry of this number, for a side effect that has not been called; None
    when there is one already."""
    rows = await tx.rows(
        "put_mutation", id=entry_id(claim, number), root_id=claim.root_id, run_id=claim.id,
        namespace=claim.namespace, status=status, now=now, **wanted._asdict(),
    )  # fmt: skip
    return LedgerRow(*rows[0]) if rows else None


def entry_id(claim: Claim, number: int) -> str:
    """The id of a chain's entry, which is the idempotency key of the call."""
    return f"{claim.root_id}-{number:03d}"


def arrow(after: LedgerRow) -> dict[str, Any]:
    """The parameters of a statement that changes the status of an entry. `sources` are the statuses
    that LEDGER allows before the new one, and the new one itself."""
    status = Mutation(after.status)
    sources = [str(one) for one, targets in LEDGER.items() if status in targets or one == status]
    return {
        "id": after.id, "status": status, "sources": sources, "result": after.result,
        "error": after.error, "resolved_by": after.resolved_by, "now": after.updated_at,
    }  # fmt: skip


async def move(tx: Tx, row: LedgerRow, after: LedgerRow) -> None:
    """Follow one arrow of the ledger's table, or WrongState and nothing changed."""
    if not await tx.rows("move_mutation", **arrow(after), reconcile_count=after.reconcile_count):
        raise moved_on(row)


def moved_on(row: LedgerRow) -> WrongState:
    """The error for an entry that has changed since it was read."""
    return WrongState(f"side effect {row.id} is no longer {row.status}", mutation_id=row.id)


async def adopt(tx: Tx, claim: Claim) -> None:
    """The chain's live entry now belongs to its newest run."""
    await tx.rows("adopt_mutation", root_id=claim.root_id, run_id=claim.id)


async def approve(tx: Tx, root_id: str, *, now: int) -> None:
    """Note that a person agreed to the exact parameters that were proposed."""
    await tx.rows("approve_mutation", root_id=root_id, now=now)
