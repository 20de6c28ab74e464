"""Each rule, over every Python file of the repository."""

from __future__ import annotations

import pytest

from tests.tidy.rules import RULES, length
from tests.tidy.tree import modules

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
