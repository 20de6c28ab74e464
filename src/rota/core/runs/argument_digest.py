"""A digest of a call's arguments: a replay compares it with the one that was recorded. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from zlib import crc32

import msgspec


def _type_name(value: Any) -> str:
    kind = value if isinstance(value, type) else type(value)
    return f"{kind.__module__}.{kind.__qualname__}"


def _other(value: Any) -> Any:
    """A pydantic model by its fields; values that JSON cannot hold count by their type only."""
    dump = getattr(value, "model_dump", None)
    return dump() if callable(dump) and not isinstance(value, type) else _type_name(value)


# Sets and dicts in a fixed order: theirs follows the hash seed of the process.
_encode = msgspec.json.Encoder(
    enc_hook=_other, decimal_format="string", order="deterministic"
).encode


def digest_of(names: Sequence[str], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> int:
    """A CRC-32 of the arguments: other arguments have the same one with a probability of 1 in 4
    billion. `names` are those of the parameters: an argument given by name counts like the same by
    position."""
    if kwargs:
        args, kwargs = _by_position(names, args, kwargs)
    try:
        raw = _encode(args)
    except Exception:
        raw = _encode_each(args)
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


def _encode_each(values: Sequence[Any]) -> bytes:
    return _encode([_one(value) for value in values])


def _one(value: Any) -> Any:
    """The value, or its type when it cannot be encoded (it contains itself, has odd keys …)."""
    if isinstance(value, tuple):
        return [_one(part) for part in value]
    try:
        return msgspec.Raw(_encode(value))
    except Exception:
        return _type_name(value)
