"""The schedule block becomes what the scheduler takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rota.core.schedules.intent import Intent, Missed, Overlap
from rota.core.time.instants import MINUTE, SECOND, iso
from rota.core.time.recurrence import next_after
from rota.pipelines.definition.loader import read_pipeline
from rota.pipelines.definition.schedule_block import Timed
from tests.pipelines.kit import NOW, load, problem_lines, write


def timed(folder: Path, **keys: Any) -> Timed:
    lines = "".join(f"  {key}: {value}\n" for key, value in keys.items())
    loaded = load(folder / "p", f"name: n\nschedule:\n{lines}job: {{prompt: x}}\n")
    assert loaded.schedule is not None
    return loaded.schedule


def intent(folder: Path, **keys: Any) -> Intent:
    return timed(folder, **keys).intent


@pytest.mark.parametrize(
    ("cron", "following"),
    [
        ('"0 9 * * 1-5"', "2026-01-26T09:00:00.000Z"),
        ('"30 0 9 * * *"', "2026-01-26T09:00:30.000Z"),  # six fields: seconds first
        ('"@hourly"', "2026-01-26T05:00:00.000Z"),
        ("15m", "2026-01-26T04:15:00.000Z"),
        ("every friday at 5pm", "2026-01-30T17:00:00.000Z"),
        ('"0 0 * * 7"', "2026-02-01T00:00:00.000Z"),
    ],
)
def test_every_way_to_say_when(tmp_path: Path, cron: str, following: str) -> None:
    at = next_after(intent(tmp_path, cron=cron).spec, NOW)
    assert at is not None
    assert iso(at) == following


def test_all_policies(tmp_path: Path) -> None:
    made = intent(
        tmp_path, cron='"@daily"', overlap="cancel-running", missedExecution="all", jitter="90s",
        maxRuns=5, pauseAfterFailures=2, window="{maxDelayMinutes: 0.5}",
        start="2026-02-01", end="2026-03-01T12:00:00+01:00", timezone="Europe/Berlin",
    )  # fmt: skip
    policies = made.policies
    assert policies.overlap is Overlap.CANCEL
    assert policies.missed is Missed.ALL
    assert policies.jitter_us == 90 * SECOND
    assert (policies.runs_max, policies.failures_max) == (5, 2)
    assert policies.delay_us_max == MINUTE // 2
    assert made.spec.start_at is not None
    assert iso(made.spec.start_at) == "2026-01-31T23:00:00.000Z"  # midnight in Berlin
    assert made.spec.end_at is not None
    assert iso(made.spec.end_at) == "2026-03-01T11:00:00.000Z"
    assert made.workflow == "pipeline:p"


def test_enabled_and_paused(tmp_path: Path) -> None:
    assert timed(tmp_path, cron='"@daily"')[1:] == (True, False)
    assert timed(tmp_path, cron='"@daily"', enabled="false")[1:] == (False, False)
    assert timed(tmp_path, cron='"@daily"', startPaused="true")[1:] == (True, True)


def test_a_file_means_the_same_whenever_it_is_read(tmp_path: Path) -> None:
    folder = write(tmp_path / "p", "name: n\nschedule: {cron: 7m}\njob: {prompt: x}\n")
    one = read_pipeline(folder, now=NOW, host_zone="UTC").schedule
    assert one == read_pipeline(folder, now=NOW + 999 * SECOND, host_zone="UTC").schedule


def test_no_retries_is_one_attempt(tmp_path: Path) -> None:
    retry = intent(tmp_path, cron='"@daily"', retryPolicy="{maxRetries: 0}").policies.retry
    assert retry is not None
    assert retry.attempts == 1


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("missedExecution: sometimes", 'schedule.missedExecution: "sometimes" is not one of'),
        ("retryPolicy: {maxRetries: -1}", "schedule.retryPolicy.maxRetries must be a whole number"),
        (
            "window: {maxDelay: 3}",
            'schedule.window: unknown key "maxDelay"; did you mean "maxDelay',
        ),
        ("window: {maxDelayMinutes: 0}", "4:29 schedule.window.maxDelayMinutes: with 0 no"),
        ("window: {maxDelayMinutes: 0.01}", "with 0.01 no execution would run; give at least"),
        ("condition: {}", "schedule.condition asks for nothing"),
        ("notify: {onFailure: x}", 'unknown key "onFailure"; did you mean "on_failure"?'),
        ("end: 2020-01-01", "warning 2:1 the schedule is over: no occurrence is left"),
        ("timezone: Mars/Olympus", "unknown time zone 'Mars/Olympus'"),
        ('timezone: ""', "unknown time zone ''"),
    ],
)
def test_what_is_wrong_with_a_block(tmp_path: Path, line: str, said: str) -> None:
    [problem] = problem_lines(
        tmp_path / "p", f"name: n\nschedule:\n  cron: '@daily'\n  {line}\njob: {{prompt: x}}\n"
    )
    assert said in problem


def test_after_condition_and_notify_are_kept(tmp_path: Path) -> None:
    text = """
    name: n
    schedule:
      cron: "@daily"
      after: [fetch, clean]
      condition: {file_exists: [in/a.csv], command: "test -e b"}
      notify:
        on_failure: https://example.com/hook
        on_recovery: [{webhook: https://example.com/x, secretEnv: KEY}, {command: "cat"}]
        ping: https://example.com/ping
    job: {prompt: x}
    """
    block = load(tmp_path / "p", text).pipeline.schedule
    assert block is not None
    assert block.after_ids == ["fetch", "clean"]
    assert block.condition is not None
    assert block.condition.file_exists == ["in/a.csv"]
    assert block.notify is not None
    assert block.notify.on_failure == "https://example.com/hook"
