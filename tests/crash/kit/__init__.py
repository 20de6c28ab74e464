"""Children that live through a story and are killed on the way."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from tests.kit import select
from tests.kit.sampling import SHARE, sample

T = TypeVar("T")
SLICES = SHARE


async def has_tables(url: str) -> bool:
    """Whether it lived to commit the migration."""
    if url.startswith("sqlite"):
        query = "select count(*) from sqlite_master where name = 'steps'"
    else:
        query = "select count(to_regclass('steps'))"
    return await select(url, query) == [(1,)]


MakeDatabase = Callable[[], str]
# Kills at the nth point on a database, in a folder; whether there was such a point.
KillAt = Callable[[int, str, Path], Awaitable[bool]]


class KillSlice(NamedTuple):
    """Every fifth point of a loop that kills at each: one slice in `make test`, all at night."""

    first: int  # from 1
    slices: int = SLICES

    def __str__(self) -> str:
        return f"slice{self.first}of{self.slices}"

    def numbers(self, every: int = 1) -> Iterator[int]:
        """The numbers of its points, without end; of `every` so many points one is struck."""
        return itertools.count(1 + (self.first - 1) * every, self.slices * every)

    def of(self, points: Sequence[T]) -> Sequence[T]:
        """Its part of points that are known."""
        return points[self.first - 1 :: self.slices]


EVERY_POINT = KillSlice(1, slices=1)  # of a loop that is short


def slices_of(test: str) -> Sequence[KillSlice]:
    """All slices at night; otherwise the one that the seed chooses for this test."""
    return sample([KillSlice(first) for first in range(1, SLICES + 1)], test)


class KillLoop(NamedTuple):
    """How a loop kills: between how many points, of how many one is struck, and how it ends."""

    least: int = 0  # fewer points would test nothing
    most: int = 400
    every: int = 1
    at_once: int = 4
    spared: int = 1  # lives to their end; the number of commits differs from life to life


async def kill_at_each(
    kills: KillSlice,
    at: KillAt,
    make_database: MakeDatabase,
    tmp_path: Path,
    loop: KillLoop,
) -> None:
    """Call `at` with each point of the slice, a few at once, until some were not killed any more.
    `at` takes the number of the point, a new database and a new folder."""
    numbers = kills.numbers(loop.every)
    struck: list[int] = []
    spared: list[int] = []

    async def kill_some() -> None:
        while len(spared) < loop.spared:
            nth = next(numbers)
            assert nth <= loop.most, f"still killed at point {nth}"
            root = tmp_path / f"kill-{nth}"
            root.mkdir()
            (struck if await at(nth, make_database(), root) else spared).append(nth)

    async with asyncio.TaskGroup() as group:
        for _ in range(loop.at_once):
            group.create_task(kill_some())
    points = len(struck) * loop.every * kills.slices
    assert points > loop.least, f"about {points} points, expected more than {loop.least}"
