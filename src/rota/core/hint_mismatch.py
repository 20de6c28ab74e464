"""Values that JSON and a type hint turn into another value without an error. Pure.

JSON writes bytes as base64 text, so a hint of `str` would read that text, and a hint of `bytes`
would decode any text. A float has 53 bits for the digits of an integer.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from typing import Any

from msgspec import inspect

from rota.core.json_round_trip import short

_BYTES = (bytes, bytearray, memoryview)
_BYTES_KINDS = {
    inspect.BytesType: "bytes", inspect.ByteArrayType: "bytearray",
    inspect.MemoryViewType: "memoryview",
}  # fmt: skip
_ARRAYS = (list, tuple, set, frozenset)


def parts_of(kind: inspect.Type) -> Iterator[inspect.Type]:
    """The types in a type hint; without those of the fields of objects."""
    todo: list[Any] = [kind]
    while todo:
        one = todo.pop()
        yield one
        todo += [getattr(one, name) for name in _PARTS if hasattr(one, name)]
        todo += getattr(one, "types", None) or getattr(one, "item_types", None) or ()


_PARTS = ("item_type", "key_type", "value_type")


def may_mismatch(part: inspect.Type) -> bool:
    """Whether this type reads some values as other ones."""
    return isinstance(part, inspect.StrType | inspect.FloatType) or type(part) in _BYTES_KINDS


def first_mismatch(kind: inspect.Type, value: Any, *, is_json: bool) -> str | None:
    """The first part of a value that the hint would misread, for an error message. JSON from
    outside holds bytes as text."""
    todo: list[tuple[Any, Any, str]] = [(kind, value, "$")]  # no recursion: values may be deep
    while todo:
        part, given, path = todo.pop()
        if isinstance(part, inspect.UnionType):
            if not any(_takes(one, given) for one in part.types):
                todo += [(one, given, path) for one in part.types]
            continue
        expected = _expected(part, given)
        if expected == "float":
            return f"`{path}` is {short(given)}, which a float cannot hold"
        if expected and not is_json:
            given_type = f"of type {type(given).__name__}; the type hint says {expected}"
            return f"`{path}` is {short(given)}, which is {given_type}"
        todo += reversed([*_inside(part, given, path)])
    return None


def _takes(kind: Any, value: Any) -> bool:
    """Whether a type of a union is the one of the value."""
    if isinstance(value, _BYTES):
        return type(kind) in _BYTES_KINDS
    return isinstance(kind, inspect.StrType if isinstance(value, str) else inspect.IntType)


def _expected(kind: Any, value: Any) -> str:
    """The name of the type in the hint, if it would misread the value."""
    if isinstance(kind, inspect.StrType):
        return "str" if isinstance(value, _BYTES) else ""
    if isinstance(kind, inspect.FloatType):
        return "float" if isinstance(value, int) and _is_rounded(value) else ""
    return _BYTES_KINDS.get(type(kind), "") if isinstance(value, str) else ""


def _is_rounded(value: int) -> bool:
    try:
        return float(value) != value
    except OverflowError:
        return True


def _inside(kind: Any, value: Any, path: str) -> Iterator[tuple[Any, Any, str]]:
    """The parts of a value with the type of each in the hint."""
    if hasattr(kind, "fields"):
        for one in kind.fields:
            if isinstance(value, dict) and one.encode_name in value:
                yield one.type, value[one.encode_name], f"{path}.{one.encode_name}"
            elif type(value) is getattr(kind, "cls", None) and hasattr(value, one.name):
                yield one.type, getattr(value, one.name), f"{path}.{one.name}"
    elif isinstance(value, dict) and isinstance(kind, inspect.DictType):
        for key, each in value.items():
            yield kind.key_type, key, path
            yield kind.value_type, each, f"{path}.{key}"
    elif isinstance(value, _ARRAYS):
        each_type = getattr(kind, "item_type", None)
        types = getattr(kind, "item_types", ()) if each_type is None else repeat(each_type)
        for n, (one, each) in enumerate(zip(types, value, strict=False)):
            yield one, each, f"{path}[{n}]"
