"""Workers with different code beside each other: hand-backs, pinned runs, open runs by version."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from rota import Rota, patched, sleep
from rota.errors import UsageError
from rota.explain.why import why
from rota.testing import World, virtual
from rota.workflows.code_version import version_of
from tests.kit.builders import raw
from tests.workflows.kit import result, sound, trouble

Body = Callable[["Code"], Awaitable[Any]]


class Code:
    """A version of the code: steps a, b and new, and a workflow `flow` made of them."""

    def __init__(self, body: Body, version: str, policy: Any = "any") -> None:
        self.app = app = Rota(code_version=version)
        self.calls: list[str] = []

        def make(name: str) -> Any:
            async def step() -> str:
                self.calls.append(name)
                return name

            return app.step(name=name)(step)

        self.a, self.b, self.new = (make(name) for name in ("a", "b", "new"))

        @app.workflow(name="flow", version_policy=policy)
        async def flow() -> Any:
            return await body(self)


async def old_body(s: Code) -> list[str]:
    await sleep("1h")
    return [await s.a()]


async def new_body(s: Code) -> list[str]:
    found = [await s.new()] if await patched("new step") else []
    await sleep("1h")
    await sleep("1h")
    return [*found, await s.a()]


async def plain_body(s: Code) -> list[str]:
    found = [await s.a()]
    await sleep("1h")
    return [*found, await s.b()]


@contextlib.asynccontextmanager
async def beside(url: str, old: Code, new: Code) -> AsyncIterator[tuple[World, World]]:
    """Workers with both versions on one database."""
    async with virtual(old.app, url=url) as first, virtual(new.app, url=url) as second:
        yield first, second


async def pass_hour(*worlds: World) -> None:
    """Let an hour pass for all, without any work being done; then each sends a heartbeat."""
    for world in worlds:
        world.clock.move_to(world.clock.now() + 3_600_000_000)
    for world in reversed(worlds):
        await world.beat()


async def begun_by_new_code(old: World, new: World) -> Any:
    """A run that only newer code can continue, an hour later."""
    run = await new.app.start("flow")
    await new.settle()
    await pass_hour(old, new)
    return run


async def test_an_old_worker_hands_a_run_of_newer_code_back(database_url: str) -> None:
    old, new = Code(old_body, "v1"), Code(new_body, "v2")
    async with beside(database_url, old, new) as worlds:
        run = await begun_by_new_code(*worlds)
        await worlds[0].settle()
        waiting = await run.run()
        assert waiting.label == "pending:newer code"
        assert (waiting.refused_versions, waiting.claim_count) == (" v1 ", 2)
        await worlds[0].settle()
        assert (await run.run()).claim_count == 2  # the old worker leaves it alone
        explained = await why(new.app, run.id)
        assert "newer code" in explained.sentence
        assert "v1" in explained.sentence
        await worlds[1].settle()
        await pass_hour(*worlds)
        await worlds[0].settle()  # still not for the old worker
        assert (await run.run()).label == "pending"
        await worlds[1].settle()
        assert await result(run) == ["new", "a"]
        assert (old.calls, new.calls) == ([], ["new", "a"])
        await sound(new.app)


async def test_without_a_worker_of_another_version_the_run_is_stranded(database_url: str) -> None:
    old, new = Code(old_body, "v1"), Code(new_body, "v2")
    async with virtual(old.app, url=database_url) as first:
        async with virtual(new.app, url=database_url) as second:
            run = await second.app.start("flow")
            await second.settle()
        await pass_hour(first)
        await first.settle()
        last = await first.app.runs.get(run.id)
        assert last.label == "failed:stranded"


@pytest.mark.parametrize("queue", ["default", "other"])
async def test_only_a_worker_that_could_claim_the_run_counts(database_url: str, queue: str) -> None:
    old, new = Code(old_body, "v1"), Code(new_body, "v2")
    async with beside(database_url, old, new) as worlds:
        run = await begun_by_new_code(*worlds)
        table = f"update workers set queues = '[\"{queue}\"]' where version = 'v2'"
        await new.app.connection.database.write(raw, table)
        await worlds[0].settle()
        expected = "pending:newer code" if queue == "default" else "failed:stranded"
        assert (await run.run()).label == expected


async def test_a_run_whose_newer_worker_leaves_is_stranded(database_url: str) -> None:
    old, new = Code(old_body, "v1"), Code(new_body, "v2")
    async with virtual(old.app, url=database_url) as first:
        async with virtual(new.app, url=database_url) as second:
            run = await begun_by_new_code(first, second)
            await first.settle()
        await first.beat()
        await first.settle()
        last = await first.app.runs.get(run.id)
        assert last.label == "failed:stranded"
        assert last.refused_versions is None


async def test_a_run_waits_for_newer_code_one_hour_at_most(database_url: str) -> None:
    old, new = Code(old_body, "v1"), Code(new_body, "v2")
    async with beside(database_url, old, new) as worlds:
        run = await begun_by_new_code(*worlds)
        await worlds[0].settle()
        for world in worlds:
            world.clock.move_to(world.clock.now() + 3_599_000_000)
        await worlds[1].beat()
        await worlds[0].beat()
        await worlds[0].settle()
        assert (await run.run()).label == "pending:newer code"
        worlds[0].clock.move_to(worlds[0].clock.now() + 1_000_000)
        await worlds[0].beat()
        await worlds[0].settle()
        assert (await run.run()).label == "failed:stranded"
        assert (await trouble(run))["type"] == "Stranded"


async def test_a_pinned_run_stays_with_the_version_that_began_it(database_url: str) -> None:
    old = Code(plain_body, "v1", "pinned")
    new = Code(new_body, "v2", "pinned")  # no `patched` would be needed
    async with beside(database_url, old, new) as worlds:
        first = await old.app.start("flow")
        await worlds[0].settle()
        second = await new.app.start("flow")
        await worlds[1].settle()
        assert [(await run.run()).pinned_version for run in (first, second)] == ["v1", "v2"]
        workers = {one.worker.version: one for one in await new.app.overview.workers()}
        assert [workers[v].pinned_runs for v in ("v1", "v2")] == [1, 1]
        await pass_hour(*worlds)
        await worlds[1].settle()
        assert (await first.run()).label == "pending"
        await worlds[0].settle()
        assert await result(first) == ["a", "b"]
        workers = {one.worker.version: one for one in await new.app.overview.workers()}
        assert [workers[v].pinned_runs for v in ("v1", "v2")] == [0, 1]
        assert [workers[v].is_drained for v in ("v1", "v2")] == [True, False]


async def test_why_names_the_version_that_a_pinned_run_lacks(database_url: str) -> None:
    old, new = (Code(plain_body, version, "pinned") for version in ("v1", "v2"))
    async with virtual(new.app, url=database_url) as second:
        async with virtual(old.app, url=database_url) as first:
            run = await first.app.start("flow")
            await first.settle()
        await pass_hour(second)
        await second.settle()
        explained = await why(new.app, run.id)
        assert "pinned to version v1" in explained.sentence
        await new.app.runs.cancel(run.id)
        await new.app.runs.retry(run.id)
        await second.settle()
        last = (await new.app.runs.chain(run.id))[-1]
        assert (last.label, last.pinned_version) == ("completed", "v2")


async def test_a_retry_of_a_pinned_run_stays_pinned(database_url: str) -> None:
    async def failing(s: Code) -> None:
        await s.a()
        raise ConnectionError("down")

    old, new = (Code(failing, version, "pinned") for version in ("v1", "v2"))
    for code in (old, new):
        code.app.workflows["flow"].retry = code.app.workflows["flow"].retry.of(3)
    async with beside(database_url, old, new) as worlds:
        run = await old.app.start("flow")
        await worlds[0].settle()
        await pass_hour(*worlds)
        await worlds[1].settle()
        last = (await old.app.runs.chain(run.id))[-1]
        assert (last.attempt, last.status, last.pinned_version) == (2, "pending", "v1")


def test_the_version_of_a_worker_follows_helpers_too() -> None:
    def app_with(helper: Any) -> Rota:
        app = Rota()

        @app.workflow(name="flow")
        async def flow() -> Any:
            return helper()

        return app

    def one() -> int:
        return 1

    def two() -> int:
        return 2

    versions = [version_of(app_with(helper).workflows) for helper in (one, one, two)]
    assert versions[0] == versions[1] != versions[2]
    assert version_of(app_with(one).workflows, "r-17") == "r-17"


def test_an_unknown_version_policy_is_refused() -> None:
    with pytest.raises(UsageError, match="version_policy='newest' is not a policy"):
        Rota().workflow(version_policy="newest")(old_body)  # type: ignore[call-overload]
