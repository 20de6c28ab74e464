"""Schedulers killed at work; `python -m tests.crash.schedulers` is the full form."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.crash.schedulers import load

SCHEDULES = int(os.environ.get("ROTA_TEST_SCHEDULES", "30"))
SECONDS = int(os.environ.get("ROTA_TEST_SCHEDULE_SECONDS", "8"))


@pytest.mark.timeout(600)
async def test_killed_schedulers_fire_every_occurrence_exactly_once(
    database_url: str, tmp_path: Path
) -> None:
    summary = await load(
        database_url, tmp_path, schedules=SCHEDULES, seconds=SECONDS, every_s=1.5, seed=7
    )

    assert summary.good, summary.text()
    assert summary.kills > 2, "nobody was killed: that proves nothing"
