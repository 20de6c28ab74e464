"""Near names for hints: those that may have been meant, and no others."""

from __future__ import annotations

import pytest

from rota.core.suggest import close_names, suggestion

KNOWN = ["daily9", "bfill", "hourly", "report-of-the-northern-region", "nightly", "nightly2"]


@pytest.mark.parametrize(
    ("asked", "near"),
    [
        ("daily", ["daily9"]),
        ("bfil", ["bfill"]),
        ("Nightly", ["nightly", "nightly2"]),
        ("nightyl", ["nightly", "nightly2"]),
        ("report", ["report-of-the-northern-region"]),
        ("nightly-eu", ["nightly", "nightly2"]),
        ("dfill", ["bfill"]),
        ("x", []),
        ("", []),
        ("something else", []),
    ],
)
def test_only_names_that_may_be_meant_are_suggested(asked: str, near: list[str]) -> None:
    assert close_names(asked, KNOWN) == near


def test_a_hint_falls_back_to_what_the_caller_says() -> None:
    assert suggestion("bfil", KNOWN, "It has more.") == "Did you mean bfill?"
    assert suggestion("zzz", KNOWN, "It has more.") == "It has more."
    assert suggestion("zzz", [], None) is None
