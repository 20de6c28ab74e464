"""The functions that can be a step or a workflow."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from rota import Rota
from rota.errors import UsageError
from rota.testing import virtual
from tests.workflows.kit import result


def test_a_step_on_a_method_is_refused() -> None:
    app = Rota()
    with pytest.raises(UsageError, match=r"step work is a method of .*Service"):

        class Service:
            @app.step
            async def work(self, n: int) -> int:
                return n


def test_a_workflow_on_a_method_is_refused() -> None:
    app = Rota()
    with pytest.raises(UsageError, match=r"workflow flow is a method of .*Service"):

        class Service:
            @app.workflow
            async def flow(self, n: int) -> int:
                return n


class Adder:
    """Callable, but not a function."""

    async def __call__(self, n: int) -> int:
        return n


async def listing() -> Any:
    yield 1


def numbers() -> Any:
    yield 1


async def add(n: int) -> int:
    return n


@pytest.mark.parametrize("decorate", ["step", "workflow"])
@pytest.mark.parametrize(
    ("thing", "said"),
    [
        (Adder(), "Adder object.* is not a function"),
        (Adder, "Adder.* is not a function"),
        (functools.partial(add, 1), "partial.* is not a function"),
        (listing, "listing has a `yield`"),
        (numbers, "numbers has a `yield`"),
        (Rota().step(add), "add is a step already"),
        (Rota().workflow(add), "add is a workflow already"),
    ],
)
def test_only_a_function_with_a_result_is_decorated(decorate: str, thing: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        getattr(Rota(), decorate)(thing)


async def test_a_static_method_is_a_step(database_url: str) -> None:
    app = Rota()

    class Service:
        @staticmethod
        @app.step
        async def work(n: int) -> int:
            return n + 1

    @app.workflow
    async def flow() -> int:
        return await Service.work(1)

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.drain()
        assert await result(run) == 2
