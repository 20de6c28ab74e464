"""Claims: who performs what next. One step of a transaction, alone or after a settlement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from rota.core.runs import limits
from rota.core.runs.model import Claim, Queue
from rota.store.backend.database import Row, Tx


class ClaimRequest(msgspec.Struct, frozen=True):
    """Who claims what: up to `room` runs from queues in their order, each with its free seats."""

    namespace: str
    worker_id: str
    names: list[str]
    queues: Sequence[tuple[str, int]]
    room: int
    limited: frozenset[str]
    now: int
    lease_until: int


class Claimed(NamedTuple):
    """What a claim got, and when a rate limit will allow more (if one stood in the way)."""

    claims: list[Claim]
    retry_at: int | None = None


async def claim(tx: Tx, request: ClaimRequest, *, alone: bool = True) -> Claimed:
    """Take up to the free seats, queue by queue, highest priority and oldest first."""
    taken: list[Claim] = []
    retry_at: int | None = None
    alone = alone and len(request.queues) == 1
    for queue, free in request.queues:
        seats = min(free, request.room - len(taken))
        if seats <= 0:
            break
        if queue in request.limited:
            rows, free_at = await _claim_limited(tx, request, queue, seats)
            retry_at = free_at if retry_at is None else min(retry_at, free_at or retry_at)
            taken += _in_order(rows)
        else:
            taken += await _claim_ready(tx, request, queue, seats, alone)
    return Claimed(taken, retry_at)


async def _claim_ready(
    tx: Tx, request: ClaimRequest, queue: str, seats: int, alone: bool
) -> list[Claim]:
    """The first in line of a queue without limits."""
    if tx.dialect.fuses:
        rows = await tx.rows(
            "claim_runs",
            namespace=request.namespace, queue=queue, names=request.names, limit=seats,
            worker_id=request.worker_id, lease_until=request.lease_until, now=request.now,
            alone=alone,
        )  # fmt: skip
        return _in_order(rows)
    [[ready, places]] = await tx.rows(
        "ready_runs", namespace=request.namespace, queue=queue, names=request.names, limit=seats,
        now=request.now,
    )  # fmt: skip
    claims = _CLAIMS.decode(ready)
    if claims:
        await tx.rows(
            "take_runs", places=places, worker_id=request.worker_id,
            lease_until=request.lease_until, now=request.now,
        )  # fmt: skip
    return claims


_CLAIMS = msgspec.json.Decoder(list[Claim])


def _in_order(rows: Sequence[Row]) -> list[Claim]:
    return sorted((Claim(*row) for row in rows), key=claim_order)


def claim_order(claim: Claim) -> tuple[int, int, str]:
    """The line: highest priority, then oldest."""
    return (-claim.priority, claim.available_at, claim.id)


async def _claim_limited(
    tx: Tx, request: ClaimRequest, queue: str, seats: int
) -> tuple[list[Row], int | None]:
    """Count and claim under the queue's lock, so that a limit holds across all workers."""
    found = await tx.rows("lock_queue", namespace=request.namespace, name=queue)
    limit = Queue(*found[0]) if found else Queue(request.namespace, queue)
    room = await _room(tx, limit, seats)
    rate = limits.Rate(limit.rate_count or 0, limit.rate_per_us or 0)
    if rate.count:
        room = min(room, limits.room(rate, ready_at=limit.ready_at, now=request.now))
    rows = await _claim_picked(tx, request, limit, room) if room > 0 else []
    if not rate.count:
        return rows, None
    ready_at = limits.advance(rate, ready_at=limit.ready_at, now=request.now, taken=len(rows))
    if rows:
        await tx.rows(
            "move_queue_clock", namespace=request.namespace, name=queue, ready_at=ready_at
        )
    exhausted = limits.room(rate, ready_at=ready_at, now=request.now) == 0
    return rows, limits.next_free_at(rate, ready_at=ready_at) if exhausted else None


async def _room(tx: Tx, limit: Queue, seats: int) -> int:
    if limit.paused:
        return 0
    if not limit.running_max:
        return seats
    running = await tx.rows("count_running", namespace=limit.namespace, queue=limit.name)
    return min(seats, limit.running_max - int(running[0][0]))


async def _claim_picked(tx: Tx, request: ClaimRequest, limit: Queue, room: int) -> list[Row]:
    place: dict[str, Any] = {
        "namespace": request.namespace, "queue": limit.name, "names": request.names, "limit": room,
    }  # fmt: skip
    per_key = limit.key_running_max
    picked = list(await tx.rows("pick_unkeyed", per_key=per_key or 0, **place))
    if per_key:
        picked += await tx.rows("pick_keyed", key_running_max=per_key, **place)
    picked.sort(key=lambda row: (-row[1], row[2], row[0]))
    return await tx.rows(
        "claim_listed", ids=[row[0] for row in picked[:room]], worker_id=request.worker_id,
        lease_until=request.lease_until, now=request.now,
    )  # fmt: skip
