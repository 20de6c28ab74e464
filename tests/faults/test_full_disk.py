"""A full disk on SQLite: a clear error, nothing lost, and work continues when space returns.

Two ways that need no privilege: a page limit on the writer's connection (a true "disk full" from
SQLite), and a limit on file size for a worker process. The latter is set and lifted from outside: a
write that the system refuses.
"""

from __future__ import annotations

import asyncio
import resource
from pathlib import Path
from typing import Any

import pytest

from rota import Client, Rota, Start
from rota.errors import StoreFull
from tests.faults.kit import (
    Hire,
)
from tests.kit import Effects, broken, select, until

QUICK: dict[str, Any] = {"heartbeat_s": 0.3, "poll_s": 0.2, "keep_days": 0}
PAGES_MAX = 4_294_967_294


@pytest.fixture
def file_url(tmp_path: Path) -> str:
    """An empty SQLite file."""
    return f"sqlite:///{tmp_path / 'rota.db'}"


@pytest.fixture
def database_url(file_url: str) -> str:
    """Only SQLite lives on a disk of ours."""
    return file_url


async def limit_pages(app: Client, spare: int | None) -> None:
    """Leave room for so many more pages; None lifts the limit."""

    async def limit(tx: Any) -> None:
        connection = tx.connection
        [(pages,)] = connection.execute("pragma page_count").fetchall()
        most = PAGES_MAX if spare is None else pages + spare
        connection.execute(f"pragma max_page_count = {most}").fetchall()

    await app.connection.database.write(limit)


async def test_a_start_on_a_full_disk_is_refused_clearly_and_leaves_nothing(file_url: str) -> None:
    app = Rota(file_url, **QUICK)

    @app.workflow
    async def keeps(text: str) -> None: ...

    async with app.connected():
        await app.start(keeps, "small")
        await limit_pages(app, 2)
        with pytest.raises(StoreFull) as caught:
            await app.start(keeps, "x" * 200_000)
        assert "full" in str(caught.value)
        assert "space" in caught.value.advice
        assert await select(file_url, "select count(*) from runs") == [(1,)]
        assert await select(file_url, "select count(*) from payloads") == [(0,)]
        await limit_pages(app, None)
        await app.start(keeps, "x" * 200_000)
    assert await select(file_url, "select count(*) from runs") == [(2,)]
    assert await broken(file_url) == []


async def test_one_big_start_does_not_fail_its_small_neighbours(file_url: str) -> None:
    app = Rota(file_url, **QUICK)

    @app.workflow
    async def keeps(text: str) -> None: ...

    async with app.connected():
        await app.start(keeps, "small")
        await limit_pages(app, 8)
        sizes = [10, 10, 200_000, 10, 10]
        answers = await asyncio.gather(
            *(app.start(keeps, "x" * size) for size in sizes), return_exceptions=True
        )
        assert [isinstance(answer, StoreFull) for answer in answers] == [
            size > 1000 for size in sizes
        ]
    assert await select(file_url, "select count(*) from runs") == [(5,)]


async def test_steps_and_results_wait_for_space_and_nothing_is_executed_twice(
    file_url: str,
) -> None:
    app = Rota(file_url, **QUICK)
    executed: list[int] = []
    full = asyncio.Event()

    @app.step
    async def makes(number: int) -> str:
        await full.wait()
        executed.append(number)
        return f"{number}" + "x" * 20_000

    @app.workflow
    async def collects(number: int) -> int:
        return len(await makes(number)) + len(await makes(number + 100))

    async with app:
        runs = [await app.start(collects, n) for n in range(20)]
        await limit_pages(app, 10)
        full.set()

        async def stuck() -> bool:
            counts = await app.runs.counts()
            return counts.get("completed", 0) < 20 and len(executed) >= 20

        await until(stuck)
        await asyncio.sleep(1)
        assert (await app.runs.counts()).get("completed", 0) < 20
        await limit_pages(app, None)
        results = await asyncio.gather(*(run.result(timeout=60) for run in runs))
        assert all(result > 40_000 for result in results)
    assert sorted(executed) == sorted([*range(20), *range(100, 120)])
    assert await select(file_url, "select status, count(*) from runs group by status") == [
        ("completed", 20)
    ]
    assert await broken(file_url) == []


async def test_a_worker_process_whose_writes_are_refused_goes_on_when_space_returns(
    file_url: str, hire: Hire, effects: Effects
) -> None:
    worker = hire()
    async with Client(file_url) as client:
        first = await client.start("two", label="before")
        await first.result(timeout=60)
        _, hard = resource.prlimit(worker.pid, resource.RLIMIT_FSIZE)
        # Below the end of the log that every commit appends to, above all else it writes.
        resource.prlimit(worker.pid, resource.RLIMIT_FSIZE, (40_000, hard))
        items = [Start(kwargs={"label": f"r{n}"}) for n in range(50)]
        runs = await client.start_many("two", items)

        async def complained() -> bool:
            return "disk" in worker.log.read_text()

        await until(complained)
        assert effects.count("r0/note#0") == 0
        assert worker.code is None
        resource.prlimit(worker.pid, resource.RLIMIT_FSIZE, (hard, hard))
        await asyncio.gather(*(run.result(timeout=60) for run in runs))
    labels = [effect.label for effect in effects.read()]
    assert sorted(labels) == sorted(
        f"{r}/note#{k}" for r in ["before", *(f"r{n}" for n in range(50))] for k in range(2)
    )
    assert await broken(file_url) == []
