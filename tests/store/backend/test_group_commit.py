"""Group commit: many writes share a commit, a bad one fails alone, a lost one fails for all."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from typing import Any

import apsw
import pytest

from rota import faults
from rota.core.runs.model import NewRun, Started
from rota.errors import StoreFull
from rota.store.backend.batching import Batch
from rota.store.backend.database import Database, Tx
from rota.store.runs import history
from rota.store.runs.start import start_runs
from tests.kit.builders import NOW, SPACE, new_run, opened, raw, sql, start


@pytest.fixture
def commits(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each point around a commit was reached."""
    reached: Counter[str] = Counter()
    monkeypatch.setattr(faults, "strike", lambda point: reached.update([point]))
    return reached


@pytest.fixture
def sqlite_url(tmp_path: Any) -> str:
    return f"sqlite:///{tmp_path / 'rota.db'}"


async def _held(db: Database) -> tuple[threading.Event, asyncio.Future[None]]:
    """A write that occupies the writer until the event is set, so that others must queue up."""
    entered, go_on = threading.Event(), threading.Event()

    async def occupy(tx: Tx) -> None:
        entered.set()
        go_on.wait(10)

    first = asyncio.ensure_future(db.write(occupy))
    await asyncio.to_thread(entered.wait, 10)
    return go_on, first


async def test_writes_that_wait_share_a_commit(sqlite_url: str, commits: Counter[str]) -> None:
    async with opened(sqlite_url) as db:
        go_on, first = await _held(db)
        commits.clear()
        waiting = [asyncio.ensure_future(start(db, new_run())) for _ in range(64)]
        await asyncio.sleep(0)
        go_on.set()
        await asyncio.gather(first, *waiting)
        assert commits["after-commit"] == 2, "one for the first, one for the 64"
        assert await sql(db, "select count(*) from runs") == [(64,)]


async def test_a_function_that_fails_takes_only_its_own_writes_with_it(sqlite_url: str) -> None:
    async def bad(tx: Tx, fresh: NewRun) -> None:
        await start_runs(tx, [fresh], now=NOW)
        raise ValueError("no")

    async with opened(sqlite_url) as db:
        go_on, first = await _held(db)
        lost, good = new_run(), [new_run() for _ in range(4)]
        calls = [start(db, good[0]), start(db, good[1]), db.write(bad, lost), start(db, good[2])]
        waiting = [asyncio.ensure_future(call) for call in calls]
        await asyncio.sleep(0)
        go_on.set()
        await first
        answers = await asyncio.gather(*waiting, return_exceptions=True)
        assert isinstance(answers[2], ValueError)
        kept = await sql(db, "select id from runs order by id")
        assert kept == [(run.id,) for run in good[:3]]
        with pytest.raises(ValueError, match="no"):
            await db.write(bad, lost)  # alone in its group
        await start(db, good[3])
        assert await sql(db, "select count(*) from runs") == [(4,)]


async def test_a_constraint_broken_in_a_group_is_its_own_fault(sqlite_url: str) -> None:
    async with opened(sqlite_url) as db:
        go_on, first = await _held(db)
        good = asyncio.ensure_future(start(db, new_run()))
        bad = asyncio.ensure_future(sql(db, "insert into payloads values ('x', 'input', '1')"))
        await asyncio.sleep(0)
        go_on.set()
        await asyncio.gather(first, good)
        with pytest.raises(apsw.ConstraintError):
            await bad


async def test_when_the_whole_transaction_is_lost_everybody_learns_it(sqlite_url: str) -> None:
    async def full(tx: Tx) -> None:
        raise apsw.FullError("no space")

    async with opened(sqlite_url) as db:
        go_on, first = await _held(db)
        calls = [start(db, new_run()), db.write(full), start(db, new_run())]
        waiting = [asyncio.ensure_future(call) for call in calls]
        await asyncio.sleep(0)
        go_on.set()
        await first
        answers = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(answer) for answer in answers] == [StoreFull] * 3
        assert await sql(db, "select count(*) from runs") == [(0,)]
        await start(db, new_run())
        assert await sql(db, "select count(*) from runs") == [(1,)]


async def test_a_commit_that_fails_is_reported_to_all_and_leaves_nothing(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def strike(point: str) -> None:
        if point == "before-commit":
            raise apsw.FullError("no space")

    async with opened(sqlite_url) as db:
        with monkeypatch.context() as patch:
            patch.setattr(faults, "strike", strike)
            answers = await asyncio.gather(
                *(start(db, new_run()) for _ in range(3)), return_exceptions=True
            )
        assert {type(answer) for answer in answers} == {StoreFull}
        assert await sql(db, "select count(*) from runs") == [(0,)]


async def test_a_function_that_waits_for_something_else_is_refused(sqlite_url: str) -> None:
    async def dawdle(tx: Tx) -> None:
        await asyncio.sleep(0)

    async with opened(sqlite_url) as db:
        with pytest.raises(RuntimeError, match="not its transaction"):
            await db.write(dawdle)
        await start(db, new_run())


async def test_a_caller_that_goes_away_disturbs_nobody(sqlite_url: str) -> None:
    async with opened(sqlite_url) as db:
        go_on, first = await _held(db)
        gone, stays = (asyncio.ensure_future(start(db, new_run())) for _ in range(2))
        await asyncio.sleep(0)
        gone.cancel()
        go_on.set()
        await asyncio.gather(first, stays)
        assert await sql(db, "select count(*) from runs") == [(2,)], "what was submitted is done"


async def test_starters_at_once_share_commits(db: Database, commits: Counter[str]) -> None:
    async def send(fresh: Any) -> list[Started]:
        return await db.write(start_runs, fresh, now=NOW)

    batch: Batch[NewRun, Started] = Batch(send)
    fresh = [new_run() for _ in range(64)]
    answers = await asyncio.gather(*(batch.put(run) for run in fresh))
    assert [answer.id for answer in answers] == [run.id for run in fresh]
    assert commits["after-commit"] <= 4
    assert (await db.read(history.counts, namespace=SPACE)) == {"pending": 64}


async def test_a_write_is_all_or_nothing(db: Database) -> None:
    async def half(tx: Tx) -> None:
        await start_runs(tx, [new_run()], now=NOW, alone=False)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await db.write(half)
    assert await sql(db, "select count(*) from runs") == [(0,)]


async def test_a_write_is_seen_by_the_next_read(db: Database) -> None:
    for count in range(1, 6):
        await start(db, new_run())
        assert (await db.read(history.counts, namespace=SPACE)) == {"pending": count}


async def test_a_reader_cannot_write(tmp_path: Any) -> None:
    async with opened(f"sqlite:///{tmp_path / 'rota.db'}") as db:
        with pytest.raises(Exception, match="may not be written"):
            await db.read(raw, "delete from runs")


async def test_memory_is_a_database_like_any_other() -> None:
    async with opened("sqlite:///:memory:") as db:
        fresh = new_run()
        await start(db, fresh)
        assert (await db.read(history.get, namespace=SPACE, run_id=fresh.id)).id == fresh.id
