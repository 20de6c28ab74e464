"""Run ids: UUIDv7, rising, unique."""

from __future__ import annotations

import random
from uuid import RFC_4122, UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core.runs.ids import IdMaker, created_at_of

T0 = 1_700_000_000_123_456
instants = st.integers(0, 2**47 * 1000)


def _maker(seed: int) -> IdMaker:
    return IdMaker(random.Random(seed).getrandbits)


# The last two are the worst random numbers: all zeros, all ones.
ENTROPY = {
    "random": random.Random(1).getrandbits,
    "zeros": lambda bits: 0,
    "ones": lambda bits: (1 << bits) - 1,
}


@pytest.mark.parametrize("chance", ENTROPY)
def test_an_id_is_a_uuid_of_version_7_at_its_instant(chance: str) -> None:
    for text in IdMaker(ENTROPY[chance]).take(T0, 2000):
        made = UUID(hex=text)
        assert made.version == 7
        assert made.variant == RFC_4122
        assert made.int >> 80 == T0 // 1000
        assert text == made.hex


@given(st.lists(st.tuples(instants, st.integers(1, 50)), max_size=30), st.integers())
def test_ids_of_one_maker_rise_whatever_the_clock_does(
    batches: list[tuple[int, int]], seed: int
) -> None:
    maker = _maker(seed)
    made = [text for now, count in batches for text in maker.take(now, count)]
    assert made == sorted(set(made))
    assert len(made) == sum(count for _, count in batches)


def test_ids_sort_by_the_time_of_creation_across_makers() -> None:
    early = [_maker(seed).make(T0) for seed in range(50)]
    late = [_maker(seed).make(T0 + 1000) for seed in range(50)]
    assert max(early) < min(late)


def test_ids_are_unique_across_makers() -> None:
    made = [text for seed in range(200) for text in _maker(seed).take(T0, 100)]
    assert len(set(made)) == len(made)
    assert {len(text) for text in made} == {32}


def test_a_batch_and_single_ids_share_one_line() -> None:
    maker = _maker(3)
    made = [maker.make(T0), *maker.take(T0, 3), maker.make(T0 - 5_000), maker.make(T0)]
    assert made == sorted(set(made))


def test_an_id_shows_when_it_was_made() -> None:
    maker = IdMaker(random.Random(1).getrandbits)
    assert created_at_of(maker.make(1_900_000_000_123_456)) == 1_900_000_000_123_000
