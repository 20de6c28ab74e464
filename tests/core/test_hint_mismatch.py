"""Values that a type hint would read as another type than they have."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date
from typing import Any, NamedTuple, Optional, TypedDict

import msgspec
import pytest

from rota.core.typed import JsonReader, Signature, encode
from rota.errors import BadInput

EXACT, ROUNDED = 2**53, 2**53 + 1


@dataclass
class Node:
    """A recursive type."""

    name: str
    extra: Any = None
    below: list[Node] = field(default_factory=list)


class Item(msgspec.Struct):
    """A struct with bytes."""

    body: bytes


class Letter(TypedDict):
    """Named keys."""

    body: bytes


class Pair(NamedTuple):
    """A tuple with names."""

    left: str
    right: float


def there_and_back(kind: Any, value: Any) -> Any:
    text = encode(value, what="the result", bytes_max=100_000)
    return JsonReader(kind).read_back(value, text, what="the result")


@pytest.mark.parametrize(
    ("kind", "value", "said"),
    [
        (str, b"raw", "`$` is b'raw', which is of type bytes; the type hint says str"),
        (str, bytearray(b"raw"), "of type bytearray; the type hint says str"),
        (str | None, b"raw", "the type hint says str"),
        (Optional[str], b"raw", "the type hint says str"),  # noqa: UP045
        (list[str], ["a", b"b"], "`$[1]` is b'b'"),
        (set[str], {b"b"}, "the type hint says str"),
        (dict[str, int], {b"b": 1}, "`$` is b'b'"),
        (dict[str, list[str]], {"a": [b"b"]}, "`$.a[0]` is b'b'"),
        (tuple[int, str], (1, b"b"), "`$[1]` is b'b'"),
        (Pair, Pair(b"b", 1.0), "`$.left` is b'b'"),  # type: ignore[arg-type]
        (bytes, "raw!", "`$` is 'raw!', which is of type str; the type hint says bytes"),
        (bytes, "abcd", "the type hint says bytes"),
        (bytes | None, "abcd", "the type hint says bytes"),
        (bytearray, "abcd", "the type hint says bytearray"),
        (Node, Node("a", below=[Node(b"b")]), "`$.below[0].name` is b'b'"),  # type: ignore[arg-type]
        (Item, Item("abcd"), "`$.body` is 'abcd'"),  # type: ignore[arg-type]
        (Letter, {"body": "abcd"}, "`$.body` is 'abcd'"),
        (float, ROUNDED, f"`$` is {ROUNDED}, which a float cannot hold"),
        (float | None, ROUNDED, "which a float cannot hold"),
        (list[float], [1, ROUNDED], f"`$[1]` is {ROUNDED}"),
        (float, 10**400, "which a float cannot hold"),
    ],
    ids=repr,
)
def test_a_value_of_another_type_is_refused(kind: Any, value: Any, said: str) -> None:
    with pytest.raises(BadInput) as refused:
        there_and_back(kind, value)
    assert refused.value.message.startswith("the result: ")
    assert said in refused.value.message
    assert "type hint" in refused.value.advice


@pytest.mark.parametrize(
    ("kind", "value", "back"),
    [
        (str, "text", "text"),
        (bytes, b"raw", b"raw"),
        (bytes | None, None, None),
        (list[str], ("a", "b"), ["a", "b"]),
        (float, EXACT, float(EXACT)),
        (float, 2**70, float(2**70)),
        (float, 3, 3.0),
        (int | float, ROUNDED, ROUNDED),
        (Any, b"raw", "cmF3"),
        (dict[str, Any], {"a": b"raw"}, {"a": "cmF3"}),
        (Node, Node("a", extra=b"raw"), Node("a", extra="cmF3")),
        (Node, {"name": "a"}, Node("a")),
        (str, date(2026, 1, 1), "2026-01-01"),
        (dict[date, str], {"2026-01-01": "a"}, {date(2026, 1, 1): "a"}),
    ],
    ids=repr,
)
def test_other_values_pass(kind: Any, value: Any, back: Any) -> None:
    assert there_and_back(kind, value) == back


def test_deep_values_are_checked_too() -> None:
    tree: dict[str, Any] = {"name": "leaf"}
    for _ in range(300):
        tree = {"name": "above", "below": [tree]}
    assert there_and_back(Node, tree).name == "above"
    with pytest.raises(BadInput, match="Expected `int`, got `array`"):
        there_and_back(int, [[[]]])


def send(body: bytes, name: str = "", weight: float = 1) -> None:
    raise NotImplementedError((body, name, weight))


@pytest.mark.parametrize(
    ("args", "kwargs", "said"),
    [
        (("abcd",), {}, "argument body of send: `$` is 'abcd'"),
        (("abc",), {}, "argument body of send: `$` is 'abc'"),
        ((b"raw", b"n"), {}, "argument name of send: `$` is b'n'"),
        ((b"raw", "n", ROUNDED), {}, f"argument weight of send: `$` is {ROUNDED}"),
        ((b"raw",), {"name": b"n"}, "argument name of send"),
    ],
)
def test_arguments_are_refused_one_by_one_and_in_bulk(
    args: tuple[Any, ...], kwargs: dict[str, Any], said: str
) -> None:
    signature = Signature(send)
    with pytest.raises(BadInput) as refused:
        signature.write(args, kwargs, what="send", bytes_max=1000)
    assert said in refused.value.message
    good = (b"raw", "n", 1.5)
    if not kwargs:
        with pytest.raises(BadInput) as refused:
            signature.write_all([good, (*args, *good[len(args) :])], what="send", bytes_max=1000)
        assert said in refused.value.message
    assert len(signature.write_all([good, good], what="send", bytes_max=1000)) == 2


def test_json_from_outside_holds_bytes_as_base64() -> None:
    """It has no other form for them. A number that loses digits is refused there too."""
    signature = Signature(send)
    text = signature.check('{"body": "cmF3"}', what="send", bytes_max=1000)
    assert signature.read(text, what="send") == {"body": b"raw"}
    with pytest.raises(BadInput, match="Invalid base64"):
        signature.check('{"body": "?"}', what="send", bytes_max=1000)
    with pytest.raises(BadInput, match=r"argument weight of send: .* which a float cannot hold"):
        signature.check(f'{{"body": "", "weight": {ROUNDED}}}', what="send", bytes_max=1000)
