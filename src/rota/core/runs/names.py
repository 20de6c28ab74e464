"""Names, keys and priorities that callers choose: texts that both databases can hold. Pure."""

from __future__ import annotations

from string import ascii_lowercase, ascii_uppercase
from typing import TypeGuard

import msgspec

from rota.core.time.instants import shown
from rota.errors import BadInput

# A name and a key are together in one index entry, which PostgreSQL bounds at 2,700 bytes.
NAME_BYTES_MAX = 255
KEY_BYTES_MAX = 1_000
PRIORITY_MAX = 2**31 - 1
LIMIT_MAX = 1_000
_LOWER = str.maketrans(ascii_uppercase, ascii_lowercase)


def checked_name(name: object, what: str) -> str:
    """The name of a workflow, step, queue or signal, or BadInput."""
    return _checked(name, what, NAME_BYTES_MAX)


def checked_key(key: object, what: str) -> str:
    """An external id or a key, or BadInput."""
    return _checked(key, what, KEY_BYTES_MAX)


def checked_search(text: object, what: str = "search") -> str:
    """A text to look for, which may be empty, or BadInput."""
    return "" if text == "" else checked_key(text, what)


def folded(text: str) -> str:
    """A text without the case of its ASCII letters. That is what `lower` does to a stored name on
    both databases; that of a parameter would follow the locale of the server."""
    return text.translate(_LOWER)


def is_whole(value: object, least: int, most: int) -> TypeGuard[int]:
    """Whether a value is a whole number within these bounds; True and False are not."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def checked_priority(priority: object) -> int:
    """A priority, or BadInput."""
    return _whole(priority, -PRIORITY_MAX, PRIORITY_MAX, "priority={} is not a priority")


def checked_limit(limit: object, at_most: int = LIMIT_MAX) -> int:
    """How many rows a list returns, or BadInput."""
    return _whole(limit, 1, at_most, "limit={} is out of range")


def checked_position(position: object) -> int:
    """A position in a list, or BadInput."""
    return _whole(position, 0, 2**63 - 1, "{} is not a position", "from 0 on")


def _whole(value: object, least: int, most: int, wrong: str, bounds: str = "") -> int:
    if not is_whole(value, least, most):
        bounds = bounds or f"from {least:,} to {most:,}"
        raise BadInput(wrong.format(shown(value)), hint=f"Give a whole number {bounds}.")
    return value


def _checked(text: object, what: str, bytes_max: int) -> str:
    hint = f"Give 1 to {bytes_max:,} bytes of text without NUL characters."
    if not isinstance(text, str):
        raise BadInput(f"{what}={shown(text)} is not text", hint=hint)
    if not text:
        raise BadInput(f"{what} is empty", hint=hint)
    if "\0" in text:
        raise BadInput(f"{what}={shown(text)} holds a NUL character", hint=hint)
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise BadInput(f"{what}={shown(text)} is not valid Unicode", hint=hint) from None
    if size > bytes_max:
        raise BadInput(f"{what} has {size:,} bytes; the limit is {bytes_max:,}", hint=hint)
    return text


def read_tags(text: str | None) -> dict[str, str]:
    """The tags of a run as they are stored."""
    return msgspec.json.decode(text, type=dict[str, str]) if text else {}


def checked_tags(tags: object) -> None:
    """Refuse tags that no filter could find: anything but a dict of texts."""
    if not isinstance(tags, dict) or not all(
        isinstance(text, str) for pair in tags.items() for text in pair
    ):
        raise BadInput(
            f"tags={tags!r} is not a dict of texts", hint='Write tags={"customer": "7"}.'
        )
