"""Input of forms: JSON, and the arguments of a workflow. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from rota.core.redaction import REDACTED
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
    """The input of a workflow by parameter name; an empty field is None."""
    given = read_json(text, "the input")
    if given is None:
        return None
    if not isinstance(given, dict):
        raise BadInput("the input is not an object", hint='Write {"parameter": value}.')
    if _is_redacted(given):
        raise BadInput(
            f"the input holds {REDACTED}, which a page shows instead of a secret",
            hint="Write the secret itself, or remove the field.",
        )
    return given


def _is_redacted(value: Any) -> bool:
    if isinstance(value, dict):
        return any(_is_redacted(one) for one in value.values())
    if isinstance(value, list):
        return any(_is_redacted(one) for one in value)
    return bool(value == REDACTED)
