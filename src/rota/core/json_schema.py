"""The shape of JSON values: a type hint as JSON Schema, and whether a value fits it. Pure.

For programs without the code: an event that comes in is checked against the shape that was
stored when its topic was deployed. The check refuses only what the code's own would refuse; what
it does not know it lets pass.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

Schema = Mapping[str, Any]

# JSON Schema's words → the Python types of a decoded value, and the words of the code's own check.
_TYPES: dict[str, tuple[tuple[type, ...], str]] = {
    "object": ((dict,), "object"),
    "array": ((list,), "array"),
    "string": ((str,), "str"),
    "integer": ((int,), "int"),
    "number": ((int, float), "float"),
    "boolean": ((bool,), "bool"),
    "null": ((type(None),), "null"),
}
_DEFINED = "#/$defs/"


def shape_of(kind: Any) -> dict[str, Any] | None:
    """The shape of a type; None where it says nothing, or cannot be said."""
    if kind is Any:
        return None
    try:
        found = msgspec.json.schema(kind, schema_hook=lambda _: {})
    except (TypeError, ValueError, NameError):
        return None
    return found or None


def misfit(shape: Schema, text: str) -> str | None:
    """Why a JSON text does not fit, with the path to the bad place; None when it fits."""
    value = json.loads(text)
    return next(_misfits(shape, value, "$", shape.get("$defs", {})), None)


def _misfits(shape: Schema, value: Any, path: str, named: Schema) -> Iterator[str]:
    reference = str(shape.get("$ref", ""))
    if reference.startswith(_DEFINED):
        shape = named.get(reference.removeprefix(_DEFINED), {})
    several = shape.get("anyOf")
    if several is not None:
        yield from _none_of(several, value, path, named)
        return
    if "enum" in shape and value not in shape["enum"]:
        yield f"Invalid enum value {json.dumps(value)}{_at(path)}"
        return
    wanted = shape.get("type")
    if isinstance(wanted, str) and wanted in _TYPES and not _is(value, wanted, shape):
        yield f"Expected `{_TYPES[wanted][1]}`, got `{_word(value)}`{_at(path)}"
    elif isinstance(value, dict):
        yield from _in_object(shape, value, path, named)
    elif isinstance(value, list):
        yield from _in_array(shape, value, path, named)


def _is(value: Any, wanted: str, shape: Schema) -> bool:
    if shape.get("format") == "decimal" and not isinstance(value, bool):
        return isinstance(value, str | int | float)  # a number is read as well
    if isinstance(value, bool):
        return wanted == "boolean"
    if wanted == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES[wanted][0])


def _at(path: str) -> str:
    return "" if path == "$" else f" - at `{path}`"


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    return next(word for types, word in _TYPES.values() if isinstance(value, types))


def _none_of(several: list[Schema], value: Any, path: str, named: Schema) -> Iterator[str]:
    """Fits none: the message is that of the deepest one, which is the one that was meant."""
    complaints = [next(_misfits(each, value, path, named), None) for each in several]
    if None not in complaints:
        yield max((each for each in complaints if each), key=_depth)


def _depth(complaint: str) -> int:
    path = complaint.rpartition(" - at ")[2]
    return path.count(".") + path.count("[")


def _in_object(shape: Schema, value: dict[str, Any], path: str, named: Schema) -> Iterator[str]:
    for name in shape.get("required", ()):
        if name not in value:
            yield f"Object missing required field `{name}`{_at(path)}"
    known, other = shape.get("properties", {}), shape.get("additionalProperties")
    for name, item in value.items():
        if name in known:
            yield from _misfits(known[name], item, f"{path}.{name}", named)
        elif other is False:
            yield f"Object contains unknown field `{name}`{_at(path)}"
        elif isinstance(other, Mapping):
            yield from _misfits(other, item, f"{path}.{name}", named)


def _in_array(shape: Schema, value: list[Any], path: str, named: Schema) -> Iterator[str]:
    first = shape.get("prefixItems", ())
    if len(value) < len(first) or (
        first and shape.get("items") is False and len(value) > len(first)
    ):
        yield f"Expected `array` of length {len(first)}, got {len(value)}{_at(path)}"
    for index, item in enumerate(value):
        one = first[index] if index < len(first) else shape.get("items")
        if isinstance(one, Mapping):
            yield from _misfits(one, item, f"{path}[{index}]", named)
