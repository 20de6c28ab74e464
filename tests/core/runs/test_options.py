"""The stored options of a run: what an attempt inherits, and what stays out of the row."""

from __future__ import annotations

import pytest

from rota.core.runs.options import StoredRunOptions
from rota.core.runs.retry import RetryPolicy

FULL = StoredRunOptions(RetryPolicy(3), 5_000_000, "seed", 1, 2, 1)


@pytest.mark.parametrize("options", [StoredRunOptions(), StoredRunOptions(timeout_us=1), FULL])
def test_options_are_read_as_they_were_written(options: StoredRunOptions) -> None:
    assert StoredRunOptions.read(options.text()) == options


def test_no_options_need_no_text() -> None:
    assert StoredRunOptions().text() is None
    assert StoredRunOptions(retry=None, recovers=0).text() is None


def test_the_first_attempt_decides_when_a_chain_began() -> None:
    second = StoredRunOptions().begun(7)
    assert (second.began_at, second.begun(9).began_at) == (7, 7)


def test_a_fired_run_keeps_the_options_of_its_template() -> None:
    fired = FULL.fired_after(99)
    assert (fired.previous_due_at, fired.retry, fired.timeout_us) == (99, FULL.retry, 5_000_000)
    assert FULL.fired_after(None) is FULL
