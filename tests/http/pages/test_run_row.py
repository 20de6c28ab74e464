"""The row of a run in a list."""

from __future__ import annotations

import pytest

from rota.core.runs.model import Run
from rota.http.pages.run_row import run_row
from rota.http.pages.text import WallClock


@pytest.mark.parametrize(
    ("status", "reason", "mark"),
    [
        ("failed", "logic", "bad"),
        ("crashed", None, "bad"),
        ("waiting", "approval", "warn"),
        ("completed", "partial", "warn"),
        ("completed", None, ""),
        ("skipped", "missed", "bad"),
        ("cancelled", None, ""),
    ],
)
def test_the_edge_of_a_row_has_the_tone_of_its_state(
    status: str, reason: str | None, mark: str
) -> None:
    blank: dict[str, object] = dict.fromkeys(Run.__struct_fields__)
    given = {"id": "r", "name": "n", "created_at": 0, "attempt": 1, "trigger": "manual"}
    run = Run(**blank | given | {"status": status, "reason": reason})  # type: ignore[arg-type]
    assert run_row(run, WallClock("UTC", 0)).mark == mark
