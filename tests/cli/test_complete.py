"""Shell completion: commands, options, names and ids, and silence where something is wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from rota.cli.base import CommonOptions
from rota.cli.main import cli
from tests.cli.kit import Shell


def offered(*words: str) -> list[str]:
    """The completions of the shell for the last of these words."""
    complete = ShellComplete(cli, {"obj": CommonOptions()}, "rota", "_ROTA_COMPLETE")
    return [item.value for item in complete.get_completions(list(words[:-1]), words[-1])]


def test_commands_and_options_complete() -> None:
    assert {"run", "schedule", "up", "why"} <= set(offered(""))
    assert offered("run", "re")[:2] == ["result", "retry"]
    assert offered("run", "list", "--sta") == ["--status"]
    assert offered("run", "list", "--status", "comp") == ["completed"]


def test_run_ids_complete_by_short_id_external_id_and_whole_id(shell: Shell) -> None:
    first = shell.start("add", "n=1", "--external-id", "order-7")
    second = shell.start("add", "n=2")
    assert offered("run", "show", "") == [second[-8:], "order-7", first[-8:]]
    assert offered("run", "cancel", "ord") == ["order-7"]
    assert offered("run", "retry", second[-8:-4]) == [second[-8:]]
    assert offered("run", "result", second[:30]) == [second]
    assert offered("run", "show", "nothing-like-it") == []


def test_names_complete(shell: Shell) -> None:
    shell.run("schedule", "create", "nightly", "add", "0 3 * * *", "n=1")
    shell.work()
    assert offered("run", "start", "a") == ["add", "answer"]
    assert offered("schedule", "show", "") == ["nightly"]
    assert offered("why", "night") == ["nightly"]
    assert offered("schedule", "create", "hourly", "fai") == ["fails"]
    assert offered("schedule", "create", "") == [], "a new name is for the user to choose"
    assert "default" in offered("queue", "pause", "")


def test_completion_follows_the_database_that_is_named(shell: Shell, tmp_path: Path) -> None:
    shell.start("add", "n=1")
    elsewhere = f"sqlite:///{tmp_path / 'none.db'}"
    assert offered("--database", elsewhere, "run", "show", "") == []
    assert not (tmp_path / "none.db").exists(), "completing creates nothing"


@pytest.mark.parametrize("broken", ["1 / 0\n", "def f(:\n", "print('hello')\n"])
def test_a_broken_project_offers_nothing_and_prints_nothing(
    shell: Shell, broken: str, capfd: pytest.CaptureFixture[str]
) -> None:
    (shell.folder / "jobs.py").write_text(broken)
    assert offered("run", "start", "") == []
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
def test_a_real_bash_completes(shell: Shell) -> None:
    run_id = shell.start("add", "n=1")
    script = """
    eval "$(_ROTA_COMPLETE=bash_source rota)"
    for words in "rota " "rota run " "rota run show "; do
        read -ra COMP_WORDS <<< "$words"; COMP_WORDS+=("")
        COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); COMPREPLY=()
        _rota_completion rota
        echo "${COMPREPLY[@]}"
    done
    """
    folder = Path(sys.executable).parent
    environ = {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, env=environ, cwd=shell.folder
    )
    assert done.stderr == ""
    commands, verbs, ids = done.stdout.splitlines()
    assert "schedule" in commands.split()
    assert {"start", "list", "show"} <= set(verbs.split())
    assert ids.split() == [run_id[-8:]]
