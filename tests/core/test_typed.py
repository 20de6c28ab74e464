"""The typed door: values to JSON and back, and errors that name the path."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Literal, NamedTuple, TypedDict
from uuid import UUID

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core.typed import JsonReader, Signature, encode
from rota.errors import BadInput, NotSerialisable, PayloadTooBig

LIMIT = 100_000


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Line:
    item: str
    count: int = 1
    price: Decimal = Decimal(0)


@dataclass
class Order:
    id: int
    lines: list[Line] = field(default_factory=list)
    placed: datetime | None = None


class Address(msgspec.Struct):
    street: str
    zip_code: str | None = None


class Person(pydantic.BaseModel):
    name: str
    age: int = pydantic.Field(ge=0)
    created: date | None = None


class Aliased(pydantic.BaseModel):
    order_id: str = pydantic.Field(alias="orderId")


class Point(NamedTuple):
    x: int
    y: int


class Row(TypedDict):
    key: str
    count: int


class Opaque:
    """Nothing that JSON knows."""


def _signature(kind: Any, **more: Any) -> Signature:
    def workflow(x: Any, y: Any = None) -> None: ...

    workflow.__annotations__ = {"x": kind, **more}
    return Signature(workflow)


def write(signature: Signature, *args: Any, **kwargs: Any) -> str | None:
    return signature.write(args, kwargs, what="the input", bytes_max=LIMIT)


def read(signature: Signature, text: str | None) -> dict[str, Any]:
    return signature.read(text, what="the input")


WHEN = datetime(2024, 3, 10, 2, 30, 0, 123456, tzinfo=UTC)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (int, 7), (int, -(2**63)), (int, 2**63 - 1), (int, 2**80),
        (float, 0.1), (str, "ünï\x00\n🧨"),
        (bool, True), (type(None), None), (bytes, b"\x00\xff"), (Decimal, Decimal("1.10")),
        (datetime, WHEN), (date, date(2024, 2, 29)), (timedelta, timedelta(hours=1, seconds=5)),
        (UUID, UUID(int=7)), (Colour, Colour.BLUE), (Literal["a", "b"], "a"),
        (int | None, None), (int | str, "x"), (int | list[int], [1, 2]),
        (list[int], [1, 2]), (tuple[int, str], (1, "a")), (set[int], {1, 2}),
        (dict[str, list[int]], {"a": [1]}), (dict[int, str], {1: "a"}),
        (Point, Point(1, 2)), (Row, {"key": "a", "count": 1}),
        (Line, Line("pen", 2, Decimal("0.10"))), (Order, Order(1, [Line("pen")], WHEN)),
        (Order | None, Order(1)), (Address, Address("High St")), (list[Address], [Address("a")]),
        (Person, Person(name="Ann", age=3, created=date(2020, 1, 1))),
        (list[Person], [Person(name="Ann", age=3)]), (dict[str, Person], {}),
        (Aliased, Aliased(orderId="o-7")),
        (Any, {"a": [1, None, "x"]}),
    ],
    ids=lambda value: str(value)[:40],
)  # fmt: skip
def test_a_value_comes_back_as_it_went_in(kind: Any, value: Any) -> None:
    signature = _signature(kind)
    assert read(signature, write(signature, value)) == {"x": value}
    assert read(signature, write(signature, x=value)) == {"x": value}
    returned = JsonReader(kind).read(encode(value, what="it", bytes_max=LIMIT), what="it")
    assert returned == value


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text()
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)  # fmt: skip
orders = st.builds(
    Order,
    id=st.integers(-(2**63), 2**63 - 1),
    lines=st.lists(
        st.builds(
            Line, item=st.text(), count=st.integers(0, 9), price=st.decimals(allow_nan=False,
            allow_infinity=False),
        ),
        max_size=3,
    ),
    placed=st.none() | st.datetimes(timezones=st.just(UTC)),
)  # fmt: skip


@given(json_values)
def test_plain_json_comes_back_as_it_went_in(value: Any) -> None:
    signature = _signature(Any)
    assert read(signature, write(signature, value)) == {"x": value}


@given(orders)
def test_dataclasses_come_back_as_they_went_in(order: Order) -> None:
    signature = _signature(Order)
    assert read(signature, write(signature, order)) == {"x": order}


@pytest.mark.parametrize(
    ("kind", "value", "path"),
    [
        (int, "7", "$.x"),
        (int, True, "$.x"),
        (int, None, "$.x"),
        (str, 7, "$.x"),
        (list[int], [1, "2"], "$.x[1]"),
        (Literal["a", "b"], "c", "$.x"),
        (Colour, "green", "$.x"),
        (datetime, "yesterday", "$.x"),
        (Order, {"id": 1, "lines": [{"item": "pen", "count": "two"}]}, "$.x.lines[0].count"),
        (Order, {"lines": []}, "id"),
        (Address, {"street": 5}, "$.x.street"),
        (Person, {"name": "Ann", "age": -1}, "age"),
        (list[Person], [{"name": "Ann"}], "$.x[0]"),
        (Point, [1], "$.x"),
        (Opaque, {"a": 1}, "Opaque"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_wrong_input_is_refused_with_the_path(kind: Any, value: Any, path: str) -> None:
    with pytest.raises(BadInput) as caught:
        write(_signature(kind), value)
    assert path in str(caught.value)
    assert str(caught.value).startswith("the input")


def test_a_pydantic_error_names_the_field_inside_the_model() -> None:
    with pytest.raises(BadInput, match=r"age: .*greater than or equal to 0.*\$\.x"):
        write(_signature(Person), {"name": "Ann", "age": -1})


def _cycle() -> list[Any]:
    loop: list[Any] = []
    loop.append(loop)
    return loop


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (Opaque, "Opaque"),
        (lambda: print, "builtin_function"),
        (lambda: {"a": [Opaque()]}, "Opaque"),
        (lambda: {(1, 2): 3}, "the input"),
        (lambda: 1j, "complex"),
        (lambda: "\udcff", "the input"),
        (_cycle, "refers to itself"),
    ],
)
def test_what_json_cannot_hold_is_refused(make: Callable[[], Any], word: str) -> None:
    with pytest.raises(NotSerialisable, match=word):
        write(_signature(Any), make())


def test_a_payload_over_the_limit_is_refused_with_both_sizes() -> None:
    with pytest.raises(PayloadTooBig) as caught:
        write(_signature(str), "x" * LIMIT)
    assert caught.value.facts == {"bytes": LIMIT + 8, "bytes_max": LIMIT}
    assert "100,008 bytes" in str(caught.value)
    assert write(_signature(str), "x" * (LIMIT - 8)) is not None


def test_the_limit_counts_bytes_not_characters() -> None:
    with pytest.raises(PayloadTooBig):
        encode("ü" * 60, what="it", bytes_max=100)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")], ids=str)
def test_nan_and_infinity_are_refused_with_the_path_and_never_become_null(value: float) -> None:
    for holder, path in (
        (value, "$"),
        ({"a": [None, value]}, "$.a[1]"),
        ([{"b": value}], "$[0].b"),
    ):
        with pytest.raises(NotSerialisable) as caught:
            encode(holder, what="the result of f", bytes_max=1000)
        assert f"the result of f holds {value} at `{path}`" in str(caught.value)


def test_a_batch_with_one_nan_is_refused_and_none_stays_none() -> None:
    signature = Signature(_loose)
    with pytest.raises(NotSerialisable, match=r"argument x of f holds nan at `\$`"):
        signature.write_all([(1,), (float("nan"),)], what="f", bytes_max=1000)
    assert signature.write_all([(1,), (None,)], what="f", bytes_max=1000) == [
        '{"x":1}',
        '{"x":null}',
    ]


def _loose(x: Any) -> None:
    """Takes anything."""


@pytest.mark.parametrize(
    "value",
    [
        {1: "a", "1": "b"},
        {1.5: "a", "1.5": "b"},
        {Colour.RED: 1, "red": 2},
        {date(2026, 1, 1): 1, "2026-01-01": 2},
        [{"inner": {UUID(int=1): 1, str(UUID(int=1)): 2}}],
    ],
)
def test_a_dict_with_two_keys_that_json_writes_alike_is_refused(value: Any) -> None:
    with pytest.raises(NotSerialisable, match="two keys that JSON writes as"):
        encode(value, what="the result", bytes_max=LIMIT)

    async def work(first: Any) -> None: ...

    signature = Signature(work)
    with pytest.raises(NotSerialisable, match="argument first of work"):
        signature.write((value,), {}, what="work", bytes_max=LIMIT)
    with pytest.raises(NotSerialisable, match="argument first of work"):
        signature.write_all([({"a": 1},), (value,)], what="work", bytes_max=LIMIT)


@pytest.mark.parametrize(
    "value",
    [
        {1: "a", 2: "b", "x": 1.0, "y": 1e22, "z": 'quote " and \n'},
        {"raw": msgspec.Raw(b'{ "a" : 1.50 }')},
        {"deep": [{"1": 1}, {"1": 2}]},
    ],
)
def test_keys_and_texts_that_only_look_alike_are_written(value: Any) -> None:
    assert encode(value, what="the result", bytes_max=LIMIT)


def test_raw_text_that_is_no_json_is_refused() -> None:
    with pytest.raises(NotSerialisable, match="the result cannot be written as JSON"):
        encode({"raw": msgspec.Raw(b"{oops")}, what="the result", bytes_max=LIMIT)


@dataclass(eq=False)
class Incomparable:
    n: int

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no")

    __hash__ = None  # type: ignore[assignment]


def test_arguments_that_cannot_be_compared_are_written_in_a_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def take(one: Incomparable) -> None:
        """Takes one."""

    monkeypatch.setattr(Signature, "write", None)  # a batch does not need it
    take.__annotations__["one"] = Incomparable
    items = [(Incomparable(1),), (Incomparable(2),)]
    texts = Signature(take).write_all(items, what="take", bytes_max=LIMIT)
    assert texts == ['{"one":{"n":1}}', '{"one":{"n":2}}']


def test_an_error_of_the_users_code_is_not_hidden_by_a_second_try() -> None:
    class Broken:
        dumps = 0

        def model_dump(self, **_: Any) -> Any:
            Broken.dumps += 1
            raise KeyError("field")

    with pytest.raises(KeyError):
        Signature(_loose).write_all([(Broken(),)], what="f", bytes_max=LIMIT)
    assert Broken.dumps == 1
