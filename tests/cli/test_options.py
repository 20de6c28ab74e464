"""The options of every command: before and after its name, and by environment."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from rota.cli.main import cli
from tests.cli.kit import Shell


@pytest.fixture
def outside(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """A project with one run, and a person who is somewhere else."""
    shell.start("add", "n=1")
    monkeypatch.chdir(tmp_path)
    return shell


def test_a_project_may_be_named_before_and_after_the_command(outside: Shell) -> None:
    for words in (
        ["--project", "project", "run", "list"],
        ["run", "--project", "project", "list"],
        ["run", "list", "--project", "project"],
        ["run", "list", "--project", "project/rota.toml"],
    ):
        assert len(outside.json(*words)) == 1


def test_the_environment_names_a_project_or_a_database(
    outside: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROTA_PROJECT", "project")
    assert len(outside.json("run", "list")) == 1
    monkeypatch.delenv("ROTA_PROJECT")
    monkeypatch.setenv("ROTA_DATABASE", "sqlite:///project/jobs.db")
    assert len(outside.json("run", "list")) == 1


def test_the_innermost_option_wins(outside: Shell) -> None:
    good, bad = "sqlite:///project/jobs.db", "sqlite:///other.db"
    assert len(outside.json("--database", bad, "run", "list", "--database", good)) == 1


def test_namespaces_do_not_see_each_other(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    run_id = shell.start("add", "n=1", "--namespace", "ann")
    assert shell.json("run", "list") == []
    assert len(shell.json("--namespace", "ann", "run", "list")) == 1
    assert "in namespace 'default'" in shell.error("run", "show", run_id, code=4)
    monkeypatch.setenv("ROTA_NAMESPACE", "ann")
    assert len(shell.json("run", "list")) == 1


def test_json_may_stand_anywhere(shell: Shell) -> None:
    shell.run("migrate")
    for words in (["--json", "run", "list"], ["run", "--json", "list"], ["run", "list", "--json"]):
        assert json.loads(shell.run(*words).stdout) == []


def test_looking_needs_no_code(shell: Shell) -> None:
    shell.start("add", "n=1")
    (shell.folder / "jobs.py").write_text("1 / 0\n")
    for words in (["run", "list"], ["worker", "list"], ["queue", "list"], ["doctor"], ["migrate"]):
        shell.run(*words)


def test_a_bad_setting_names_its_key(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    shell.run("migrate")
    monkeypatch.setenv("ROTA_SLOTS", "many")
    assert "ROTA_SLOTS='many': expected int" in shell.error("run", "list", code=2)
    said = shell.error("--project", "jobs.py", "up", code=2)
    assert "ROTA_SLOTS='many'" in said
    assert "jobs.py" not in said, "the module is not what is wrong"


@pytest.mark.parametrize("words", [[], ["run"], ["queue"]])
def test_without_a_command_the_help_page_is_shown(words: list[str]) -> None:
    result = CliRunner().invoke(cli, words)
    assert result.exit_code == 2
    assert result.stdout.startswith("Usage: rota")
    assert "Options of every command:" in result.stdout


def test_the_version_is_reported() -> None:
    assert CliRunner().invoke(cli, ["--version"]).stdout == "rota 0.1.0\n"


def test_migrate_says_what_it_did(either: Shell) -> None:
    assert either.json("migrate")["applied"] == []
    assert either.run("migrate").stdout.endswith(": up to date\n")


def test_a_first_migration_is_named(shell: Shell) -> None:
    assert shell.json("migrate")["applied"][0].startswith("0001_")


def test_a_missing_driver_is_named_with_its_extra(shell: Shell) -> None:
    code = (
        "import sys; sys.modules['asyncpg'] = None\n"
        "from rota.cli.main import cli\n"
        "cli(['run', 'list', '--database', 'postgresql://h/db'])"
    )
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert child.returncode == 3
    assert "PostgreSQL needs the asyncpg package" in child.stderr
    assert "pip install 'rota[postgres]'" in child.stderr
