"""Batches: every caller gets its own answer, however many callers share the call; a bad item fails
alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.store.backend.batching import BATCH_MAX, Batch


class Sender:
    """Answers each item with its square; refuses a call that holds a bad one."""

    def __init__(self, bad: frozenset[int] = frozenset(), pauses: int = 0) -> None:
        self.calls: list[list[int]] = []
        self._bad = bad
        self._pauses = pauses

    async def __call__(self, items: Sequence[int]) -> list[int]:
        self.calls.append(list(items))
        for _ in range(self._pauses):
            await asyncio.sleep(0)
        if self._bad & set(items):
            raise ValueError(f"{sorted(self._bad & set(items))} refused")
        return [item * item for item in items]


async def _put(batch: Batch[int, int], item: int, after: int) -> int:
    for _ in range(after):
        await asyncio.sleep(0)
    return await batch.put(item)


@settings(deadline=None)
@given(
    arrivals=st.lists(st.integers(0, 6), max_size=30),
    bad=st.frozensets(st.integers(0, 29), max_size=3),
    pauses=st.integers(0, 5),
)
def test_everybody_gets_their_own_answer_and_the_bad_fail_alone(
    arrivals: list[int], bad: frozenset[int], pauses: int
) -> None:
    async def play() -> None:
        sender = Sender(bad, pauses)
        batch: Batch[int, int] = Batch(sender)
        puts = [_put(batch, item, after) for item, after in enumerate(arrivals)]
        answers = await asyncio.wait_for(asyncio.gather(*puts, return_exceptions=True), 10)
        for item, answer in enumerate(answers):
            if item in bad:
                assert isinstance(answer, ValueError)
                assert str(answer) == f"[{item}] refused", "it is reported its own fault only"
            else:
                assert answer == item * item
        sent = [item for call in sender.calls for item in call]
        assert set(sent) == set(range(len(arrivals)))
        if not bad:
            assert len(sent) == len(arrivals), "nothing is sent twice without need"
        assert await batch.put(1000) == 1_000_000, "it continues afterwards"

    asyncio.run(play())


@settings(deadline=None)
@given(
    arrivals=st.lists(st.integers(0, 4), min_size=1, max_size=20),
    leavers=st.frozensets(st.integers(0, 19), max_size=6),
    pauses=st.integers(1, 4),
)
def test_callers_that_go_away_take_nobody_with_them(
    arrivals: list[int], leavers: frozenset[int], pauses: int
) -> None:
    async def play() -> None:
        batch: Batch[int, int] = Batch(Sender(pauses=pauses))
        puts = [
            asyncio.ensure_future(_put(batch, item, after)) for item, after in enumerate(arrivals)
        ]
        for _ in range(3):
            await asyncio.sleep(0)
        for item in leavers & set(range(len(puts))):
            puts[item].cancel()
        answers = await asyncio.wait_for(asyncio.gather(*puts, return_exceptions=True), 10)
        for item, answer in enumerate(answers):
            if item not in leavers:
                assert answer == item * item
        assert await asyncio.wait_for(batch.put(7), 10) == 49

    asyncio.run(play())


async def test_all_who_wait_share_the_next_call() -> None:
    sender = Sender(pauses=3)
    batch: Batch[int, int] = Batch(sender)
    assert await asyncio.gather(*(batch.put(n) for n in range(64))) == [n * n for n in range(64)]
    assert [len(call) for call in sender.calls] == [1, 63]


async def test_a_call_is_bounded() -> None:
    sender = Sender(pauses=1)
    batch: Batch[int, int] = Batch(sender)
    await asyncio.gather(*(batch.put(n) for n in range(2 * BATCH_MAX + 2)))
    assert [len(call) for call in sender.calls] == [1, BATCH_MAX, BATCH_MAX, 1]


async def test_a_call_is_bounded_as_its_owner_wants() -> None:
    sender = Sender(pauses=1)
    batch: Batch[int, int] = Batch(sender, 10)
    await asyncio.gather(*(batch.put(n) for n in range(26)))
    assert [len(call) for call in sender.calls] == [1, 10, 10, 5]


async def test_a_sender_that_answers_too_little_leaves_nobody_waiting() -> None:
    async def forgetful(items: Sequence[int]) -> list[int]:
        await asyncio.sleep(0)
        return [0][: len(items) - 1] if len(items) > 1 else [0]

    batch: Batch[int, int] = Batch(forgetful)
    puts = [asyncio.ensure_future(batch.put(n)) for n in range(4)]
    done, waiting = await asyncio.wait(puts, timeout=1)
    assert not waiting
    for put in done:
        if put.exception() is not None:
            with pytest.raises(Exception):  # noqa: B017, PT011
                put.result()
