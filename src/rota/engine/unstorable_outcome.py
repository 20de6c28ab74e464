"""Settles one run of a batch that could not be stored: the run with the bad value fails, alone."""

from __future__ import annotations

import logging

from rota.core.runs.failures import Kind, describe
from rota.core.runs.model import Outcome
from rota.engine.journal import unstorable
from rota.errors import StoreError
from rota.store.backend.database import Database
from rota.store.runs.settle import SettleResult, settle_runs

log = logging.getLogger("rota.worker")


async def settle_one(
    database: Database, outcome: Outcome, now: int
) -> tuple[Outcome, SettleResult]:
    """Settle a run as it ended, or as failed if that cannot be stored."""
    claim = outcome.claim
    for last in (False, True):
        try:
            return outcome, await database.write(settle_runs, [outcome], now=now)
        except StoreError:
            raise
        except Exception as error:
            log.exception("the end of run %s (%s) cannot be stored", claim.id, claim.name)
            if last:
                break  # its lease lapses, and a recovery takes over
            problem = describe(unstorable(error, f"the end of run {claim.id} ({claim.name})"))
            outcome = Outcome(claim, "fail", reason=Kind.INTERNAL, error=problem)
    return outcome, SettleResult(frozenset(), woke=False)
