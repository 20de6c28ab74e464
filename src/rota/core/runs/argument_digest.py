"""A digest of a call's arguments: a replay compares it with the one that was recorded. Pure."""

from __future__ import annotations

import copyreg
from collections.abc import Iterable, Mapping, Sequence, Set
from functools import cached_property
from inspect import getattr_static
from types import BuiltinFunctionType, FunctionType
from typing import Any
from zlib import crc32

import msgspec

PROTOCOL = 4  # of pickle, for objects that describe themselves to it


class NotComparable(Exception):
    """An argument without a value that a replay could compare."""

    def __init__(self, parameter: str, value: object, reason: Exception) -> None:
        super().__init__(f"{parameter} is a {_name_of(type(value))}: {reason}")


def digest_of(names: Sequence[str], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> int:
    """A CRC-32 of the arguments: other arguments have the same one with a probability of 1 in 4
    billion. `names` are those of the parameters: an argument given by name counts like the same by
    position. Raises NotComparable for an argument that has no value to compare."""
    if kwargs:
        args, kwargs = _by_position(names, args, kwargs)
    try:
        raw = _encode(args)
    except Exception:
        raw = _encode_each(zip(_names_for(names, len(args)), args, strict=True))
    if kwargs:
        raw += _encode_each(sorted(kwargs.items()))
    return crc32(raw)


def _by_position(
    names: Sequence[str], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    rest = dict(kwargs)
    placed = list(args)
    for name in names[len(args) :]:
        if name not in rest:
            break
        placed.append(rest.pop(name))
    return tuple(placed), rest


def _names_for(names: Sequence[str], count: int) -> list[str]:
    return [*names[:count], *(f"argument {n + 1}" for n in range(len(names), count))]


def _encode_each(arguments: Iterable[tuple[str, Any]]) -> bytes:
    parts = []
    for name, value in arguments:
        try:
            parts.append(_written((name, value)))
        except Exception as error:
            raise NotComparable(name, value, error) from None
    return b"\0".join(parts)


# -- values that JSON cannot hold ----------------------------------------------------------------


def _written(value: Any, outer: tuple[int, ...] = ()) -> bytes:
    """A value as text, part by part: parts may contain what JSON cannot hold."""
    if id(value) in outer:
        raise ValueError("it contains itself")
    outer = (*outer, id(value))
    if isinstance(value, Mapping):
        pairs = [_written(key, outer) + b":" + _written(value[key], outer) for key in value]
        return b"{" + b",".join(sorted(pairs)) + b"}"
    if isinstance(value, list | tuple):
        return b"[" + b",".join([_written(part, outer) for part in value]) + b"]"
    if isinstance(value, Set):
        return b"<" + b",".join(sorted([_written(part, outer) for part in value])) + b">"
    if type(value) is int:
        return b"%x" % value  # beyond 64 bits too
    if type(value) is str:
        return repr(value).encode("utf-8", "surrogatepass")
    try:
        return _encode(value)
    except Exception:
        return _written(_parts(value), outer)


def _parts(value: Any) -> Any:
    """An object that JSON cannot hold, as its class and its parts: those that pickle would store.

    Most classes need nothing for that; some leave out a cache or a lock. An object with a socket,
    a lock or a thread has none."""
    if callable(path := getattr(type(value), "__fspath__", None)):
        return "path", path(value)
    if isinstance(value, type | FunctionType | BuiltinFunctionType):
        return _global_name(value)
    dump = getattr(value, "model_dump", None)  # of pydantic
    if callable(dump):
        return dump()
    reduce = copyreg.dispatch_table.get(type(value))
    reduced = value.__reduce_ex__(PROTOCOL) if reduce is None else reduce(value)
    if isinstance(reduced, str):
        return _name_of(type(value)), reduced
    made_by, args, *state = reduced
    items = [list(part) for part in state[1:3] if part is not None]
    return (
        _name_of(type(value)), _global_name(made_by), args,
        _without_caches(type(value), state[0]) if state else None, items,
    )  # fmt: skip


def _global_name(value: Any) -> str:
    name = _name_of(value)
    if "<" in name and not isinstance(value, type):
        raise TypeError("a function inside of another has no value that can be compared")
    return name


def _name_of(value: Any) -> str:
    return f"{value.__module__}.{value.__qualname__}"


def _without_caches(kind: type, state: Any) -> Any:
    """The attributes of an object. A step that fills a cached property changes nothing."""
    if not isinstance(state, dict):
        return state
    own = {
        name: part
        for name, part in state.items()
        if not isinstance(getattr_static(kind, name, None), cached_property)
    }
    return own or None


# Sets and dicts in a fixed order: theirs follows the hash seed of the process.
_encode = msgspec.json.Encoder(
    enc_hook=_parts, decimal_format="string", order="deterministic"
).encode
