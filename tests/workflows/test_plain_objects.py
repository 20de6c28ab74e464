"""Arguments that are objects of plain classes: compared by value, or refused at the call."""

from __future__ import annotations

import threading
from collections.abc import Callable
from copy import deepcopy
from functools import cached_property
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rota import Rota, sleep
from rota.core.runs.argument_digest import digest_of
from rota.testing import virtual
from tests.workflows.kit import trouble


def version(*notes: Callable[[], Any], check_arguments: bool = True) -> tuple[Rota, list[str]]:
    """One version of the code: a payment for each note, with a sleep after each."""
    app = Rota()
    calls: list[str] = []

    @app.step(check_arguments=check_arguments)
    async def pay(who: str, note: Any) -> None:
        calls.append(who)

    @app.workflow(name="flow")
    async def flow() -> None:
        for note in notes:
            await pay("ann", note())
            await sleep("1h")

    return app, calls


class Money:
    def __init__(self, amount: int) -> None:
        self.amount = amount


class Coin:
    __slots__ = ("amount",)

    def __init__(self, amount: int) -> None:
        self.amount = amount


class WithLock:
    def __init__(self) -> None:
        self.lock = threading.Lock()


class WithCache:
    @cached_property
    def total(self) -> int:
        return 7


class Endless:
    def __init__(self) -> None:
        self.me = self


@pytest.mark.parametrize("kind", [Money, Coin], ids=["attributes", "slots"])
@pytest.mark.parametrize("where", ["itself", "in a list", "in odd keys"])
async def test_an_object_of_a_plain_class_is_compared_by_value(
    database_url: str, kind: Callable[[int], Any], where: str
) -> None:
    def note(amount: int) -> Callable[[], Any]:
        value = kind(amount)
        return lambda: {"itself": value, "in a list": [value], "in odd keys": {(1,): value}}[where]

    app, _ = version(note(1), note(2))
    async with virtual(app, url=database_url) as world:
        run = await app.start("flow")
        await world.settle()
        later = world.clock.now() + 7_200_000_000
    same, _ = version(note(1), note(2))
    async with virtual(same, url=database_url, start=later) as world:
        await world.settle()
        assert (await same.runs.get(run.id)).status == "sleeping"
        later = world.clock.now() + 7_200_000_000
    swapped, calls = version(note(2), note(1))
    async with virtual(swapped, url=database_url, start=later) as world:
        await world.drain()
        assert await swapped.runs.handle(run.id).status() == "failed:stranded"
        assert calls == []


def deep() -> Any:
    value: Any = 1
    for _ in range(10**5):
        value = [value]
    return value


def itself() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


OPAQUE: dict[str, Callable[[], Any]] = {
    "lock": threading.Lock,
    "object with a lock": WithLock,
    "lambda": lambda: lambda: 1,
    "generator": lambda: (n for n in [1]),
    "module": lambda: threading,
    "list of itself": itself,
    "object of itself": Endless,
    "deep list": deep,
}


@pytest.mark.parametrize("kind", OPAQUE)
async def test_an_argument_that_no_replay_can_compare_is_refused_at_the_call(
    database_url: str, kind: str
) -> None:
    strict, calls = version(OPAQUE[kind])
    async with virtual(strict, url=database_url) as world:
        run = await strict.start("flow")
        await world.drain()
        said = await trouble(run)
        assert said["type"] == "UsageError"
        beginning = "an argument of step pay cannot be compared at a replay: note is a "
        assert said["message"].startswith(beginning)
        assert calls == []
    tolerant, calls = version(OPAQUE[kind], check_arguments=False)
    async with virtual(tolerant, url=database_url) as world:
        run = await tolerant.start("flow")
        await world.drain()
        assert await run.status() == "completed"
        assert calls == ["ann"]


def test_a_cache_that_fills_is_no_change() -> None:
    value = WithCache()
    before = digest_of(("a",), (value,), {})
    assert value.total == 7
    assert digest_of(("a",), (value,), {}) == before


class Plain:
    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)


class Slots:
    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
ATOMS = st.none() | st.booleans() | NUMBERS | st.text(max_size=5)
KEYS = st.integers() | st.text(max_size=3) | st.tuples(st.integers(), st.text(max_size=2))
VALUES = st.recursive(
    ATOMS | st.binary(max_size=3) | st.complex_numbers(allow_nan=False) | st.fractions(),
    lambda part: (
        st.lists(part, max_size=3)
        | st.dictionaries(KEYS, part, max_size=3)
        | part.map(lambda value: Plain(value=value))
        | part.map(Slots)
    ),
    max_leaves=8,
)


def spelled(value: Any) -> str:
    """A value with its classes as text: what tells two values apart."""
    if isinstance(value, Plain | Slots):
        state = value.__dict__ if isinstance(value, Plain) else {"value": value.value}
        return f"{type(value).__name__}({spelled(state)})"
    if isinstance(value, dict):
        return f"{{{','.join(sorted(f'{k!r}:{spelled(v)}' for k, v in value.items()))}}}"
    if isinstance(value, list):
        return f"[{','.join(map(spelled, value))}]"
    return repr(value)


@given(VALUES)
def test_a_copy_has_the_same_digest(value: Any) -> None:
    assert digest_of(("a",), (value,), {}) == digest_of(("a",), (), {"a": deepcopy(value)})


@given(VALUES, VALUES)
def test_other_values_have_another_digest(one: Any, other: Any) -> None:
    assume(spelled(one) != spelled(other))
    kinds = (Plain, Slots)
    assume(isinstance(one, kinds) or isinstance(other, kinds))
    assert digest_of(("a",), (one,), {}) != digest_of(("a",), (other,), {})
