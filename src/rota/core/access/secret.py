"""The form of tokens, `rota_<id>_<secret>`, and what is stored of secrets. Pure."""

from __future__ import annotations

import hashlib
import re
from typing import NamedTuple

_TOKEN = re.compile(r"rota_([0-9a-f]{12})_([A-Za-z0-9_-]{43})")


class TokenParts(NamedTuple):
    """A token taken apart: its public id and its secret."""

    id: str
    secret: str


def token_text(token_id: str, secret: str) -> str:
    """A token as its holder keeps it."""
    return f"rota_{token_id}_{secret}"


def token_parts(text: str) -> TokenParts | None:
    """The parts of a token; None when the text is not one."""
    found = _TOKEN.fullmatch(text)
    return TokenParts(found[1], found[2]) if found else None


def digest(secret: str) -> str:
    """The stored form of a secret. 256 random bits need no slow hash."""
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()
