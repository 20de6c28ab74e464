"""Signals of the wrong type: refused at the sender where the type is known; never fatal."""

from __future__ import annotations

import logging

import pytest

from rota import Rota, wait_for
from rota.errors import BadInput
from rota.testing import virtual
from tests.workflows.kit import result, step_named


def waiting_app() -> Rota:
    app = Rota()

    @app.workflow(name="flow")
    async def flow() -> int:
        number: int = await wait_for("n", type=int)
        return number

    return app


async def test_a_signal_of_the_wrong_type_is_refused_while_the_run_waits(database_url: str) -> None:
    app = waiting_app()
    async with virtual(app, url=database_url) as world:
        run = await app.start("flow")
        await world.settle()
        with pytest.raises(BadInput, match="signal n: Expected `int`, got `str`"):
            await run.signal("n", "abc")
        assert await run.status() == "sleeping:signal"
        await run.signal("n", 7)
        await world.drain()
        assert await result(run) == 7


async def test_a_wrong_signal_sent_before_the_wait_is_left_and_the_run_waits_on(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = waiting_app()
    async with virtual(app, url=database_url) as world:
        run = await app.start("flow")
        await run.signal("n", "abc")
        with caplog.at_level(logging.WARNING, "rota"):
            await world.settle()
        assert await run.status() == "sleeping:signal"
        assert "Expected `int`" in ((await step_named(app, run, "wait n#0")).error or "")
        assert len([line for line in caplog.messages if "ignores a signal" in line]) == 1
        await run.signal("n", 7)
        await world.drain()
        assert await result(run) == 7
        assert (await step_named(app, run, "wait n#0")).error is None


async def test_a_left_signal_is_taken_by_a_wait_that_it_fits(database_url: str) -> None:
    app = Rota()

    @app.workflow
    async def flow() -> list[object]:
        return [await wait_for("n", type=int), await wait_for("n", type=str)]

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await run.signal("n", "abc")
        await run.signal("n", 7)
        await world.drain()
        assert await result(run) == [7, "abc"]
