"""Grouping in order: items into batches, results into parts that fit. Pure."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

T = TypeVar("T")


class BatchRange(NamedTuple):
    """A run of neighbours, by their positions; `end` is not part of it."""

    begin: int
    end: int


def batched(
    things: Iterable[T], size: int, key: Callable[[T], Hashable] = lambda _: None
) -> Iterator[list[T]]:
    """Batches of at most `size` in the order they fill up; things of another key never mix.

    Items that belong together (one model, one set of shared values) have one key. Reads no further
    than it must, so an endless stream is fine.
    """
    waiting: dict[Hashable, list[T]] = {}
    for thing in things:
        batch = waiting.setdefault(key(thing), [])
        batch.append(thing)
        if len(batch) == size:
            yield waiting.pop(key(thing))
    yield from waiting.values()


def halves(batch: Sequence[T]) -> list[Sequence[T]]:
    """A batch that was answered wrongly, as two smaller ones; none when it cannot be split."""
    if len(batch) < 2:
        return []
    middle = (len(batch) + 1) // 2
    return [batch[:middle], batch[middle:]]


def fitting(sizes: Sequence[int], limit: int, between: int = 1) -> list[BatchRange]:
    """Groups of neighbours within the limit of size, separators included.

    One that is larger than the limit is a part by itself.
    """
    parts: list[BatchRange] = []
    begin, used = 0, 0
    for position, size in enumerate(sizes):
        wanted = size + (between if position > begin else 0)
        if position > begin and used + wanted > limit:
            parts.append(BatchRange(begin, position))
            begin, used, wanted = position, 0, size
        used += wanted
    if sizes:
        parts.append(BatchRange(begin, len(sizes)))
    return parts


def tree_parts(sizes: Sequence[int], limit: int, between: int = 1) -> list[BatchRange]:
    """The next level of a reduce that does not fit in one call: fewer parts than things, always.

    If hardly two fit together they are paired all the same. So every level is smaller than the one
    below, and the last is one call.
    """
    parts = fitting(sizes, limit, between)
    if len(parts) == 1 or 2 * len(parts) <= len(sizes) + 1:
        return parts
    return [BatchRange(begin, min(begin + 2, len(sizes))) for begin in range(0, len(sizes), 2)]
