"""The reference pages agree with the code they are made from."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from rota.cli.main import cli
from rota.core.runs.failures import TABLE
from rota.core.runs.lifecycle import RULES, Status, diagram
from scripts.reference import FOLDER, PAGES


@pytest.mark.parametrize("name", PAGES)
def test_the_page_is_current(name: str) -> None:
    written = (FOLDER / f"{name}.md").read_text(encoding="utf-8")
    assert written == PAGES[name](), "run `make docs`"


def test_the_page_about_the_life_of_a_run_holds_the_whole_table() -> None:
    page = PAGES["lifecycle"]()
    assert diagram() in page
    for word in (*Status, *RULES, *TABLE):
        assert f"| `{word}` |" in page, word


def test_every_command_is_there_with_its_options() -> None:
    page = PAGES["cli"]()
    commands = ("up", "run start", "run fork", "pipeline schedule start", "queue pause", "doctor")
    for command in commands:
        assert f"## `rota {command}`" in page
    assert "| `--external-id ID` |" in page


def test_scheduler_is_an_alias_of_pipeline_schedule() -> None:
    said = [
        CliRunner().invoke(cli, [*words, "trigger", "--help"]).stdout.partition("\n")[2]
        for words in (["scheduler"], ["pipeline", "schedule"])
    ]
    assert said[0] == said[1] != ""
    assert "## `rota scheduler" not in PAGES["cli"]()
