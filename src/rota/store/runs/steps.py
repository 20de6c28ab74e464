"""Steps of a chain and the ends of its children. Every write is fenced by the run's claim."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple

import msgspec
from msgspec.structs import astuple

from rota.core.runs.lifecycle import PARENT_ENDED
from rota.core.runs.model import Claim, NewRun, Started, StepRecord, StoredStep
from rota.store.backend.database import Row, Tx
from rota.store.runs import history
from rota.store.runs.history import ChainResult
from rota.store.runs.manual_retry import retry_chain
from rota.store.runs.start import start_runs

_run_id = attrgetter("claim.id")


async def record(tx: Tx, records: Sequence[StepRecord], *, alone: bool = True) -> list[bool]:
    """Write steps under their claims. For each: whether this worker may write."""
    # Sorted, so that two batches which lock the same runs cannot wait for each other.
    in_order = sorted(records, key=_run_id)
    rows: list[Row] = [_row(record.claim, record.step) for record in in_order]
    if await tx.change("record_steps", rows, alone=alone) == len(records):
        return [True] * len(records)
    asked = [
        (*_fence(record.claim), record.step.key, record.step.started_at) for record in in_order
    ]
    rows = await tx.many("recorded_of", asked, alone=alone)
    stand = {(row[0], row[1]) for row in rows}
    return [(record.claim.segment, record.step.key) in stand for record in records]


async def record_progress(tx: Tx, records: Sequence[StepRecord]) -> None:
    """Write the progress of running steps, under their claims; the latest of each counts."""
    latest = {(record.claim.id, record.step.key): record for record in records}
    rows: list[Row] = [_row(latest[key].claim, latest[key].step) for key in sorted(latest)]
    await tx.change("record_progress", rows, alone=True)


async def load(tx: Tx, roots: Sequence[str]) -> dict[str, list[StoredStep]]:
    """Everything recorded for these segments, in order."""
    found: dict[str, list[StoredStep]] = {root: [] for root in roots}
    for row in await tx.rows("steps_of", roots=list(roots), alone=True):
        step = StoredStep(*row)
        found[step.root_id].append(step)
    return found


async def ends(tx: Tx, *, root_id: str) -> list[StoredStep]:
    """The requests to end a chain that count, and the ends that its code got."""
    return [StoredStep(*row) for row in await tx.rows("ends_of", root_id=root_id)]


async def page(tx: Tx, *, root_id: str, after: str, limit: int) -> list[StoredStep] | None:
    """Steps of a chain after the one with a key, in order; None when there is no such step."""
    position = -1
    if after:
        known = await tx.rows("step_of", root_id=root_id, key=after)
        if not known:
            return None
        position = StoredStep(*known[0]).position
    rows = await tx.rows(
        "steps_after", root_id=root_id, position=position, key=after, limit=limit, alone=not after
    )
    return [StoredStep(*row) for row in rows]


class ChildStart(NamedTuple):
    """A child about to be inserted, and the step by which its parent remembers it."""

    record: StepRecord
    child: NewRun


async def record_children(
    tx: Tx, starts: Sequence[ChildStart], *, now: int
) -> list[Started | None]:
    """Start children and remember them, both or neither, so that each is inserted exactly once.

    None for a child with a parent that is no longer held."""
    held = await _held(tx, [start.record.claim for start in starts])
    ours = [start for start in starts if _fence(start.record.claim) in held]
    started = await start_runs(tx, [start.child for start in ours], now=now, alone=False)
    answers = dict(zip([start.child.id for start in ours], started, strict=True))
    steps = [
        StepRecord(
            start.record.claim,
            msgspec.structs.replace(start.record.step, child_id=answers[start.child.id].id),
        )
        for start in ours
    ]
    await record(tx, steps, alone=False)
    return [answers.get(start.child.id) for start in starts]


def _row(claim: Claim, step: StoredStep) -> Row:
    """The fence, then the columns of the step. `astuple` keeps this short: the caller holds the GIL
    that the writer thread needs."""
    return _fence(claim) + astuple(step)[1:]  # SQL reads the root from the run


def _fence(claim: Claim) -> tuple[str, int, str]:
    return (claim.id, claim.claim_count, claim.lease_owner)


async def _held(tx: Tx, claims: Sequence[Claim]) -> set[tuple[str, int, str]]:
    """Lock the claimed runs; the claims among them that are still held."""
    rows = await tx.rows("held_claims", ids=sorted({claim.id for claim in claims}))
    return {(row[0], row[1], row[2]) for row in rows}


class ChildEnd(NamedTuple):
    """The state of a child for its parent: its end, if any, and the parent it belongs to."""

    ended: ChainResult | None
    is_own: bool
    is_gone: bool = False  # pruned or archived

    @property
    def ended_with_parent(self) -> bool:
        """Whether it was cancelled by the end of this very parent, which is tried again now."""
        ended = self.ended
        return self.is_own and ended is not None and ended.reason == PARENT_ENDED


class ChildQuery(NamedTuple):
    """A parent that asks for the end of one of its children."""

    claim: Claim
    child_id: str


async def read_child_ends(tx: Tx, queries: Sequence[ChildQuery]) -> list[ChildEnd]:
    """Read how children ended, under the locks of their parents. A child that ends later pokes its
    parent, so no end is missed."""
    await tx.rows("lock_roots", roots=sorted({query.claim.root_id for query in queries}))
    ids = sorted({query.child_id for query in queries})
    ended = {end.root_id: end for end in await history.ended(tx, ids, alone=False)}
    unsure = {i for i in ids if i not in ended or ended[i].reason == PARENT_ENDED}
    rows = await tx.rows("parents_of", ids=sorted(unsure)) if unsure else []
    parents = {row[0]: row[1] for row in rows}
    return [
        ChildEnd(
            ended.get(query.child_id),
            query.child_id not in unsure or parents.get(query.child_id) == query.claim.root_id,
            query.child_id in unsure and query.child_id not in parents,
        )
        for query in queries
    ]


async def retry_child(tx: Tx, waiting: StepRecord, child_id: str, new_id: str, *, now: int) -> None:
    """Try a child again that failed in an earlier attempt of its parent, once for this attempt."""
    await hold(tx, waiting.claim)
    await retry_chain(tx, child_id, new_id, now=now)
    await record(tx, [waiting], alone=False)


async def hold(tx: Tx, claim: Claim) -> None:
    """Lock the claimed run; LeaseLost if another worker has it."""
    if _fence(claim) not in await _held(tx, [claim]):
        raise claim.lost()


async def fork(tx: Tx, run: NewRun, *, from_root: str, position: int, now: int) -> Started:
    """Start a new chain that already knows the steps before `position`."""
    [started] = await start_runs(tx, [run], now=now, alone=False)
    if started.existed:
        return started
    await tx.rows("copy_steps", to_root=started.id, from_root=from_root, position=position)
    return started
