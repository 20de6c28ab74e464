"""The pipelines that the format was promised with load as they are written."""

from __future__ import annotations

from pathlib import Path

import pytest

from rota.core.schedules.intent import Missed, Overlap
from tests.pipelines.kit import load

DAILY = """
name: "Daily Bug Report"
schedule:
  cron: "0 9 * * *"
  timezone: "America/New_York"

input:
  from: { type: csv, path: "bugs.csv" }
map:
  prompt: "Categorize: {{title}}"
  output: [severity, category]
reduce:
  type: json
"""

WEEKLY = """
name: "Weekly Data Sync"
schedule:
  cron: "0 0 * * 0"
  retryPolicy:
    maxRetries: 5
    retryDelayMs: 300000  # 5 minutes

input:
  from: { type: csv, path: "sync-targets.csv" }
map:
  prompt: "Sync {{endpoint}}"
  output: [status, records_synced]
reduce:
  type: table
"""

QUEUES = """
name: "Queue Monitor"
schedule:
  cron: "*/15 9-17 * * 1-5"  # Every 15 min, 9-5, Mon-Fri
  timezone: "America/Los_Angeles"
  missedExecution: "skip"  # Don't catch up on missed checks

input:
  items:
    - queue: "high-priority"
    - queue: "standard"
map:
  prompt: "Check queue {{queue}} depth"
  output: [depth, oldest_message_age]
reduce:
  type: json
"""

FULL = """
name: "Daily Bug Report"
description: "Generate daily bug triage report"

# New: Schedule configuration
schedule:
  cron: "0 9 * * 1-5"           # 9 AM on weekdays
  timezone: "America/New_York"   # IANA timezone (optional, defaults to system)
  enabled: true                  # Can disable without removing config

  # Error handling
  retryPolicy:
    maxRetries: 3                # Retry failed executions (default: 3)
    retryDelayMs: 60000          # Delay between retries (default: 1 min)

  # Missed execution handling
  missedExecution: "run"         # "run" | "skip" (default: "run")

  # Execution window (optional)
  window:
    maxDelayMinutes: 30          # Skip if more than 30 min late

# Existing pipeline config
input:
  from:
    type: csv
    path: "bugs.csv"

map:
  prompt: "Analyze bug: {{title}}"
  output: [severity, category]

reduce:
  type: json
"""

LATER = """
name: Later
schedule:
  cron: "0 9 * * *"
  after: "data-fetch"  # Wait for data-fetch to complete first
  condition:
    file_exists: "input/data.csv"
  notify:
    on_failure: "https://hooks.example.com/services/1"
input: { items: [{ a: 1 }] }
map: { prompt: "{{a}}" }
reduce: { type: text }
"""


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
