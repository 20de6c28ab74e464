"""Counts, charts, queues, workers and what waits for a person, on both databases."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from rota import NeedsLogin, Rota
from rota.core.time.instants import SECOND, moment
from rota.errors import BadInput, RunFailed
from rota.store.runs import lists, workers
from rota.testing import virtual
from tests.kit.builders import sql, worker_row


def an_app() -> Rota:
    app = Rota()

    @app.workflow
    async def good() -> int:
        return 1

    @app.workflow
    async def bad() -> None:
        raise ValueError("no")

    @app.workflow
    async def login() -> None:
        raise NeedsLogin("the token has expired")

    return app


async def test_counts_and_charts_show_what_ended(database_url: str) -> None:
    app = an_app()
    async with virtual(app, url=database_url) as time:
        for name in ("good", "good", "bad"):
            await app.start(name)
        await time.settle()
        await time.advance("2h")
        await app.start("good")
        await app.options(delay="1h").start("good")
        await time.settle()
        counts = await app.overview.counts()
        assert counts.ended == {"completed": 3, "failed": 1}
        assert counts.open == {"sleeping": 1}
        assert counts.is_whole
        chart = await app.overview.activity(within="3h", buckets=3)
        assert [(one.completed, one.failed) for one in chart.buckets] == [(0, 0), (2, 1), (1, 0)]
        bad: dict[str, Any]
        for bad in ({"buckets": 0}, {"buckets": 10**9}, {"within": "0s"}, {"within": "9999d"}):
            with pytest.raises(BadInput):
                await app.overview.activity(**bad)


async def test_queues_show_depth_age_limits_and_live_workers(database_url: str) -> None:
    app = an_app()
    async with virtual(app, url=database_url) as time:
        now = app.clock.now()
        await app.options(queue="slow").start("good")
        await time.advance("1m")
        await app.options(queue="slow").start("good")
        await app.limit_queue("slow", concurrency=2)
        await app.pause_queue("slow")
        await time.beat()
        [default, slow] = await app.overview.queues()
        assert (default.name, default.pending, default.worker_count) == ("default", 0, 1)
        assert (slow.pending, slow.running, slow.is_paused, slow.worker_count) == (2, 0, True, 0)
        assert slow.oldest_at == moment(now)
        assert slow.limits is not None
        assert slow.limits.running_max == 2
        await app.limit_queue("slow", rate=(5, "1m"))
        [_, slow] = await app.overview.queues()
        assert slow.limits is not None
        assert (slow.limits.running_max, slow.limits.rate_count, slow.is_paused) == (None, 5, True)
        bad: dict[str, Any]
        for bad in ({"concurrency": 0}, {"concurrency": 2**40}, {"rate": (0, "1m")}):
            with pytest.raises(BadInput):
                await app.limit_queue("slow", **bad)
        with pytest.raises(BadInput):
            await app.limit_queue("a\0b")


async def test_a_worker_is_alive_by_its_heartbeat_not_by_its_word(database_url: str) -> None:
    app = an_app()
    async with virtual(app, url=database_url):
        now = app.clock.now()
        silent = worker_row("w9", host="elsewhere", heartbeat_at=now - 60 * SECOND)
        await app.connection.database.write(workers.register, silent)
        states = {one.worker.id: one for one in await app.overview.workers()}
        assert (states["w9"].state, states["w9"].heartbeat_age_s) == ("silent", 60)
        assert sorted(one.state for one in states.values()) == ["alive", "silent"]
        await app.connection.database.write(workers.stop, ["w9"], now=now)
        assert len(await app.overview.workers()) == 1
        found = {one.worker.id: one.state for one in await app.overview.workers(everyone=True)}
        assert found["w9"] == "stopped"


async def test_what_waits_for_a_person_is_one_list_with_one_action_each(database_url: str) -> None:
    app = an_app()
    async with virtual(app, url=database_url) as time:
        assert await app.overview.attention() == []
        waiting = await app.start("login")
        await time.settle()
        await app.schedules.create("hourly", "good", "1h")
        await sql(app.connection.database, "update runs set status = 'paused', available_at = null,"
            " reason = 'quarantined: it cannot be read' where kind = 'schedule'")  # fmt: skip
        crashed = await app.options(delay="1d").start("good")
        await sql(app.connection.database, "update runs set status = 'crashed',"
            f" finished_at = created_at where id = '{crashed.id}'")  # fmt: skip
        found: dict[str, Any] = {one.name: one for one in await app.overview.attention()}
        assert sorted(found) == ["good", "hourly", "login"]
        assert found["login"].run_id == waiting.id
        assert found["login"].sentence == "Waits for you: NeedsLogin: the token has expired"
        assert [(one.kind, one.action) for _, one in sorted(found.items())] == [
            ("run", "retry"),
            ("schedule", "update"),
            ("run", "retry"),
        ]


async def test_failures_are_the_last_attempts_of_their_chains(database_url: str) -> None:
    app = an_app()
    async with virtual(app, url=database_url) as world:
        before = moment(app.clock.now())
        tried, alone = await app.start("bad"), await app.start("bad")
        await app.start("good")
        await world.settle()
        await app.runs.retry(tried.id)
        await world.settle()
        again = (await app.runs.chain(tried.id))[-1]
        assert again.id != tried.id
        found = await app.overview.failures(since=before)
        assert [run.id for run in found.runs] == [again.id, alone.id]
        await world.advance("1h")
        assert not (await app.overview.failures(since=moment(app.clock.now()))).runs
        with pytest.raises(BadInput, match="limit"):
            await app.overview.failures(since=before, limit=0)


async def test_failures_are_found_behind_earlier_attempts(database_url: str) -> None:
    app = an_app()
    async with virtual(app, url=database_url) as world:
        before = moment(app.clock.now())
        alone, tried = await app.start("bad"), await app.start("bad")
        await world.settle()
        for _ in range(3):
            await app.runs.retry(tried.id)
            await world.settle()
        found = await app.overview.failures(since=before, limit=2)
        assert [run.root_id for run in found.runs] == [tried.id, alone.id]


async def test_failures_are_newest_first_whatever_their_status(database_url: str) -> None:
    app = an_app()
    async with virtual(app, url=database_url) as world:
        before = moment(app.clock.now())
        first = await app.start("bad")
        await world.advance("1s")
        crashed = await app.options(delay="1d").start("good")
        await sql(app.connection.database, "update runs set status = 'crashed',"
            f" finished_at = created_at where id = '{crashed.id}'")  # fmt: skip
        await world.advance("1s")
        last = await app.start("bad")
        await world.settle()
        found = await app.overview.failures(since=before)
        assert [run.id for run in found.runs] == [last.id, crashed.id, first.id]


async def test_top_level_failures_are_found_behind_failed_children(database_url: str) -> None:
    app = an_app()

    @app.workflow
    async def parent() -> None:
        for _ in range(3):
            with suppress(RunFailed):
                await (await app.start("bad")).result()

    async with virtual(app, url=database_url) as world:
        before = moment(app.clock.now())
        alone = await app.start("bad")
        await world.settle()
        await app.start("parent")
        await world.settle()
        newest = await app.overview.failures(since=before, limit=3)
        assert len(newest.runs) == 3
        assert all(run.parent_id is not None for run in newest.runs)
        found = await app.overview.failures(since=before, limit=1, top_level=True)
        assert [run.id for run in found.runs] == [alone.id]
        assert found.looked_back_to is None


async def test_failures_say_how_far_back_they_looked(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "WINDOW", 3)
    app = an_app()
    async with virtual(app, url=database_url) as world:
        before = moment(app.clock.now())
        for _ in range(3):
            await app.start("bad")
            await world.advance("1m")
        assert (await app.overview.failures(since=before)).looked_back_to is None
        await app.start("bad")
        await world.settle()
        found = await app.overview.failures(since=before)
        assert (len(found.runs), found.looked_back_to) == (3, before + timedelta(minutes=1))
        full = await app.overview.failures(since=before, limit=3)
        assert full.looked_back_to is None  # the limit ended it


async def test_crashed_children_do_not_hide_what_needs_attention(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rota.client.overview.ATTENTION_MAX", 2)
    app = an_app()
    async with virtual(app, url=database_url) as world:
        alone, parent = [await app.options(delay="1d").start("good") for _ in range(2)]
        await world.advance("1s")
        below = await app.options(delay="1d").start_many("good", [()] * 2)
        listed = ", ".join(f"'{run.id}'" for run in [alone, *below])
        await sql(app.connection.database, "update runs set status = 'crashed',"
            f" finished_at = created_at where id in ({listed})")  # fmt: skip
        listed = ", ".join(f"'{run.id}'" for run in below)
        await sql(app.connection.database,
            f"update runs set parent_id = '{parent.id}' where id in ({listed})")  # fmt: skip
        assert [item.run_id for item in await app.overview.attention()] == [alone.id]
