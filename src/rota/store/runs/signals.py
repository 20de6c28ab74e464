"""Signals to a chain: sending one, and taking it as the result of the step that waits for it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import msgspec

from rota.core.json_schema import misfit
from rota.core.runs.failures import describe
from rota.core.runs.model import Claim, Outcome, StepRecord, StoredStep
from rota.errors import BadInput
from rota.store.backend.database import Row, Tx
from rota.store.runs.steps import hold, record
from rota.store.runs.wake import poke

Fits = Callable[[str | None], BadInput | None]


def any_fits(_: str | None) -> BadInput | None:
    """Accept every signal: the wait has no type."""
    return None


async def _fitting_signal(
    tx: Tx, root_id: str, name: str, fits: Fits
) -> tuple[Row | None, BadInput | None]:
    """The oldest untaken signal that fits, and why the last one that does not was left."""
    # Nearly always the oldest one fits, so only that is read first.
    row, refused = _first_fitting(await tx.rows("oldest_signal", root_id=root_id, name=name), fits)
    if refused is not None:
        rows = await tx.rows("untaken_signals", root_id=root_id, name=name)
        row, refused = _first_fitting(rows, fits)
    return row, refused


def _first_fitting(rows: Sequence[Row], fits: Fits) -> tuple[Row | None, BadInput | None]:
    refused: BadInput | None = None
    for row in rows:
        problem = fits(row[1])
        if problem is None:
            return row, refused
        refused = problem
    return None, refused


async def await_signal(
    tx: Tx, claim: Claim, name: str, step: StoredStep, *, fits: Fits = any_fits, now: int
) -> StoredStep:
    """Consume the oldest untaken signal of that name that fits, as this step's result. One that
    does not fit is left where it is, and the step says so.

    Without one the step is recorded as waiting, or as failed when its time is up. One
    transaction, so that no signal can arrive between the check and the write.
    """
    await tx.rows("lock_roots", roots=[claim.root_id])
    await hold(tx, claim)
    known = await tx.rows("step_of", root_id=claim.segment, key=step.key)
    if known and known[0][4] != "waiting":
        return StoredStep(*known[0])  # decided before: only the answer of the database was lost
    found, refused = await _fitting_signal(tx, claim.root_id, name, fits)
    if found is not None:
        await tx.rows("take_signal", id=found[0], key=step.key)
        step = msgspec.structs.replace(
            step, status="completed", output=found[1], error=None, finished_at=now
        )
    elif step.wake_at is not None and step.wake_at <= now:
        step = msgspec.structs.replace(step, status="failed", output=None, finished_at=now)
    elif refused is not None:
        step = msgspec.structs.replace(step, error=describe(refused))
    await record(tx, [StepRecord(claim, step)], alone=False)
    return step


async def give_back_signal(tx: Tx, claim: Claim, step: StoredStep) -> None:
    """Undo the end of a wait that the code has cancelled: the signal is for the next one."""
    await tx.rows("lock_roots", roots=[claim.root_id])
    await hold(tx, claim)
    await tx.rows("give_back_signal", root_id=claim.root_id, key=step.key)
    await tx.rows("end_wait", root_id=claim.segment, key=step.key, error=step.error)


async def leave_signals(tx: Tx, continued: Sequence[Outcome]) -> None:
    """Leave the signals that the code of a segment has not got to the next one. The others are in
    its steps; the next segment uses the same keys again."""
    roots = sorted({outcome.claim.root_id for outcome in continued})
    if not roots:
        return
    pairs = [(outcome.claim.root_id, key) for outcome in continued for key in outcome.untaken]
    await tx.many("give_back_signals", pairs)
    await tx.rows("delete_taken_signals", roots=roots)


async def send_signal(
    tx: Tx, *, signal_id: str, root_id: str, name: str, body: str | None, now: int
) -> None:
    """Leave a signal for a chain and wake it."""
    await tx.rows("lock_roots", roots=[root_id])
    await _check_signal(tx, root_id, name, body)
    await tx.many("send_signal", [(signal_id, root_id, name, body)], now=now)
    await poke(tx, [root_id], now=now)


async def _check_signal(tx: Tx, root_id: str, name: str, body: str | None) -> None:
    """Refuse a value that fits nothing the chain waits for under that name at this moment."""
    waiting = [
        shape
        for key, shape in await tx.rows("signal_waits", root_id=root_id)
        if key.rpartition("#")[0] == f"wait {name}"
    ]
    complaints = [shape and misfit(json.loads(shape), body or "null") for shape in waiting]
    if complaints and all(complaints):
        raise BadInput(
            f"signal {name}: {complaints[0]}",
            hint="Send what the workflow waits for (the `type` of its `wait_for`).",
        )
