"""The page about cron says what the code does."""

from __future__ import annotations

import re

import pytest

from rota.core.time.cron import ALIASES, read_cron
from rota.core.time.phrases import understand
from tests.tidy.tree import ROOT

PAGE = (ROOT / "docs" / "reference" / "cron.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| ([^`|]+?) \| `(.+)` \|$", PAGE.partition("## Words")[2], re.MULTILINE)


@pytest.mark.parametrize(("words", "cron"), ROWS)
def test_the_words_on_the_page_become_what_it_says(words: str, cron: str) -> None:
    assert understand(words) == tuple(cron.split("`, `"))


def test_the_page_has_its_tables() -> None:
    assert len(ROWS) > 8
    for alias, cron in ALIASES.items():
        assert re.search(rf"`{alias}`.*\| `{re.escape(cron)}` \|", PAGE), alias


@pytest.mark.parametrize("cron", re.findall(r"`((?:[\d*/,LW-]+ ){4}[\dA-Z*#-]+)`", PAGE))
def test_every_expression_on_the_page_is_read(cron: str) -> None:
    assert read_cron(cron).text == cron
