"""Keys by name: settings hold the name of an environment variable, never the key itself.

The key is read at each call, so a key that is renewed needs no restart of the process.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import NamedTuple

from rota.errors import NeedsLogin

SHOWN_CHARS_MIN = 4  # a shorter value would hide half of an innocent text
_PLAIN = re.compile(r"[\x21-\x7e]+")


class Home(NamedTuple):
    """A vendor's own address, and the variables that people set for it."""

    url: str
    url_variable: str
    key_variable: str


class Key(NamedTuple):
    """The variable of the key, how it is sent, and whether one is needed at all."""

    variable: str | None
    header: str
    needed: bool = True
    env: Mapping[str, str] = os.environ

    def headers(self, provider: str) -> dict[str, str]:
        """The header with the key in it; NeedsLogin says which variable to set."""
        value = self._value()
        if not value and self.needed:
            raise NeedsLogin(
                f"{provider} needs a key, and {self.variable} is not set",
                hint=f"Set {self.variable} in the environment of the worker, then try again.",
                service=provider,
                account=None,
            )
        if not value:
            return {}
        if not _PLAIN.fullmatch(value):
            raise NeedsLogin(
                f"the value of {self.variable} cannot be a key: it has a space, a line break or "
                "a letter outside of ASCII in it",
                hint=f"Set {self.variable} again, without quotes or line breaks.",
                service=provider,
                account=None,
            )
        bears = self.header.lower() == "authorization"
        return {self.header: f"Bearer {value}" if bears else value}

    def hide(self, said: str) -> str:
        """A text without the key in it: some echo what they were sent."""
        value = self._value()
        if len(value) < SHOWN_CHARS_MIN:
            return said
        return said.replace(value, f"<{self.variable}>")

    def _value(self) -> str:
        return self.env.get(self.variable, "").strip() if self.variable else ""


def key_for(
    base_url: str | None, home: Home, *, named: str | None, header: str, env: Mapping[str, str]
) -> tuple[str, Key]:
    """The address to ask at and the key to send there.

    Only the vendor gets the vendor's own variable, or the address that the environment itself
    names: an address out of a settings file must not be enough to be sent it.
    """
    address = base_url or env.get(home.url_variable) or home.url
    at_home = is_at(address, home)
    trusted = at_home or base_url is None
    variable = named or (home.key_variable if trusted else None)
    return address, Key(variable, header, needed=at_home or named is not None, env=env)


def is_at(address: str, home: Home) -> bool:
    """Whether an address is the vendor's own."""
    return address.startswith(f"{home.url.removesuffix('/v1')}/") or address == home.url
