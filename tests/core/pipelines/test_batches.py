"""Batches and parts: in order, within their limits, nothing lost."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from rota.core.pipelines.batches import batched, fitting, halves, tree_parts


def test_batches_keep_the_order_and_never_mix_keys() -> None:
    things = ["a1", "b1", "a2", "a3", "b2"]
    found = list(batched(things, 2, key=lambda each: each[0]))
    assert found == [["a1", "a2"], ["b1", "b2"], ["a3"]]
    assert list(batched([], 3)) == []


def test_batches_read_no_further_than_they_must() -> None:
    endless = batched(itertools.count(), 3)
    assert [next(endless), next(endless)] == [[0, 1, 2], [3, 4, 5]]


def test_a_batch_is_split_until_it_is_one_item() -> None:
    assert halves([1, 2, 3]) == [[1, 2], [3]]
    assert halves([1]) == []


@settings(deadline=None)
@given(st.lists(st.integers(0, 5)), st.integers(1, 4))
def test_batches_hold_every_thing_once(things: list[int], size: int) -> None:
    found = list(batched(list(enumerate(things)), size, key=lambda each: each[1]))
    assert sorted(each for batch in found for each in batch) == list(enumerate(things))
    assert all(1 <= len(batch) <= size for batch in found)
    assert all(len({key for _, key in batch}) == 1 for batch in found)


@settings(deadline=None)
@given(st.lists(st.integers(0, 30)), st.integers(1, 40))
def test_parts_are_neighbours_within_the_limit(sizes: list[int], limit: int) -> None:
    parts = fitting(sizes, limit)
    covered = [position for part in parts for position in range(part.begin, part.end)]
    assert covered == list(range(len(sizes)))
    for begin, end in parts:
        assert end == begin + 1 or sum(sizes[begin:end]) + (end - begin - 1) <= limit


@settings(deadline=None)
@given(st.lists(st.integers(0, 500), min_size=1, max_size=200), st.integers(1, 400))
def test_a_tree_of_parts_comes_to_an_end(sizes: list[int], limit: int) -> None:
    levels = 0
    while len(sizes) > 1:
        parts = tree_parts(sizes, limit)
        assert sum(part.end - part.begin for part in parts) == len(sizes)
        assert len(parts) < len(sizes)
        sizes = [limit * 2] * len(parts)  # replies that are longer than they should be
        levels += 1
    assert levels <= 9
