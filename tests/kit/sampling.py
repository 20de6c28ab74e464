"""A third of a long loop in `make test`, chosen by a seed; all of it in `make test-nightly`."""

from __future__ import annotations

import os
import zlib
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")
PARTS = 3


def third(items: Sequence[T], name: str) -> Sequence[T]:
    """All at night; else every third, from a place that the seed chooses for this name."""
    if os.environ.get("ROTA_NIGHTLY"):
        return items
    seed = os.environ.get("ROTA_TEST_SEED", "1")
    return items[zlib.crc32(f"{seed} {name}".encode()) % PARTS :: PARTS]


def examples(count: int) -> int:
    """How many examples a property test draws: all at night, else a third, or a tenth if quick."""
    if os.environ.get("ROTA_NIGHTLY"):
        return count
    return max(count // (10 if os.environ.get("ROTA_TEST_PROFILE") == "quick" else PARTS), 10)
