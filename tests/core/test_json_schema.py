"""Shapes: they refuse what the code's own check refuses, and nothing else."""

from __future__ import annotations

import datetime
import decimal
import enum
import json
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core import typed
from rota.core.json_schema import misfit, shape_of
from rota.errors import BadInput


class Colour(enum.Enum):
    """An enum."""

    RED = "red"


@dataclass
class Line:
    """Part of an order."""

    name: str
    count: int = 1


@dataclass
class Order:
    """A nested type."""

    lines: list[Line]
    by: dict[str, float] = field(default_factory=dict)
    note: str | None = None


class Strict(msgspec.Struct, forbid_unknown_fields=True):
    """Refuses what it does not know."""

    a: int


class Pair(NamedTuple):
    """Two values by place."""

    x: int
    y: str


KINDS: list[Any] = [
    Any, int, str, float, bool, None, list[int], dict[str, int], dict[str, Any], Order, Line,
    Strict, Pair, tuple[int, str], tuple[int, ...], int | None, str | int | list[str], Colour,
    Literal["a", 1], decimal.Decimal, Line | None, list[Order], set[str],
]  # fmt: skip
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.floats(-2, 2)
    | st.sampled_from(["ab", "red"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "name", "count", "lines", "by", "note"]), inner)
    ),
    max_leaves=6,
)


@pytest.mark.parametrize("kind", KINDS, ids=str)
@given(value=VALUES)
def test_a_shape_lets_pass_all_that_the_code_takes(kind: Any, value: Any) -> None:
    text = json.dumps(value)
    shape = shape_of(kind) or {}
    try:
        typed.JsonReader(kind).read(text, what="it")
    except BadInput:
        return
    assert misfit(shape, text) is None


@pytest.mark.parametrize(
    ("kind", "value", "reported"),
    [
        (dict[str, str], [1], "Expected `object`, got `array`"),
        (dict[str, str], {"how": 1}, "Expected `str`, got `int` - at `$.how`"),
        (Line, {"name": "tea", "count": "two"}, "Expected `int`, got `str` - at `$.count`"),
        (Line, {"count": 1}, "Object missing required field `name`"),
        (Order, {"lines": [{"name": "tea"}, {"name": 3}]}, "at `$.lines[1].name`"),
        (Strict, {"a": 1, "b": 2}, "Object contains unknown field `b`"),
        (Line | None, {"name": 3}, "Expected `str`, got `int` - at `$.name`"),
        (tuple[int, str], [1], "Expected `array` of length 2, got 1"),
        (Colour, "blue", "Invalid enum value"),
        (int, True, "Expected `int`, got `bool`"),
        (int, 1.5, "Expected `int`, got `float`"),
        (str, None, "Expected `str`, got `null`"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_reported_with_the_path_to_it(
    kind: Any, value: Any, reported: str
) -> None:
    shape = shape_of(kind)
    assert shape is not None
    assert reported in (misfit(shape, json.dumps(value)) or "")
    with pytest.raises(BadInput):
        typed.JsonReader(kind).read(json.dumps(value), what="it")


def test_what_cannot_be_said_has_no_shape() -> None:
    class Own:
        """Nothing that JSON knows."""

    assert shape_of(Any) is None
    assert shape_of(Own) is None
    assert shape_of("not a type") is None


def test_times_are_left_to_the_code() -> None:
    shape = shape_of(datetime.datetime)
    assert shape is not None
    assert misfit(shape, '"not a time"') is None
    assert misfit(shape, "12") == "Expected `str`, got `int`"
