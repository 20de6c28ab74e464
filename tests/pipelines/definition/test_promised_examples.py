"""The pipelines that the format was promised with load as they are written."""

from __future__ import annotations

from pathlib import Path

import pytest

from rota.core.schedules.intent import Missed, Overlap
from tests.pipelines.kit import load
from tests.pipelines.kit.documents import (
    DAILY,
    FULL,
    LATER,
    QUEUES,
    WEEKLY,
)


@pytest.mark.parametrize("text", [DAILY, WEEKLY, QUEUES, FULL, LATER])
def test_the_example_loads_without_a_word(tmp_path: Path, text: str) -> None:
    loaded = load(tmp_path / "example", text)
    assert loaded.warnings == []
    assert loaded.schedule is not None
    assert loaded.schedule.enabled


def test_the_full_block_means_what_it_says(tmp_path: Path) -> None:
    loaded = load(tmp_path / "daily-report", FULL)
    assert loaded.pipeline_id == "daily-report"
    assert loaded.schedule is not None
    intent = loaded.schedule.intent
    [timing] = intent.spec.timings
    assert (timing.cron, timing.zone) == ("0 9 * * 1-5", "America/New_York")
    assert intent.policies.missed is Missed.RUN
    assert intent.policies.delay_us_max == 30 * 60 * 1_000_000
    retry = intent.policies.retry
    assert retry is not None
    assert (retry.attempts, retry.delay_s) == (4, 60.0)


def test_defaults_are_those_of_the_seed(tmp_path: Path) -> None:
    loaded = load(tmp_path / "daily", DAILY)
    assert loaded.schedule is not None
    policies = loaded.schedule.intent.policies
    assert policies.retry is not None
    assert (policies.retry.attempts, policies.retry.delay_s) == (4, 60.0)
    assert policies.missed is Missed.RUN
    assert policies.overlap is Overlap.QUEUE
    assert policies.delay_us_max is None


def test_a_schedule_without_a_zone_takes_the_machines(tmp_path: Path) -> None:
    loaded = load(tmp_path / "weekly", WEEKLY)
    assert loaded.schedule is not None
    assert loaded.schedule.intent.spec.timings[0].zone == "UTC"


def test_delays_of_retries_double_and_are_not_cut_at_five_minutes(tmp_path: Path) -> None:
    loaded = load(tmp_path / "weekly", WEEKLY)
    assert loaded.schedule is not None
    retry = loaded.schedule.intent.policies.retry
    assert retry is not None
    assert [retry.delay_us(attempt, 0) // 1_000_000 for attempt in (1, 2, 3)] == [300, 600, 1200]


def test_a_skipping_schedule_skips(tmp_path: Path) -> None:
    loaded = load(tmp_path / "queues", QUEUES)
    assert loaded.schedule is not None
    assert loaded.schedule.intent.policies.missed is Missed.SKIP
