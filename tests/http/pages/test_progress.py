"""Progress of a running step on the page of its run, in the API and in the events of the run."""

from __future__ import annotations

import asyncio
import contextlib
import json
from contextlib import aclosing
from typing import Any, cast

from rota import Rota, this_step
from rota.http.events import EventHub, run_events
from rota.http.pages.run import step_views
from rota.http.pages.text import WallClock
from rota.http.response_bodies import StepDocument
from rota.testing import held, virtual


def app_with_step() -> tuple[Rota, Any, asyncio.Event]:
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

    return app, flow, proceed


async def test_the_page_and_the_api_show_progress(database_url: str) -> None:
    app, flow, proceed = app_with_step()
    async with virtual(app, url=database_url) as world:
        run = await flow.start()
        await world.advance("5s")
        [step] = steps = await app.runs.steps(run.id)
        _, [view] = step_views(await run.run(), steps, WallClock("UTC", world.clock.now()))
        assert (view.state.word, view.note) == ("Running", "3 of 10, pages, 5 s ago")
        assert view.output.is_empty
        document = StepDocument.of(step)
        assert document.output is None
        assert document.progress is not None
        assert (document.progress.done, document.progress.of) == (3, 10)
        assert document.progress.at.endswith("Z")
        proceed.set()
        await world.drain()
        [step] = steps = await app.runs.steps(run.id)
        assert StepDocument.of(step).progress is None
        assert StepDocument.of(step).output == "done"


async def test_events_of_the_run_follow_progress_and_the_end_of_the_step(
    database_url: str,
) -> None:
    app, flow, proceed = app_with_step()
    async with virtual(app, url=database_url) as world:
        run = await flow.start()
        await world.advance("5s")
        hub = EventHub(app)
        stream = cast(Any, run_events(app, hub, run.id, "", contextlib.nullcontext(True)))
        found: list[Any] = []
        async with aclosing(stream), asyncio.timeout(20):
            async for text in stream:
                fields = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
                if "data" not in fields:
                    continue
                found += json.loads(fields["data"])["steps"]
                if fields["event"] == "end":
                    break
                proceed.set()
                await world.drain()
    assert [(step["status"], step["progress"] is None) for step in found] == [
        ("waiting", False), ("completed", True),
    ]  # fmt: skip
