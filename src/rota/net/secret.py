"""Secrets by name: parameters and tools hold the name, the environment holds the value.

A secret is resolved only in places that are meant for one: an address, a header, a field of a body,
a login, a variable of a command. Text is never searched for names of secrets, and no JSON decodes
to one: input from outside cannot name a secret.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from rota.core.redaction import ALONE_CHARS_MAX, mask, quoted_forms
from rota.errors import NeedsLogin

_KEY = re.compile(r"[\x21-\x7e]+")


class Secret:
    """A value to be read from the environment when it is needed. Only Python code can make one:
    a type that msgspec knows could be decoded from the parameters of a call."""

    __slots__ = ("_env", "prefix", "secret", "suffix")

    def __init__(
        self,
        secret: str,
        prefix: str = "",
        suffix: str = "",
        *,
        env: Mapping[str, str] = os.environ,
    ) -> None:
        self._env = env
        self.secret = secret
        self.prefix = prefix
        self.suffix = suffix

    @property
    def made_from(self) -> tuple[str, str]:
        """The part that a fingerprint of code includes: the name, never the value."""
        return (self.secret, self.prefix)

    def __repr__(self) -> str:
        return f"secret({self.secret!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._parts == other._parts

    def __hash__(self) -> int:
        return hash(self._parts)

    @property
    def _parts(self) -> tuple[str, str, str]:
        return self.secret, self.prefix, self.suffix

    def value(self) -> str:
        """The value of the environment, or an empty text. It is read at each call: a renewed secret
        needs no restart of a process that sees the change."""
        return self._env.get(self.secret, "")

    def reveal(self) -> str:
        """The value itself; NeedsLogin when the environment does not have it."""
        value = self.value()
        if not value:
            raise NeedsLogin(
                f"environment variable {self.secret} is not set",
                hint=f"Set {self.secret} in the environment of the worker, and restart the worker.",
                service=self.secret,
                account=None,
            )
        return self.prefix + value + self.suffix


class ApiKey(Secret):
    """The key of a service. Spaces around it are removed."""

    __slots__ = ("_service",)

    def __init__(
        self, variable: str, service: str, *, prefix: str = "", env: Mapping[str, str] = os.environ
    ) -> None:
        super().__init__(variable, prefix, env=env)
        self._service = service

    def value(self) -> str:
        """The value of the environment, or an empty text."""
        return super().value().strip()

    def reveal(self) -> str:
        """The key; NeedsLogin names the service and the variable to set."""
        value, variable = self.value(), self.secret
        if value and _KEY.fullmatch(value):
            return self.prefix + value
        message, hint = f"{self._service} needs a key, and {variable} is not set", "then try again."
        if value:
            message = (
                f"the value of {variable} cannot be a key: it has a space, a line break or "
                "a letter outside of ASCII in it"
            )
            hint = "without quotes or line breaks."
        raise NeedsLogin(
            message, hint=f"Set {variable} in the environment of the worker, {hint}",
            service=self._service, account=None,
        )  # fmt: skip


def secret(name: str, *, prefix: str = "", suffix: str = "") -> Secret:
    """The value of an environment variable, as in `secret("TOKEN", prefix="Bearer ")`."""
    return Secret(name, prefix, suffix)


Text = str | Secret


def reveal(text: Text) -> str:
    """Plain text unchanged, a secret by its value."""
    return text.reveal() if isinstance(text, Secret) else text


def reveal_all(texts: Mapping[str, Text]) -> dict[str, str]:
    """A mapping with its secrets resolved."""
    return {name: reveal(text) for name, text in texts.items()}


def secrets_in(value: Any) -> Iterator[Secret]:
    """The secrets in a value of dicts and lists."""
    if isinstance(value, Secret):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from secrets_in(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from secrets_in(item)


def mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """A value of dicts and lists with everything else in it changed."""
    if isinstance(value, Mapping):
        return {name: mapped(item, change) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [mapped(item, change) for item in value]
    return change(value)


def reveal_deep(value: Any) -> Any:
    """A value of dicts and lists with its secrets resolved."""
    return mapped(value, reveal)


def hide(text: str, texts: Iterable[Text | None]) -> str:
    """The text with the values of these secrets masked, in every form that texts quote them in
    (URL, JSON, base64): for errors and results that are stored."""
    for name, value in _values(texts):
        text = mask(text, value, f"<{name}>")
    return text


def hide_bytes(content: bytes, texts: Iterable[Text | None]) -> bytes:
    """The same for raw bytes, whatever their encoding. A short value is hidden where it is quoted:
    elsewhere it may be a number in JSON."""
    shown = content.decode("latin-1")
    for name, value in _values(texts):
        if len(value) > ALONE_CHARS_MAX:
            for form in quoted_forms(value):
                shown = shown.replace(_latin(form), f"<{name}>")
        else:
            shown = shown.replace(f'"{_latin(value)}"', f'"<{name}>"')
    return shown.encode("latin-1")


def hide_deep(value: Any, texts: Iterable[Text | None]) -> Any:
    """The same for all texts in a value of dicts and lists."""
    secrets = list(texts)
    return mapped(value, lambda item: hide(item, secrets) if isinstance(item, str) else item)


def _values(texts: Iterable[Text | None]) -> list[tuple[str, str]]:
    """Name and value of each secret that the environment has, the longest value first."""
    values = {text.secret: text.value() for text in texts if isinstance(text, Secret)}
    return sorted(((k, v) for k, v in values.items() if v), key=lambda pair: -len(pair[1]))


def _latin(text: str) -> str:
    return text.encode().decode("latin-1")
