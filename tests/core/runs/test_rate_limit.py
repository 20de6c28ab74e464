"""Rate limits: the arithmetic against a plain simulation that remembers every start."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core.runs.rate_limit import SKEW_US, Rate, advance, allowed, next_free_at
from rota.core.time.instants import DAY, SECOND

T0 = 1_700_000_000_000_000

rates = st.builds(Rate, count=st.integers(1, 200), per_us=st.integers(SECOND, 30 * DAY))
# Pauses between looks, in thousandths of the period, and how many are wanted at each.
looks = st.lists(st.tuples(st.integers(0, 2500), st.integers(0, 300)), min_size=1, max_size=60)


def _play(rate: Rate, plan: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """(instant, starts) as the store would do it."""
    now, ready_at, starts = T0, 0, []
    for pause, wanted in plan:
        now += pause * rate.per_us // 1000
        taken = min(wanted, allowed(rate, ready_at=ready_at, now=now))
        ready_at = advance(rate, ready_at=ready_at, now=now, taken=taken)
        starts.append((now, taken))
    return starts


@given(rates, looks)
def test_a_window_holds_a_full_burst_and_what_the_rate_adds(
    rate: Rate, plan: list[tuple[int, int]]
) -> None:
    starts = _play(rate, plan)
    for first, (begin, _) in enumerate(starts):
        held = 0
        for end, taken in starts[first:]:
            held += taken
            refilled = Fraction((end - begin) * rate.count, rate.per_us)
            assert held <= rate.count + refilled


@given(rates, looks)
def test_no_start_is_refused_that_a_full_bucket_would_allow(
    rate: Rate, plan: list[tuple[int, int]]
) -> None:
    """A bucket that is counted exactly: the rule lags by rounding at most."""
    tokens, before, now, ready_at = Fraction(rate.count), T0, T0, 0
    for pause, wanted in plan:
        now += pause * rate.per_us // 1000
        tokens = min(
            Fraction(rate.count), tokens + Fraction((now - before) * rate.count, rate.per_us)
        )
        before = now
        permitted = allowed(rate, ready_at=ready_at, now=now)
        assert 0 <= int(tokens) - permitted <= 1
        taken = min(wanted, permitted)
        tokens -= taken
        ready_at = advance(rate, ready_at=ready_at, now=now, taken=taken)


@given(rates, looks)
def test_after_a_rest_the_whole_count_may_come_at_once_and_no_more(
    rate: Rate, plan: list[tuple[int, int]]
) -> None:
    ready_at = 0
    for now, taken in _play(rate, plan):
        ready_at = advance(rate, ready_at=ready_at, now=now, taken=taken)
    rested_at = max(ready_at, T0)
    assert allowed(rate, ready_at=ready_at, now=rested_at) == rate.count
    emptied = advance(rate, ready_at=ready_at, now=rested_at, taken=rate.count)
    assert allowed(rate, ready_at=emptied, now=rested_at) == 0


@given(rates, looks)
def test_next_free_at_is_the_first_instant_with_a_free_slot(
    rate: Rate, plan: list[tuple[int, int]]
) -> None:
    now, ready_at = T0, 0
    for now, taken in _play(rate, plan):
        ready_at = advance(rate, ready_at=ready_at, now=now, taken=taken)
    if allowed(rate, ready_at=ready_at, now=now):
        return
    free_at = next_free_at(rate, ready_at=ready_at)
    assert free_at > now
    assert allowed(rate, ready_at=ready_at, now=free_at) >= 1
    assert allowed(rate, ready_at=ready_at, now=free_at - 1) == 0


def test_ten_a_second_come_at_once_then_every_tenth() -> None:
    rate = Rate(10, SECOND)
    assert allowed(rate, ready_at=0, now=T0) == 10
    ready_at = advance(rate, ready_at=0, now=T0, taken=10)
    assert [allowed(rate, ready_at=ready_at, now=T0 + tenth * 100_000) for tenth in range(4)] == [
        0, 1, 2, 3,
    ]  # fmt: skip
    assert next_free_at(rate, ready_at=ready_at) == T0 + 100_000


@pytest.mark.parametrize(("days_back", "extra"), [(0, 0), (1, 1), (365, 1)])
def test_a_clock_that_steps_back_gives_no_burst(days_back: int, extra: int) -> None:
    rate = Rate(5, SECOND)
    ready_at = advance(rate, ready_at=0, now=T0, taken=5)
    assert allowed(rate, ready_at=ready_at, now=T0 - days_back * DAY) == extra


@given(rates, st.integers(1, 400 * DAY))
def test_an_instant_that_this_rate_cannot_have_set_lets_one_start_through(
    rate: Rate, beyond_us: int
) -> None:
    ready_at = T0 + rate.per_us + SKEW_US + beyond_us
    assert allowed(rate, ready_at=ready_at, now=T0) == 1
    after = advance(rate, ready_at=ready_at, now=T0, taken=1)
    assert after == T0 + rate.per_us
    assert allowed(rate, ready_at=after, now=T0) == 0


@given(rates, st.integers(0, SKEW_US))
def test_a_worker_with_a_clock_that_is_behind_gets_no_more_starts(rate: Rate, behind: int) -> None:
    full = advance(rate, ready_at=0, now=T0, taken=rate.count)
    assert allowed(rate, ready_at=full, now=T0 - behind) == 0
