"""Retention: deletes finished chains in small batches, and never an unresolved one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rota.core.runs.ids import id_bound
from rota.store.backend.database import Row, Tx


class ChainEnd(NamedTuple):
    """A place in the order of ends. Chains that ended at one instant are in the order of ids."""

    at: int
    root_id: str = ""


NEVER = ChainEnd(1 << 62)


class RetentionBatch(NamedTuple):
    """How many chains went, and the id after which the next batch begins; None at the end."""

    chains: int
    after_id: str | None


async def prune(
    tx: Tx,
    *,
    namespace: str,
    before_id: str,
    limit: int,
    before: ChainEnd = NEVER,
    after_id: str = "",
) -> RetentionBatch:
    """Look at one page of runs created before an id. Delete the chains that ended before a place in
    the order of ends, with their steps; likewise the segments of chains that continued as new."""
    window, next_id = await _window(
        tx, namespace=namespace, before_id=before_id, before=before, after_id=after_id,
        limit=limit,
    )  # fmt: skip
    found = await _finished(tx, window, before_id=before_id, before=before)
    roots = await without_needed_children(tx, found)
    if roots:
        await delete_records(tx, roots)
        await tx.rows("delete_chains", roots=roots)
    if ended := [row[0] for row in window if row[2]]:
        await _delete_segments(tx, ended)
    return RetentionBatch(len(roots), next_id)


async def _delete_segments(tx: Tx, last_ids: Sequence[str]) -> None:
    """Delete segments with these last runs. The first run of a chain stays: it has its ids."""
    rows = await tx.rows("ended_segments", ids=list(last_ids))
    runs = [row[0] for row in await tx.many("runs_of_segments", rows)]
    await tx.rows("delete_steps", roots=[row[1] for row in rows])
    await tx.rows("delete_logs_of_runs", ids=runs)
    await tx.rows("delete_runs", ids=runs)
    roots = sorted({row[0] for row in rows})
    await tx.rows("follow_first", roots=roots, ids=list(last_ids))


class FinishedChain(NamedTuple):
    """The first run of a chain that may go."""

    root_id: str
    parent_id: str | None


async def finished_chains(
    tx: Tx, *, namespace: str, before_id: str, before: ChainEnd, after_id: str, limit: int
) -> tuple[list[FinishedChain], str | None]:
    """One page of runs: the chains among them that may go, locked, and the id after which the
    next page begins; None at the end."""
    window, next_id = await _window(
        tx, namespace=namespace, before_id=before_id, before=before, after_id=after_id,
        limit=limit,
    )  # fmt: skip
    return await _finished(tx, window, before_id=before_id, before=before), next_id


async def _window(
    tx: Tx, *, namespace: str, before_id: str, before: ChainEnd, after_id: str, limit: int
) -> tuple[Sequence[Row], str | None]:
    window = await tx.rows(
        "retention_window", namespace=namespace, after_id=after_id, before_id=before_id,
        before_at=before.at, before_root_id=before.root_id, limit=limit,
    )  # fmt: skip
    return window, window[-1][0] if len(window) == limit else None


async def _finished(
    tx: Tx, window: Sequence[Row], *, before_id: str, before: ChainEnd
) -> list[FinishedChain]:
    ids = [row[0] for row in window if row[1]]
    if not ids:
        return []
    locked = await tx.rows("lock_chains", ids=ids)
    found = await tx.rows(
        "prunable_chains", ids=[row[0] for row in locked], before_id=before_id, before_at=before.at,
        before_root_id=before.root_id,
    )  # fmt: skip
    return [FinishedChain(*row) for row in found]


async def without_needed_children(tx: Tx, chains: Sequence[FinishedChain]) -> list[str]:
    """The chains without those that their parent may ask for: it is open, or did not complete and
    may be retried, and stays. Parents come before their children. Only the newest segment counts:
    the code of the parent has forgotten children of an earlier one."""
    parents = {chain.parent_id for chain in chains if chain.parent_id is not None}
    if not parents:
        return [chain.root_id for chain in chains]
    rows = await tx.rows("retryable_chains", roots=sorted(parents))
    segments: dict[str | None, str] = {row[0]: row[1] for row in rows}
    going = []
    for chain in chains:
        segment = segments.get(chain.parent_id)
        if segment is None or (segment != chain.parent_id and chain.root_id < segment):
            segments.pop(chain.root_id, None)
            going.append(chain.root_id)
    return going


async def delete_records(tx: Tx, roots: Sequence[str]) -> None:
    """Delete the steps and log lines of chains."""
    await tx.rows("delete_later_steps", roots=roots)
    await tx.rows("delete_steps", roots=roots)
    await tx.rows("delete_log_lines", roots=roots)


async def backlog(tx: Tx, *, namespace: str, before_at: int, limit: int) -> int:
    """How many of the oldest `limit` runs began a chain and ended before an instant."""
    window = await tx.rows(
        "retention_window", namespace=namespace, after_id="", before_id=id_bound(before_at),
        before_at=before_at, before_root_id="", limit=limit,
    )  # fmt: skip
    return sum(bool(row[1]) for row in window)


async def prune_events(
    tx: Tx, *, namespace: str, before_id: str, before_at: int, limit: int
) -> int:
    """Delete events created before an id that were used or skipped before an instant, and the
    inputs that led to nothing else. Events that are pending or held by a run stay."""
    rows = await tx.rows(
        "prunable_events", namespace=namespace, before_id=before_id, before_at=before_at,
        limit=limit,
    )  # fmt: skip
    ids = [row[0] for row in rows]
    if ids:
        inputs = [row[0] for row in await tx.rows("inputs_of_events", ids=ids)]
        await tx.rows("delete_events", ids=ids)
        await tx.rows("delete_spent_inputs", ids=inputs)
    return len(ids)


async def oldest_to_keep(tx: Tx, *, namespace: str, keep: int) -> ChainEnd | None:
    """The end before which finished chains exceed `keep`; None if there are fewer."""
    rows = await tx.rows("nth_newest_end", namespace=namespace, newer=keep - 1)
    return ChainEnd(*rows[0]) if rows else None
