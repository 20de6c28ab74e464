"""What a terminal shows: tables with colour, whole ids, and no tricks played by stored text."""

from __future__ import annotations

import pytest

from rota.cli import render
from tests.cli.kit import Shell
from tests.cli.kit.terminal import (
    on_terminal,
)

ESCAPE = "\x1b["


@pytest.mark.filterwarnings("ignore:.*use of forkpty.*:DeprecationWarning")
@pytest.mark.parametrize("columns", [60, 100])
def test_a_table_has_colour_and_whole_ids_however_narrow(shell: Shell, columns: int) -> None:
    run_id = shell.start("add", "n=1")
    shell.work()
    shown = on_terminal(shell.folder, "run", "list", columns=columns)
    assert run_id in shown
    assert f"{ESCAPE}32mcompleted" in shown


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
def test_instants_are_told_by_their_distance(at: int | None, text: str) -> None:
    assert render.ago(at, 0) == text
