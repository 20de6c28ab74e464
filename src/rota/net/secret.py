"""Secrets by name: parameters and tools hold the name, the environment holds the value.

A secret is resolved only in places that are meant for one (a header, a login, a variable of a
command). Text is never searched for names of secrets, and no JSON decodes to one: what comes from
outside can ask for none.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from rota.errors import NeedsLogin

SHOWN_CHARS_MIN = 4  # a shorter value would hide half of an innocent text


class Secret:
    """A value to be read from the environment when it is needed. Only Python code can make one:
    a type that msgspec knows could be decoded from the parameters of a call."""

    __slots__ = ("prefix", "secret")

    def __init__(self, secret: str, prefix: str = "") -> None:
        self.secret = secret
        self.prefix = prefix

    @property
    def made_from(self) -> tuple[str, str]:
        """By what it counts in a fingerprint of code: its name, never its value."""
        return (self.secret, self.prefix)

    def __repr__(self) -> str:
        return f"secret({self.secret!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._parts == other._parts

    def __hash__(self) -> int:
        return hash(self._parts)

    @property
    def _parts(self) -> tuple[str, str]:
        return self.secret, self.prefix

    def reveal(self) -> str:
        """The value itself; NeedsLogin when the environment does not have it."""
        value = os.environ.get(self.secret, "")
        if not value:
            raise NeedsLogin(
                f"the environment has no {self.secret}",
                hint=f"Set {self.secret} where the worker runs, and start it again.",
                service=self.secret,
                account=None,
            )
        return self.prefix + value


def secret(name: str, *, prefix: str = "") -> Secret:
    """The value of an environment variable, as in `secret("TOKEN", prefix="Bearer ")`."""
    return Secret(name, prefix)


Text = str | Secret


def reveal(text: Text) -> str:
    """Plain text as it is, a secret by its value."""
    return text.reveal() if isinstance(text, Secret) else text


def reveal_all(texts: Mapping[str, Text]) -> dict[str, str]:
    """A mapping with its secrets resolved."""
    return {name: reveal(text) for name, text in texts.items()}


def hide(said: str, texts: Iterable[Text | None]) -> str:
    """`said` without the values of these secrets: for errors and results that are kept."""
    for text in texts:
        if isinstance(text, Secret):
            value = os.environ.get(text.secret, "")
            if len(value) >= SHOWN_CHARS_MIN:
                said = said.replace(value, f"<{text.secret}>")
    return said


def hide_bytes(said: bytes, texts: Iterable[Text | None]) -> bytes:
    """The same for raw bytes, whatever their encoding."""
    return hide(said.decode("latin-1"), texts).encode("latin-1")
