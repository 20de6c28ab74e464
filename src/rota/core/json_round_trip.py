"""Whether a value comes back from JSON as it went in. Pure."""

from __future__ import annotations

import dataclasses
import reprlib
from collections.abc import Iterable
from typing import Any

import msgspec

PLAIN = (type(None), bool, int, float, str, list, dict)

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 60
short = _SHORT.repr  # a value in an error text, cut if it is long


def difference(value: Any, back: Any, *, strict: bool) -> str | None:
    """The first part of `value` that JSON does not keep, for an error message; None if there is
    none.

    An object has to come back as an object of its class with equal fields. Plain JSON may come back
    as the type of its hint, and a value without a hint as plain JSON. `strict` means that the hint
    could not be read: then nothing may change but a tuple into a list."""
    found = _first(value, back, "$", strict)
    if found is None:
        return None
    path, before, after = (found[0], short(found[1]), short(found[2]))
    return f"`{path}` is {before}, and would come back as {'another' if after == before else after}"


_Found = tuple[str, Any, Any]


def _first(value: Any, back: Any, path: str, strict: bool) -> _Found | None:
    if equal(value, back):
        return None
    if (names := _fields_of(value)) is not None and not isinstance(back, PLAIN):
        return _first_in_object(names, value, back, path, strict)
    if isinstance(value, dict) and isinstance(back, dict):
        if strict and value.keys() != back.keys():
            return path, value, back
        both = ((key, each) for key, each in value.items() if key in back)
        return _first_of(((f"{path}.{key}", each, back[key]) for key, each in both), strict)
    is_list = type(value) in (list, tuple) if strict else isinstance(value, list | tuple)
    if is_list and isinstance(back, list | tuple):
        rows = enumerate(zip(value, back, strict=False))
        return _first_of(((f"{path}[{n}]", one, other) for n, (one, other) in rows), strict)
    if strict:
        return path, value, back
    is_number = type(value) in (int, float) and type(back) in (int, float)
    is_other = is_number or (type(value) is type(back) and equal(value, value))
    return (path, value, back) if is_other else None


def _first_in_object(
    names: list[str], value: Any, back: Any, path: str, strict: bool
) -> _Found | None:
    lost = next((name for name in names if not hasattr(back, name)), None)
    if lost is not None or type(back) in type(value).__mro__[1:]:
        return path, value, back
    pairs = ((f"{path}.{name}", getattr(value, name), getattr(back, name)) for name in names)
    return _first_of(pairs, strict)


def _first_of(parts: Iterable[tuple[str, Any, Any]], strict: bool) -> _Found | None:
    found = (_first(value, back, path, strict) for path, value, back in parts)
    return next((one for one in found if one is not None), None)


def equal(value: Any, back: Any) -> bool:
    """Whether two values are equal, whatever they are."""
    try:
        return bool(value == back)
    except Exception:  # an `__eq__` of the user's
        return False


def _fields_of(value: Any) -> list[str] | None:
    """The names of the fields of an object that JSON writes field by field."""
    if isinstance(value, type):
        return None
    if dataclasses.is_dataclass(value):
        return [field.name for field in dataclasses.fields(value)]
    if isinstance(value, msgspec.Struct):
        return list(value.__struct_fields__)
    if hasattr(value, "__attrs_attrs__"):
        return [field.name for field in value.__attrs_attrs__]
    if hasattr(value, "__pydantic_fields__"):
        return [*value.__pydantic_fields__, *(value.__pydantic_private__ or ())]
    return None
