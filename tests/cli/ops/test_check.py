"""`rota check`: files, folders and projects; text, JSON and exit codes."""

from __future__ import annotations

import pytest

from tests.cli.kit import Shell
from tests.cli.kit.terminal import on_terminal
from tests.tidy.tree import ROOT

BAD = """
import random
from rota import Rota

app = Rota()
raise SystemExit("the check imports nothing")

@app.workflow
async def fulfil():
    return random.random()
"""
SENTENCE = "fulfil  random.random() differs at a replay: write rota.random()"


@pytest.fixture
def bad(shell: Shell) -> Shell:
    """A project with a finding in its code."""
    (shell.folder / "shop.py").write_text(BAD)
    return shell


def test_a_project_is_checked_with_all_its_files(bad: Shell) -> None:
    said = bad.run("check", code=1).stdout
    assert f"shop.py:10  {SENTENCE}\n" in said
    assert "stuck  time.sleep(…) is not durable: write rota.blocking.sleep(…)\n" in said
    assert said.endswith("9 workflows read, 2 findings\n")
    assert bad.run("check", ".", code=1).stdout == said
    assert bad.run("check", "rota.toml", code=1).stdout == said
    assert not (bad.folder / "jobs.db").exists()


@pytest.mark.parametrize("target", ["shop.py", "shop.py:app", "shop:app"])
def test_a_file_or_an_app_is_checked_alone(
    bad: Shell, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = f"shop.py:10  {SENTENCE}\n1 workflow read, 1 finding\n"
    assert bad.run("check", target, code=1).stdout == expected
    assert bad.run("check", "--project", target, code=1).stdout == expected
    monkeypatch.setenv("ROTA_PROJECT", target)
    assert bad.run("check", code=1).stdout == expected


def test_an_app_in_a_package_is_checked_with_the_package(bad: Shell) -> None:
    package = bad.folder / "store"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (bad.folder / "shop.py").rename(package / "flows.py")
    said = bad.run("check", "store.main:app", code=1).stdout
    assert said.startswith("store/flows.py:10  fulfil")


def test_code_outside_of_the_folder_of_the_project_is_checked_too(bad: Shell) -> None:
    inner = bad.folder / "deploy"
    inner.mkdir()
    (inner / "rota.toml").write_text('[project]\napp = "../shop.py:app"\n')
    said = bad.run("check", "--project", "deploy", code=1).stdout
    assert said.startswith("shop.py:10  fulfil")
    assert bad.run("check", "deploy", code=1).stdout == said


def test_files_are_read_once_and_environments_never(bad: Shell) -> None:
    (bad.folder / "jobs.py").unlink()
    for name in (".hidden", "venv", "node_modules", "deep/site-packages"):
        (bad.folder / name).mkdir(parents=True)
        (bad.folder / name / "x.py").write_text(BAD)
    (bad.folder / "venv/pyvenv.cfg").write_text("")
    (bad.folder / "shop.txt").write_text(BAD)
    said = bad.run("check", ".", "shop.py", "./shop.py", code=1).stdout
    assert said == f"shop.py:10  {SENTENCE}\n1 workflow read, 1 finding\n"
    assert "1 finding" in bad.run("check", "venv", code=1).stdout, "named, so it is read"


def test_nothing_found_is_success(bad: Shell) -> None:
    text = BAD.replace("random.random()\n", "random.random()  # rota: ok a game\n")
    (bad.folder / "shop.py").write_text(text)
    assert bad.run("check", "shop.py").stdout == "1 workflow read, nothing found (1 silenced)\n"
    (bad.folder / "shop.py").write_text("")
    assert bad.run("check", "shop.py").stdout == "0 workflows read, nothing found\n"


def test_a_workflow_from_elsewhere_is_reported_as_not_read(bad: Shell) -> None:
    (bad.folder / "shop.py").write_text("from other import fulfil\napp.workflow(fulfil)\n")
    said = bad.run("check", "shop.py").stdout
    assert said.startswith("shop.py:2  fulfil is not read: it is not a function of this file\n")


def test_json_has_every_finding(bad: Shell) -> None:
    (bad.folder / "more.py").write_text("app.workflow(other)\n")
    answer = bad.json("check", "shop.py", "more.py", code=1)
    assert answer == {
        "workflows": 1,
        "findings": [
            {
                "file": "shop.py", "line": 10, "column": 12, "workflows": ["fulfil"],
                "function": "fulfil", "found": "random.random()",
                "problem": "differs at a replay", "advice": "write rota.random()",
            }
        ],
        "silenced": 0,
        "not_read": [{"file": "more.py", "line": 1, "name": "other"}],
        "errors": [],
    }  # fmt: skip


def test_files_that_cannot_be_read_are_an_error_after_the_findings(bad: Shell) -> None:
    (bad.folder / "jobs.py").write_text("def f(:\n")
    (bad.folder / "latin.py").write_bytes(b"# one\nx = '\xe4'\n")
    (bad.folder / "locked.py").symlink_to("locked.py")
    result = bad.run("check", ".", code=2)
    assert result.stdout == f"shop.py:10  {SENTENCE}\n1 workflow read, 1 finding\n"
    assert "Error: jobs.py:1 cannot be read: invalid syntax.\n" in result.stderr
    assert "\nlatin.py cannot be read: invalid or missing encoding" in result.stderr
    assert "Hint: Correct the file, or name the files" in result.stderr
    answer = bad.json("check", ".", code=2)
    assert len(answer["errors"]) == 2
    assert len(answer["findings"]) == 1


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("nosuch.py", "there is no nosuch.py"),
        ("nosuch", "there is no module nosuch"),
        ("nosuch.main:app", "there is no module nosuch.main"),
        ("a/nosuch", "there is no module a/nosuch"),
    ],
)
def test_a_target_that_does_not_exist_is_an_error(shell: Shell, target: str, says: str) -> None:
    assert says in shell.error("check", target, code=2)


def test_without_a_project_the_ways_to_name_code_are_reported(shell: Shell) -> None:
    (shell.folder / "rota.toml").unlink()
    said = shell.error("check", code=2)
    assert "no project is known" in said
    assert "rota check src" in said


def test_the_lines_fit_a_terminal(bad: Shell) -> None:
    text = BAD.replace("random.random()", "random.choice([1, 2])").replace("fulfil", "f" * 40)
    (bad.folder / "shop.py").write_text(text)
    lines = on_terminal(bad.folder, "check", "shop.py", columns=80).splitlines()
    assert len(lines) == 3
    assert all(len(line) <= 80 for line in lines)


def test_names_with_control_characters_do_not_reach_the_terminal(bad: Shell) -> None:
    (bad.folder / "a\x1b[31m.py").write_text(BAD)
    assert "\x1b" not in bad.run("check", ".", code=1).stdout


def test_nothing_is_found_in_the_examples(shell: Shell) -> None:
    said = shell.run("check", str(ROOT / "examples")).stdout
    assert said == "3 workflows read, nothing found\n"


def test_an_empty_folder_has_no_workflows(bad: Shell) -> None:
    (bad.folder / "empty").mkdir()
    assert bad.run("check", "empty").stdout == "0 workflows read, nothing found\n"
