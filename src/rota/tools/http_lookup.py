"""The question after the answer to an HTTP write was lost: does exactly this thing exist now?

The collection answers a question that names no single thing, such as an empty id, and a lost change
would count as applied. So a value that names nothing is refused
before anything is sent, and only an answer that names the thing proves that it exists.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, urlsplit

from rota.core.fingerprint import MadeFrom
from rota.errors import BadInput, UsageError
from rota.net import http
from rota.net.secret import Text
from rota.tools.base import Unknown

Found = Callable[[Any], bool | None]
KEY = "key"
_FOUND = "Pass found=, a function of the answer that returns True, False or None."


class Lookup(MadeFrom):
    """The GET request that finds out whether an effect happened.

    `url` may hold {key}, and names of the fields of the JSON that was sent. `found` gets the
    body of a 200 answer (JSON if it is JSON, otherwise text): True, False, or None for "cannot
    tell". Without `found` the last part of the path has to name the thing: 200 with a JSON object
    that holds the same name means yes, and 404 and 410 mean no.
    """

    def __init__(
        self, url: str, *, found: Found | None = None, headers: Mapping[str, Text] | None = None
    ) -> None:
        names = _names_in(url)
        if not names:
            raise UsageError(
                f"the lookup {url!r} asks the same for every effect", hint="Put {key} into it."
            )
        path = urlsplit(url).path
        last = path.rstrip("/").rpartition("/")[2]
        if found is None and ("?" in url or "{" not in last):
            raise UsageError(
                f"the lookup {url!r} searches, and nothing says what it means to find", hint=_FOUND
            )
        self.url = url
        self.found = found
        self.headers = dict(headers or {})
        self._named = _names_in(last)
        self._in_path = set(_names_in(path))

    def fill(self, sent: Any, key: str) -> str:
        """The URL for one effect; values are quoted, so that none can change the question."""
        texts = self._texts(sent, key)
        return self.url.format_map({name: quote(text, safe="") for name, text in texts.items()})

    def verdict(self, answer: http.HttpResponse, sent: Any, key: str) -> bool | Unknown:
        """Whether a 200 answer says that the thing exists."""
        if answer.status != 200 or not answer.whole:
            return Unknown(f"the lookup has no whole answer: {answer.status_text}")
        body = next(iter(http.content_of(answer, "auto").values()))
        if self.found is not None:
            exists = self.found(body)
            if exists is None:
                return Unknown(f"the lookup found no answer: {answer.status_text}")
            return bool(exists)
        texts, held = self._texts(sent, key), set(_texts_in(body))
        if missing := next((name for name in self._named if texts[name] not in held), None):
            return Unknown(
                f"the answer of the lookup does not name {texts[missing]!r}, so it may be about "
                f"anything: {answer.status_text}. {_FOUND}"
            )
        return True

    def _texts(self, sent: Any, key: str) -> dict[str, str]:
        """The value of each name in the URL."""
        values = {**(sent if isinstance(sent, dict) else {}), KEY: key}
        return {name: self._checked(name, values) for name in _names_in(self.url)}

    def _checked(self, name: str, values: Mapping[str, Any]) -> str:
        """One value as text, or BadInput if it names nothing, or more than one thing."""
        value = values.get(name)
        text = _text(value)
        if text is None or not text.strip() or not text.isprintable():
            why = "is not a printable text or a whole number" if name in values else "is missing"
        elif name in self._in_path and name != KEY and _is_other_path(text):
            why = "would lead to another path"
        else:
            return text
        raise BadInput(
            f"the lookup {self.url!r} names no single thing: the field {name} {why}"
            + (f" ({value!r})" if name in values else ""),
            hint="Nothing was called. Send an id in that field.",
        )


def _names_in(url: str) -> list[str]:
    """The names in a pattern; only plain ones, because a format could change or cut a value."""
    try:
        parts = list(string.Formatter().parse(url))
    except ValueError as error:
        raise UsageError(f"the lookup {url!r} cannot be read: {error}") from error
    for _, name, form, conversion in parts:
        if name is not None and (not name or name.isdigit() or set(name) & set(".[") or form
                                 or conversion):  # fmt: skip
            raise UsageError(
                f"the lookup {url!r} holds a pattern that is not a plain name",
                hint="Write {key}, or the name of a field of the JSON, such as {id}.",
            )
    return [name for _, name, _, _ in parts if name]


def _is_other_path(text: str) -> bool:
    return text in (".", "..") or "/" in text or "\\" in text


def _text(value: Any) -> str | None:
    """A text, or a whole number as text."""
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else None


def _texts_in(value: Any) -> Iterator[str]:
    """The names that an object holds, also in objects in it. A list holds other things."""
    if isinstance(value, dict):
        for item in value.values():
            yield from _texts_in(item) if isinstance(item, dict) else filter(None, [_text(item)])
