"""Firing, pausing, resuming, editing, deleting, backfilling: killed at every commit.

Whole or not at all, one run per occurrence, no gap in any ledger. Once it is repeated, the end is
the one of a life without kills.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.kit import (
    MakeDatabase,
)
from tests.crash.kit.schedule_life import VERBS
from tests.kit import Child

# More than the points of a verb: a life that is still killed in the last one fails the test.
DATABASES, DATABASES_TO_FIRE = 15, 30


@pytest.mark.timeout(600)
@pytest.mark.parametrize("verb", ["fire", *VERBS])
def test_a_kill_at_any_commit_leaves_one_outcome_for_every_occurrence(
    make_database: MakeDatabase, tmp_path: Path, verb: str
) -> None:
    count = DATABASES_TO_FIRE if verb == "fire" else DATABASES
    urls = [make_database() for _ in range(count)]
    child = Child(
        "tests.crash.kit.schedule_life", "--verb", verb, "--folder", tmp_path, *urls,
        log=tmp_path / "log",
    )  # fmt: skip
    assert child.wait(500) == 0, child.tail()
    # One commit at least, with a point before and one after.
    assert int(child.tail(1)) >= 2
