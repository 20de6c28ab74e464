"""Random programs of steps, sleeps and branches, interrupted at random points.

Whatever the shape and wherever it is interrupted: no false alarm about changed code, no recorded
step executed again, and the same result as without any interruption. Every replay sees the results
of its branches in the same order.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from rota import Rota, gather, sleep
from rota.core.runs.stored_errors import read_error
from rota.testing import START, World, virtual
from tests.kit.sampling import examples

NAMES = ("a", "b")


@dataclass(frozen=True)
class Call:
    """A step; it takes some turns of the loop, so that branches finish in any order."""

    name: str
    rounds: int


@dataclass(frozen=True)
class Nap:
    """A durable sleep."""

    seconds: int


@dataclass(frozen=True)
class Block:
    """Things done one after the other, or side by side (at most `limit` at a time)."""

    parts: tuple[Any, ...]
    parallel: bool
    limit: int | None = None


leaves = st.one_of(
    st.builds(Call, st.sampled_from(NAMES), st.sampled_from([0, 0, 1, 5])),
    st.builds(Nap, st.sampled_from([0, 1, 60, 61, 3600])),
)


def one_by_one(parts: Iterable[Any]) -> Block:
    return Block(tuple(parts), parallel=False)


def fans(branch: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.builds(
        Block,
        st.lists(branch, min_size=2, max_size=4).map(tuple),
        st.just(True),
        st.sampled_from([None, None, 1, 2]),
    )


branches = st.lists(leaves, min_size=1, max_size=4).map(one_by_one)
nested = st.lists(st.one_of(leaves, fans(branches)), min_size=1, max_size=3).map(one_by_one)
# A nap at the end, so that everything before it is replayed at least once.
programs = st.tuples(fans(st.one_of(branches, nested)), st.just(Nap(60)), leaves).map(one_by_one)
# Events from outside: let time pass, or stop the worker after so many turns of the loop.
Interruption = tuple[str, int]
interruptions = st.lists(
    st.one_of(
        st.tuples(st.just("advance"), st.sampled_from([0, 1, 59, 600])),
        st.tuples(st.just("restart"), st.integers(0, 40)),
    ),
    max_size=5,
)


def expected(part: Any, path: str) -> Any:
    """The result of the program: the path of every step in the place of its call."""
    if isinstance(part, Call):
        return f"{part.name}@{path}"
    if isinstance(part, Nap):
        return None
    return [expected(inner, f"{path}.{n}") for n, inner in enumerate(part.parts)]


class Program:
    """One program as an app, with a note of every execution."""

    def __init__(self, root: Any, namespace: str) -> None:
        self.app = Rota(namespace=namespace, synchronous="normal")
        self.executed: list[str] = []
        self.orders: list[list[str]] = []  # of results, for each execution of the workflow
        self.steps = {name: self.step(name) for name in NAMES}

        @self.app.workflow(name="program")
        async def program() -> Any:
            self.orders.append([])
            return await self.perform(root, "0", self.orders[-1])

    def step(self, name: str) -> Any:
        @self.app.step(name=name)
        async def call(path: str, rounds: int) -> str:
            self.executed.append(path)
            for _ in range(rounds):
                await asyncio.sleep(0)
            return f"{name}@{path}"

        return call

    async def perform(self, part: Any, path: str, order: list[str]) -> Any:
        if isinstance(part, Call):
            value = await self.steps[part.name](path, part.rounds)
            order.append(path)
            return value
        if isinstance(part, Nap):
            await sleep(part.seconds)
            return order.append(path)
        inner = [(each, f"{path}.{n}") for n, each in enumerate(part.parts)]
        if part.parallel:
            branches = [self.perform(*each, order) for each in inner]
            return await gather(*branches, limit=part.limit)
        return [await self.perform(*each, order) for each in inner]


async def rounds_of(world: World, rounds: int) -> None:
    """Begin to settle, and give up in the middle."""
    settling = asyncio.ensure_future(world.settle())
    for _ in range(rounds):
        await asyncio.sleep(0)
    settling.cancel()
    await asyncio.gather(settling, return_exceptions=True)


async def trace(url: str, namespace: str, root: Any, events: list[Interruption]) -> None:
    program = Program(root, namespace)
    app = program.app
    at = START
    run_id = ""
    for kind, amount in [*events, ("drain", 0)]:
        async with virtual(app, url=url, start=at) as world:
            run_id = run_id or (await app.start("program")).id
            recorded = await paths(app, run_id)
            began = len(program.executed)
            if kind == "advance":
                await world.advance(amount)
            elif kind == "restart":
                await rounds_of(world, amount)
            else:
                await world.drain()
                row = (await app.runs.chain(run_id))[-1]
                assert row.label == "completed", read_error(row.error)["message"]
                assert await app.runs.handle(run_id).result(timeout=60) == expected(root, "0")
            at = world.clock.now()
        again = recorded.intersection(program.executed[began:])
        assert not again, f"executed again: {again}"
    for one, other in itertools.pairwise(program.orders):
        shared = min(len(one), len(other))
        assert one[:shared] == other[:shared]


async def paths(app: Rota, run_id: str) -> set[str]:
    """The steps that are recorded as done, by their place in the program."""
    outputs = [step.output or "" for step in await app.runs.steps(run_id)]
    return {text.strip('"').partition("@")[2] for text in outputs if "@" in text}


numbers = itertools.count()


@pytest.mark.slow
def test_interrupted_programs_end_as_if_nothing_had_happened(database_url: str) -> None:
    # The logic does not depend on the database; PostgreSQL shows that the store plays along.
    count = 60 if database_url.startswith("sqlite") else 30

    @settings(
        max_examples=examples(count),
        report_multiple_bugs=False,
        database=None,
        phases=(Phase.explicit, Phase.generate),  # Shrinking takes minutes; do it by hand.
        suppress_health_check=list(HealthCheck),
    )
    @given(programs, interruptions)
    def check(root: Any, events: list[Interruption]) -> None:
        asyncio.run(trace(database_url, f"n{next(numbers)}", root, events))

    check()
