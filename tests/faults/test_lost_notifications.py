"""Wake-ups that never arrive: polling alone must finish everything."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from rota import Client, Rota, sleep, wait_for
from tests.crash.kit.worker import deafen
from tests.kit import broken, until
from tests.kit.children import Child, end_all

# Only the poll is quick; nothing else may be what finds the work.
POLLING: dict[str, Any] = {"poll_s": 0.2, "heartbeat_s": 60, "migrate": True}


async def deaf(app: Client) -> Client:
    """`app`, connected, neither telling nor hearing anything."""
    await app.connect()
    deafen(app.connection.database)
    return app


async def test_polling_alone_finds_new_work(database_url: str) -> None:
    app = Rota(database_url, **POLLING)

    @app.workflow
    async def quick() -> int:
        return 1

    outside = await deaf(Client(database_url, migrate=True))
    await deaf(app)
    await app.start_worker()
    try:
        for _ in range(3):
            run = await outside.start("quick")
            assert await run.result(timeout=60) == 1
    finally:
        await outside.close()
        await app.close()


async def test_polling_alone_carries_sleeps_children_and_signals_from_outside(
    database_url: str,
) -> None:
    app = Rota(database_url, **POLLING)

    @app.workflow
    async def child() -> int:
        await sleep(0.1)
        return 1

    @app.workflow
    async def parent() -> list[int]:
        return [await child(), await wait_for("word")]

    outside = await deaf(Client(database_url, migrate=True))
    await deaf(app)
    await app.start_worker()
    try:
        run = await outside.start("parent")
        late = await outside.options(delay=0.3).start("child")

        async def waits() -> bool:
            return await run.status() == "sleeping:signal"

        await until(waits)
        await run.signal("word", 2)
        assert await run.result(timeout=60) == [1, 2]
        assert await late.result(timeout=60) == 1
    finally:
        await outside.close()
        await app.close()


async def test_two_deaf_worker_processes_finish_everything(
    database_url: str, tmp_path: Path
) -> None:
    outside = await deaf(Client(database_url, migrate=True))
    arguments = ("--database", database_url, "--effects", tmp_path / "effects", "--deaf")
    crew = [
        Child("tests.crash.kit.worker", *arguments, log=tmp_path / f"worker-{n}.log")
        for n in range(2)
    ]
    try:
        runs = [await outside.start("two", label=f"r{n}") for n in range(20)]
        runs += [await outside.start("nap", label=f"n{n}", seconds=0.2) for n in range(20)]
        runs += [await outside.start("parent", label=f"p{n}", seconds=0.1) for n in range(5)]
        await asyncio.gather(*(run.result(timeout=60) for run in runs))
    finally:
        end_all(crew)
        await outside.close()
    assert await broken(database_url) == []
