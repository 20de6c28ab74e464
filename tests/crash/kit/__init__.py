"""Children that live through a story and are killed on the way."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from tests.kit import select
from tests.kit.sampling import PARTS, third

T = TypeVar("T")
SLICES = PARTS


async def has_tables(url: str) -> bool:
    """Whether it lived to commit the migration."""
    if url.startswith("sqlite"):
        query = "select count(*) from sqlite_master where name = 'steps'"
    else:
        query = "select count(to_regclass('steps'))"
    return await select(url, query) == [(1,)]


MakeDatabase = Callable[[], str]


class KillSlice(NamedTuple):
    """Every third point of a loop that kills at each: one slice in `make test`, all at night."""

    first: int  # from 1

    def __str__(self) -> str:
        return f"slice{self.first}of{SLICES}"

    def numbers(self, every: int = 1) -> Iterator[int]:
        """The numbers of its points, without end; of `every` so many points one is struck."""
        return itertools.count(1 + (self.first - 1) * every, SLICES * every)

    def of(self, points: Sequence[T]) -> Sequence[T]:
        """Its part of points that are known."""
        return points[self.first - 1 :: SLICES]


def slices_of(test: str) -> Sequence[KillSlice]:
    """All slices at night; else the one that the seed chooses for this test."""
    return third([KillSlice(first) for first in range(1, SLICES + 1)], test)
