"""Tables of automations and pipelines on a terminal of 80 columns, with long and wide names."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from unicodedata import east_asian_width

import click.testing
import pytest

from tests.cli.kit import Shell
from tests.cli.kit.automation_project import CODE, AutomationShell
from tests.pipelines.kit import write

LONG = "collects-the-orders-of-all-shops-in-every-country"
TITLE = "東京の支店からの注文についてのとても長い題名で、一行には収まらないもの " * 2
COLUMNS = 80


@pytest.fixture(autouse=True)
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands called in this process take their output for a terminal of 80 columns."""
    monkeypatch.setattr(click.testing._NamedTextIOWrapper, "isatty", lambda self: True)
    monkeypatch.setenv("COLUMNS", str(COLUMNS))


def test_tables_of_automations_fit_80_columns(folder: Path) -> None:
    code = CODE.replace('declare("mails", False)', f'declare("{LONG}", False)')
    code = code.replace("Mail about {events[0].id}", TITLE)
    project = AutomationShell(folder, "sqlite:///jobs.db", code)
    project.work()
    for number, how in enumerate(("ok", "lost")):
        event = (LONG, "orders", f"東京-{number}", f'{{"how": "{how}", "note": "{TITLE}"}}')
        project.run("automation", "publish", "--title", TITLE, *event)
        project.work()
    fits(project, ["automation", "list"])
    for verb in VIEWS:
        fits(project, ["automation", verb, LONG])


VIEWS = ("show", "inputs", "outputs", "events", "activity", "versions")


def test_tables_of_pipelines_fit_80_columns(folder: Path) -> None:
    shell = Shell(folder, "sqlite:///jobs.db")
    path = str(pipeline(folder))
    shell.run("pipeline", "run", path)
    [run] = shell.json("pipeline", "history", path)
    for words in (["list", str(folder)], ["show", path], ["history", path]):
        fits(shell, ["pipeline", *words])
    fits(shell, ["pipeline", "history", path, "--run", run["run"]])


def test_tables_of_a_scheduler_fit_80_columns(folder: Path) -> None:
    shell = Shell(folder, "sqlite:///jobs.db")
    name = pipeline(folder).name
    shell.run("scheduler", "trigger", name)
    for words in (["list"], ["upcoming"], ["history", name]):
        fits(shell, ["scheduler", *words])


def pipeline(folder: Path) -> Path:
    """A scheduled pipeline with a long and wide name and wide items."""
    items = [{"word": "東京大学本郷" * 6}, {"word": "short"}]
    text = {
        "name": TITLE.strip(), "settings": {"model": "offline:echo"}, "input": {"items": items},
        "schedule": {"cron": "30 9 * * MON-FRI", "timezone": "America/Argentina/Buenos_Aires"},
        "map": {"prompt": "About {{word}}"}, "reduce": {"type": "list"},
    }  # fmt: skip
    return write(folder / "pipelines" / f"{LONG}-東京の支店からの注文", json.dumps(text))


def fits(shell: Shell, words: Sequence[str]) -> None:
    """Each line of a table takes at most the columns of the terminal."""
    shown = shell.run(*words).stdout
    blocks = [block.splitlines() for block in shown.split("\n\n")]
    tables = [lines[at:] for lines in blocks for at, line in enumerate(lines) if is_head(line)]
    assert tables, shown
    assert max(columns(line) for table in tables for line in table) <= COLUMNS, shown


def is_head(line: str) -> bool:
    """Whether a table begins: names of columns in capitals."""
    return "  " in line and line == line.upper() and not line.startswith(" ")


def columns(line: str) -> int:
    """The columns a line takes: Chinese letters take two."""
    return sum(2 if east_asian_width(letter) in "WF" else 1 for letter in line)
