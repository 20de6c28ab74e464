"""Values from the command line: `key=value`, JSON, files, stdin, instants."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from rota.client.start import Startable
from rota.errors import BadInput

_PATH = re.compile(r"`\$\.(\w+)")


class InexactNumber(BadInput):
    """A number that Python would round, or take for infinite."""

    def __init__(self, text: str) -> None:
        super().__init__(
            f"the number {text:.60} has more digits than a JSON number keeps, or is too large",
            hint=f'Round it, or write it as text, which a Decimal accepts: "{text:.60}".',
        )
        self.text = text


def from_json(text: str) -> Any:
    """A value from JSON; ValueError if the text is not JSON."""
    return json.loads(text, parse_float=_exact)


def _exact(text: str) -> float:
    number = float(text)
    try:
        if Decimal(repr(number)) == Decimal(text):
            return number
    except InvalidOperation:  # an exponent that not even a Decimal holds
        pass
    raise InexactNumber(text)


def loose(text: str | None) -> Any:
    """JSON if it is JSON, otherwise the text; so is a number that loses digits. None stays None."""
    if text is None:
        return None
    try:
        return from_json(text)
    except ValueError:
        return text
    except InexactNumber as error:
        if error.text != text:
            raise
        return text
    except RecursionError:
        raise _too_deep(text) from None


def pairs(words: Sequence[str], what: str) -> dict[str, str]:
    """`key=value` words by key."""
    values: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise BadInput(f"{word!r} is not {what}", hint="Write key=value, without spaces.")
        if key in values:
            raise BadInput(f"{key} is given twice")
        values[key] = value
    return values


def whole(source: str | None) -> dict[str, Any]:
    """The object behind `--input`: JSON, @file, or - for stdin."""
    if source is None:
        return {}
    text, where = _text(source)
    try:
        value = from_json(text)
    except ValueError as error:
        raise BadInput(
            f"{where} is not JSON: {error}", hint='Write an object: \'{"name": "value"}\'.'
        ) from error
    except RecursionError:
        raise _too_deep(where) from None
    if not isinstance(value, dict):
        raise BadInput(
            f"{where} is a JSON {type(value).__name__}, not an object",
            hint='Inputs go by parameter name: \'{"name": "value"}\'.',
        )
    return value


def _too_deep(what: str) -> BadInput:
    shown = what if len(what) <= 60 else f"{what[:60]}…"
    return BadInput(
        f"{shown} is nested too deeply", hint="Nest lists and objects at most 500 deep."
    )


def _text(source: str) -> tuple[str, str]:
    if source == "-":
        return sys.stdin.read(), "stdin"
    if not source.startswith("@"):
        return source, "--input"
    try:
        return Path(source[1:]).read_text(encoding="utf-8"), source[1:]
    except (OSError, ValueError) as error:  # ValueError: bytes that are not UTF-8, or a NUL
        raise BadInput(
            f"{source[1:]} cannot be read: {error}", hint="Write --input @file."
        ) from error


def arguments(words: Sequence[str], source: str | None) -> tuple[dict[str, Any], dict[str, str]]:
    """All arguments by name, and those that may also be meant as a string."""
    texts = pairs(words, "an argument")
    given = whole(source)
    for key in texts:
        if key in given:
            raise BadInput(f"{key} is given twice: in --input and as {key}=…", hint="Keep one.")
    return given | {key: loose(value) for key, value in texts.items()}, texts


def checked(
    workflow: Startable[..., Any], values: dict[str, Any], texts: dict[str, str], *, bytes_max: int
) -> dict[str, Any]:
    """Arguments that fit the workflow. `order=7` is a number, unless the parameter is a string; a
    number with too many digits is text, unless the parameter is a float."""
    tried: dict[str, BadInput] = {}
    while True:
        try:
            text = json.dumps(values)
            workflow.signature.check(text, what=workflow.name, bytes_max=bytes_max)
        except BadInput as error:
            place = _PATH.search(str(error))
            name = place.group(1) if place else ""
            if name not in texts or name in tried:
                raise tried.get(name, error) from error
            tried[name] = error
            values = values | {name: _otherwise(values[name], texts[name])}
        else:
            return values


def _otherwise(value: Any, text: str) -> Any:
    """The other reading of an argument: its text, or the rounded number of a text."""
    if value != text:
        return text
    try:
        number = json.loads(text)
    except ValueError:
        return text
    return text if math.isinf(number) else number


def instant(text: str) -> datetime:
    """An ISO 8601 time; without a zone it is this machine's."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise BadInput(
            f"{text!r} is not a time", hint="Write 2030-01-31T09:00, with a zone as +02:00 or Z."
        ) from error
    try:
        return moment.astimezone()
    except (ValueError, OverflowError, OSError) as error:  # outside of the system's calendar
        raise BadInput(
            f"{text!r} is too far away", hint="Give a time between the years 1970 and 9998."
        ) from error
