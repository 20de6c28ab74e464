"""Claims: a worker takes pending runs, in a transaction of their own or after a settlement."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from rota.core.runs import rate_limit
from rota.core.runs.claim_positions import QueuePosition, claim_order
from rota.core.runs.model import Claim, Queue
from rota.core.time.instants import HOUR
from rota.store.backend.database import Row, Tx
from rota.store.backend.queries import served_query

# Keys of one queue that one claim reads.
KEYS_MAX = 10_000
# A key that was served longer ago than this counts as new.
SERVED_US = HOUR
# Runs that execute alone, of which a claim reads so many and takes one.
ALONE_MAX = 100
NO_KEY = ""  # represents runs without a key where keys take turns


class ClaimRequest(msgspec.Struct, frozen=True):
    """A claim of a worker: up to `runs_max` runs, from queues in this order with their free slots.

    `after` has positions before which no run is left, except late ones. A claim starts behind them,
    but takes higher priorities first. Only PostgreSQL needs it, which keeps old index entries.
    """

    namespace: str
    worker_id: str
    names: list[str]
    queues: Sequence[tuple[str, int]]
    runs_max: int
    limited: frozenset[str]
    now: int
    lease_until: int
    one_alone: bool = False  # at most one run, and one that is executed alone
    after: Mapping[str, QueuePosition] = {}
    code_id: str = ""  # the code set of the worker, if it has one
    parent_id: str = ""  # children of this run come first in queues without limits
    alone_order: Callable[[Iterable[str]], list[str]] = list  # which run executes alone first
    version: str = ""  # of the worker's code

    def query(self, name: str) -> str:
        """The form of a query that finds what this worker may take."""
        return served_query(name, self.code_id)

    def place(self, queue: str) -> dict[str, Any]:
        """The parameters of `{served runs}` in a queue."""
        return {
            "namespace": self.namespace, "queue": queue, "names": self.names,
            "code_id": self.code_id, "version": self.version,
        }  # fmt: skip


class Claimed(NamedTuple):
    """The result of a claim, and when a rate limit will allow more (if one blocked it)."""

    claims: list[Claim]
    retry_at: int | None = None


async def claim(tx: Tx, request: ClaimRequest, *, alone: bool = True) -> Claimed:
    """Take up to the free slots, queue by queue, highest priority and oldest first."""
    taken: list[Claim] = []
    retry_at: int | None = None
    alone = alone and len(request.queues) == 1
    for queue, free in request.queues:
        slots = min(free, request.runs_max - len(taken))
        if slots <= 0:
            break
        if queue in request.limited or request.one_alone:
            rows, free_at = await _claim_limited(tx, request, queue, slots)
            retry_at = free_at if retry_at is None else min(retry_at, free_at or retry_at)
            taken += _in_order(rows)
        else:
            if request.parent_id:
                taken += await _claim_children(tx, request, queue, slots)
                slots = min(slots, request.runs_max - len(taken))
            taken += await _claim_ready(tx, request, queue, slots, alone) if slots > 0 else []
    return Claimed(taken, retry_at)


async def _claim_ready(
    tx: Tx, request: ClaimRequest, queue: str, slots: int, alone: bool
) -> list[Claim]:
    """The first runs of a queue without limits."""
    values = values_of(request, queue, slots)
    if tx.dialect.fuses:
        if queue in request.after:
            rows = await tx.rows(request.query("claim_runs_after"), alone=alone, **values)
        else:
            rows = await tx.rows(request.query("claim_runs"), alone=alone, **values)
        return _in_order(rows)
    [[ready, places]] = await tx.rows(request.query("ready_runs"), **values)
    claims = _CLAIMS.decode(ready)
    if claims:
        await tx.rows("take_runs", places=places, **values)
    return claims


async def _claim_children(tx: Tx, request: ClaimRequest, queue: str, slots: int) -> list[Claim]:
    """Children of a run that was executed alone a moment ago: it may wait for them."""
    picked = await tx.rows(
        request.query("pick_children"), parent_id=request.parent_id, limit=slots,
        **request.place(queue),
    )  # fmt: skip
    return _in_order(await _claim_listed(tx, request, [row[0] for row in picked]))


def values_of(request: ClaimRequest, queue: str, limit: int) -> dict[str, Any]:
    """The values of a statement that claims from one queue without limits."""
    values = request.place(queue)
    values |= {
        "limit": limit, "now": request.now, "worker_id": request.worker_id,
        "lease_until": request.lease_until,
    }  # fmt: skip
    after = request.after.get(queue)
    if after is not None:
        values |= {
            "after_priority": after.priority, "after_at": after.available_at, "after_id": after.id,
        }  # fmt: skip
    return values


_CLAIMS = msgspec.json.Decoder(list[Claim])


def _in_order(rows: Sequence[Row]) -> list[Claim]:
    return sorted((Claim(*row) for row in rows), key=claim_order)


async def _claim_limited(
    tx: Tx, request: ClaimRequest, queue: str, slots: int
) -> tuple[list[Row], int | None]:
    """Count and claim under the queue's lock, so that a limit holds across all workers."""
    found = await tx.rows("lock_queue", namespace=request.namespace, name=queue)
    limit = Queue(*found[0]) if found else Queue(request.namespace, queue)
    runs_max = await _runs_allowed(tx, limit, slots)
    rate = rate_limit.Rate(limit.rate_count or 0, limit.rate_per_us or 0)
    if rate.count:
        runs_max = min(runs_max, rate_limit.allowed(rate, ready_at=limit.ready_at, now=request.now))
    rows = await _claim_picked(tx, request, limit, runs_max) if runs_max > 0 else []
    if not rate.count:
        return rows, None
    ready_at = rate_limit.advance(rate, ready_at=limit.ready_at, now=request.now, taken=len(rows))
    if rows:
        await tx.rows(
            "move_queue_clock", namespace=request.namespace, name=queue, ready_at=ready_at
        )
    exhausted = rate_limit.allowed(rate, ready_at=ready_at, now=request.now) == 0
    return rows, rate_limit.next_free_at(rate, ready_at=ready_at) if exhausted else None


