"""The budgets of a run: its own, and those of its pipeline for a day and a month.

The budgets of a pipeline are rows of the database. So is the budget of a run that workers of other
machines may share; otherwise the process that executes the run counts alone.
"""

from __future__ import annotations

from rota.ai.budget import Budget
from rota.ai.shared_budgets import AccountRow, Period, SharedBudget
from rota.engine.context import EngineContext
from rota.pipelines.definition.sections import BudgetLimits, PipelineBudget
from rota.pipelines.run.call_ledger import CallTotals
from rota.pipelines.run.run_store import RunStore
from rota.pipelines.snapshot import Snapshot
from rota.store.backend.database import Database


async def budgets_of(
    base: EngineContext, store: RunStore, snapshot: Snapshot, root_id: str, *, is_shared: bool
) -> list[Budget]:
    """The budgets that the calls of a run, or of a shard of the run `root_id`, have to keep."""
    limits = snapshot.pipeline.settings.budget or PipelineBudget()
    named = f"pipeline {snapshot.pipeline_id} for"
    periods: list[tuple[Period, BudgetLimits | None]] = [
        ("day", limits.per_day), ("month", limits.per_month)
    ]  # fmt: skip
    own = [
        await _shared(base, store, _budget(part), f"{snapshot.pipeline_id}:{period}", period, named)
        for period, part in periods
        if part is not None
    ]
    budget = _budget(limits)
    if not budget.is_limited:
        return list(own)
    is_shard = root_id != store.root_id
    spent = CallTotals() if is_shard or store.claim.is_fresh else await _totals(store)
    if is_shared:
        row = _row(base.database, store, f"run:{root_id}", spent)
        budget = await _opened(base, store, row, budget, "run", "this run")
    else:
        budget.spent = spent.spent
        budget.assumed_nano_usd = spent.assumed_nano_usd
    return [budget, *own]


async def forget(database: Database, store: RunStore) -> None:
    """Delete the row of a run that has ended; a retry counts from the ledger."""
    await _row(database, store, f"run:{store.root_id}", CallTotals()).remove()


async def _totals(store: RunStore) -> CallTotals:
    """The calls of the chain and of its shards."""
    totals = await store.call_totals()
    for shard in await store.shards():
        totals += await shard.call_totals()
    return totals


def _budget(limits: BudgetLimits) -> Budget:
    return Budget(limits.max_cost, limits.max_tokens, limits.max_calls)


def _row(database: Database, store: RunStore, name: str, spent: CallTotals) -> AccountRow:
    return AccountRow(database, namespace=store.claim.namespace, name=name, first=spent.spent)


async def _shared(
    base: EngineContext, store: RunStore, budget: Budget, name: str, period: Period, of: str
) -> Budget:
    return await _opened(
        base, store, _row(base.database, store, name, CallTotals()), budget, period, of
    )


async def _opened(
    base: EngineContext, store: RunStore, row: AccountRow, budget: Budget, period: Period, of: str
) -> Budget:
    claim = store.claim
    shared = SharedBudget(
        row, base.clock, budget, holder=f"{claim.id}.{claim.claim_count}", period=period, of=of
    )
    await shared.open(f"{claim.id}.")
    return shared
