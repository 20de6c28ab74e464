"""`rota next`: a preview that needs no database and explains the clock in words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from rota.cli.main import cli

SPRING = ["30 2 * * *", "--timezone", "Europe/Berlin", "--from", "2027-03-27"]


def run(*words: str, code: int = 0) -> str:
    """The output of `rota next`."""
    result = CliRunner().invoke(cli, ["next", *words])
    assert result.exit_code == code, result.output
    return result.stdout if code == 0 else result.stderr


def lines(*words: str) -> list[str]:
    """Its lines, with single spaces."""
    return [" ".join(line.split()) for line in run(*words).splitlines()]


def test_it_needs_no_database_and_makes_none(folder: Path) -> None:
    assert "at 09:00, every day (UTC)" in run("0 9 * * *", "--timezone", "UTC")
    assert list(folder.iterdir()) == []


def test_in_spring_a_time_that_does_not_exist_is_explained() -> None:
    said = lines(*SPRING)
    assert said[0] == "at 02:30, every day (Europe/Berlin)"
    assert said[3].startswith("Sat 2027-03-27 02:30 CET 2027-03-27 01:30Z")
    assert said[4].startswith("Sun 2027-03-28 03:00 CEST 2027-03-28 01:00Z")
    assert said[4].endswith(
        "02:30 does not exist on 2027-03-28 in Europe/Berlin; runs at 03:00 instead"
    )
    assert said[5].startswith("Mon 2027-03-29 02:30 CEST 2027-03-29 00:30Z")


def test_a_time_that_is_left_out_is_reported_below() -> None:
    said = lines(*SPRING, "--gap", "skip")
    assert said[4].startswith("Mon 2027-03-29")
    assert said[-1] == (
        "Clock change: 02:30 does not exist on 2027-03-28 in Europe/Berlin; not run."
    )


@pytest.mark.parametrize(
    ("repeat", "rows"),
    [
        ("auto", ["2027-10-31 00:30Z|runs the first time only"]),
        ("second", ["2027-10-31 01:30Z|runs the second time only"]),
        ("both", ["2027-10-31 00:30Z|this is the first", "2027-10-31 01:30Z|this is the second"]),
    ],
)
def test_in_autumn_a_time_that_happens_twice_is_explained(repeat: str, rows: list[str]) -> None:
    said = run(
        "30 2 * * *", "--timezone", "Europe/Berlin", "--from", "2027-10-31",
        "--count", str(len(rows)), "--repeat", repeat,
    ).splitlines()  # fmt: skip
    for line, row in zip(said[3:], rows, strict=True):
        at, _, note = row.partition("|")
        assert at in line
        assert line.endswith(f"02:30 happens twice on 2027-10-31 in Europe/Berlin; {note}")


def test_half_hours_and_lost_days_are_explained() -> None:
    said = run("15 2 * * *", "--timezone", "Australia/Lord_Howe", "--from", "2027-10-03")
    assert (
        "02:15 does not exist on 2027-10-03 in Australia/Lord_Howe; runs at 02:30 instead" in said
    )
    assert "Sun 2027-10-03 02:30 UTC+11 " in said
    said = run("0 9 * * *", "--timezone", "Pacific/Apia", "--from", "2011-12-29")
    assert "runs at 00:00 on 2011-12-31 instead" in said


def test_words_are_shown_back_as_cron() -> None:
    assert run("every", "friday", "at", "5pm", "--timezone", "UTC").splitlines()[0] == (
        "at 17:00, on Friday (UTC)  [0 17 * * FRI]"
    )
    assert run("5m").splitlines()[0] == "every 5 minutes"


def test_as_a_document_it_holds_instants_walls_and_notes() -> None:
    found = json.loads(run(*SPRING, "--count", "2", "--json"))
    assert found["timezone"] == "Europe/Berlin"
    assert found["forms"] == ["30 2 * * *"]
    assert [one["due_at"] for one in found["occurrences"]] == [
        "2027-03-27T01:30:00.000Z", "2027-03-28T01:00:00.000Z",
    ]  # fmt: skip
    assert found["occurrences"][1]["wall"] == "Sun 2027-03-28 03:00 CEST"
    assert len(found["occurrences"][1]["notes"]) == 1
    assert found["remarks"] == []
    left_out = json.loads(run(*SPRING, "--gap", "skip", "--json"))
    assert [one["kind"] for one in left_out["remarks"]] == ["gap"]


def test_the_time_asked_from_is_on_the_zones_wall_unless_it_says_otherwise() -> None:
    words = ["@hourly", "--timezone", "Asia/Tokyo", "--count", "1", "--json", "--from"]
    for text, due_at in (
        ("2027-01-01T09:00", "2027-01-01T00:00:00.000Z"),
        ("2027-01-01 09:00", "2027-01-01T00:00:00.000Z"),
        ("2027-01-01T09:00Z", "2027-01-01T09:00:00.000Z"),
        ("2027-01-01", "2026-12-31T15:00:00.000Z"),
    ):
        [one] = json.loads(run(*words, text))["occurrences"]
        assert one["due_at"] == due_at
    assert len(json.loads(run(*words, "23:00"))["occurrences"]) == 1


def test_two_intervals_are_two_timings_and_one_with_two_units_is_one() -> None:
    forms = [json.loads(run(*words, "--json"))["forms"] for words in (["5m", "7m"], ["1h", "30m"])]
    assert forms == [["every 5 minutes", "every 7 minutes"], ["every 1 hour 30 minutes"]]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["61 9 * * *"], "Error: minute: 61 is outside 0-59.\n    61 9 * * *\n    ^^\nHint: "),
        (["0 9 * * *", "--timezone", "Europe/Berln"], "Did you mean Europe/Berlin"),
        (["2020-01-01"], "nothing left to fire"),
        (["0 0 31 2 *"], "never fires"),
        (["100ms"], "more than once a second"),
        (["@daily", "--from", "someday"], "'someday' is not a time"),
        (["@daily", "--timezone", ""], "unknown time zone ''"),
        (["1M"], '"1M" is ambiguous: 1M may be minutes or months'),
        (["5m7m"], '"5m7m" is ambiguous: it may be one interval or several'),
        (["@daily", "--count", "0"], "--count"),
        ([], "missing argument"),
    ],
)
def test_what_makes_no_sense_is_reported(words: list[str], says: str) -> None:
    assert says.lower() in run(*words, code=2).lower()
