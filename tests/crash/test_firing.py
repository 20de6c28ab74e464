"""Firing, pausing, resuming, editing, deleting, backfilling: killed at every commit.

Whole or not at all, one run per occurrence, no gap in any ledger. Once it is repeated, the end is
the one of a life without kills.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from tests.crash.kit import MakeDatabase
from tests.crash.kit.schedule_life import SPARED, VERBS
from tests.kit.children import Child

POINTS_MAX = 30


@pytest.mark.timeout(600)
@pytest.mark.parametrize("verb", ["fire", *VERBS])
def test_a_kill_at_any_commit_leaves_one_outcome_for_every_occurrence(
    make_database: MakeDatabase, tmp_path: Path, verb: str
) -> None:
    def live(*extra: object) -> int:
        arguments = ("--verb", verb, "--report", tmp_path / "report.json", *extra, make_database())
        child = Child("tests.crash.kit.schedule_life", *arguments, log=tmp_path / "log")
        code = child.wait()
        assert code in (0, SPARED), child.tail()
        return code

    live()
    for nth in itertools.count(1):
        assert nth <= POINTS_MAX, "still killed"
        if live("--kill-at", nth) == SPARED:
            break
    # One commit at least, with a point before and one after.
    assert nth > 2
