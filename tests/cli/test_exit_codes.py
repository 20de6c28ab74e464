"""How commands end when something is wrong: sentence, hint, exit code, no secrets."""

from __future__ import annotations

import json
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from rota.cli import exit_codes
from rota.cli.base import Root
from rota.cli.main import cli
from rota.errors import RotaError
from tests.cli.kit import Shell


def test_every_exit_code_of_an_error_has_a_meaning() -> None:
    assert set(exit_codes.EXITS.values()) < set(exit_codes.MEANINGS)


def test_the_help_page_lists_the_exit_codes() -> None:
    page = CliRunner().invoke(cli, ["--help"]).stdout
    for code, meaning in exit_codes.MEANINGS.items():
        assert f"{code:<5}{meaning}" in page


def test_a_path_that_the_system_refuses_is_an_error_of_its_own(shell: Shell) -> None:
    text = shell.error("pipeline", "run", "a" * 300, code=2)
    assert "cannot be used: File name too long" in text
    assert "Hint: Check the path." in text


@pytest.mark.parametrize(
    ("words", "says", "hint"),
    [
        (["rnu"], "there is no command 'rnu'", "Did you mean run?"),
        (["run", "lits"], "there is no command 'lits'", "Did you mean list?"),
        (["worker", "xyz"], "there is no command 'xyz'", "Did you mean list?"),
        (["xyz"], "there is no command 'xyz'", "See `rota --help`."),
        (["run", "list", "--jsno"], "no such option", "Did you mean --json?"),
        (["run", "list", "--limit", "0"], "invalid value for '--limit'", "See `rota run list"),
        (["run", "show"], "missing argument 'ID'", "See `rota run show --help`."),
        (["run", "list", "--status", "gone"], "'gone' is not one of", "See `rota run list"),
    ],
)  # fmt: skip
def test_bad_usage_says_what_was_meant(
    shell: Shell, words: list[str], says: str, hint: str
) -> None:
    said = shell.error(*words, code=2)
    assert says in said
    assert f"Hint: {hint}" in said


def test_with_json_an_error_is_a_document_too(shell: Shell) -> None:
    shell.run("migrate")
    result = shell.run("run", "show", "nope", "--json", code=4)
    assert result.stdout == ""
    error = json.loads(result.stderr)["error"]
    assert error["code"] == "unknown_run"
    assert set(error) == {"code", "message", "hint"}
    assert json.loads(shell.run("--json", "rnu", code=2).stderr)["error"]["code"] == "usage"


def test_without_a_database_the_ways_to_name_one_are_reported(shell: Shell) -> None:
    (shell.folder / "rota.toml").unlink()
    said = shell.error("run", "list", code=2)
    assert "no database is known" in said
    assert "--database" in said
    assert "ROTA_DATABASE" in said
    assert "rota.toml" in said


def test_debug_adds_the_traceback(shell: Shell) -> None:
    result = CliRunner().invoke(cli, ["run", "list", "--debug"])
    assert result.exit_code == exit_codes.DATABASE
    assert "Traceback (most recent call last)" in result.stderr
    assert "Error: there is no database file" in result.stderr


def test_a_bug_is_a_sentence_as_well() -> None:
    @click.group(cls=Root)
    def root() -> None:
        """Nothing."""

    @root.command()
    def boom() -> None:
        """Nothing."""
        raise ZeroDivisionError("by zero")

    result = CliRunner().invoke(root, ["boom"])
    assert result.exit_code == exit_codes.FAILED
    assert result.stderr.startswith("Error: unexpected ZeroDivisionError: by zero.\nHint: ")


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ann:s3cr3t@127.0.0.1:1/db",
        "postgresql://ann:s3cr3t%21@127.0.0.1:1/db?bad=option",
        "postgresql://ann:s3cr3t@127.0.0.1:notaport/db",
        "postgresql://ann:s3cr3t@[::1/db",
        "mysql://ann:s3cr3t@host/db",
    ],
)
@pytest.mark.parametrize(
    "words", [["run", "list"], ["doctor"], ["migrate"], ["run", "list", "--debug"]]
)
def test_a_password_is_never_printed(shell: Shell, url: str, words: list[str]) -> None:
    for environ, more in (({}, ["--database", url]), ({"ROTA_DATABASE": url}, [])):
        result = CliRunner().invoke(cli, [*words, *more], env=environ)
        assert result.exit_code in (exit_codes.FAILED, exit_codes.DATABASE)
        assert "s3cr3t" not in result.output
        assert "s3cr3t" not in result.stderr


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("where", ["message", "hint", "trace"])
@pytest.mark.parametrize("form", ["p%40ss/w", "p@ss/w", "p%40ss%2Fw"])
@pytest.mark.parametrize("url", ["p%40ss%2Fw", "p%40ss/w"])
def test_a_password_in_message_hint_or_traceback_is_hidden_in_every_form(
    url: str, form: str, where: str, as_json: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """The URL has it quoted; the message has the text itself, or quoted in another way."""
    error = RotaError(
        f"cannot reach {form}" if where == "message" else "cannot reach it",
        hint=f"Try {form}." if where == "hint" else "Try again.",
    )
    if where == "trace":
        error.__cause__ = OSError(f"refused {form}")
    exit_codes.report(error, as_json=as_json, debug=True, url=f"postgresql://ann:{url}@host/db")
    said = capsys.readouterr().err
    assert "***" in said
    assert form not in said
    assert "Traceback" in said or "RotaError: cannot reach" in said


def test_help_imports_no_database_driver_and_no_yaml() -> None:
    code = (
        "import sys; from rota.cli.main import cli\n"
        "try: cli(['--help'])\n"
        "except SystemExit: pass\n"
        "sys.exit(sorted({'asyncpg', 'apsw', 'yaml'} & set(sys.modules)) or 0)"
    )
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert child.returncode == 0, child.stderr


def test_a_reader_that_leaves_early_is_no_error(shell: Shell) -> None:
    shell.run("migrate")
    for n in range(30):
        shell.start("add", f"n={n}")
    command = f"{sys.executable} -m rota run list --limit 30 | head -n 1"
    child = subprocess.run(command, shell=True, capture_output=True, text=True, cwd=shell.folder)
    assert child.stdout.startswith("ID ")
    assert "Traceback" not in child.stderr
    assert "Broken" not in child.stderr
