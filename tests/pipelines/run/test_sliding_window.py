"""Works in a sliding window: what happens to the others when one of them fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from rota.errors import LeaseLost, NeedsLogin
from rota.pipelines.run.sliding_window import in_order


class Works:
    """Works 0 to 9, two at a time. The second fails, the first ends after that, others never."""

    def __init__(self, error: Exception) -> None:
        self.began: list[int] = []
        self.ended: list[int] = []
        self._error, self._failed = error, asyncio.Event()

    async def run(self) -> list[int]:
        async with aclosing(in_order(self._numbers(), 2, self._one)) as results:
            return [result async for result in results]

    async def _numbers(self) -> AsyncIterator[int]:
        for number in range(10):
            yield number

    async def _one(self, number: int) -> int:
        self.began.append(number)
        if number == 1:
            self._failed.set()
            raise self._error
        if number > 1:
            await asyncio.Event().wait()
        await self._failed.wait()
        for _ in range(5):
            await asyncio.sleep(0)
        self.ended.append(number)
        return number


async def test_an_error_that_stops_the_run_lets_works_in_progress_end() -> None:
    works = Works(NeedsLogin("a bad key"))
    with pytest.raises(NeedsLogin):
        await works.run()
    assert (works.began, works.ended) == ([0, 1], [0])


async def test_any_other_error_cancels_works_in_progress() -> None:
    works = Works(LeaseLost("taken", run_id="r"))
    with pytest.raises(LeaseLost):
        await works.run()
    assert (works.began, works.ended) == ([0, 1, 2, 3], [0])
