"""Retry policies: tables of cases, and what holds for any policy."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core.runs.retry import RETRY_DELAY_S_MAX, RetryPolicy, next_try_us
from rota.core.time.instants import SECOND
from rota.errors import BadSetting

chances = st.floats(0, 1, exclude_max=True)
attempts = st.integers(1, 5000)
policies = st.builds(
    RetryPolicy,
    attempts=st.integers(1, 6000),
    delay_s=st.floats(0, RETRY_DELAY_S_MAX),
    factor=st.floats(1, 1e6),
    delay_s_max=st.floats(0, RETRY_DELAY_S_MAX),
    jitter=st.floats(0, 1),
)


@pytest.mark.parametrize(
    ("policy", "attempt", "delay_s"),
    [
        (RetryPolicy(), 1, 1.0),
        (RetryPolicy(), 2, 2.0),
        (RetryPolicy(), 3, 4.0),
        (RetryPolicy(), 9, 256.0),
        (RetryPolicy(), 10, 300.0),
        (RetryPolicy(), 5000, 300.0),
        (RetryPolicy(delay_s=5, factor=1), 7, 5.0),
        (RetryPolicy(delay_s=0), 7, 0.0),
        (RetryPolicy(delay_s=10, delay_s_max=3), 1, 3.0),
        (RetryPolicy(delay_s=0.25, factor=3), 3, 2.25),
    ],
)
def test_delays_grow_to_their_cap(policy: RetryPolicy, attempt: int, delay_s: float) -> None:
    assert policy.delay_us(attempt, 0.9) == round(delay_s * SECOND)


@given(policies, attempts, chances)
def test_a_later_attempt_never_waits_less(policy: RetryPolicy, attempt: int, chance: float) -> None:
    assert policy.delay_us(attempt, chance) <= policy.delay_us(attempt + 1, chance)


@given(policies, attempts, chances)
def test_jitter_only_shortens_and_stays_within_its_share(
    policy: RetryPolicy, attempt: int, chance: float
) -> None:
    whole = policy.delay_us(attempt, 0.0)
    spread = policy.delay_us(attempt, chance)
    assert 0 <= spread <= whole <= round(policy.delay_s_max * SECOND)
    assert spread >= math.floor(whole * (1 - policy.jitter)) - 1


@given(policies, attempts, chances)
def test_tries_end_at_the_number_given(policy: RetryPolicy, attempt: int, chance: float) -> None:
    wait_us = next_try_us(
        policy, attempt=attempt, error_names=("ValueError",), retry_after_s=None, chance=chance
    )
    assert (wait_us is None) == (attempt >= policy.attempts)


@pytest.mark.parametrize(
    ("never", "names", "retried"),
    [
        ((), ("KeyError", "LookupError", "Exception"), True),
        (("KeyError",), ("KeyError", "LookupError", "Exception"), False),
        (("LookupError",), ("KeyError", "LookupError", "Exception"), False),
        (("IndexError",), ("KeyError", "LookupError", "Exception"), True),
        (("Key",), ("KeyError",), True),
    ],
)
def test_errors_on_the_never_list_are_not_tried_again(
    never: tuple[str, ...], names: tuple[str, ...], retried: bool
) -> None:
    policy = RetryPolicy(attempts=3, never=never)
    for retry_after_s in (None, 5.0):
        wait_us = next_try_us(
            policy, attempt=1, error_names=names, retry_after_s=retry_after_s, chance=0
        )
        assert (wait_us is not None) == retried


@pytest.mark.parametrize(
    ("retry_after_s", "wait_us"), [(0.5, 500_000), (900, 900_000_000), (-3, 0)]
)
def test_retry_after_overrules_delay_and_cap(retry_after_s: float, wait_us: int) -> None:
    policy = RetryPolicy(attempts=2, delay_s=7, delay_s_max=60, jitter=1)
    assert wait_us == next_try_us(
        policy, attempt=1, error_names=(), retry_after_s=retry_after_s, chance=0.5
    )


def test_retry_after_gives_no_further_attempt() -> None:
    policy = RetryPolicy(attempts=2)
    assert next_try_us(policy, attempt=2, error_names=(), retry_after_s=1, chance=0) is None


@pytest.mark.parametrize(
    "bad",
    [
        {"attempts": 0},
        {"attempts": -1},
        {"delay_s": -0.1},
        {"factor": 0.5},
        {"jitter": -0.1},
        {"jitter": 1.1},
        {"jitter": math.nan},
        {"delay_s": math.nan},
        {"factor": math.nan},
        {"factor": math.inf},
        {"delay_s_max": -1},
        {"delay_s_max": math.nan},
    ],
    ids=str,
)
def test_a_policy_that_makes_no_sense_is_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(BadSetting) as caught:
        RetryPolicy(**bad)
    assert caught.value.advice


@pytest.mark.parametrize(
    ("retries", "delay", "expected"),
    [
        (None, None, RetryPolicy(attempts=1)),
        (0, None, RetryPolicy(attempts=1)),
        (5, None, RetryPolicy(attempts=6)),
        (2, "1m", RetryPolicy(attempts=3, delay_s=60)),
        (RetryPolicy(attempts=9, jitter=0.5), None, RetryPolicy(attempts=9, jitter=0.5)),
    ],
)
def test_the_short_form_counts_further_tries(
    retries: int | RetryPolicy | None, delay: str | None, expected: RetryPolicy
) -> None:
    assert RetryPolicy.of(retries, delay) == expected


def test_a_negative_count_of_retries_is_refused() -> None:
    with pytest.raises(BadSetting, match="-1"):
        RetryPolicy.of(-1)


@pytest.mark.parametrize("retries", ["3", 1.5, True, [1]])
def test_retries_that_are_no_whole_number_are_refused(retries: Any) -> None:
    with pytest.raises(BadSetting, match="is not a number of tries"):
        RetryPolicy.of(retries)


@pytest.mark.parametrize("field", ["attempts", "delay_s", "delay_s_max", "factor", "jitter"])
def test_a_policy_of_words_is_refused(field: str) -> None:
    with pytest.raises(BadSetting, match="makes no sense"):
        RetryPolicy(**{field: "3"})  # type: ignore[arg-type]