async def _runs_allowed(tx: Tx, limit: Queue, slots: int) -> int:
    if limit.paused:
        return 0
    if not limit.running_max:
        return slots
    running = await tx.rows("count_running", namespace=limit.namespace, queue=limit.name)
    return min(slots, limit.running_max - int(running[0][0]))


async def _claim_picked(tx: Tx, request: ClaimRequest, limit: Queue, runs_max: int) -> list[Row]:
    place, per_key = request.place(limit.name), limit.key_running_max or 0
    if request.one_alone:  # it holds its place of an open key already, from its first claim
        picked = await tx.rows(
            request.query("pick_alone"), per_key=per_key, limit=ALONE_MAX, **place
        )
        ids = {root_id: run_id for run_id, root_id in reversed(picked)}
        first = request.alone_order(reversed(ids))[:1]
        return await _claim_listed(tx, request, [ids[root_id] for root_id in first])
    if limit.key_open_max or limit.round_robin:
        return await _claim_by_key(tx, request, limit, runs_max)
    if limit.age_us:
        picked = await _pick_aged(tx, request, limit, runs_max)
    else:
        picked = await tx.rows(
            request.query("pick_unkeyed"), per_key=per_key, limit=runs_max, **place
        )
    if per_key:
        picked += await tx.rows(request.query("pick_keyed"), share=per_key, limit=runs_max, **place)
        picked.sort(key=_queue_order)
    return await _claim_listed(tx, request, [row[0] for row in picked[:runs_max]])


def _queue_order(row: Row) -> tuple[int, int, str]:
    """The order by id, priority and instant: highest priority, then oldest."""
    return (-row[1], row[2], row[0])


async def _claim_listed(tx: Tx, request: ClaimRequest, ids: Sequence[str]) -> list[Row]:
    return await tx.rows(
        "claim_listed", ids=list(ids), worker_id=request.worker_id,
        lease_until=request.lease_until, now=request.now,
    )  # fmt: skip


async def _pick_aged(tx: Tx, request: ClaimRequest, limit: Queue, runs_max: int) -> list[Row]:
    """The first by priority plus one for every `age_us` of waiting; that order never changes."""
    place, age_us = request.place(limit.name), limit.age_us or 0
    picked: list[Row] = []
    for [priority] in await tx.rows("waiting_priorities", **place):
        picked += await tx.rows(
            request.query("pick_priority"), priority=priority, limit=runs_max, **place
        )
    return sorted(picked, key=lambda row: (row[2] - row[1] * age_us, row[0]))


