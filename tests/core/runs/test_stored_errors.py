"""Stored errors and ends of runs: JSON and back to exceptions."""

from __future__ import annotations

import json

import pytest

from rota.core.runs.failures import describe
from rota.core.runs.stored_errors import cause_line, end_of, error_line, read_error, run_failed
from rota.errors import RunCancelled, RunCrashed, RunFailed, StepFailed


def test_a_stored_error_reads_back_with_every_field() -> None:
    fields = read_error(describe(ValueError("no such order")))
    assert (fields["type"], fields["message"], fields["kind"]) == (
        "ValueError", "no such order", "logic",
    )  # fmt: skip
    assert "ValueError" in fields["trace"]


@pytest.mark.parametrize("text", [None, "", "{}"])
def test_an_error_without_details_still_has_every_field(text: str | None) -> None:
    assert set(read_error(text)) == {"type", "message", "kind", "trace"}


def test_a_failed_step_is_shown_by_its_own_error() -> None:
    sentence = "step pay failed after 2 attempts: KeyError: 'iban'"
    failed = describe(StepFailed(sentence, error_type="KeyError"))
    assert error_line(failed).startswith("StepFailed: step pay")
    assert cause_line(failed) == "KeyError: 'iban'"
    assert cause_line(describe(ValueError(sentence))) == f"ValueError: {sentence}"


def test_an_end_holds_status_reason_and_error() -> None:
    stored = json.loads(end_of("failed", "logic", describe(KeyError("x"))))
    assert stored["status"] == "failed"
    assert stored["reason"] == "logic"
    assert stored["type"] == "KeyError"
    assert json.loads(end_of("cancelled", None, None)) == {"status": "cancelled", "reason": None}


@pytest.mark.parametrize(
    ("status", "cls"),
    [
        ("failed", RunFailed),
        ("cancelled", RunCancelled),
        ("crashed", RunCrashed),
        ("skipped", RunFailed),
    ],
)
def test_all_who_wait_get_the_error_of_that_end(status: str, cls: type[RunFailed]) -> None:
    error = run_failed("r1", end_of(status, "because", None))
    assert type(error) is cls
    assert str(error) == f"run r1 {status} (because)"
    assert error.facts["run_id"] == "r1"


def test_the_error_says_what_the_run_said() -> None:
    error = run_failed("r1", end_of("failed", "logic", describe(ValueError("no such order"))))
    assert str(error) == "run r1 failed: ValueError: no such order"
    detail = error.facts["detail"]
    assert isinstance(detail, dict)
    assert detail["kind"] == "logic"


def test_an_end_nobody_described_is_a_failure() -> None:
    assert str(run_failed("r1", None)) == "run r1 failed"
