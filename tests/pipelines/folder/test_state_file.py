"""The state file: its format, what changes it, and what happens when it cannot be read."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from rota.core.time.instants import SECOND, iso
from rota.pipelines.files import free_result_name, prune_results, write_result, write_whole
from rota.pipelines.folder.state_file import (
    STATE_FILE,
    ScheduleState,
    begun,
    ended,
    interrupted,
    load_state,
    planned,
    save_state,
)
from rota.pipelines.run.content_keys import schedule_id
from tests.pipelines.kit import NOW

SEED = {
    "version": 1,
    "scheduleId": "daily-report-a1b2c3",
    "pipelineId": "daily-report",
    "status": "idle",
    "enabled": True,
    "lastRun": {
        "startedAt": "2026-01-26T14:00:00.000Z",
        "completedAt": "2026-01-26T14:02:35.000Z",
        "success": True,
        "resultFile": ".results/2026-01-26T14-00-00.json",
        "itemsProcessed": 42,
        "error": None,
    },
    "nextRun": "2026-01-27T14:00:00.000Z",
    "stats": {
        "totalRuns": 156,
        "successfulRuns": 152,
        "failedRuns": 4,
        "lastFailure": "2026-01-20T14:00:00.000Z",
    },
    "history": [
        {
            "startedAt": "2026-01-26T14:00:00.000Z",
            "completedAt": "2026-01-26T14:02:35.000Z",
            "success": True,
            "duration": 155000,
        }
    ],
}


def found(folder: Path) -> ScheduleState:
    return load_state(folder, schedule_id="p-1", pipeline_id="p").state


def test_the_promised_format_is_read_and_written_unchanged(tmp_path: Path) -> None:
    (tmp_path / STATE_FILE).write_text(json.dumps(SEED))
    loaded = load_state(tmp_path, schedule_id="other", pipeline_id="other")
    assert (loaded.fresh, loaded.warning) == (False, None)
    assert loaded.state.schedule_id == "daily-report-a1b2c3"  # a copied folder keeps its history
    save_state(tmp_path, loaded.state)
    text = (tmp_path / STATE_FILE).read_text()
    assert json.loads(text) == SEED
    assert list(json.loads(text)) == list(SEED)


def test_without_a_file_there_is_a_default_state(tmp_path: Path) -> None:
    loaded = load_state(tmp_path, schedule_id="p-1", pipeline_id="p")
    assert (loaded.fresh, loaded.warning) == (True, None)
    save_state(tmp_path, loaded.state)
    assert json.loads((tmp_path / STATE_FILE).read_text()) == {
        "version": 1, "scheduleId": "p-1", "pipelineId": "p", "status": "idle", "enabled": True,
        "lastRun": None, "nextRun": None, "history": [],
        "stats": {"totalRuns": 0, "successfulRuns": 0, "failedRuns": 0, "lastFailure": None},
    }  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", "null", '{"version": 1}', "\xff", json.dumps(SEED | {"version": 2}),
        json.dumps(SEED | {"nextRun": "soon"}), json.dumps(SEED | {"status": "asleep"}),
        json.dumps(SEED | {"nextRun": "2026-01-27T14:00:00"}),
    ],
)  # fmt: skip
def test_a_state_that_cannot_be_read_is_quarantined_and_made_again(
    tmp_path: Path, text: str
) -> None:
    (tmp_path / STATE_FILE).write_bytes(text.encode("latin-1"))
    loaded = load_state(tmp_path, schedule_id="p-1", pipeline_id="p")
    assert loaded.fresh
    assert loaded.state.stats.total_runs == 0
    assert loaded.warning is not None
    assert loaded.warning.startswith(f"{tmp_path / STATE_FILE} cannot be read (")
    assert "begins again" in loaded.warning
    assert (tmp_path / f"{STATE_FILE}.corrupt").read_bytes() == text.encode("latin-1")
    assert not (tmp_path / STATE_FILE).exists()


def test_the_life_of_an_execution(tmp_path: Path) -> None:
    state = planned(found(tmp_path), NOW)
    running = begun(state, NOW)
    assert running.status == "running"
    assert running.last_run is not None
    assert running.last_run.completed_at is None
    good = ended(
        running, started_at=NOW, completed_at=NOW + 155 * SECOND, items=42,
        result_file=".results/x.json",
    )  # fmt: skip
    assert good.status == "idle"
    assert good.last_run is not None
    assert (good.last_run.duration, good.last_run.items_processed) == (155_000, 42)
    assert good.stats.average_duration == 155_000
    bad = ended(good, started_at=NOW, completed_at=NOW + 45 * SECOND, error="no", retry_attempt=3)
    assert bad.status == "error"
    assert (bad.stats.total_runs, bad.stats.successful_runs, bad.stats.failed_runs) == (2, 1, 1)
    assert bad.stats.last_failure == iso(NOW)
    assert bad.stats.average_duration == 100_000
    assert [run.success for run in bad.history] == [False, True]
    assert bad.next_run is None


def test_the_history_is_bounded_and_the_totals_are_not(tmp_path: Path) -> None:
    state = found(tmp_path)
    for number in range(7):
        at = NOW + number * SECOND
        state = ended(state, started_at=at, completed_at=at + SECOND, history_max=3)
    assert [run.started_at for run in state.history] == [iso(NOW + n * SECOND) for n in (6, 5, 4)]
    assert state.stats.total_runs == 7


def test_a_crash_while_running_is_in_the_history(tmp_path: Path) -> None:
    state = begun(found(tmp_path), NOW)
    after = interrupted(state, NOW + 60 * SECOND)
    assert after.status == "error"
    assert after.history[0].started_at == iso(NOW)
    assert after.history[0].error == "the scheduler stopped while it was running"
    assert interrupted(after, NOW) is after


def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = found(tmp_path)
    save_state(tmp_path, state)
    before = (tmp_path / STATE_FILE).read_text()

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        save_state(tmp_path, planned(state, NOW))
    assert (tmp_path / STATE_FILE).read_text() == before
    assert [path.name for path in tmp_path.iterdir()] == [STATE_FILE]


def test_a_reader_never_sees_half_a_file(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("old")

    def pieces() -> list[str]:
        assert path.read_text() == "old"
        return ["n", "ew"]

    write_whole(path, pieces())
    assert path.read_text() == "new"


def test_result_files_are_named_by_their_time(tmp_path: Path) -> None:
    at = 1_769_436_000_000_000  # 2026-01-26T14:00:00Z
    assert write_result(tmp_path, at, ["{}"]) == ".results/2026-01-26T14-00-00.json"
    assert write_result(tmp_path, at, ["{}"]) == ".results/2026-01-26T14-00-00-2.json"
    assert free_result_name(tmp_path, at) == ".results/2026-01-26T14-00-00-3.json"
    write_result(tmp_path, at + SECOND, ["{}"])
    (tmp_path / ".results" / "mine.json").write_text("not by Rota, so it stays")
    assert prune_results(tmp_path, 2) == [".results/2026-01-26T14-00-00.json"]
    assert prune_results(tmp_path, 0) == [
        ".results/2026-01-26T14-00-00-2.json", ".results/2026-01-26T14-00-01.json",
    ]  # fmt: skip
    assert (tmp_path / ".results" / "mine.json").exists()


def test_a_schedule_is_named_by_its_pipeline_and_its_place(tmp_path: Path) -> None:
    one, two = schedule_id("daily", tmp_path / "a"), schedule_id("daily", tmp_path / "b")
    assert one != two
    assert one.startswith("daily-")
    assert len(one) == len("daily-") + 6
