"""The reference pages are those of the commands and settings of today."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from rota.cli.main import cli
from rota.cli.reference import PAGES
from tests.tidy.tree import ROOT


@pytest.mark.parametrize("name", PAGES)
def test_the_page_is_up_to_date(name: str) -> None:
    page = (ROOT / "docs" / "reference" / name).read_text(encoding="utf-8")
    assert page == PAGES[name](), f"{name} is behind: run `make docs`"


def test_every_command_is_there_with_its_options() -> None:
    page = PAGES["cli.md"]()
    for command in (
        "up",
        "run start",
        "run fork",
        "pipeline schedule start",
        "queue pause",
        "migrate",
        "doctor",
    ):
        assert f"## `rota {command}`" in page
    assert "| `--external-id ID` |" in page


def test_scheduler_is_an_alias_of_pipeline_schedule() -> None:
    said = [
        CliRunner().invoke(cli, [*words, "trigger", "--help"]).stdout.partition("\n")[2]
        for words in (["scheduler"], ["pipeline", "schedule"])
    ]
    assert said[0] == said[1] != ""
    assert "## `rota scheduler" not in PAGES["cli.md"]()
