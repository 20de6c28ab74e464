"""Arguments count by value: a step that changes one is refused, as a replay would not see that."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from rota import Rota, gather, sleep
from rota.testing import held, virtual
from tests.workflows.kit import eventually, result, trouble

CHANGED = "an argument of step fill changed while the step was executed"


@dataclass
class Basket:
    items: list[str] = field(default_factory=list)


class Order(msgspec.Struct):
    basket: Basket


class Plain:
    def __init__(self) -> None:
        self.items: list[str] = []


class Slotted:
    __slots__ = ("items",)

    def __init__(self) -> None:
        self.items: list[str] = []


def append(value: list[str]) -> None:
    value.append("tea")


CHANGES: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "list": (list, append),
    "dict": (dict, lambda value: value.update(tea=1)),
    "set": (lambda: {"bread"}, lambda value: value.add("tea")),
    "bytearray": (lambda: bytearray(b"a"), lambda value: value.append(1)),
    "nested": (lambda: {"a": [{"b": []}]}, lambda value: append(value["a"][0]["b"])),
    "tuple": (lambda: ((), [1, []]), lambda value: append(value[1][1])),
    "odd keys": (lambda: {(1, 2): []}, lambda value: append(value[1, 2])),
    "dataclass": (Basket, lambda value: append(value.items)),
    "struct": (lambda: Order(Basket()), lambda value: append(value.basket.items)),
    "plain": (Plain, lambda value: append(value.items)),
    "slots": (Slotted, lambda value: append(value.items)),
    "plain in a list": (lambda: [Plain()], lambda value: append(value[0].items)),
}


@pytest.mark.parametrize("how", ["async", "sync", "timeout", "by name", "failing"])
@pytest.mark.parametrize("kind", CHANGES)
async def test_a_step_that_changes_its_argument_is_refused(
    database_url: str, kind: str, how: str
) -> None:
    make, change = CHANGES[kind]
    app = Rota()

    async def fill(value: Any) -> None:
        change(value)
        if how == "failing":
            raise ConnectionError("down")

    def sync_fill(value: Any) -> None:
        change(value)

    options: dict[str, Any] = {"timeout": "1h"} if how == "timeout" else {"retries": 2}
    step: Any = app.step(name="fill", **options)(sync_fill if how == "sync" else fill)

    @app.workflow
    async def flow() -> None:
        value = make()
        call = step.aio if how == "sync" else step
        await (call(value=value) if how == "by name" else call(value))

    async with virtual(app, url=database_url) as world:
        run = await flow.start()
        await world.drain()
        said = await trouble(run)
        assert CHANGED in said["message"]


@pytest.mark.parametrize("kind", CHANGES)
async def test_a_step_that_reads_its_argument_is_not(database_url: str, kind: str) -> None:
    make, _ = CHANGES[kind]
    app = Rota()

    @app.step
    async def fill(value: Any) -> str:
        return type(value).__name__

    @app.workflow
    async def flow() -> str:
        value = make()
        await fill(value)
        await sleep("1h")
        return await fill(value)

    async with virtual(app, url=database_url) as world:
        run = await flow.start()
        await world.drain()
        assert await result(run) == type(make()).__name__


async def test_two_running_steps_that_share_a_list_are_refused_when_one_changes_it(
    database_url: str,
) -> None:
    app = Rota()
    begun, changed = asyncio.Event(), asyncio.Event()

    @app.step
    async def fill(value: list[str]) -> None:
        begun.set()
        await changed.wait()

    @app.step(check_arguments=False)
    async def change(value: list[str]) -> None:
        await begun.wait()
        append(value)
        changed.set()

    @app.workflow
    async def flow() -> None:
        value: list[str] = []
        await gather(fill(value), change(value))

    async with virtual(app, url=database_url) as world:
        run = await flow.start()
        await world.drain()
        assert CHANGED in (await trouble(run))["message"]


async def test_a_workflow_that_changes_the_argument_of_a_running_step_is_refused(
    database_url: str,
) -> None:
    app = Rota()
    begun, proceed = threading.Event(), threading.Event()

    @app.step
    def fill(value: list[str]) -> None:
        begun.set()
        assert proceed.wait(30)

    @app.workflow
    async def flow() -> None:
        value: list[str] = []
        task = asyncio.create_task(fill.aio(value))
        await sleep("1s")
        append(value)
        await task

    async with virtual(app, url=database_url) as world:
        run = await flow.start()
        work = asyncio.ensure_future(world.settle())
        await eventually(begun.is_set)
        world.clock.move_to(world.clock.now() + 2_000_000)
        await world.app.connection.database.clock_us()
        proceed.set()
        await work
        await world.drain()
        assert CHANGED in (await trouble(run))["message"]


async def test_a_cancelled_step_that_changes_its_argument_is_refused(database_url: str) -> None:
    app = Rota()

    @app.step
    async def fill(value: list[str]) -> None:
        try:
            with held():
                await asyncio.Event().wait()
        finally:
            append(value)

    @app.workflow
    async def flow() -> list[str]:
        value: list[str] = []
        task = asyncio.create_task(fill(value))
        await sleep("1m")
        task.cancel()
        await sleep("1m")
        return value

    async with virtual(app, url=database_url) as world:
        run = await flow.start()
        await world.drain()
        assert CHANGED in (await trouble(run))["message"]
