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


class KillSlice(NamedTuple):
    """Every fifth point of a loop that kills at each: one slice in `make test`, all at night."""

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
    """All slices at night; otherwise the one that the seed chooses for this test."""
    return sample([KillSlice(first) for first in range(1, SLICES + 1)], test)


AT_ONCE = 4


async def kill_at_each(
    kills: KillSlice,
    at: Callable[[int, str, Path], Awaitable[bool]],
    make_database: MakeDatabase,
    tmp_path: Path,
    *,
    most: int,
) -> None:
    """Call `at` with each point of the slice, a few at once, until one was not killed any more."""
    numbers = kills.numbers()
    for turn in range(most // AT_ONCE):
        group = list(itertools.islice(numbers, AT_ONCE))
        roots = [tmp_path / f"root{nth}" for nth in group]
        for root in roots:
            root.mkdir()
        struck = await asyncio.gather(
            *(at(nth, make_database(), root) for nth, root in zip(group, roots, strict=True))
        )
        if not all(struck):
            assert turn or any(struck), "nothing was ever killed"
            return
    raise AssertionError(f"still killed after {most} points")
