"""Bulk retry and cancel by filter, children, and pages of them; on both databases."""

from __future__ import annotations

import pytest

from rota import Rota
from rota.client import bulk
from rota.errors import BadInput, WrongState
from rota.testing import virtual


def an_app() -> tuple[Rota, set[str]]:
    app = Rota()
    broken = {"yes"}

    @app.workflow
    async def flaky(n: int) -> int:
        if broken:
            raise TimeoutError("not now")
        return n

    @app.workflow
    async def parent(count: int) -> int:
        for n in range(count):
            await good(n)
        return count

    @app.workflow
    async def good(n: int) -> int:
        return n

    return app, broken


async def test_failed_runs_are_retried_by_filter_after_a_dry_run(database_url: str) -> None:
    app, broken = an_app()
    async with virtual(app, url=database_url) as time:
        runs = await app.start_many("flaky", [(n,) for n in range(3)])
        await time.settle()
        await app.runs.retry(runs[0].id)  # its first attempt failed, and so did its second
        await time.settle()
        broken.clear()
        dry = await app.runs.apply("retry", dry_run=True, name="flaky", error="TimeoutError")
        assert (dry.matched, dry.has_more, dry.dry_run) == (3, False, True)
        assert set(dry.run_ids) == {run.id for run in runs}
        assert len(await app.runs.list()) == 4
        with pytest.raises(WrongState, match="3 runs fit now, not 2"):
            await app.runs.apply("retry", expected_count=2, name="flaky")
        done = await app.runs.apply("retry", expected_count=3, name="flaky")
        assert set(done.run_ids) == {run.id for run in runs}
        await time.settle()
        assert (await app.runs.apply("retry", name="flaky")).matched == 0
        assert [await run.result() for run in runs] == [0, 1, 2]


async def test_earlier_attempts_of_a_chain_do_not_hide_other_runs_that_fit(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "BULK_MAX", 2)
    app, _ = an_app()
    async with virtual(app, url=database_url) as time:
        runs = await app.start_many("flaky", [(n,) for n in range(3)])
        await time.settle()
        for _ in range(4):  # the newest failed runs are attempts of one chain
            await app.runs.retry(runs[0].id)
            await time.settle()
        dry = await app.runs.apply("retry", dry_run=True, name="flaky")
        assert (dry.matched, dry.has_more) == (2, True)
        assert set(dry.run_ids) <= {run.id for run in runs}


async def test_open_runs_are_cancelled_by_filter(database_url: str) -> None:
    app, _ = an_app()
    async with virtual(app, url=database_url):
        await app.options(delay="1h", tags={"to": "me"}).start_many("good", [(1,), (2,)])
        kept = await app.options(delay="1h").start("good", 3)
        done = await app.runs.apply("cancel", tag="to=me", reason="a mistake")
        assert done.matched == 2
        assert {run.reason for run in await app.runs.list(status="cancelled")} == {"a mistake"}
        assert (await kept.run()).status == "sleeping"
        for verb, status in (("cancel", "failed"), ("retry", "completed"), ("explode", "failed")):
            with pytest.raises(BadInput):
                await app.runs.apply(verb, status=status)  # type: ignore[arg-type]


async def test_children_come_in_the_order_of_their_start(database_url: str) -> None:
    app, _ = an_app()
    async with virtual(app, url=database_url) as time:
        run = await app.start("parent", 3)
        await time.settle()
        children = await app.runs.children(run.id)
        assert [child.input for child in children] == ['{"n":0}', '{"n":1}', '{"n":2}']
        assert {child.status for child in children} == {"completed"}
        assert await app.runs.children(run.id, after=children[0].id, limit=1) == [children[1]]
        assert await app.runs.children(children[0].id) == []
