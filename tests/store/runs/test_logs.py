"""Log lines of runs: in order, bounded for each run, pruned with it."""

from __future__ import annotations

from rota.core.runs.ids import id_bound
from rota.store.runs import logs, retention
from rota.store.runs.logs import NewLogLine
from tests.kit.builders import NOW, SPACE, begin, opened, settle, sql


def line(run_id: str, message: str = "hello") -> NewLogLine:
    return NewLogLine(run_id, NOW, "INFO", "shop", message)


async def test_lines_are_numbered_for_each_run(database_url: str) -> None:
    async with opened(database_url) as db:
        assert await db.write(logs.append, [line("a", "1"), line("b", "x"), line("a", "2")]) == 3
        assert await db.write(logs.append, [line("a", "3\0\ud800")]) == 1
        assert await db.write(logs.append, []) == 0
        found = await db.read(logs.page, run_id="a", after=1, limit=10)
        assert [(one.position, one.message) for one in found] == [(2, "2"), (3, "3\ufffd?")]
        assert len(await db.read(logs.page, run_id="a", after=0, limit=2)) == 2


async def test_a_log_is_bounded_by_lines_and_by_bytes_and_says_so(database_url: str) -> None:
    async with opened(database_url) as db:
        for _ in range(2):
            await db.write(logs.append, [line("many")] * 600 + [line("wide", "x" * 9000)] * 20)
        many = await db.read(logs.page, run_id="many", after=0, limit=2000)
        wide = await db.read(logs.page, run_id="wide", after=0, limit=2000)
        assert (len(many), many[-1].message, many[-2].message) == (1000, logs.FULL, "hello")
        assert (len(wide), wide[-1].message) == (32, logs.FULL)
        assert await db.write(logs.append, [line("many"), line("wide")]) == 0


async def test_log_lines_are_pruned_with_their_run(database_url: str) -> None:
    async with opened(database_url) as db:
        claim = await begin(db)
        await db.write(logs.append, [line(claim.id), line("another")])
        await settle(db, claim, "complete")
        await db.write(retention.prune, namespace=SPACE, before_id=id_bound(NOW + 10**6), limit=10)
        assert await sql(db, "select run_id from run_logs") == [("another",)]
