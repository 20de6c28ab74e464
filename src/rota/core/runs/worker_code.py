"""The code that a worker has: names, each with the digest of its code. Pure.

Runs of some kinds may be executed only by code that is deployed. A worker stores its code once, as
a set that workers with the same code share, and its claims name the set. So a claim sends one id,
not ten thousand names.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import NamedTuple


class CodeSet(NamedTuple):
    """Digests by name, and an id that follows from them."""

    id: str
    digests: Mapping[str, str]


NO_CODE = CodeSet("", {})


def code_set(namespace: str, digests: Mapping[str, str]) -> CodeSet:
    """The set of these digests; without any it has no id."""
    if not digests:
        return NO_CODE
    lines = [namespace, *(f"{name}={digests[name]}" for name in sorted(digests))]
    return CodeSet(hashlib.sha256("\n".join(lines).encode()).hexdigest()[:24], dict(digests))
