"""A random choice from a stream of unknown length, in one pass and little memory. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Reservoir(Generic[T]):
    """Keeps `size` of the items it is shown, each with the same probability, in their order."""

    def __init__(self, size: int, chance: Callable[[], float]) -> None:
        self._size = size
        self._chance = chance  # a number in [0, 1), drawn once for each item after the first `size`
        self._kept: list[tuple[int, T]] = []
        self._seen = 0

    def show(self, thing: T) -> None:
        """Consider one more."""
        if self._seen < self._size:
            self._kept.append((self._seen, thing))
        else:
            index = int(self._chance() * (self._seen + 1))
            if index < self._size:
                self._kept[index] = (self._seen, thing)
        self._seen += 1

    def chosen(self) -> list[T]:
        """The chosen items, in the order they came."""
        return [thing for _, thing in sorted(self._kept, key=lambda each: each[0])]
