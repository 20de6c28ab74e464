"""A value comes back from JSON as it went in, or it is refused."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
from dataclasses import dataclass
from typing import Any, NamedTuple, Optional, TypedDict

import msgspec
import pydantic
import pytest

from rota.core.typed import JsonReader, Signature, encode, returns_of
from rota.errors import NotSerialisable


@dataclass
class Event:
    """The base of others."""

    at: int = 0


@dataclass
class Click(Event):
    """One with a field of its own."""

    button: int = 1


@dataclass
class Scroll:
    """A class beside it."""

    lines: int = 0


@dataclass
class Grows:
    """A class that changes what it is given."""

    size: int

    def __post_init__(self) -> None:
        self.size += 1


@dataclass(eq=False)
class Odd:
    """A class without equality."""

    number: int
    inner: Odd | None = None


class Base(msgspec.Struct):
    """The base of another struct."""

    x: int = 0


class Derived(Base):
    """A struct with a field of its own."""

    y: int = 0


class Login(pydantic.BaseModel):
    """A model that masks a field."""

    password: pydantic.SecretStr


class Hidden(pydantic.BaseModel):
    """A model that keeps fields out of its JSON."""

    shown: int = 0
    hidden: int = pydantic.Field(0, exclude=True)
    _own: int = pydantic.PrivateAttr(0)


class Renamed(pydantic.BaseModel):
    """A model that reads another name than it writes."""

    total: int = pydantic.Field(0, validation_alias="sum", serialization_alias="total")


class Mixed(enum.Enum):
    """Values of two types, which msgspec cannot read."""

    ONE = 1
    TWO = "two"


class Pair(NamedTuple):
    """A tuple with names."""

    left: int
    right: int


class Parcel(TypedDict):
    """Named keys."""

    event: Event


def hidden(number: int) -> Hidden:
    made = Hidden(hidden=0)
    made._own = number
    return made


def there_and_back(kind: Any, value: Any) -> Any:
    text = encode(value, what="it", bytes_max=1000)
    return JsonReader(kind).read_back(value, text, what="it")


@pytest.mark.parametrize(
    ("kind", "value", "path"),
    [
        (Event, Click(1, 2), "$"),
        (list[Event], [Event(1), Click(1, 2)], "$[1]"),
        (Parcel, {"event": Click(1, 2)}, "$.event"),
        (Base, Derived(1, 2), "$"),
        (Grows, Grows(1), "$.size"),
        (Login, Login(password=pydantic.SecretStr("hunter2")), "$.password"),
        (Hidden, Hidden(hidden=4), "$.hidden"),
        (Hidden, hidden(4), "$._own"),
        (Renamed, Renamed.model_validate({"sum": 4}), "$.total"),
        (Odd, Odd(1, Odd(2)), ""),
    ],
    ids=repr,
)
def test_an_object_that_would_lose_something_is_refused(kind: Any, value: Any, path: str) -> None:
    if not path:
        assert there_and_back(kind, value).inner.number == 2
        return
    with pytest.raises(NotSerialisable, match="JSON cannot hold it") as refused:
        there_and_back(kind, value)
    assert f"`{path}` is" in refused.value.message
    assert "hunter2" not in refused.value.message


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Event | Scroll, Scroll(4)),
        (list[Event | Scroll], [Scroll(4)]),
        (str | bytes, b"raw"),
        (str | datetime.datetime, datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)),
        (decimal.Decimal | str, decimal.Decimal("1.10")),
        (set[int] | list[int], {1}),
        (Mixed, Mixed.ONE),
        (Hidden | str, Hidden(hidden=0)),
    ],
    ids=repr,
)
def test_a_hint_that_cannot_be_read_changes_no_value(kind: Any, value: Any) -> None:
    with pytest.raises(NotSerialisable) as refused:
        there_and_back(kind, value)
    assert "Rota cannot read the type hint" in refused.value.advice
    assert there_and_back(kind, "text") == "text"
    assert there_and_back(kind, {"a": [1, None]}) == {"a": [1, None]}


def test_a_tuple_may_come_back_as_a_list_if_its_hint_cannot_be_read() -> None:
    """As without a hint: code that only checkers import has hints such as Sequence[int]."""
    assert there_and_back(Event | Scroll, (1, (2,))) == [1, [2]]
    assert there_and_back(Event | Scroll, {"ids": (1, 2)}) == {"ids": [1, 2]}
    for value in ({1: "a"}, [Scroll(4)], (Scroll(4),), Pair(1, 2)):
        with pytest.raises(NotSerialisable):
            there_and_back(Event | Scroll, value)


@pytest.mark.parametrize(
    ("kind", "value", "back"),
    [
        (Event, {"at": 3}, Event(3)),
        (Event, {"at": 3, "unknown": 4}, Event(3)),
        (Parcel, {"event": {"at": 3}}, {"event": Event(3)}),
        (Any, (1, Event(2)), [1, {"at": 2}]),
        (dict[str, Any], {"when": datetime.date(2026, 1, 1)}, {"when": "2026-01-01"}),
        (list[Event], (Event(1),), [Event(1)]),
        (float, 1, 1.0),
        (Event | None, None, None),
    ],
    ids=repr,
)
def test_plain_json_takes_the_type_of_its_hint_and_no_hint_means_plain_json(
    kind: Any, value: Any, back: Any
) -> None:
    assert there_and_back(kind, value) == back


def test_names_inside_a_hint_are_resolved() -> None:
    def many() -> list[Optional[Event]]:  # noqa: UP045
        return [Event(1)]

    many.__annotations__["return"] = list[Optional["Event"]]
    assert returns_of(many).read('[{"at":1}]', what="it") == [Event(1)]


def test_a_class_of_the_enclosing_function_is_known_if_the_code_uses_it() -> None:
    @dataclass
    class Local:
        n: int

    def used() -> Local:
        return Local(1)

    def unused(one: Local) -> None:
        raise NotImplementedError(one)

    assert returns_of(used).read('{"n":1}', what="it") == Local(1)
    with pytest.raises(NotSerialisable, match="argument one of unused") as refused:
        Signature(unused).write((Local(1),), {}, what="unused", bytes_max=1000)
    assert "name 'Local' is not defined" in refused.value.advice


def test_arguments_are_checked_one_by_one_and_in_bulk() -> None:
    def take(event: Event, count: int = 1) -> None:
        raise NotImplementedError((event, count))

    signature = Signature(take)
    kept = signature.write((Event(1),), {"count": 2}, what="take", bytes_max=1000)
    assert kept == '{"event":{"at":1},"count":2}'
    with pytest.raises(NotSerialisable, match="argument event of take"):
        signature.write((Click(1, 2),), {}, what="take", bytes_max=1000)
    with pytest.raises(NotSerialisable, match="argument event of take"):
        signature.write_all([(Event(1), 1), (Click(1, 2), 1)], what="take", bytes_max=1000)
    raw = signature.check('{"event": {"at": 4}}', what="take", bytes_max=1000)
    assert raw == '{"event":{"at":4}}'
    assert dataclasses.asdict(signature.read(raw, what="take")["event"]) == {"at": 4}
