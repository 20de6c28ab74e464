"""`rota schedule create` and `update`: every word arrives, no mistake changes a thing."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rota.app import Rota
from rota.testing import World
from tests.cli.kit import Shell
from tests.cli.kit.schedules import (
    past,
)


def create(shell: Shell, *words: str) -> Any:
    """A schedule of workflow `add`, as a document."""
    return shell.json("schedule", "create", "s", "add", *words, "n=1")


def test_a_schedule_is_made_and_shown_back(either: Shell) -> None:
    said = either.run(
        "schedule", "create", "s", "add", "0 9 * * MON-FRI", "n=2", "--timezone", "Europe/Berlin"
    ).stdout
    assert said.startswith("schedule s runs at 09:00, Monday to Friday (Europe/Berlin); next: ")
    found = either.json("schedule", "show", "s")["schedule"]
    assert (found["workflow"], found["input"], found["owner"]) == ("add", {"n": 2}, "operator")
    assert (found["when"], found["timezone"]) == ("0 9 * * MON-FRI", "Europe/Berlin")


@pytest.mark.parametrize(
    ("words", "forms"),
    [
        (["every", "friday", "at", "5pm"], ["0 17 * * FRI"]),
        (["weekdays at 9:30"], ["30 9 * * MON-FRI"]),
        (["@every", "5m"], ["every 5 minutes"]),
        (["1h30m"], ["every 1 hour 30 minutes"]),
        (["0 9 * * *", "0 17 * * *"], ["0 9 * * *", "0 17 * * *"]),
        (["@daily", "@weekly"], ["0 0 * * *", "0 0 * * 0"]),
        (["2040-01-01", "09:00"], ["2040-01-01T09:00:00+00:00"]),
    ],
)
def test_when_may_be_written_in_many_ways(shell: Shell, words: list[str], forms: list[str]) -> None:
    shell.run("migrate")
    assert create(shell, *words, "--timezone", "UTC")["forms"] == forms


def test_every_option_arrives(either: Shell) -> None:
    words = [
        *("--overlap", "skip", "--missed", "all", "--missed-max", "7", "--max-delay", "1h"),
        *("--jitter", "5m", "--max-runs", "9", "--pause-after-failures", "3", "--retries", "2"),
        *("--timeout", "30m", "--gap", "skip", "--repeat", "both", "--queue", "mail"),
        *("--priority", "4", "--timezone", "Europe/Berlin", "--paused"),
    ]
    found = create(either, "@daily", *words, "--start", "2039-01-01", "--end", "2040-01-01T12:00Z")
    assert found["policies"] == {
        "overlap": "skip", "missed": "all", "missed_max": 7, "max_delay": "1h", "jitter": "5m",
        "max_runs": 9, "pause_after_failures": 3, "retries": 2, "timeout": "30m",
        "grace": "30s", "expires_after": None,
    }  # fmt: skip
    assert (found["queue"], found["priority"], found["status"]) == ("mail", 4, "paused")
    assert found["start_at"] == "2038-12-31T23:00:00.000Z"
    assert found["end_at"] == "2040-01-01T12:00:00.000Z"
    assert "the clock skips are skipped, times that come twice run both times" in found["text"]
    page = either.run("schedule", "show", "s").stdout
    assert "overlap skip; missed all; missed max 7; max delay 1h; jitter 5m; max runs 9" in page
    assert "  runs        0 of 9\n" in page


def test_a_taken_name_is_refused_unless_replaced(either: Shell) -> None:
    first = create(either, "@daily")
    said = either.error("schedule", "create", "s", "add", "@hourly", "n=1", code=2)
    assert "there is a schedule 's' already" in said
    assert create(either, "@hourly", "--replace")["id"] == first["id"]
    assert either.json("schedule", "list")[0]["when"] == "@hourly"


def test_arguments_are_checked_against_the_workflow(either: Shell) -> None:
    words = ["schedule", "create", "s", "add", "@daily"]
    assert "n" in either.error(*words, code=2)
    assert "Expected `int`" in either.error(*words, "n=x", code=2)
    said = either.error("schedule", "create", "s", "ad", "@daily", code=4)
    assert "Did you mean add?" in said
    found = either.json(*words, "--input", '{"n": 1}', "text=7")
    assert found["input"] == {"n": 1, "text": "7"}
    twice = either.error(*words, "--replace", "--input", '{"n": 1}', "n=2", code=2)
    assert "n is given twice: in --input and as n=…" in twice


def test_an_empty_time_zone_is_refused(either: Shell) -> None:
    words = ["schedule", "create", "s", "elsewhere", "@daily", "--database", either.url]
    (either.folder / "rota.toml").unlink()
    assert "unknown time zone ''" in either.error(*words, "--timezone", "", code=2)
    either.run(*words, "--timezone", "Asia/Tokyo")
    update = ["schedule", "update", "s", "--database", either.url, "--timezone", ""]
    assert "unknown time zone ''" in either.error(*update, code=2)
    [kept] = either.json("schedule", "list", "--database", either.url)
    assert kept["timezone"] == "Asia/Tokyo"


def test_with_only_a_database_any_workflow_may_be_named(either: Shell) -> None:
    (either.folder / "rota.toml").unlink()
    found = either.json(
        "schedule", "create", "s", "elsewhere", "5m", "x=1", "--database", either.url
    )
    assert (found["workflow"], found["input"]) == ("elsewhere", {"x": 1})


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["61 9 * * *"], "minute: 61 is outside 0-59.\n    61 9 * * *\n    ^^\nHint: The minute"),
        (["0 0 31 2 *"], "never fires: day 31 does not come in month 2"),
        (["@daily", "--timezone", "Europe/Berln"], "Did you mean Europe/Berlin"),
        (["@daily", "--timezone", "EST"], "Hint: Use America/New_York, or America/Panama"),
        (["2020-01-01T09:00"], "nothing left to fire: the last occurrence was"),
        (["@daily", "--end", "2020-01-01"], "nothing left to fire"),
        (["@daily", "--start", "2040-01-02", "--end", "2040-01-01"], "would end"),
        (["200ms"], "fires more than once a second"),
        (["TZ=UTC 0 9 * * *"], "begins with a time zone"),
        (["whenever", "you", "like"], "whenever you like"),
        (["0", "9", "a.py", "b.py", "c.py", "d.py"], 'Put cron in quotes: "0 9 * * *".'),
        (["@daily", "--overlap", "maybe"], "'maybe' is not one of"),
        (["@daily", "--gap", "maybe"], "'maybe' is not one of"),
        (["@daily", "--max-runs", "0"], "'0' is not a number from 1 on"),
        (["@daily", "--retries", "x"], "'x' is not a number from 0 on"),
        (["@daily", "--jitter", "x"], "'x' is not a duration"),
        (["@daily", "--start", "x"], "'x' is not a time"),
        (["@daily", "--missed-max", "-1"], "--missed-max"),
    ],
)  # fmt: skip
def test_bad_words_are_refused_and_nothing_is_made(
    shell: Shell, words: list[str], says: str
) -> None:
    shell.run("migrate")
    said = shell.run("schedule", "create", "s", "add", *words, "n=1", code=2).stderr
    assert said.startswith("Error: ")
    assert "\nHint: " in said
    assert says in said
    assert shell.json("schedule", "list") == []


def test_only_arguments_are_no_time(shell: Shell) -> None:
    shell.run("migrate")
    assert "WHEN is missing" in shell.error("schedule", "create", "s", "add", "n=1", code=2)


def test_more_often_than_once_a_second_must_be_said(shell: Shell) -> None:
    shell.run("migrate")
    assert create(shell, "500ms", "--sub-second")["forms"] == ["every 0.5 seconds"]


# -- update ------------------------------------------------------------------------------------


def test_only_what_is_named_changes(either: Shell) -> None:
    create(
        either, "0 9 * * *", "--timezone", "Europe/Berlin", "--overlap", "skip", "--jitter", "5m"
    )
    update = ["schedule", "update", "s"]
    found = either.json(*update, "weekdays", "at", "10:00")
    assert (found["forms"], found["timezone"]) == (["0 10 * * MON-FRI"], "Europe/Berlin")
    found = either.json(*update, "--timezone", "Asia/Tokyo", "--gap", "skip")
    assert (found["forms"], found["timezone"]) == (["0 10 * * MON-FRI"], "Asia/Tokyo")
    assert "are skipped" in found["text"]
    found = either.json(*update, "--max-delay", "1h", "--end", "2040-01-01", "--priority", "3")
    assert (found["policies"]["overlap"], found["policies"]["max_delay"]) == ("skip", "1h")
    assert (found["priority"], found["end_at"]) == (3, "2039-12-31T15:00:00.000Z")
    found = either.json(*update, "--max-delay", "none", "--end", "none", "--jitter", "none")
    assert found["policies"]["max_delay"] is None
    assert found["policies"]["jitter"] is None
    assert found["end_at"] is None
    found = either.json(*update, "n=5", "--queue", "mail")
    assert (found["input"], found["queue"]) == ({"n": 5}, "mail")
    assert "Expected `int`" in either.error(*update, "n=x", code=2)


def test_several_times_move_to_another_zone_together(either: Shell) -> None:
    create(either, "0 9 * * *", "0 17 * * *", "--timezone", "UTC")
    found = either.json("schedule", "update", "s", "--timezone", "Asia/Tokyo")
    assert (found["forms"], found["timezone"]) == (["0 9 * * *", "0 17 * * *"], "Asia/Tokyo")


def test_retries_of_an_update_reach_the_next_run(either: Shell) -> None:
    create(either, "@daily")
    either.run("schedule", "update", "s", "--retries", "4")
    either.run("schedule", "trigger", "s")
    [run] = either.json("run", "list")
    assert run["options"]["retry"]["attempts"] == 5


def test_an_update_says_what_is_wrong_and_changes_nothing(either: Shell) -> None:
    before = create(either, "0 9 * * *", "--timezone", "UTC")
    update = ["schedule", "update", "s"]
    assert "nothing to change was named" in either.error(*update, code=2)
    said = either.run(*update, "0 25 * * *", code=2).stderr
    assert "hour: 25 is outside 0-23.\n    0 25 * * *\n      ^^\n" in said
    assert "unknown time zone" in either.error(*update, "--timezone", "Nowhere", code=2)
    assert "nothing left to fire" in either.error(*update, "--end", "2020-01-01", code=2)
    assert either.json("schedule", "list") == [before]


def test_an_edit_that_releases_a_burst_must_be_confirmed(either: Shell) -> None:
    async def page(app: Rota, world: World) -> None:
        await app.schedules.create("s", "add", "@hourly", input={"n": 1}, timezone="UTC")
        await asyncio.sleep(0)

    past(either, page)
    before = either.json("schedule", "list")
    said = either.error("schedule", "update", "s", "*/30 * * * *", code=2)
    assert "missed occurrences at once" in said
    assert "Hint: Accept that with `--confirm`" in said
    assert either.json("schedule", "list") == before
    found = either.json("schedule", "update", "s", "*/30 * * * *", "--confirm")
    assert found["when"] == "*/30 * * * *"


def test_another_workflow_is_checked_by_the_project(shell: Shell) -> None:
    shell.run("schedule", "create", "five", "add", "5m", "n=1")
    said = shell.error("schedule", "update", "five", "--workflow", "ad", code=4)
    assert "there is no workflow 'ad'" in said
    shell.run("schedule", "update", "five", "--workflow", "fails")
    assert shell.json("schedule", "show", "five")["schedule"]["workflow"] == "fails"