async def _claim_by_key(tx: Tx, request: ClaimRequest, limit: Queue, runs_max: int) -> list[Row]:
    """Claim where keys take turns, or hold their places until the end."""
    claimed: list[Row] = []
    pick = _pick_open if limit.key_open_max else _pick_round_robin
    while runs_max > len(claimed):  # again: a key may have more than was picked of it
        ids = await pick(tx, request, limit, runs_max - len(claimed))
        rows = await _claim_listed(tx, request, ids) if ids else []
        if not rows:
            break
        claimed += rows
    return claimed


async def _pick_open(tx: Tx, request: ClaimRequest, limit: Queue, runs_max: int) -> list[str]:
    """At most one run of each key, and a place for each chain that has none yet."""
    place = request.place(limit.name)
    keys = [(row[0],) for row in await tx.rows("waiting_keys", limit=KEYS_MAX, **place)]
    found = await tx.many(
        request.query("pick_open"), keys, share=1, key_open_max=limit.key_open_max, **place
    )
    rows = await tx.rows("places_of", ids=[row[0] for row in found if row[0] is not None])
    rows += await _unkeyed(tx, request, limit, runs_max)
    picked = sorted(rows, key=_queue_order)[:runs_max]
    keyed = [(row[4], row[3]) for row in picked if len(row) > 3]
    if keyed:
        await tx.rows("drop_holders", keys=[key for _, key in keyed], **place)
        await tx.change("hold_keys", keyed, **place)
    return [row[0] for row in picked]


async def _unkeyed(tx: Tx, request: ClaimRequest, limit: Queue, runs_max: int) -> list[Row]:
    return await tx.rows(
        request.query("pick_unkeyed"), per_key=1, limit=runs_max, **request.place(limit.name)
    )


async def _pick_round_robin(
    tx: Tx, request: ClaimRequest, limit: Queue, runs_max: int
) -> list[str]:
    """The same number of runs of each key, from the keys that were served longest ago. Runs
    without a key take turns with the others as one key."""
    place = request.place(limit.name)
    unkeyed = [row[0] for row in await _unkeyed(tx, request, limit, runs_max)]
    keys = [row[0] for row in await tx.rows("waiting_keys", limit=KEYS_MAX, **place)]
    if unkeyed:
        keys.insert(await _position_of_unkeyed(tx, place, keys), NO_KEY)
    # Part by part: runs that this worker does not know hold up no key.
    for begin in range(0, len(keys), runs_max):
        chosen = keys[begin : begin + runs_max]
        share = -(-runs_max // len(chosen))
        found = {NO_KEY: unkeyed[:share]}
        items = [(key,) for key in chosen if key != NO_KEY]
        for key, ids in await tx.many(request.query("pick_of_keys"), items, share=share, **place):
            found[key] = ids.split() if ids else []
        if served := [key for key in chosen if found[key]]:
            await _serve(tx, request, place, served)
            rounds = itertools.zip_longest(*(found[key] for key in served))
            return [run_id for each in rounds for run_id in each if run_id is not None][:runs_max]
    return []


async def _position_of_unkeyed(tx: Tx, place: dict[str, Any], keys: Sequence[str]) -> int:
    """The position of runs without a key among these keys, which are in serving order."""
    rows = await tx.rows("served_of", keys=[NO_KEY, *keys], **place)
    served = {row[0]: row[1] for row in rows}
    return sum(served.get(key, 0) < served.get(NO_KEY, 0) for key in keys)


async def _serve(tx: Tx, request: ClaimRequest, place: dict[str, Any], keys: Sequence[str]) -> None:
    # Instants that grow from key to key and from claim to claim: no two keys are equal.
    [[last]] = await tx.rows("last_served", **place)
    first = max(request.now, last + 1)
    served = [(key, first + number) for number, key in enumerate(keys)]
    await tx.change("serve_keys", served, **place)
    await tx.rows("forget_served", before=request.now - SERVED_US, **place)


async def holders(tx: Tx, *, namespace: str, queue: str, key: str) -> list[str]:
    """The open chains that hold the places of a key."""
    return [
        row[0] for row in await tx.rows("holders_of", namespace=namespace, queue=queue, key=key)
    ]
