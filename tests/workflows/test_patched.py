"""`patched`: code changes under running chains. Old runs take the old path, new ones the new."""

from __future__ import annotations

import asyncio
from typing import Any

from rota import Rota, blocking, gather, patched, sleep
from rota.testing import held, virtual
from tests.workflows.kit import keys, result, sound


class Code:
    """A version of the code with steps a, b and new."""

    def __init__(self, body: Any) -> None:
        self.app = app = Rota()
        self.calls: list[str] = []

        def make(name: str) -> Any:
            async def step() -> str:
                self.calls.append(name)
                return name

            return app.step(name=name)(step)

        self.a, self.b, self.new = (make(name) for name in ("a", "b", "new"))

        @app.workflow(name="flow")
        async def flow() -> Any:
            return await body(self)


async def version_1(s: Code) -> list[str]:
    found = [await s.a(), await s.b()]
    await sleep("1h")
    return found


async def version_2(s: Code) -> list[str]:
    found = [await s.a()]
    found.append(await s.new() if await patched("b becomes new") else await s.b())
    await sleep("1h")
    return found


async def version_3(s: Code) -> list[str]:
    found = [await s.a(), await s.new()]
    await sleep("1h")
    return found


async def later(url: str, code: Code, after_us: int = 7_200_000_000) -> Any:
    from rota.testing import START

    return virtual(code.app, url=url, start=START + after_us)


async def test_an_old_run_takes_the_old_path_and_a_new_one_the_new(database_url: str) -> None:
    old = Code(version_1)
    async with virtual(old.app, url=database_url) as world:
        run = await old.app.start("flow")
        await world.settle()
    changed = Code(version_2)
    async with await later(database_url, changed) as world:
        fresh = await changed.app.start("flow")
        await world.drain()
        assert await changed.app.runs.handle(run.id).result() == ["a", "b"]
        assert await result(fresh) == ["a", "new"]
        assert changed.calls == ["a", "new"]
        assert "patch b becomes new" in await keys(changed.app, fresh)
        assert "patch b becomes new" in await keys(changed.app, run)
        await sound(changed.app)


async def test_a_run_that_has_not_reached_the_change_takes_the_new_path(database_url: str) -> None:
    async def before(s: Code) -> list[str]:
        found = [await s.a()]
        await sleep("1h")
        return [*found, await s.b()]

    async def after(s: Code) -> list[str]:
        found = [await s.a()]
        await sleep("1h")
        return [*found, await s.new() if await patched("x") else await s.b()]

    old = Code(before)
    async with virtual(old.app, url=database_url) as world:
        run = await old.app.start("flow")
        await world.settle()
    changed = Code(after)
    async with await later(database_url, changed) as world:
        await world.drain()
        assert await changed.app.runs.handle(run.id).result() == ["a", "new"]


async def test_the_answer_stays_the_same_at_every_replay(database_url: str) -> None:
    seen: list[bool] = []

    async def body(s: Code) -> list[bool]:
        found = []
        for _ in range(3):
            found.append(await patched("x"))
            await sleep("1h")
        seen.extend(found)
        return found

    code = Code(body)
    async with virtual(code.app, url=database_url) as world:
        run = await code.app.start("flow")
        await world.drain()
        assert await result(run) == [True, True, True]
        assert (await keys(code.app, run)).count("patch x") == 1


async def test_a_patch_can_be_removed_when_no_old_run_is_left(database_url: str) -> None:
    changed = Code(version_2)
    async with virtual(changed.app, url=database_url) as world:
        run = await changed.app.start("flow")
        await world.settle()
    final = Code(version_3)
    async with await later(database_url, final) as world:
        await world.drain()
        assert await final.app.runs.handle(run.id).result() == ["a", "new"]


async def test_branches_of_an_old_run_take_the_old_path_and_others_are_not_misled(
    database_url: str,
) -> None:
    async def one(s: Code) -> str:
        await asyncio.sleep(0)
        found = str(await s.b())
        await sleep("1h")
        return found

    async def before(s: Code) -> list[str]:
        return await gather(one(s), s.a())

    async def after(s: Code) -> list[str]:
        async def other() -> str:
            if await patched("x"):
                return str(await s.new())
            return str(await s.a())

        return await gather(one(s), other())

    fresh = Code(after)
    async with virtual(fresh.app, url=database_url) as world:
        run = await fresh.app.start("flow")
        await world.drain()
        assert await result(run) == ["b", "new"]


async def test_the_answer_needs_no_await(database_url: str) -> None:
    async def body(s: Code) -> str:
        return "new" if patched("x") else "old"

    code = Code(body)
    async with virtual(code.app, url=database_url) as world:
        run = await code.app.start("flow")
        await world.drain()
        assert await result(run) == "new"


async def test_sync_workflows_can_be_patched(database_url: str) -> None:
    app = Rota()

    @app.workflow
    def flow() -> bool:
        blocking.sleep("1h")
        return blocking.patched("x")

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.drain()
        assert await result(run) is True


async def test_outside_of_workflows_the_new_path_is_taken() -> None:
    assert await patched("x") is True


async def test_a_branch_that_passed_before_the_last_recorded_end_keeps_the_old_path(
    database_url: str,
) -> None:
    """All recorded calls are made; the end of one is not delivered yet."""
    app = Rota()
    deployed: list[int] = []
    gate = asyncio.Event()

    @app.step
    async def note(name: str) -> str:
        return name

    @app.step
    async def last() -> None:
        with held():
            await gate.wait()

    async def branch() -> str:
        await note("a")
        return "new" if deployed and patched("change") else "old"

    @app.workflow
    async def flow() -> str:
        found, _ = await gather(branch(), note("b"))
        await last()
        return found

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.settle()
        assert [step.key for step in await app.runs.steps(run.id)] == ["note#1", "note#0"]
    deployed.append(1)
    gate.set()
    async with virtual(app, url=database_url) as world:
        await world.drain()
        assert await result(run) == "old"
