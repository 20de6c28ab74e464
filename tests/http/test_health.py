"""`/health/ready`: the reasons why a process takes no work."""

from __future__ import annotations

import asyncio

from rota import Rota
from tests.engine.kit import eventually, live
from tests.http.kit import browsing


async def test_a_worker_that_drains_is_not_ready_and_is_alive(database_url: str) -> None:
    app = Rota()
    release = asyncio.Event()

    @app.step
    async def is_at_work() -> None:
        await release.wait()

    @app.workflow
    async def work() -> None:
        await is_at_work()

    async with live(app, database_url), browsing(app) as http:
        run = await app.start(work)

        async def begun() -> bool:
            return (await app.runs.get(run.id)).status == "running"

        await eventually(begun)
        assert (await http.get("/health/ready")).json() == {"is_ready": True, "reasons": []}
        stopping = asyncio.create_task(app.stop_worker())
        await eventually(lambda: app.is_draining)
        draining = await http.get("/health/ready")
        alive = await http.get("/health/live")
        release.set()
        await stopping
        after = await http.get("/health/ready")
    assert draining.status_code == 503
    [reason] = draining.json()["reasons"]
    assert (reason["check"], "drains" in reason["detail"]) == ("worker", True)
    assert (alive.status_code, after.status_code) == (200, 200)
