"""Parts: in order, within their limits, nothing lost."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from rota.core.pipelines.batches import fitting, tree_parts


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
