"""The output on a terminal: tables that fit, with colour, and no tricks played by stored text."""

from __future__ import annotations

import re

import pytest

from rota.cli import render
from rota.cli.ops import workers
from rota.client.overview import WorkerState
from rota.core.runs.model import WorkerRecord
from rota.settings import Settings
from tests.cli.kit import Shell
from tests.cli.kit.terminal import (
    on_terminal,
)

ESCAPE = "\x1b["


@pytest.mark.filterwarnings("ignore:.*use of forkpty.*:DeprecationWarning")
@pytest.mark.parametrize("columns", [60, 100])
def test_a_table_has_colour_and_short_ids_however_narrow(shell: Shell, columns: int) -> None:
    run_id = shell.start("add", "n=1")
    shell.work()
    shown = on_terminal(shell.folder, "run", "list", columns=columns)
    assert run_id[-8:] in shown
    assert f"{ESCAPE}32mcompleted" in shown


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*use of forkpty.*:DeprecationWarning")
def test_tables_fit_a_terminal_of_80_columns(shell: Shell) -> None:
    (shell.folder / "jobs.py").write_text(WIDE)
    for name in ("a_workflow_with_quite_a_long_name", "breaks_with_a_long_story"):
        shell.start(name, "--queue", "a-rather-long-queue-name")
    shell.start("a_workflow_with_quite_a_long_name", "--delay", "1h")
    shell.run("schedule", "create", "every-now-and-then", "a_workflow_with_quite_a_long_name",
        "weekdays at 9:30", "--timezone", "America/Argentina/Buenos_Aires")  # fmt: skip
    shell.work()
    failed = shell.json("run", "list", "--name", "breaks_with_a_long_story")[0]["id"]
    for words in (
        ["run", "list"], ["worker", "list", "--all"], ["queue", "list"], ["schedule", "list"],
        ["run", "show", failed], ["schedule", "upcoming"],
    ):  # fmt: skip
        shown = on_terminal(shell.folder, *words, columns=80)
        assert widest(table_of(shown)) <= 80, shown


def test_the_table_of_workers_fits_with_long_names() -> None:
    record = WorkerRecord(
        id="0" * 32, namespace="default", host="a-machine-of-a-cluster/boot", pid=4194304,
        pid_started="", queues='["default", "a-rather-long-queue-name", "another-long-name"]',
        names="[]", slots=100, status="offline", version="f" * 40, started_at=0, heartbeat_at=0,
        stopped_at=None,
    )  # fmt: skip
    row = workers._row(WorkerState(record, "stopped", 0.0, [], 0), Settings(), 0)
    del row["pinned"]
    fitted = render._fitted({head: max(len(head), len(str(row[head]))) for head in row}, 80)
    assert "queues" not in fitted  # below its row
    assert render._taken(fitted) <= 80


WIDE = """
from rota import Rota

app = Rota()

@app.step
async def looks_up_the_customer_in_the_other_system() -> str:
    return "a result that is much longer than the column it is shown in " * 3

@app.workflow
async def a_workflow_with_quite_a_long_name() -> None:
    await looks_up_the_customer_in_the_other_system()

@app.workflow(retries=1)
async def breaks_with_a_long_story() -> None:
    await looks_up_the_customer_in_the_other_system()
    raise ConnectionError("the line is dead, and has been for a long time as it seems " * 3)

app.queue("a-rather-long-queue-name", concurrency=5, concurrency_per_key=2, rate=(100, "1m"))
"""


def table_of(shown: str) -> list[str]:
    """The lines of the tables on a screen, without colour; a title has one word and no gap."""
    lines = re.sub(r"\x1b\[[\d;]*m", "", shown).replace("\r", "").splitlines()
    return [line for line in lines if "  " in line.strip()]


def widest(lines: list[str]) -> int:
    """The columns of the longest line."""
    assert lines
    return max(map(len, lines))


def test_prose_is_wrapped_names_are_cut_and_ids_stay_whole(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")
    row = {
        "id": "0123abcd", "name": "collect_everything", "error": "the line is dead and stays so",
        "created": "3m ago",
    }  # fmt: skip
    render.table([row], "")
    assert re.sub(r"\x1b\[[\d;]*m", "", capsys.readouterr().out).splitlines() == [
        "ID        NAME       ERROR       CREATED",
        "0123abcd  collect_…  the line    3m ago",
        "                     is dead",
        "                     and stays",
        "                     so",
    ]


def test_prose_at_the_end_goes_below_its_row_where_it_cannot_be_read(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")
    rows = [
        {
            "name": "nightly-report", "status": "scheduled", "next": "in 1h33m",
            "means": "at 02:00, every day (Europe/Berlin)", "note": "",
        },
        {
            "name": "fx-rates", "status": "paused", "next": "-",
            "means": "at 16:10, Monday to Friday", "note": "the feed ends",
        },
    ]  # fmt: skip
    render.table(rows, "")
    assert re.sub(r"\x1b\[[\d;]*m", "", capsys.readouterr().out).splitlines() == [
        "NAME            STATUS     NEXT",
        "    MEANS, NOTE",
        "nightly-report  scheduled  in 1h33m",
        "    at 02:00, every day (Europe/Berlin)",
        "fx-rates        paused     -",
        "    at 16:10, Monday to Friday",
        "    the feed ends",
    ]


def test_sentences_break_between_words_and_commands_stay_whole(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "→ Nothing to do before Monday; to continue: `rota schedule resume nightly`."
    render.say(text)
    assert capsys.readouterr().out == f"{text}\n"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")
    render.say(text, hang=2)
    render.facts([("input", "one two three four five six seven")])
    assert capsys.readouterr().out.splitlines() == [
        "→ Nothing to do before Monday; to",
        "  continue:",
        "  `rota schedule resume nightly`.",
        "  input       one two three four five",
        "              six seven",
    ]


def test_wide_letters_count_twice(capsys: pytest.CaptureFixture[str]) -> None:
    render.table([{"name": "東京", "status": "ok"}, {"name": "ab", "status": "ok"}], "")
    assert capsys.readouterr().out == "NAME  STATUS\n東京  ok\nab    ok\n"


def test_a_pipe_gets_plain_text(shell: Shell) -> None:
    shell.start("fails", "n=1")
    shell.work()
    for words in (["run", "list"], ["doctor"], ["worker", "list", "--all"]):
        assert ESCAPE not in shell.run(*words).stdout


def test_stored_text_cannot_move_the_cursor(shell: Shell) -> None:
    run_id = shell.start("add", "n=1", f"text={ESCAPE}2Jgone\r\n", "--external-id", f"x{ESCAPE}31m")
    page = shell.run("run", "show", run_id).stdout
    assert "\x1b" not in page
    assert "\r" not in page
    assert "x\\x1b[31m" in page


@pytest.mark.parametrize(
    ("begin", "end", "text"),
    [
        (0, 0, "0ms"),
        (0, 1_499, "1ms"),
        (5, 0, "0ms"),
        (0, 999_999, "1.0s"),
        (0, 59_900_000, "59.9s"),
        (0, 60_000_000, "1m"),
        (0, 3_661_000_000, "1h1m"),
        (None, 5, "-"),
    ],
)
def test_durations_are_as_precise_as_they_matter(begin: int | None, end: int, text: str) -> None:
    assert render.took(begin, end) == text


@pytest.mark.parametrize(
    ("at", "text"), [(100, "now"), (-5_400_000_000, "1h30m ago"), (5_000_000, "in 5s"), (None, "-")]
)
def test_instants_are_reported_by_their_distance(at: int | None, text: str) -> None:
    assert render.ago(at, 0) == text
