"""Each rule, over every Python file of the repository."""

from __future__ import annotations

import re

import pytest

from tests.tidy.rules import PROTOCOLS, RETIRED_NAMES, RULES, length
from tests.tidy.tree import ROOT, modules

SHORT_LINES = 40


@pytest.mark.parametrize("name", RULES)
def test_the_source_keeps(name: str) -> None:
    rule = RULES[name]
    complaints = [complaint for module in modules() for complaint in rule(module)]
    assert not complaints, f"{rule.__doc__}\n" + "\n".join(complaints)


def test_nineteen_functions_in_twenty_are_short() -> None:
    lengths = [length(f) for m in modules() if m.path.startswith("src/") for f in m.functions]
    assert lengths, "no source found: the rules look at the wrong place"
    short = sum(lines <= SHORT_LINES for lines in lengths)
    assert short / len(lengths) >= 0.95, f"only {short} of {len(lengths)} functions are short"


def test_every_listed_protocol_exists() -> None:
    named = {f"class {name}(" for name in PROTOCOLS}
    missing = {one for one in named if not any(one in module.text for module in modules())}
    assert missing == set()


QUERY = re.compile(r"^-- name: (\w+)", re.MULTILINE)
# Invariants that `rota doctor` prints by name: they are about the stored reason `turn`.
QUERIES_ALLOWED = {"broken_turn", "broken_automation_turn"}


def retired_queries(text: str) -> list[str]:
    names = set(QUERY.findall(text)) - QUERIES_ALLOWED
    return sorted(name for name in names if RETIRED_NAMES.intersection(name.split("_")))


def test_queries_and_loggers_have_names_of_the_field() -> None:
    files = sorted((ROOT / "src/rota/store/sql").rglob("*.sql"))
    assert len(files) > 20
    assert {
        str(file): found for file in files if (found := retired_queries(file.read_text()))
    } == {}
    loggers = [re.findall(r'getLogger\("([\w.]+)"\)', module.text) for module in modules()]
    assert not [name for names in loggers for name in names if RETIRED_NAMES & {*name.split(".")}]


def test_a_planted_query_is_found() -> None:
    assert retired_queries("-- name: insert_turns\nselect 1\n\n-- name: returned\nselect 1\n") == [
        "insert_turns"
    ]
