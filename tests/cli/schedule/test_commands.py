"""`rota schedule …`: lists and commands, on both databases."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime

import pytest

from rota.app import Rota
from rota.core.time.instants import instant, span
from rota.testing import World
from tests.cli.kit import Shell
from tests.cli.kit.schedules import (
    past,
)


def make(shell: Shell, name: str = "daily", *words: str) -> None:
    """A schedule that is far from its next occurrence."""
    shell.run(
        "schedule", "create", name, "add", *(words or ("0 3 1 1 *",)), "n=1", "--timezone", "UTC"
    )


async def busy_past(app: Rota, world: World) -> None:
    """One fired late after five were missed, one on time, one by hand."""
    await app.schedules.create("hourly", "add", "@hourly", input={"n": 1}, timezone="Europe/Berlin")
    world.clock.jump("6h10m")
    await world.advance("1s")
    await world.advance("1h")
    await app.schedules.trigger("hourly")
    await world.settle()


# -- looking -----------------------------------------------------------------------------------


def test_no_schedule_is_said_so(either: Shell) -> None:
    said = either.run("schedule", "list").stdout
    assert said == "no schedules yet; create one with `rota schedule create`\n"
    assert either.json("schedule", "list") == []
    assert either.run("schedule", "upcoming").stdout == "nothing fires within 1d\n"


def test_schedules_are_listed_by_name_with_what_they_mean(either: Shell) -> None:
    make(either, "b")
    make(either, "a", "weekdays", "at", "9:30")
    either.run("schedule", "pause", "b", "--note", "holidays")
    head, first, second = either.run("schedule", "list").stdout.splitlines()
    assert head.split() == ["NAME", "STATUS", "WORKFLOW", "NEXT", "MEANS", "NOTE"]
    assert first.split()[:4] == ["a", "scheduled", "add", "in"]
    assert "at 09:30, Monday to Friday (UTC)" in first
    assert second.split()[:4] == ["b", "paused", "add", "-"]
    assert second.endswith("holidays")
    assert [row["name"] for row in either.json("schedule", "list")] == ["a", "b"]
    page = either.run("schedule", "list", "--limit", "1")
    assert page.stderr == "more: --after a\n"
    assert [row["name"] for row in either.json("schedule", "list", "--after", "a")] == ["b"]


def test_schedules_are_found_by_a_part_of_their_name(either: Shell) -> None:
    make(either, "nightly-report")
    make(either, "report-weekly")
    make(either, "sweep")
    found = either.json("schedule", "list", "--search", "report")
    assert [row["name"] for row in found] == ["nightly-report", "report-weekly"]
    page = either.run("schedule", "list", "--search", "report", "--limit", "1")
    assert page.stderr == "more: --search report --after nightly-report\n"
    said = either.run("schedule", "list", "--search", "nothing").stdout
    assert said == "no schedule has 'nothing' in its name\n"


def test_show_shows_meaning_next_last_owner_and_why(either: Shell) -> None:
    past(either, busy_past)
    page = either.run("schedule", "show", "hourly").stdout
    assert page.startswith("schedule hourly  scheduled\n")
    assert "  means       every hour, on the hour (Europe/Berlin)\n" in page
    assert "  written     @hourly  [0 * * * *]\n" in page
    assert "  workflow    add, queue default, priority 0\n" in page
    assert '  input       {"n":1}\n' in page
    assert "  policies    overlap queue; missed run\n" in page
    assert "  owner       operator\n" in page
    assert "\nnext\n" in page
    assert "\nlast\n" in page
    assert "but no worker is running to fire it." in page
    both = either.json("schedule", "show", "hourly")
    assert both["schedule"]["forms"] == ["0 * * * *"]
    assert both["schedule"]["policies"]["overlap"] == "queue"
    assert len(both["upcoming"]) == 5
    assert {entry["outcome"] for entry in both["ledger"]} == {"fired", "skipped", "manual"}
    assert both["why"]["verdict"] == "no_worker"


def test_history_is_the_ledger_with_ranges(either: Shell) -> None:
    past(either, busy_past)
    rows = either.json("schedule", "history", "hourly")
    assert [row["outcome"] for row in rows] == ["manual", "fired", "fired", "skipped"]
    assert rows[3]["reason"] == "missed"
    assert (rows[3]["from_at"], rows[3]["to_at"], rows[3]["count"]) == (
        "2026-01-05T09:00:00.000Z", "2026-01-05T13:00:00.000Z", 5,
    )  # fmt: skip
    assert rows[3]["run_id"] is None
    assert rows[1]["status"] == "completed"
    missed = either.json("schedule", "history", "hourly", "--status", "skipped:missed")
    assert missed == rows[3:]
    text = either.run("schedule", "history", "hourly").stdout.splitlines()
    assert text[0].split() == ["WHEN", "OUTCOME", "RUN", "STATUS", "TOOK", "NOTE"]
    assert text[3].split()[:5] == ["Mon", "2026-01-05", "15:00", "CET", "fired"]
    assert text[3].endswith("40m late")
    assert text[4].startswith("Mon 2026-01-05 14:00 CET ")
    assert text[4].endswith("missed: 5 since Mon 2026-01-05 10:00 CET")


def test_history_is_asked_on_the_schedules_wall(either: Shell) -> None:
    past(either, busy_past)
    words = ["schedule", "history", "hourly"]
    found = either.json(*words, "--from", "2026-01-05 15:30", "--to", "2026-01-05T16:00")
    assert [row["due_at"] for row in found] == ["2026-01-05T15:00:00.000Z"]
    found = either.json(*words, "--to", "2026-01-05T14:00Z")
    assert [row["outcome"] for row in found] == ["fired", "skipped"]
    assert either.json(*words, "--from", "2026-02-01") == []
    assert "no recorded occurrence has these times" in (
        either.run(*words, "--from", "2026-02-01").stdout
    )
    reversed_range = ["--from", "2026-02-01", "--to", "2026-01-01"]
    assert "before it begins" in either.error(*words, *reversed_range, code=2)
    assert "'soon' is not a time" in either.error(*words, "--from", "soon", code=2)
    assert "more: --to" in either.run(*words, "--limit", "1").stderr


def test_upcoming_looks_across_all(either: Shell) -> None:
    make(either, "a", "1h")
    make(either, "b", "90m")
    found = either.json("schedule", "upcoming", "--within", "3h10m")
    assert sorted(row["schedule"] for row in found) == ["a", "a", "a", "b", "b"]
    assert [row["runs_at"] for row in found] == sorted(row["runs_at"] for row in found)
    lines = either.run("schedule", "upcoming", "--limit", "2").stdout.splitlines()
    assert lines[0].split() == ["SCHEDULE", "WHEN", "UTC", "IN"]
    assert len(lines) == 3
    assert "is not a duration" in either.error("schedule", "upcoming", "--within", "x", code=2)


def test_jitter_is_a_column_and_the_table_fits_80_columns(either: Shell) -> None:
    make(either, "j", "0 3 * * *", "--jitter", "10h")
    lines = either.run("schedule", "show", "j").stdout.splitlines()
    head = next(at for at, line in enumerate(lines) if line.startswith("WHEN"))
    assert lines[head].split() == ["WHEN", "UTC", "IN", "JITTER"]
    assert max(map(len, lines[head : head + 6])) <= 80
    [first, *_] = either.json("schedule", "upcoming", "--within", "2d")
    waits = instant(datetime.fromisoformat(first["runs_at"])) - instant(
        datetime.fromisoformat(first["due_at"])
    )
    assert lines[head + 1].split()[-1] == span(waits)


# -- commands ----------------------------------------------------------------------------------


def test_a_schedule_is_paused_and_resumed(either: Shell) -> None:
    make(either)
    said = either.run("schedule", "pause", "daily", "--note", "holidays").stdout
    assert said == "schedule daily is paused (holidays)\n"
    assert either.json("schedule", "show", "daily")["why"]["verdict"] == "paused"
    said = either.run("schedule", "resume", "daily").stdout
    assert said.startswith("schedule daily runs at 03:00, on the 1st of January (UTC); next: ")
    assert "is not paused" in either.error("schedule", "resume", "daily", code=5)


def test_a_pause_may_end_by_itself(either: Shell) -> None:
    make(either)
    found = either.json("schedule", "pause", "daily", "--until", "2040-01-01T09:00")
    assert found["paused_until"] == "2040-01-01T09:00:00.000Z"
    assert found["note"] == "by request"
    said = either.error("schedule", "pause", "daily", "--until", "2020-01-01", code=2)
    assert "is in the past" in said
    assert "Hint: Give a later time, or none to pause until an operator resumes it." in said


def test_resume_may_catch_up(either: Shell) -> None:
    async def page(app: Rota, world: World) -> None:
        await app.schedules.create("hourly", "add", "@hourly", input={"n": 1}, timezone="UTC")
        await app.schedules.pause("hourly")

    past(either, page)
    found = either.json("schedule", "resume", "hourly", "--catch-up")
    assert found["due_at"] == "2026-01-05T09:00:00.000Z"
    assert found["status"] == "scheduled"


def test_a_trigger_does_not_move_the_schedule(either: Shell) -> None:
    make(either)
    before = either.json("schedule", "show", "daily")["schedule"]["due_at"]
    said = either.run("schedule", "trigger", "daily").stdout
    assert said.startswith("run ")
    assert said.endswith(" of schedule daily started\n")
    run_id = either.json("schedule", "trigger", "daily")["id"]
    either.work()
    assert json.loads(either.run("run", "result", run_id).stdout)["sum"] == 2
    assert either.json("schedule", "show", "daily")["schedule"]["due_at"] == before


def test_a_trigger_may_be_waited_for(shell: Shell, up: Callable[..., object]) -> None:
    shell.run("migrate")
    make(shell)
    said = shell.error("schedule", "trigger", "daily", "--wait", "--timeout", "50ms", code=6)
    assert "has not ended within 50ms" in said
    up()
    result = shell.run("schedule", "trigger", "daily", "--wait", "--timeout", "60s")
    assert json.loads(result.stdout)["sum"] == 2
    assert "of schedule daily started" in result.stderr
    assert shell.json("schedule", "trigger", "daily", "--wait")["output"]["sum"] == 2


def test_a_backfill_is_counted_first_then_run(either: Shell) -> None:
    make(either, "hourly", "@hourly")
    words = ["schedule", "backfill", "hourly", "--from", "2026-01-01", "--to", "2026-01-01T05:30"]
    assert either.run(*words, "--dry-run").stdout == (
        "6 occurrences in this range: 6 runs would start; nothing was started\n"
    )
    assert either.run(*words, "--parallel", "2").stdout == (
        "6 occurrences in this range: 6 runs started, 2 at a time\n"
    )
    assert either.run(*words).stdout == (
        "6 occurrences in this range: 0 runs started, 1 at a time; 6 had a run already\n"
    )
    either.work()
    rows = either.json("schedule", "history", "hourly", "--to", "2026-01-02")
    assert {(row["outcome"], row["status"]) for row in rows} == {("backfilled", "completed")}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--from", "2026-02-01", "--to", "2026-01-01"], "Hint: Swap the two times."),
        (["--from", "2026-01-01", "--to", "2100-01-01"], "Hint: A backfill runs past occurrences"),
        (["--from", "1990-01-01"], "at most 100,000 are run at once"),
        (["--from", "2026-01-01", "--parallel", "0"], "--parallel"),
        ([], "missing option '--from'"),
    ],
)
def test_a_range_that_makes_no_sense_is_refused(shell: Shell, words: list[str], says: str) -> None:
    shell.run("migrate")
    make(shell, "often", "* * * * *")
    assert says in shell.error("schedule", "backfill", "often", *words, code=2)
    assert shell.json("run", "list") == []


def test_a_deleted_schedule_leaves_its_runs(either: Shell) -> None:
    past(either, busy_past)
    assert either.run("schedule", "delete", "hourly").stdout == (
        "schedule hourly is deleted; the runs it fired stay\n"
    )
    assert either.json("schedule", "list") == []
    completed = either.json("run", "list", "--status", "completed")
    assert len(completed) == 3
    assert {run["schedule_id"] for run in completed} == {None}


def test_a_name_nobody_knows_is_answered_with_the_nearest(either: Shell) -> None:
    make(either, "nightly")
    for verb in ("show", "pause", "resume", "trigger", "delete", "history"):
        said = either.error("schedule", verb, "nigthly", code=4)
        assert "there is no schedule 'nigthly'" in said
        assert "Did you mean nightly?" in said
    said = either.error("schedule", "backfill", "nigthly", "--from", "2026-01-01", code=4)
    assert "there is no schedule" in said
    assert "no schedule, no automation and no run" in either.error("why", "nigthly", code=4)
    assert "there is no schedule" in either.error("schedule", "update", "nigthly", "5m", code=4)


# -- why ---------------------------------------------------------------------------------------


def test_why_is_one_sentence_and_a_hint(either: Shell) -> None:
    past(either, busy_past)
    said = either.run("why", "hourly", "--at", "2026-01-05T11:00").stdout.splitlines()
    assert said[0] == (
        "hourly did not run 5 times from Mon 2026-01-05 10:00 CET to Mon 2026-01-05 14:00 CET: "
        "no scheduler ran to fire it in time, and only the latest missed occurrence runs "
        "(missed: run)."
    )
    assert said[1].startswith("→ ")
    found = either.json("why", "hourly", "--at", "2026-01-05T15:00Z")
    assert found["verdict"] == "fired_completed"
    assert found["facts"]["timezone"] == "Europe/Berlin"
    run = either.run("why", found["facts"]["run_id"]).stdout
    assert "(add) completed at " in run
    assert "only valid for a schedule" in either.error(
        "why", found["facts"]["run_id"], "--at", "12:00", code=2
    )
    assert "is not a time" in either.error("why", "hourly", "--at", "then", code=2)


def test_stored_words_cannot_move_the_cursor(shell: Shell) -> None:
    shell.run("migrate")
    make(shell, "x")
    shell.run("schedule", "pause", "x", "--note", "\x1b[2Jgone\r\n")
    for words in (["why", "x"], ["schedule", "show", "x"], ["schedule", "list"]):
        assert "\x1b" not in shell.run(*words).stdout
        assert "\r" not in shell.run(*words).stdout


def test_grace_expiry_and_queue_all_are_options_of_a_schedule(either: Shell) -> None:
    words = ["--grace", "2m", "--expires-after", "1h", "--overlap", "queue-all"]
    either.run("schedule", "create", "often", "naps", "5m", *words)
    shown = either.json("schedule", "show", "often")["schedule"]["policies"]
    assert (shown["grace"], shown["expires_after"]) == ("2m", "1h")
    assert shown["overlap"] == "queue-all"
    page = either.run("schedule", "show", "often").stdout
    assert "overlap queue-all; missed run; grace 2m; expires after 1h" in page
    assert either.json("why", "often", "--at", "last night")["verdict"] == "not_made_yet"
    assert either.json("why", "often", "--at", "tomorrow")["verdict"] == "future"
