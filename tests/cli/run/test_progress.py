"""Progress of a running step on `rota run show`, for people and as JSON."""

from __future__ import annotations

import asyncio

import pytest

from rota import Rota, this_step
from rota.cli.run import page
from rota.testing import held, virtual


async def test_run_show_shows_the_progress_of_a_running_step(
    database_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    app = Rota()
    proceed = asyncio.Event()

    @app.step
    async def fetch() -> str:
        this_step().progress(3, of=10, note="pages")
        with held():
            await proceed.wait()
        return "done"

    @app.workflow
    async def flow() -> str:
        return await fetch()

    async def show() -> str:
        content = page.RunPage(
            await app.runs.chain(run.id), await app.runs.steps(run.id), app.clock.now()
        )
        [step] = page.document(content)["steps"]
        seen.append((step["output"], step["progress"] and step["progress"]["done"]))
        page.print_page(content)
        return next(line for line in capsys.readouterr().out.splitlines() if "fetch#0" in line)

    seen: list[tuple[object, object]] = []
    async with virtual(app, url=database_url) as world:
        run = await flow.start()
        await world.advance("5s")
        line = await show()
        assert "running" in line
        assert "3 of 10, pages, 5s ago" in line
        proceed.set()
        await world.drain()
        line = await show()
        assert "completed" in line
        assert "done" in line
    assert seen == [(None, 3), ("done", None)]
