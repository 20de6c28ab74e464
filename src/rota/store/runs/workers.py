"""Worker rows and queue limits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rota.core.runs.model import Queue, WorkerRecord
from rota.store.backend.database import Tx


async def register(tx: Tx, worker: WorkerRecord) -> None:
    """Write a worker's row at its start."""
    await tx.rows(
        "put_worker", id=worker.id, namespace=worker.namespace, host=worker.host, pid=worker.pid,
        pid_started=worker.pid_started, queues=worker.queues, names=worker.names,
        seats=worker.seats,
        version=worker.version, started_at=worker.started_at,
        heartbeat_at=worker.heartbeat_at, alone=True,
    )  # fmt: skip


class Beat(NamedTuple):
    """The answer to a heartbeat: whether the worker has a row, and whether a run waits that this
    worker could execute alone."""

    is_known: bool
    alone_waits: bool


async def beat(
    tx: Tx,
    worker_id: str,
    *,
    status: str,
    now: int,
    queues: Sequence[str] = (),
    names: Sequence[str] = (),
) -> Beat:
    """Report that the worker lives. `queues` and `names` are what it can execute."""
    rows = await tx.rows(
        "beat", id=worker_id, status=status, now=now, queues=list(queues), names=list(names),
        alone=True,
    )  # fmt: skip
    return Beat(bool(rows), bool(rows and rows[0][1]))


async def stop(tx: Tx, worker_ids: Sequence[str], *, now: int) -> None:
    """Mark workers offline."""
    await tx.rows("stop_workers", ids=list(worker_ids), now=now, alone=True)


async def listing(tx: Tx, *, namespace: str, everyone: bool = False) -> list[WorkerRecord]:
    """Workers that are not offline, or all of them."""
    rows = await tx.rows("list_workers", namespace=namespace, all_of_them=int(everyone), alone=True)
    return [WorkerRecord(*row) for row in rows]


async def forget(tx: Tx, *, namespace: str, before: int) -> None:
    """Remove rows of workers that stopped long ago."""
    await tx.rows("forget_workers", namespace=namespace, before=before, alone=True)


async def put_queues(tx: Tx, queues: Sequence[Queue]) -> None:
    """Declare limits; the stored clock and pause of a queue stay as they are."""
    for queue in queues:
        await tx.rows(
            "put_queue", namespace=queue.namespace, name=queue.name, running_max=queue.running_max,
            key_running_max=queue.key_running_max, rate_count=queue.rate_count,
            rate_per_us=queue.rate_per_us, key_open_max=queue.key_open_max, age_us=queue.age_us,
            round_robin=queue.round_robin,
        )  # fmt: skip


async def queues(tx: Tx, *, namespace: str) -> list[Queue]:
    """All declared queues."""
    return [Queue(*row) for row in await tx.rows("list_queues", namespace=namespace, alone=True)]


async def pause_queue(tx: Tx, *, namespace: str, name: str, paused: bool) -> bool:
    """Stop or resume claiming from a queue; one nobody declared is remembered from now on."""
    await tx.rows("pause_queue", namespace=namespace, name=name, paused=int(paused), alone=True)
    return True
