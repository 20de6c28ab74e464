"""The reference pages agree with the code they are made from."""

from __future__ import annotations

import pytest

from rota.core.runs.failures import TABLE
from rota.core.runs.lifecycle import RULES, Status, diagram
from scripts.reference import FOLDER, PAGES


@pytest.mark.parametrize("name", ["lifecycle", "errors"])  # the others are tested with the CLI
def test_the_page_is_current(name: str) -> None:
    written = (FOLDER / f"{name}.md").read_text(encoding="utf-8")
    assert written == PAGES[name](), "run `make docs`"


def test_the_page_about_the_life_of_a_run_holds_the_whole_table() -> None:
    page = PAGES["lifecycle"]()
    assert diagram() in page
    for word in (*Status, *RULES, *TABLE):
        assert f"| `{word}` |" in page, word
