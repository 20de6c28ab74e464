"""The effect of a failed handler run: which policy holds, and what it says."""

from __future__ import annotations

from typing import Any

import pytest

from rota.core.automations.failure_policy import (
    AfterFailure,
    FailedAttempt,
    FailurePolicy,
    Pace,
    after_failure,
    checked_policy,
    effective,
)
from rota.core.runs.retry import RetryPolicy
from rota.core.time.instants import SECOND
from rota.errors import BadSetting

PACE = Pace(failures_max=5, backoff_s=10.0, backoff_s_max=600.0)
OUTAGE = FailedAttempt(retried=True, outage=True, error_names=("NotSent", "Transient"))
OWN = FailedAttempt(retried=True)
LOGIC = FailedAttempt()
GONE = FailedAttempt(failed_read=True)


def follows(failed: FailedAttempt, number: int, *levels: FailurePolicy) -> AfterFailure:
    return after_failure(effective(levels, PACE), failed, number=number, chance=0)


def test_the_most_specific_level_wins_option_by_option() -> None:
    tool, handler = FailurePolicy(retries=1), FailurePolicy(retries=2, failed_reads="skip")
    automation = FailurePolicy(retries=3, failed_reads="stop", skip_after=7)
    found = effective([tool, handler, automation], PACE)
    assert found.outage.attempts == found.own.attempts == 2
    assert found.skips_failed_reads
    assert found.skip_after == 7
    assert effective([FailurePolicy(), automation], PACE).outage.attempts == 4


def test_outages_have_no_limit_and_the_codes_own_failures_have_that_of_the_settings() -> None:
    assert follows(OUTAGE, 1_000_000) == AfterFailure(600 * SECOND)
    assert follows(OWN, 5) == AfterFailure(160 * SECOND)
    assert follows(OWN, 6) == AfterFailure()
    assert follows(LOGIC, 1) == AfterFailure()


def test_a_policy_brings_its_own_pauses() -> None:
    mine = FailurePolicy(retries=RetryPolicy(attempts=3, delay_s=7, factor=1))
    assert follows(OUTAGE, 2, mine) == AfterFailure(7 * SECOND)
    assert follows(OUTAGE, 3, mine) == AfterFailure()
    assert follows(OWN, 2, mine) == AfterFailure(7 * SECOND)


def test_retry_after_and_never_are_kept() -> None:
    asked = FailedAttempt(retried=True, outage=True, retry_after_s=90)
    assert follows(asked, 1) == AfterFailure(90 * SECOND)
    never = FailurePolicy(retries=RetryPolicy(attempts=9, never=("Transient",)))
    assert follows(OUTAGE, 1, never) == AfterFailure()


def test_skip_after_counts_failures_of_the_code_and_never_an_outage() -> None:
    level = FailurePolicy(skip_after=3)
    for failed in (OWN, LOGIC, GONE):
        assert follows(failed, 1, level) == AfterFailure(10 * SECOND)
        assert follows(failed, 2, level) == AfterFailure(20 * SECOND)
        assert follows(failed, 3, level) == AfterFailure(skips=True)
    assert follows(OUTAGE, 50, level) == AfterFailure(600 * SECOND)


def test_skip_after_may_be_more_patient_than_the_limit_of_retries() -> None:
    level = FailurePolicy(retries=1, skip_after=9)
    assert follows(OWN, 8, level).pause_us is not None
    assert follows(OWN, 9, level).skips


def test_a_failed_read_is_left_out_at_once_where_the_policy_says_so() -> None:
    assert follows(GONE, 1) == AfterFailure()
    assert follows(GONE, 1, FailurePolicy(failed_reads="skip")) == AfterFailure(skips=True)
    assert follows(GONE, 1, FailurePolicy(failed_reads="stop", skip_after=2)).pause_us is not None


@pytest.mark.parametrize(
    "options",
    [{"retries": -1}, {"retries": True}, {"skip_after": 0}, {"failed_reads": "ignore"}],
    ids=str,
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(BadSetting, match=f"consumer worker: {next(iter(options))}="):
        checked_policy("consumer worker", **options)
