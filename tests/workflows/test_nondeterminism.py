"""Code that changed under a run: found out before anything new is executed, never by mistake."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from rota import Rota, gather, now, sleep, wait_for
from rota.testing import virtual
from tests.workflows.kit import sound

Code = Callable[[Any], Coroutine[Any, Any, Any]]


class Steps:
    """Steps of one version of the code; every execution is noted."""

    def __init__(self, app: Rota, calls: list[str]) -> None:
        def make(name: str) -> Any:
            async def step() -> str:
                calls.append(name)
                return name

            return app.step(name=name)(step)

        self.a, self.b, self.c, self.new = (make(name) for name in ("a", "b", "c", "new"))
        self.app = app


def version(code: Code) -> tuple[Rota, list[str]]:
    """An app with this code as the workflow `flow`."""
    app = Rota()
    calls: list[str] = []
    steps = Steps(app, calls)

    @app.workflow(name="child")
    async def child() -> int:
        return 1

    @app.workflow(name="flow")
    async def flow() -> Any:
        return await code(steps)

    return app, calls


async def change(url: str, before: Code, after: Code, wait: str = "0s") -> tuple[str, list[str]]:
    """Begin a run with one code, continue with another; returns its end and what the new one
    did."""
    old, _ = version(before)
    async with virtual(old, url=url) as world:
        run = await old.start("flow")
        await world.advance(wait)
        assert (await old.runs.get(run.id)).status == "sleeping"
        later = world.clock.now() + 7_200_000_000
    fresh, calls = version(after)
    async with virtual(fresh, url=url, start=later) as world:
        await world.drain()
        row = (await fresh.runs.chain(run.id))[-1]
        await sound(fresh)
        return row.label, calls


async def base(s: Steps) -> list[str]:
    found = [await s.a(), await s.b()]
    await sleep("1h")
    return [*found, await s.c()]


async def renamed(s: Steps) -> list[str]:
    found = [await s.new(), await s.b()]
    await sleep("1h")
    return [*found, await s.c()]


async def removed(s: Steps) -> list[str]:
    found = [await s.a()]
    await sleep("1h")
    return [*found, await s.c()]


async def removed_last(s: Steps) -> str:
    return str(await s.a())


async def inserted(s: Steps) -> list[str]:
    found = [await s.a(), await s.new(), await s.b()]
    await sleep("1h")
    return [*found, await s.c()]


async def inserted_first(s: Steps) -> list[str]:
    return [await s.new(), *await base(s)]


async def moved_behind_new(s: Steps) -> list[str]:
    await sleep("1h")
    return [await s.a(), await s.c(), await s.b()]


async def waits_first(s: Steps) -> list[str]:
    await wait_for("go", timeout="1h")
    return await base(s)


async def clock_first(s: Steps) -> list[str]:
    await now()
    return await base(s)


async def child_first(s: Steps) -> list[str]:
    await s.app.start("child")
    return await base(s)


async def fewer_calls(s: Steps) -> list[str]:
    await sleep("1h")
    return [await s.new()]


@pytest.mark.parametrize(
    "after",
    [
        renamed,
        removed,
        removed_last,
        inserted,
        inserted_first,
        moved_behind_new,
        waits_first,
        clock_first,
        child_first,
        fewer_calls,
    ],
    ids=lambda code: code.__name__,
)
async def test_a_changed_past_is_refused_and_nothing_new_is_executed(
    database_url: str, after: Code
) -> None:
    label, calls = await change(database_url, base, after)
    assert label == "failed:stranded"
    assert calls == []


async def longer(s: Steps) -> list[str]:
    return [*await base(s), await s.new(), await s.a()]


async def replaced_future(s: Steps) -> list[str]:
    found = [await s.a(), await s.b()]
    await sleep("1h")
    return [*found, await s.new()]


async def reordered_but_all_recorded(s: Steps) -> list[str]:
    found = [await s.b(), await s.a()]
    await sleep("1h")
    return [*found, await s.c()]


@pytest.mark.parametrize(
    ("after", "new"),
    [
        (base, ["c"]),
        (longer, ["c", "new", "a"]),
        (replaced_future, ["new"]),
        (reordered_but_all_recorded, ["c"]),
    ],
    ids=lambda code: getattr(code, "__name__", ""),
)
async def test_a_changed_future_is_welcome(database_url: str, after: Code, new: list[str]) -> None:
    label, calls = await change(database_url, base, after)
    assert label == "completed"
    assert calls == new


async def test_the_error_names_the_lost_steps_and_old_code_can_go_on(database_url: str) -> None:
    old, calls = version(base)
    async with virtual(old, url=database_url) as world:
        run = await old.start("flow")
        await world.settle()
        later = world.clock.now() + 7_200_000_000
    changed, _ = version(removed)
    async with virtual(changed, url=database_url, start=later) as world:
        await world.drain()
        row = (await changed.runs.chain(run.id))[-1]
        assert row.label == "failed:stranded"
        assert "b#0" in (row.error or "")
        assert "a#0" not in (row.error or "")
    async with virtual(old, url=database_url, start=later) as world:
        await old.runs.retry(run.id)
        await world.drain()
        assert (await old.runs.chain(run.id))[-1].label == "completed"
        assert calls == ["a", "b", "c"]


async def test_a_stranded_run_is_not_tried_again_by_its_policy(database_url: str) -> None:
    old, _ = version(base)
    async with virtual(old, url=database_url) as world:
        run = await old.options(retries=5).start("flow")
        await world.settle()
        later = world.clock.now() + 7_200_000_000
    changed, _ = version(removed)
    async with virtual(changed, url=database_url, start=later) as world:
        await world.drain()
        assert [row.label for row in await changed.runs.chain(run.id)] == ["failed:stranded"]


async def uneven(s: Steps) -> list[Any]:
    async def long() -> list[str]:
        found = [await s.a()]
        await sleep("30m")
        return [*found, await s.b()]

    async def short() -> str:
        await sleep("2h")
        return str(await s.c())

    return await gather(long(), short())


async def nested(s: Steps) -> list[Any]:
    async def inner() -> list[Any]:
        found = await gather(s.a(), sleep("10m"), s.b())
        await sleep("1h")
        return found

    async def other() -> str:
        await sleep("20m")
        await sleep("20m")
        return str(await s.c())

    return await gather(inner(), other(), gather(s.new(), sleep("5m")))


async def bounded(s: Steps) -> list[Any]:
    async def one(minutes: int) -> str:
        await sleep(60 * minutes)
        return str(await s.a.keyed(str(minutes))())

    return await gather(*[one(n) for n in (5, 1, 4, 2, 3)], limit=2)


async def chained(s: Steps) -> list[Any]:
    async def one(n: int) -> list[str]:
        first = await s.a.keyed(f"{n}")()
        await sleep(60 * n)
        return [first, await s.b.keyed(f"{n}")()]

    return await gather(*[one(n) for n in range(1, 6)])


@pytest.mark.parametrize("code", [uneven, nested, bounded, chained], ids=lambda c: c.__name__)
async def test_parallel_branches_raise_no_false_alarm(database_url: str, code: Code) -> None:
    app, calls = version(code)
    async with virtual(app, url=database_url) as world:
        run = await app.start("flow")
        await world.drain()
        row = await run.run()
        assert row.label == "completed", row.error
        recorded = [step.key for step in await app.runs.steps(run.id) if step.kind == "step"]
        assert len(calls) == len(recorded)


@pytest.mark.parametrize("end", ["fires", "cancelled"])
async def test_a_timeout_that_never_fired_may_become_another_one(
    database_url: str, end: str
) -> None:
    """It has done nothing; one that fired is a call like any other."""

    def timed(seconds: float) -> Code:
        async def code(s: Steps) -> list[str]:
            found = [await s.a()]
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await (sleep("1m") if end == "fires" else s.b())
            await sleep("1h")
            return [*found, await s.c()]

        return code

    if end == "fires":
        assert await change(database_url, timed(5), timed(6), wait="6s") == ("failed:stranded", [])
    else:
        assert await change(database_url, timed(5), timed(6)) == ("completed", ["c"])
