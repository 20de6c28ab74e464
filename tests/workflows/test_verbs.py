"""Client verbs in a workflow function: refused, since every replay would do them again."""

from __future__ import annotations

from typing import Any

import pytest

from rota import Rota, sleep, wait_for
from rota.testing import virtual
from tests.workflows.kit import result, trouble


def app_with(verb: str, *, in_step: bool) -> Rota:
    app = Rota()

    @app.workflow(name="child")
    async def child() -> Any:
        return await wait_for("go")

    async def act(run_id: str) -> None:
        run = app.ref(run_id)
        calls: dict[str, Any] = {
            "signal": lambda: run.signal("go", 1),
            "cancel": run.cancel,
            "retry": lambda: app.retry(run_id),
            "fork": lambda: app.fork(run_id, from_step="x"),
        }
        await calls[verb]()

    step = app.step(name="act")(act)

    @app.workflow(name="flow")
    async def flow() -> str:
        run = await app.start("child")
        await (step if in_step else act)(run.id)
        await sleep("1h")
        await sleep("1h")
        return "done"

    return app


@pytest.mark.parametrize("verb", ["signal", "cancel", "retry", "fork"])
async def test_a_client_verb_in_a_workflow_is_refused(database_url: str, verb: str) -> None:
    app = app_with(verb, in_step=False)
    async with virtual(app, url=database_url) as world:
        run = await app.start("flow")
        await world.drain()
        assert await run.status() == "failed:logic"
        assert f"{verb} was called in a workflow" in (await trouble(run))["message"]


@pytest.mark.parametrize("verb", ["signal", "cancel"])
async def test_a_client_verb_in_a_step_happens_once(database_url: str, verb: str) -> None:
    app = app_with(verb, in_step=True)
    async with virtual(app, url=database_url) as world:
        run = await app.start("flow")
        await world.drain()
        assert await result(run) == "done"
        [child] = await app.list(name="child")
        assert child.status == {"signal": "completed", "cancel": "cancelled"}[verb]
