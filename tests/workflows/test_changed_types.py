"""Values that do not fit their type: of other code, or of a class that JSON does not keep."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from rota import Rota, RunHandle, sleep
from rota.core.time.instants import HOUR
from rota.errors import BadInput, NotSerialisable
from rota.testing import virtual
from tests.workflows.kit import sound, trouble

Define = Callable[[Rota, list[str]], None]


async def changed(
    url: str, before: Define, after: Define, *args: Any, settle: bool = True
) -> tuple[Any, list[str]]:
    """Begin the workflow `flow` with one code, continue with another; returns the newest attempt
    and the calls of the new code."""
    old, fresh, calls = Rota(), Rota(), list[str]()
    before(old, [])
    after(fresh, calls)
    async with virtual(old, url=url) as world:
        run = await old.options(delay=None if settle else "1h").start("flow", *args)
        await world.settle()
        later = world.clock.now() + 2 * HOUR
    async with virtual(fresh, url=url, start=later) as world:
        await world.drain()
        await sound(fresh)
        return (await fresh.runs.chain(run.id))[-1], calls


def counts(app: Rota, _: list[str]) -> None:
    @app.step(name="count")
    async def count() -> int:
        return 7

    @app.workflow(name="child")
    async def child() -> int:
        return 7

    @app.workflow(name="flow")
    async def flow(kind: str) -> int:
        found: int = await (count() if kind == "step" else child())
        await sleep("1h")
        return found


def counts_as_text(app: Rota, calls: list[str]) -> None:
    @app.step(name="count")
    async def count() -> str:
        calls.append("count")
        return "7"

    @app.workflow(name="child")
    async def child() -> str:
        return "7"

    @app.step(name="other")
    async def other() -> str:
        calls.append("other")
        return "other"

    @app.workflow(name="flow")
    async def flow(kind: str) -> str:
        try:
            found = await (count() if kind == "step" else child())
        except Exception:
            found = "unknown"
        await sleep("1h")
        return found + await other()


@pytest.mark.parametrize("kind", ["step", "child"])
async def test_a_recorded_result_of_another_type_strands_the_run_even_if_the_code_catches_it(
    database_url: str, kind: str
) -> None:
    row, calls = await changed(database_url, counts, counts_as_text, kind)
    assert row.label == "failed:stranded"
    assert "does not fit the type in the code now" in row.error
    assert "Expected `str`, got `int`" in row.error
    assert calls == []


def with_discount(app: Rota, calls: list[str]) -> None:
    @app.workflow(name="flow")
    async def flow(price: int, discount: int = 0) -> int:
        calls.append("flow")
        return price - discount


def without_discount(app: Rota, calls: list[str]) -> None:
    @app.workflow(name="flow")
    async def flow(price: int) -> int:
        calls.append("flow")
        return price


def with_currency(app: Rota, calls: list[str]) -> None:
    @app.workflow(name="flow")
    async def flow(price: int, currency: str) -> str:
        calls.append("flow")
        return f"{price} {currency}"


async def test_an_argument_that_the_code_does_not_know_is_not_omitted(database_url: str) -> None:
    row, calls = await changed(database_url, with_discount, without_discount, 100, 30, settle=False)
    assert row.label == "failed:logic"
    assert "does not fit flow(price: int)" in row.error
    assert "discount" in row.error
    assert calls == []


async def test_a_new_parameter_needs_a_default(database_url: str) -> None:
    row, calls = await changed(database_url, without_discount, with_currency, 100, settle=False)
    assert row.label == "failed:logic"
    assert "does not fit flow(price: int, currency: str)" in row.error
    assert calls == []
    row, calls = await changed(database_url, without_discount, with_discount, 100, settle=False)
    assert row.label == "completed"
    assert calls == ["flow"]


async def test_a_result_of_other_code_is_refused_with_advice_that_helps(database_url: str) -> None:
    old, fresh = Rota(), Rota()
    without_discount(old, [])
    with_currency(fresh, [])
    async with virtual(old, url=database_url) as world:
        run = await old.start("flow", 100)
        await world.drain()
    async with virtual(fresh, url=database_url):
        with pytest.raises(BadInput) as refused:
            await fresh.runs.handle(run.id, fresh.workflows["flow"]).result()
    assert "another version of the code" in refused.value.advice


@dataclass
class Event:
    """The base of another class."""

    at: int


@dataclass
class Click(Event):
    """An event with a field of its own."""

    button: int


async def test_an_object_that_its_hint_does_not_keep_is_no_result_and_no_argument(
    database_url: str,
) -> None:
    app = Rota()

    @app.step
    async def read() -> Event:
        return Click(1, 2)

    @app.workflow
    async def by_step() -> int:
        return (await read()).at

    @app.workflow
    async def by_result(event: Event) -> Event:
        return Click(event.at, 2)

    async with virtual(app, url=database_url) as world:
        runs: list[RunHandle[Any]] = [await by_step.start(), await by_result.start(Event(1))]
        await world.drain()
        for run in runs:
            assert "would come back as Event(at=1)" in (await trouble(run))["message"]
        with pytest.raises(NotSerialisable, match="argument event of by_result"):
            await by_result.start(Click(1, 2))
        with pytest.raises(NotSerialisable, match="argument event of by_result"):
            await by_result.start_many([(Event(1),), (Click(1, 2),)])
        assert len(await app.runs.list()) == 2
