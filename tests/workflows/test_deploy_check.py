"""The check of a deploy: stored runs are replayed against other code, without effects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rota import Rota, blocking, gather, patched, sleep
from rota.errors import UnknownWorkflow
from rota.testing import virtual
from tests.workflows.kit import result

MADE: list[str] = []  # effects of steps


def app_with(body: Callable[..., Any], name: str = "flow") -> Rota:
    """An app with steps a, b and c, and a workflow of this body."""
    app = Rota()

    def make(step_name: str) -> Any:
        async def step(n: int = 0) -> str:
            MADE.append(step_name)
            return f"{step_name}{n}"

        return app.step(name=step_name)(step)

    def make_sync(step_name: str) -> Any:
        def step() -> str:
            MADE.append(step_name)
            return step_name

        return app.step(name=step_name)(step)

    steps = {each: make(each) for each in "abc"} | {"sync": make_sync("sync")}
    app.workflow(name=name)(body(steps))
    return app


def before(s: dict[str, Any]) -> Any:
    async def flow() -> list[str]:
        found = [await s["a"](1)]
        await sleep("1h")
        return [*found, await s["b"]()]

    return flow


def same_but_longer(s: dict[str, Any]) -> Any:
    async def flow() -> list[str]:
        found = [await s["a"](1)]
        if await patched("more"):
            found += await gather(s["c"](), s["c"]())
        await sleep("1h")
        return [*found, await s["b"](), await s["c"]()]

    return flow


def renamed(s: dict[str, Any]) -> Any:
    async def flow() -> list[str]:
        found = [await s["c"](1)]
        await sleep("1h")
        return [*found, await s["b"]()]

    return flow


def other_arguments(s: dict[str, Any]) -> Any:
    async def flow() -> list[str]:
        found = [await s["a"](2)]
        await sleep("1h")
        return found

    return flow


def late_change(s: dict[str, Any]) -> Any:
    async def flow() -> list[str]:
        found = [await s["a"](1)]
        await sleep("1h")
        return [*found, await s["c"]()]

    return flow


def raising(s: dict[str, Any]) -> Any:
    async def flow() -> list[str]:
        await s["a"](1)
        raise KeyError("typo")

    return flow


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        (before, {}),
        (same_but_longer, {}),
        (renamed, {"open": ("stranded", "a#0"), "done": ("stranded", "a#0")}),
        (other_arguments, {"open": ("stranded", "a#0"), "done": ("stranded", "a#0")}),
        (late_change, {"done": ("stranded", "b#0")}),
        (raising, {"open": ("stranded", "sleep#0"), "done": ("stranded", "b#0")}),
    ],
)
async def test_a_check_names_the_runs_that_would_strand(
    database_url: str, after: Any, expected: dict[str, tuple[str, str]]
) -> None:
    app = app_with(before)
    async with virtual(app, url=database_url) as world:
        done = await app.start("flow")
        await world.drain()
        assert await result(done) == ["a1", "b0"]
        still_open = await app.start("flow")
        await world.settle()
        rows = {"open": still_open.id, "done": done.id}
    MADE.clear()
    changed = app_with(after)
    changed.url = database_url
    async with changed.connected():
        steps = {run_id: await changed.runs.steps(run_id) for run_id in rows.values()}
        before_check = {run_id: await changed.runs.get(run_id) for run_id in rows.values()}
        report = await changed.check_deploy()
        assert (report.open_runs, report.finished_runs) == (1, 1)
        found = {one.run_id: (one.verdict, one.call) for one in report.problems}
        assert found == {rows[which]: problem for which, problem in expected.items()}
        assert MADE == []
        for run_id in rows.values():
            assert await changed.runs.steps(run_id) == steps[run_id]
            assert await changed.runs.get(run_id) == before_check[run_id]
        only_open = await changed.check_deploy(sample=0)
        assert only_open.finished_runs == 0
        assert {one.run_id for one in only_open.problems} == (
            {rows["open"]} if "open" in expected else set()
        )


async def test_sync_workflows_are_checked_too(database_url: str) -> None:
    def first(s: dict[str, Any]) -> Any:
        def flow() -> str:
            found: str = s["sync"]()
            blocking.block_on(sleep("1h"))
            return found

        return flow

    def without(s: dict[str, Any]) -> Any:
        def flow() -> str:
            blocking.block_on(sleep("1h"))
            found: str = s["sync"]()
            return found

        return flow

    app = app_with(first)
    async with virtual(app, url=database_url) as world:
        run = await app.start("flow")
        await world.settle()
        run_id = run.id
    MADE.clear()
    for body, verdicts in ((first, []), (without, [(run_id, "stranded")])):
        changed = app_with(body)
        changed.url = database_url
        async with changed.connected():
            report = await changed.check_deploy()
            assert [(one.run_id, one.verdict) for one in report.problems] == verdicts
    assert MADE == []


async def test_a_run_without_code_and_code_that_fails_are_problems(database_url: str) -> None:
    app = app_with(before)
    async with virtual(app, url=database_url) as world:
        await app.start("flow")
        await world.settle()
    other = app_with(before, name="other")
    other.url = database_url
    async with other.connected():
        [problem] = (await other.check_deploy()).problems
        assert (problem.verdict, problem.workflow) == ("unknown_workflow", "flow")
        assert (await other.check_deploy(workflow="other")).open_runs == 0
        with pytest.raises(UnknownWorkflow, match="no workflow nope"):
            await other.check_deploy(workflow="nope")

    def late(s: dict[str, Any]) -> Any:
        async def flow(needed: int) -> str:
            return f"{needed}"

        return flow

    changed = app_with(late)
    changed.url = database_url
    async with changed.connected():
        [problem] = (await changed.check_deploy()).problems
        assert problem.verdict == "fails"
        assert "needed" in problem.message
