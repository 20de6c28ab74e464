"""Forms: JSON and the input of a workflow as a person types them, its parameters, and an example to
fill in. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from rota.errors import BadInput
from rota.http.pages.text import pretty


def read_json(text: str, what: str) -> Any:
    """JSON from a form; an empty field is None."""
    if not text.strip():
        return None
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadInput(
            f"{what} is not JSON: {error}", hint='Write text as "…" with quotes.'
        ) from error


def read_input(text: str) -> dict[str, Any] | None:
    """The input of a workflow by parameter name; an empty field is None. The client puts stored
    secrets in the place of `[redacted]`, or refuses it."""
    given = read_json(text, "the input")
    if given is None:
        return None
    if not isinstance(given, dict):
        raise BadInput("the input is not an object", hint='Write {"parameter": value}.')
    return given


# -- the input of a workflow --------------------------------------------------------------------

_EMPTY: Mapping[str, Any] = {
    "string": "", "integer": 0, "number": 0, "boolean": False, "array": [], "object": {},
}  # fmt: skip
_WORDS: Mapping[str, str] = {
    "string": "text", "integer": "whole number", "number": "number", "boolean": "true or false",
    "array": "list", "object": "object", "null": "null",
}  # fmt: skip


@dataclass(frozen=True)
class InputParameter:
    """A parameter of a workflow."""

    name: str
    type: str
    is_required: bool


def parameters_of(schema: Mapping[str, Any] | None) -> list[InputParameter]:
    """The parameters that a JSON Schema of an input names."""
    properties, needed = _properties(schema)
    return [
        InputParameter(name, _word(field), name in needed) for name, field in properties.items()
    ]


def example_of(schema: Mapping[str, Any] | None) -> str:
    """JSON with the parameters that must be given, to be filled in."""
    properties, needed = _properties(schema)
    values = {
        name: _EMPTY.get(_type(field)) for name, field in properties.items() if name in needed
    }
    return pretty(values) if values else ""


def _properties(schema: Mapping[str, Any] | None) -> tuple[dict[str, Any], list[str]]:
    whole = schema or {}
    target = whole.get("$ref", "").rpartition("/")[2]
    definition = whole.get("$defs", {}).get(target, whole)
    return definition.get("properties", {}), definition.get("required", [])


def _type(schema: Mapping[str, Any]) -> str:
    kind = schema.get("type", "")
    return kind if isinstance(kind, str) else ""


def _word(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return "one of " + ", ".join(str(value) for value in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_word(choice) for choice in schema["anyOf"]))
    return _WORDS.get(_type(schema), "object")
