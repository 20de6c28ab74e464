"""Text from forms: JSON, and the input of a workflow. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from rota.errors import BadInput


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
