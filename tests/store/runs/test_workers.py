"""Worker rows and queue limits."""

from __future__ import annotations

import pytest

from rota.core.runs.model import Queue
from rota.errors import StaleCursor
from rota.store import disarm
from rota.store.backend.database import Database, Tx
from rota.store.runs import workers
from tests.kit.builders import NOW, SPACE, worker_row


async def listed(db: Database, everyone: bool = False) -> list[tuple[str, str]]:
    rows = await db.read(workers.listing, namespace=SPACE, everyone=everyone)
    return [(row.id, row.status) for row in rows]


async def test_a_worker_reads_back_as_it_reported_itself(db: Database) -> None:
    row = worker_row("w1", slots=7, queues='["a","b"]')
    await db.write(workers.register, row)
    assert await db.read(workers.listing, namespace=SPACE) == [row]
    assert await db.read(workers.listing, namespace="theirs") == []


async def test_workers_are_listed_in_the_order_of_their_start(db: Database) -> None:
    for name, at in (("b", 2), ("a", 3), ("c", 1)):
        await db.write(workers.register, worker_row(name, started_at=NOW + at))
    assert [name for name, _ in await listed(db)] == ["c", "b", "a"]


async def test_a_beat_moves_the_heartbeat(db: Database) -> None:
    await db.write(workers.register, worker_row("w1"))
    assert await db.write(workers.beat, "w1", status="draining", now=NOW + 5) == (True, False, None)
    [row] = await db.read(workers.listing, namespace=SPACE)
    assert (row.status, row.heartbeat_at, row.started_at) == ("draining", NOW + 5, NOW)


async def test_a_beat_reports_that_the_database_is_disarmed(db: Database) -> None:
    await db.write(workers.register, worker_row("w1"))
    await db.write(disarm.disarm, reason="a copy", now=NOW + 1)
    beat = await db.write(workers.beat, "w1", status="online", now=NOW + 5)
    assert beat.disarmed == (NOW + 1, "a copy")


async def test_a_beat_without_a_row_says_so(db: Database) -> None:
    assert await db.write(workers.beat, "nobody", status="online", now=NOW) == (False, False, None)


async def test_stopped_workers_are_offline_and_can_come_back(db: Database) -> None:
    for name in ("w1", "w2", "w3"):
        await db.write(workers.register, worker_row(name))
    await db.write(workers.stop, ["w1", "w2", "nobody"], now=NOW + 1)
    assert await listed(db) == [("w3", "online")]
    await db.write(workers.stop, ["w1"], now=NOW + 9)
    stopped = await db.read(workers.listing, namespace=SPACE, everyone=True)
    assert [row.stopped_at for row in stopped] == [NOW + 1, NOW + 1, None], "the first stop counts"
    await db.write(workers.beat, "w1", status="online", now=NOW + 2)
    assert ("w1", "online") in await listed(db)


async def test_workers_that_stopped_long_ago_are_forgotten(db: Database) -> None:
    for name in ("old", "young", "alive"):
        await db.write(workers.register, worker_row(name))
    await db.write(workers.register, worker_row("theirs", namespace="theirs"))
    await db.write(workers.stop, ["old", "theirs"], now=NOW)
    await db.write(workers.stop, ["young"], now=NOW + 10)
    await db.write(workers.forget, namespace=SPACE, before=NOW + 10)
    assert await listed(db, everyone=True) == [("alive", "online"), ("young", "offline")]
    assert len(await db.read(workers.listing, namespace="theirs", everyone=True)) == 1


async def test_a_page_after_a_worker_that_is_forgotten_is_refused(db: Database) -> None:
    for name, at in (("a", 1), ("b", 2)):
        await db.write(workers.register, worker_row(name, started_at=NOW + at))

    async def after(name: str) -> list[str]:
        rows = await db.read(
            workers.listing, namespace=SPACE, everyone=True, search="", after=name, limit=9
        )
        return [row.id for row in rows]

    assert await after("a") == ["b"]
    assert await after("b") == []
    await db.write(workers.stop, ["a"], now=NOW)
    await db.write(workers.forget, namespace=SPACE, before=NOW + 1)
    with pytest.raises(StaleCursor, match="'a'"):
        await after("a")


async def test_a_queue_declared_again_keeps_its_clock_and_its_pause(db: Database) -> None:
    await db.write(workers.put_queues, [Queue(SPACE, "mail", running_max=3)])
    await db.write(workers.pause_queue, namespace=SPACE, name="mail", paused=True)

    async def move(tx: Tx) -> None:
        await tx.rows("move_queue_clock", namespace=SPACE, name="mail", ready_at=NOW)

    await db.write(move)
    await db.write(workers.put_queues, [Queue(SPACE, "mail", rate_count=2, rate_per_us=5)])
    assert await db.read(workers.queues, namespace=SPACE) == [
        Queue(SPACE, "mail", None, None, 2, 5, ready_at=NOW, paused=1)
    ]


async def test_queues_are_listed_by_name_within_their_namespace(db: Database) -> None:
    mine = [Queue(SPACE, name, running_max=1) for name in ("b", "a")]
    await db.write(workers.put_queues, [*mine, Queue("theirs", "c")])
    assert [queue.name for queue in await db.read(workers.queues, namespace=SPACE)] == ["a", "b"]


def test_a_queue_is_limited_when_something_must_be_counted() -> None:
    assert not Queue(SPACE, "q").is_limited
    for limit in ({"running_max": 1}, {"key_running_max": 1}, {"rate_count": 1}, {"paused": 1}):
        assert Queue(SPACE, "q", **limit).is_limited
