"""Grouping in order: results in parts that fit. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class BatchRange(NamedTuple):
    """A run of neighbours, by their positions; `end` is not part of it."""

    begin: int
    end: int


def fitting(sizes: Sequence[int], limit: int) -> list[BatchRange]:
    """Groups of neighbours within the limit of size, separators included.

    One that is larger than the limit is a part by itself.
    """
    parts: list[BatchRange] = []
    begin, used = 0, 0
    for position, size in enumerate(sizes):
        wanted = size + (position > begin)  # a separator of one character
        if position > begin and used + wanted > limit:
            parts.append(BatchRange(begin, position))
            begin, used, wanted = position, 0, size
        used += wanted
    if sizes:
        parts.append(BatchRange(begin, len(sizes)))
    return parts


def tree_parts(sizes: Sequence[int], limit: int) -> list[BatchRange]:
    """The next level of a reduce that does not fit in one call: fewer parts than things, always.

    If hardly two fit together they are paired all the same. So every level is smaller than the one
    below, and the last is one call.
    """
    parts = fitting(sizes, limit)
    if len(parts) == 1 or 2 * len(parts) <= len(sizes) + 1:
        return parts
    return [BatchRange(begin, min(begin + 2, len(sizes))) for begin in range(0, len(sizes), 2)]
