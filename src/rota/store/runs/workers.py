"""Worker rows and queue limits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import asdict

from rota.core.runs.model import Queue, WorkerRecord
from rota.core.runs.worker_code import NO_CODE, CodeSet
from rota.errors import StaleCursor
from rota.store.backend.database import Tx
from rota.store.backend.queries import served_query
from rota.store.disarm import Disarmed

WORKERS_MAX = 1 << 31  # of a list: all of them


async def register(tx: Tx, worker: WorkerRecord, code: CodeSet = NO_CODE) -> None:
    """Write a worker's row at its start, and the code it has."""
    await put_code(tx, worker.namespace, code, now=worker.heartbeat_at)
    await tx.rows("put_worker", **asdict(worker) | {"code_id": code.id or None})


async def put_code(tx: Tx, namespace: str, code: CodeSet, *, now: int) -> None:
    """Store a code set, if no worker with the same code has done so. A set is never changed."""
    if not code.id:
        return
    if await tx.rows("put_code_set", id=code.id, namespace=namespace, now=now):
        await tx.change("put_code_digests", list(code.digests.items()), id=code.id)
    else:
        await tx.rows("touch_code_set", id=code.id, now=now)


class Beat(NamedTuple):
    """The answer to a heartbeat."""

    is_known: bool  # the worker has a row; without one the other answers are empty
    alone_waits: bool = False  # a run waits that this worker could execute alone
    disarmed: Disarmed | None = None


async def beat(
    tx: Tx,
    worker_id: str,
    *,
    status: str,
    now: int,
    queues: Sequence[str] = (),
    names: Sequence[str] = (),
    code_id: str = "",
    held_threads: str | None = None,
    workflow_blocks: str | None = None,
    version: str = "",
) -> Beat:
    """Store a heartbeat. `queues`, `names` and the code set say what the worker can execute."""
    rows = await tx.rows(
        served_query("beat", code_id), id=worker_id, status=status, now=now,
        queues=list(queues), names=list(names), code_id=code_id or None, version=version,
        held_threads=held_threads, workflow_blocks=workflow_blocks, alone=True,
    )  # fmt: skip
    if not rows:
        return Beat(is_known=False)
    _, alone_waits, disarmed_at, reason = rows[0]
    disarmed = None if disarmed_at is None else Disarmed(disarmed_at, reason)
    return Beat(True, bool(alone_waits), disarmed)


async def stop(tx: Tx, worker_ids: Sequence[str], *, now: int) -> None:
    """Mark workers without runs offline."""
    await tx.rows("stop_workers", ids=list(worker_ids), now=now, alone=True)


class OtherHeartbeats(NamedTuple):
    """The newest stored heartbeats of other workers, dead or alive; 0 if there is none."""

    until: int  # the newest one until an instant
    newest: int


async def heartbeats_of_others(
    tx: Tx, worker_id: str, *, namespace: str, until: int
) -> OtherHeartbeats:
    """The newest heartbeats of the other workers."""
    rows = await tx.rows("heartbeats_of_others", id=worker_id, namespace=namespace, until=until)
    return OtherHeartbeats(*(at or 0 for at in rows[0]))


async def correct_heartbeats(tx: Tx, worker_id: str, *, namespace: str, now: int) -> None:
    """Replace heartbeats in the future, which a wrong clock has written."""
    await tx.rows("correct_heartbeats", id=worker_id, namespace=namespace, now=now)


async def listing(
    tx: Tx,
    *,
    namespace: str,
    everyone: bool = False,
    search: str = "",
    after: str = "",
    limit: int = WORKERS_MAX,
) -> list[WorkerRecord]:
    """Workers in the order of their start. `everyone` includes those that are offline. `search` is
    a part of the machine's name. `after` is the last worker of the page before."""
    rows = await tx.rows(
        "page_of_workers", namespace=namespace, all_of_them=int(everyone), search=search,
        after=after, limit=limit, alone=not after,
    )  # fmt: skip
    if after and not rows and not await tx.rows("find_worker", id=after):
        raise StaleCursor(f"there is no worker {after!r} any more")
    return [WorkerRecord(*row) for row in rows]


async def forget(tx: Tx, *, namespace: str, before: int) -> None:
    """Remove rows of workers that stopped long ago, and code that no worker has any more."""
    await tx.rows("forget_workers", namespace=namespace, before=before)
    await tx.rows("forget_code_sets", namespace=namespace, before=before)


async def put_queues(tx: Tx, queues: Sequence[Queue]) -> None:
    """Declare limits; the stored clock and pause of a queue stay as they are."""
    for queue in queues:
        await tx.rows("put_queue", **asdict(queue))


async def queues(tx: Tx, *, namespace: str) -> list[Queue]:
    """All declared queues."""
    return [Queue(*row) for row in await tx.rows("list_queues", namespace=namespace, alone=True)]


async def pause_queue(tx: Tx, *, namespace: str, name: str, paused: bool) -> bool:
    """Stop or resume claiming from a queue; an undeclared one is remembered from now on."""
    await tx.rows("pause_queue", namespace=namespace, name=name, paused=int(paused), alone=True)
    return True
