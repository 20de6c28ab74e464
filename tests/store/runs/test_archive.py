"""The archive: what moves, what stays, and that keys stay taken."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import asyncpg
import pytest

from rota import Client, Fatal, Rota, sleep
from rota.core.runs.ids import id_bound
from rota.core.runs.model import Run
from rota.core.time.instants import DAY
from rota.errors import BadInput, UnknownRun
from rota.store import invariants
from rota.store.backend.database import Database
from rota.store.runs import archive, history, steps
from rota.testing import World, virtual
from tests.kit import select, split_schema, until
from tests.kit.builders import NOW, SPACE, begin, settle, sql, step_of

START = datetime(2026, 9, 29, tzinfo=UTC)
HELD = "select count(*) from {}"


@contextlib.asynccontextmanager
async def world(url: str) -> AsyncIterator[tuple[World, Any]]:
    app = Rota(keep_days=0)

    @app.step
    async def one(n: int) -> int:
        if n == 0:
            raise Fatal("zero")
        return n

    @app.workflow
    async def flow(n: int, nap: str = "") -> int:
        if nap:
            await sleep(nap)
        return await one(n)

    async with virtual(app, url=url, start=START) as opened:
        yield opened, flow


async def held(url: str, *tables: str) -> list[int]:
    return [int((await select(url, HELD.format(table)))[0][0]) for table in tables]


async def test_finished_chains_move_and_a_month_is_dropped_at_once(database_url: str) -> None:
    async with world(database_url) as (time, flow):
        app = time.app
        old = await flow.start(7)
        failed = await flow.start(0)
        late = await flow.start(8, nap="3d")  # ends in October
        await time.advance("4d")
        young = await flow.start(9)
        await time.settle()
        assert await app.operations.archive("2026-10") == 2
        assert [run.id for run in await app.runs.list()] == [young.id, late.id]
        assert await app.operations.archived(late.id) is None
        found = await app.operations.archived(old.id)
        assert found is not None
        assert found.month == "2026-09"
        assert [(run.status, run.output) for run in found.attempts] == [("completed", "7")]
        assert [(step.key, step.output) for step in found.steps] == [("one#0", "7")]
        broken = await app.operations.archived(failed.id)
        assert broken is not None
        assert broken.attempts[-1].error is not None
        with pytest.raises(UnknownRun):
            await app.runs.get(old.id)
        assert await app.operations.archive("2026-10") == 0, "safe to repeat"
        await time.advance_to(datetime(2026, 11, 1, 0, 0, 1, tzinfo=UTC))
        assert await app.operations.archive("2026-11") == 2
        months = [(one.month, one.chain_count) for one in await app.operations.archive_months()]
        assert months == [("2026-09", 2), ("2026-10", 2)]
        await app.operations.drop_archive("2026-09")
        assert await app.operations.archived(old.id) is None
        assert await app.operations.archived(late.id) is not None
        assert await held(database_url, "runs", "steps", "archive") == [0, 0, 2]
        with pytest.raises(BadInput, match="no month 2026-09"):
            await app.operations.drop_archive("2026-09")
        assert await app.connection.database.read(invariants.broken, full=True) == []


async def test_a_key_stays_taken_and_its_result_readable(database_url: str) -> None:
    async with world(database_url) as (time, flow):
        app = time.app
        done = await flow.options(external_id="o-1").start(7)
        failed = await flow.options(external_id="o-2").start(0)
        await time.advance("4d")
        assert await app.operations.archive("2026-10") == 1
        again = await flow.options(external_id="o-1").start(99)
        assert (again.id, again.existed) == (done.id, True)
        assert await again.result() == 7
        assert await app.runs.steps(done.id) == []
        found = await app.operations.archived(done.id)
        assert found is not None
        assert len(found.steps) == 1
        assert len(await app.runs.steps(failed.id)) == 1, "it may be retried, so it keeps its steps"
        assert await app.operations.archive("2026-10") == 0
        await app.operations.drop_archive("2026-09")
        assert await app.operations.archive("2026-10") == 0, "a dropped month does not come back"
        assert await app.connection.database.read(invariants.broken, full=True) == []


async def test_occurrences_of_schedules_and_open_work_stay(database_url: str) -> None:
    async with world(database_url) as (time, flow):
        app = time.app
        await app.schedules.create("often", flow, "every 6h", args=[5], timezone="UTC")
        asleep = await flow.start(1, nap="60d")
        await time.advance("4d")
        before = await held(database_url, "runs")
        assert await app.operations.archive("2026-10") > 0, "the steps of occurrences"
        assert await held(database_url, "runs") == before
        assert (await app.runs.get(asleep.id)).status == "sleeping"
        await time.advance("1d")
        assert await app.connection.database.read(invariants.broken, full=True) == []


async def _family(time: World, failing: set[str], *, key: str | None) -> Any:
    """A failed run with a child that has failed, after its grandchild completed; all in
    September.
    """
    app = time.app

    @app.step
    async def try_it(name: str) -> str:
        if name in failing:
            raise Fatal(name)
        return name

    @app.workflow
    async def grandchild() -> str:
        return await try_it("grandchild")

    @app.workflow
    async def child() -> str:
        below = await grandchild.start()
        await sleep("1h")
        await try_it("child")
        return await below.result()

    @app.workflow
    async def parent() -> str:
        return await child()

    top = await parent.options(external_id=key).start()
    await time.advance("4d")
    return top


async def test_a_run_that_may_be_retried_keeps_its_children(database_url: str) -> None:
    app, failing = Rota(keep_days=0), {"child"}
    async with virtual(app, url=database_url, start=START) as time:
        top = await _family(time, failing, key="o-1")
        assert await app.operations.archive("2026-10") == 0
        failing.clear()
        await app.runs.retry(top.id)
        await time.advance("2h")
        assert await top.result() == "grandchild"


async def test_a_family_without_keys_moves_at_once(database_url: str) -> None:
    app = Rota(keep_days=0)
    async with virtual(app, url=database_url, start=START) as time:
        await _family(time, {"child"}, key=None)
        assert await app.operations.archive("2026-10") == 3
        assert await held(database_url, "runs", "steps", "archive") == [0, 0, 3]


async def test_verbs_say_that_a_run_is_in_the_archive(database_url: str) -> None:
    async with world(database_url) as (time, flow):
        app = time.app
        failed = await flow.start(0)
        await time.advance("4d")
        await app.operations.archive("2026-10")
        for verb in (app.runs.get, app.runs.retry, app.runs.steps, app.runs.cancel):
            with pytest.raises(UnknownRun, match="is in the archive of 2026-09") as caught:
                await verb(failed.id)
            assert "rota run show" in caught.value.advice


async def test_a_run_that_is_archived_during_a_retry_is_refused(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(database_url) as (time, flow):
        app = time.app
        failed = await flow.start(0)
        await time.advance("4d")
        real = history.newest

        async def archived_first(tx: Any, *, root_id: str) -> Run | None:
            await tx.rows("delete_chains", roots=[root_id])
            return await real(tx, root_id=root_id)

        monkeypatch.setattr(history, "newest", archived_first)
        monkeypatch.setattr(app.connection.database, "read", app.connection.database.write)
        with pytest.raises(UnknownRun, match=f"no run '{failed.id}'"):
            await app.runs.retry(failed.id)


async def test_a_month_is_dropped_without_counting_the_others(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(database_url) as (time, flow):
        await flow.start(7)
        await time.advance("4d")
        await time.app.operations.archive("2026-10")

        async def count(*_: Any) -> list[Any]:
            raise AssertionError("a count reads the whole archive")

        monkeypatch.setattr("rota.store.runs.archive.months", count)
        with pytest.raises(BadInput, match="no month 2026-08"):
            await time.app.operations.drop_archive("2026-08")
        await time.app.operations.drop_archive("2026-09")
        assert await held(database_url, "archive") == [0]


async def test_two_that_archive_at_once_share_the_work(database_url: str) -> None:
    async with world(database_url) as (time, flow):
        app = time.app
        for n in range(1, 21):
            await flow.start(n)
        await time.advance("4d")
        async with Client(database_url) as other:
            moves = [app.operations.archive("2026-10") for _ in range(2)]
            moved = await asyncio.gather(*moves, other.operations.archive("2026-10"))
        assert sum(moved) == 20
        assert await held(database_url, "runs", "steps", "archive") == [0, 0, 20]


@pytest.mark.parametrize("reason", ["partial", None])
async def test_a_pipeline_run_that_completed_in_part_keeps_what_its_retry_needs(
    db: Database, reason: str | None
) -> None:
    whole = await begin(db, name="pipeline:p", kind="pipeline", external_id="o-1")
    await db.write(steps.record, [step_of(whole, "item")])
    shard = await begin(db, name="pipeline:p", kind="pipeline", parent_id=whole.id)
    await settle(db, shard)
    await settle(db, whole, reason=reason)
    moved = await db.write(
        archive.move, namespace=SPACE, before_id=id_bound(NOW + DAY), before_at=NOW + DAY,
        after_id="", limit=10,
    )  # fmt: skip
    assert moved.chains == (0 if reason else 2)
    assert await sql(db, "select count(*) from steps") == [(1 if reason else 0,)]


async def test_a_month_must_have_begun_and_be_one(database_url: str) -> None:
    async with world(database_url) as (time, _):
        with pytest.raises(BadInput, match="2026-10 has not begun"):
            await time.app.operations.archive("2026-10")
        with pytest.raises(BadInput, match="'October' is not a month"):
            await time.app.operations.archive("October")


@pytest.mark.pg
async def test_a_month_that_another_process_drops_while_chains_move_into_it_is_made_again(
    own_database_url: str,
) -> None:
    async with world(own_database_url) as (time, flow):
        app = time.app
        await flow.start(7)
        await time.settle()
        await time.advance("4d")
        assert await app.operations.archive("2026-10") == 1
        late = await flow.start(8)
        await time.settle()
        await time.advance_to(datetime(2026, 11, 1, 0, 0, 1, tzinfo=UTC))
        assert await app.operations.archive("2026-11") == 1
        again = await flow.start(9)
        await time.settle()
        await time.advance_to(datetime(2026, 12, 1, 0, 0, 1, tzinfo=UTC))
        dsn, schema = split_schema(own_database_url)
        other = await asyncpg.connect(dsn, server_settings={"search_path": schema})
        try:
            await other.execute("begin")
            await other.execute("create table archive_2026_11 partition of archive"
                " for values in ('2026-11')")  # fmt: skip
            await other.execute("commit")
            await other.execute("begin")
            await other.execute("drop table archive_2026_11")
            moving = asyncio.create_task(app.operations.archive("2026-12"))
            await until(lambda: waits_for_lock(own_database_url))
            await other.execute("commit")
            assert await asyncio.wait_for(moving, 20) == 1
        finally:
            await other.close()
        found = await app.operations.archived(again.id)
        assert found is not None
        assert found.month == "2026-11"
        assert await app.operations.archived(late.id) is not None


async def waits_for_lock(url: str) -> bool:
    """Whether a session of this database waits for a lock."""
    text = """select 1 from pg_stat_activity
        where datname = current_database() and wait_event_type = 'Lock'"""
    return bool(await select(url, text))
