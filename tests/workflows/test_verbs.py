"""Client verbs in a workflow function: refused, since every replay would do them again."""

from __future__ import annotations

from typing import Any

import pytest

from rota import Client, Rota, sleep, wait_for
from rota.testing import virtual
from tests.workflows.kit import result, trouble

VERBS = {
    "start": lambda client, run_id: client.start("child"),
    "start_many": lambda client, run_id: client.start_many("child", [()]),
    "signal": lambda client, run_id: client.runs.handle(run_id).signal("go", 1),
    "cancel": lambda client, run_id: client.runs.handle(run_id).cancel(),
    "retry": lambda client, run_id: client.runs.retry(run_id),
    "fork": lambda client, run_id: client.runs.fork(run_id, from_step="x"),
    "pause_queue": lambda client, run_id: client.pause_queue("default"),
    "schedules.create": lambda client, run_id: client.schedules.create("s", "child", "@daily"),
    "schedules.delete": lambda client, run_id: client.schedules.delete("s"),
    "schedules.trigger": lambda client, run_id: client.schedules.trigger("s"),
    "a change of a schedule": lambda client, run_id: client.schedules.pause("s"),
    "automations.run_now": lambda client, run_id: client.automations.run_now("a"),
}


def app_with(verb: str, *, in_step: bool) -> Rota:
    app = Rota()

    @app.workflow(name="child")
    async def child() -> Any:
        return await wait_for("go")

    async def act(run_id: str) -> None:
        run = app.runs.handle(run_id)
        calls: dict[str, Any] = {
            "signal": lambda: run.signal("go", 1),
            "cancel": run.cancel,
            "retry": lambda: app.runs.retry(run_id),
            "fork": lambda: app.runs.fork(run_id, from_step="x"),
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
        [child] = await app.runs.list(name="child")
        assert child.status == {"signal": "completed", "cancel": "cancelled"}[verb]


@pytest.mark.parametrize("verb", VERBS)
async def test_a_verb_of_another_client_in_a_workflow_is_refused(
    database_url: str, verb: str
) -> None:
    app = Rota()

    @app.workflow(name="child")
    async def child() -> None:
        return None

    @app.workflow
    async def flow() -> None:
        await VERBS[verb](other, "some run")

    async with virtual(app, url=database_url) as world, Client(database_url) as other:
        run = await app.start(flow)
        await world.settle()
        assert await run.status() == "failed:logic"
        assert f"{verb} was called in a workflow" in (await trouble(run))["message"]


@pytest.mark.wall_clock("a second client on the real clock beside a virtual one")
async def test_reads_through_a_client_in_a_workflow_are_refused(database_url: str) -> None:
    app = Rota()

    @app.workflow
    async def flow() -> list[str]:
        return [run.name for run in await other.runs.list()]

    async with virtual(app, url=database_url) as world, Client(database_url) as other:
        run = await app.start(flow)
        await world.settle()
        assert await run.status() == "failed:logic"
        assert "a client was used in a workflow" in (await trouble(run))["message"]
