"""Worker processes killed under load; `python -m tests.crash.load` is the full form."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.crash.load import load

RUNS = int(os.environ.get("ROTA_TEST_LOAD_RUNS", "1500"))
EVERY_S = float(os.environ.get("ROTA_TEST_LOAD_EVERY_S", "0.2"))


@pytest.mark.timeout(600)
async def test_killed_workers_lose_no_run_and_double_no_recorded_step(
    database_url: str, tmp_path: Path
) -> None:
    summary = await load(
        database_url, tmp_path, runs=RUNS, workers=4, every_s=EVERY_S, seed=7, timeout_s=500
    )

    assert summary.good, summary.text()
    assert summary.kills > 0, "too quick to prove anything: start more runs"
