"""A fifth of a long loop in `make test`, chosen by a seed; all of it in `make test-nightly`."""

from __future__ import annotations

import os
import zlib
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")
SHARE = 5


def sample(items: Sequence[T], name: str) -> Sequence[T]:
    """Return all items at night, otherwise every fifth; the seed and the name choose the first."""
    if os.environ.get("ROTA_NIGHTLY"):
        return items
    seed = os.environ.get("ROTA_TEST_SEED", "1")
    return items[zlib.crc32(f"{seed} {name}".encode()) % SHARE :: SHARE]


def examples(count: int) -> int:
    """Return how many examples a property test draws: all at night, otherwise a part."""
    if os.environ.get("ROTA_NIGHTLY"):
        return count
    return max(count // (10 if os.environ.get("ROTA_TEST_PROFILE") == "quick" else SHARE), 10)
