"""Fields that are declared secret (the setting `secret_fields`), kept out of what people see.

Stored values keep them, because runs need them. Surfaces show `[redacted]` in the place of such a
field. Errors and log lines of a run are texts: the values that its secret fields had are replaced
before the text is stored.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from typing import Any

import msgspec

from rota.errors import BadInput

REDACTED = "[redacted]"
# A shorter value would hide half of an innocent text: it is hidden where it is alone.
ALONE_CHARS_MAX = 3
_UNQUOTED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-~")
BASE64_CHARS_MIN = 8  # less of a base64 text could be anything


class Redactor:
    """Replaces the values of fields by their names, at any depth."""

    def __init__(self, fields: Iterable[str] = ()) -> None:
        self._fields = frozenset(map(_folded, fields))

    def __bool__(self) -> bool:
        return bool(self._fields)

    def is_secret(self, name: object) -> bool:
        """Whether a field has a declared name: `api_key` is also `apiKey` and `API-KEY`."""
        return isinstance(name, str) and _folded(name) in self._fields

    def value(self, value: Any) -> Any:
        """A value of dicts and lists, with `[redacted]` in the place of secret fields."""
        if not self._fields:
            return value
        try:
            return self._value(value)
        except RecursionError:  # better nothing than a secret
            return REDACTED

    def _value(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {
                name: REDACTED if self.is_secret(name) and one is not None else self._value(one)
                for name, one in value.items()
            }
        return [self._value(one) for one in value] if isinstance(value, list | tuple) else value

    def text(self, text: str) -> str:
        """The same for stored JSON. Text that is not JSON has no fields."""
        if not self._fields:
            return text
        try:
            return msgspec.json.encode(self.value(msgspec.json.decode(text))).decode()
        except RecursionError:  # better nothing than a secret
            return f'"{REDACTED}"'
        except (msgspec.DecodeError, UnicodeError):
            return text

    def restored(self, value: Any, stored: Any = None) -> Any:
        """A value that came back from a surface: the stored value counts in a secret field that has
        `[redacted]`. BadInput where none is stored.
        """
        if not self._fields:
            return value
        if isinstance(value, dict):
            old = stored if isinstance(stored, dict) else {}
            return {name: self._restored(name, one, old) for name, one in value.items()}
        if isinstance(value, list | tuple):
            olds = stored if isinstance(stored, list) else []
            beside = olds if len(olds) == len(value) else [None] * len(value)
            pairs = zip(value, beside, strict=True)
            return [self.restored(one, self._item_of(one, old, olds)) for one, old in pairs]
        return value

    def _item_of(self, value: Any, beside: Any, olds: list[Any]) -> Any:
        """The stored item that an item of a list came from: one that is shown like it, otherwise
        the one at its place in a list as long as before. None if it may be any of several."""
        alike = [old for old in olds if self.value(old) == value]
        is_clear = alike and beside not in alike and all(old == alike[0] for old in alike)
        return alike[0] if is_clear else beside

    def _restored(self, name: str, value: Any, old: dict[str, Any]) -> Any:
        if value != REDACTED or not self.is_secret(name):
            return self.restored(value, old.get(name))
        if name not in old:
            raise BadInput(
                f"the field {name} is {REDACTED}, and no value is stored for it",
                hint="Give the real value.",
            )
        return old[name]

    def secrets_of(self, text: str | None) -> set[str]:
        """The values that the secret fields of stored JSON have, as texts."""
        if not self._fields or not text:
            return set()
        try:
            return set(self._secrets(msgspec.json.decode(text), hidden=False))
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return set()

    def _secrets(self, value: Any, *, hidden: bool) -> Iterator[str]:
        if isinstance(value, dict):
            for name, one in value.items():
                yield from self._secrets(one, hidden=hidden or self.is_secret(name))
        elif isinstance(value, list):
            for one in value:
                yield from self._secrets(one, hidden=hidden)
        elif hidden and value not in (None, "") and not isinstance(value, bool):
            yield str(value)


def _folded(name: str) -> str:
    return name.replace("_", "").replace("-", "").casefold()


# -- the secrets of the run that this task executes ------------------------------------------------


class RunSecrets:
    """The values of secret fields that a run has come to know."""

    def __init__(self, redactor: Redactor) -> None:
        self.redactor = redactor
        self.values: set[str] = set()


_known: ContextVar[RunSecrets | None] = ContextVar("rota_secrets", default=None)


def begin_run(redactor: Redactor, texts: Iterable[str | None]) -> None:
    """Hide the secret values of these JSON texts, from now on, in texts about the run of this task
    and of its child tasks."""
    _known.set(RunSecrets(redactor))
    for text in texts:
        learn(text)


def learn(text: str | None) -> None:
    """The same for JSON that the run has just come to know."""
    known = _known.get()
    if known is not None:
        known.values |= known.redactor.secrets_of(text)


def without_secrets(text: str) -> str:
    """A text about the run of this task, without the values of its secret fields."""
    known = _known.get()
    if known is None:
        return text
    for value in sorted(known.values, key=len, reverse=True):
        text = mask(text, value, REDACTED)
    return text


# -- values in texts -------------------------------------------------------------------------------


def mask(text: str, value: str, name: str) -> str:
    """A text with a name in the place of a value, in the forms that texts quote it in."""
    if len(value) > ALONE_CHARS_MAX:
        for form in quoted_forms(value):
            text = text.replace(form, name)
        return text
    alone = rf"(?<![\w.-]){re.escape(value)}(?![\w.-])"
    return name.join(re.split(alone, text))


def quoted_forms(value: str) -> list[str]:
    """Forms of a value: plain, quoted for URLs and JSON, base64, URL path; longest first."""
    quoted = _percent(value, "")
    forms = {value, quoted, _percent(value, "/"), quoted.replace("%20", "+")}
    forms |= {json.dumps(value)[1:-1], *_in_base64(value)}
    if value.startswith(("http://", "https://")):
        _, slash, path = value.partition("://")[2].partition("/")
        parts = {slash + path, slash + path.partition("?")[0], path.partition("?")[2]}
        forms |= {one for one in parts if len(one) > ALONE_CHARS_MAX}
    return sorted(forms, key=lambda form: -len(form))


def _percent(value: str, safe: str) -> str:
    """A text as it is quoted in an address."""
    return "".join(
        chr(one) if chr(one) in _UNQUOTED or chr(one) in safe else f"%{one:02X}"
        for one in value.encode("utf-8", "surrogatepass")
    )


def _in_base64(value: str) -> Iterator[str]:
    """The parts of a base64 text that depend on the value alone, for its three offsets."""
    raw = value.encode("utf-8", "surrogatepass")
    for before in range(3):
        text = base64.b64encode(bytes(before) + raw).decode().rstrip("=")
        first = (before * 8 + 5) // 6
        last = (before + len(raw)) * 8 // 6
        core = text[first:last]
        if len(core) >= BASE64_CHARS_MIN:
            yield core
            yield core.replace("+", "-").replace("/", "_")


# -- what a surface shows --------------------------------------------------------------------------

_surface: ContextVar[Redactor | None] = ContextVar("rota_redactor", default=None)


def serve(redactor: Redactor) -> None:
    """Whatever this task and its children show from now on hides the declared fields."""
    _surface.set(redactor)


def shown(value: Any) -> Any:
    """A value for people: secret fields of the surface are `[redacted]`."""
    redactor = _surface.get()
    return redactor.value(value) if redactor else value


def shown_text(text: str) -> str:
    """Stored JSON for people."""
    redactor = _surface.get()
    return redactor.text(text) if redactor else text
