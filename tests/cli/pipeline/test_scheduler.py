"""`rota scheduler`: every command, while a scheduler runs and while none does."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from rota.cli.main import cli
from tests.cli.kit.pipelines import (
    calls,
    made,
    wait_for,
)
from tests.cli.kit.scheduler_daemon import SchedulerDaemon

pytestmark = pytest.mark.slow

PIPELINE = """
name: Report
schedule:
  cron: "0 9 1 1 *"
  timezone: UTC
settings:
  model: "offline:echo"
input:
  items: [{title: one}, {title: two}]
map:
  prompt: "About {{title}}"
reduce:
  type: list
"""


class SchedulerShell:
    """A folder of pipelines and a person at a prompt in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.write("report", PIPELINE)

    def write(self, name: str, text: str) -> Path:
        """A pipeline."""
        folder = self.folder / "pipelines" / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "pipeline.yaml").write_text(text.lstrip("\n"))
        return folder

    def run(self, *words: str, code: int = 0) -> Result:
        """A command of `rota scheduler` that is expected to end with `code`."""
        result = CliRunner().invoke(cli, ["scheduler", *words])
        said = f"exit {result.exit_code}\n{result.stdout}\n{result.stderr}"
        assert result.exit_code == code, said
        assert "Traceback" not in result.stderr, said
        return result

    def json(self, *words: str) -> Any:
        """Its answer with --json."""
        return json.loads(self.run(*words, "--json").stdout)

    def state(self, name: str = "report") -> dict[str, Any]:
        """The state file of a pipeline."""
        path = self.folder / "pipelines" / name / ".schedule-state.json"
        found: dict[str, Any] = json.loads(path.read_text())
        return found


@pytest.fixture
def shell(folder: Path) -> SchedulerShell:
    """A folder with one scheduled pipeline, that no scheduler has seen yet."""
    return SchedulerShell(folder)


@pytest.fixture
def daemon(folder: Path) -> Iterator[Callable[..., SchedulerDaemon]]:
    """Starts real schedulers, and leaves none behind."""
    started: list[SchedulerDaemon] = []

    def start(*words: str) -> SchedulerDaemon:
        started.append(SchedulerDaemon(folder, *words))
        return started[-1]

    yield start
    for one in started:
        one.end()


# -- while none runs -----------------------------------------------------------------------


def test_looking_creates_nothing(shell: SchedulerShell) -> None:
    before = sorted(shell.folder.rglob("*"))
    [shown] = shell.json("list")
    assert (shown["pipelineId"], shown["state"]["status"]) == ("report", "idle")
    assert shown["state"]["nextRun"].endswith("-01-01T09:00:00.000Z")
    for words in (["list"], ["upcoming"], ["status", "report"], ["history", "report"]):
        shell.run(*words)
    shell.run("status", code=1)
    assert sorted(shell.folder.rglob("*")) == before


def test_the_list_says_when_nobody_executes_it(shell: SchedulerShell) -> None:
    result = shell.run("list")
    assert result.stdout.splitlines()[0].split() == [
        "PIPELINE", "STATUS", "NEXT", "LAST", "RUNS", "CRON",
    ]  # fmt: skip
    assert "no scheduler runs in" in result.stderr
    assert "rota scheduler start" in result.stderr


def test_a_trigger_without_a_scheduler_is_performed_on_the_spot(shell: SchedulerShell) -> None:
    result = shell.run("trigger", "report")
    assert result.stdout.startswith("completed: 2 of 2 items")
    assert "no scheduler runs here" in result.stderr
    state = shell.state()
    assert state["stats"]["totalRuns"] == 1
    assert (shell.folder / "pipelines/report" / state["lastRun"]["resultFile"]).exists()
    [run] = shell.json("history", "report")
    assert (run["success"], run["itemsProcessed"]) == (True, 2)
    answer = shell.json("trigger", "report")
    assert answer["result"]["outcome"] == "completed"
    refused = shell.run("trigger", "report", "--wait", "--timeout", "1s", code=2)
    assert "--timeout bounds the wait for a scheduler, and none runs here" in refused.stderr
    assert shell.state()["stats"]["totalRuns"] == 2


def test_a_trigger_fires_no_other_schedule_that_is_overdue(shell: SchedulerShell) -> None:
    other = shell.write("other", PIPELINE.replace("0 9 1 1 *", "* * * * *"))
    state = {
        "version": 1, "scheduleId": "other-a1b2c3", "pipelineId": "other",
        "nextRun": "2020-01-01T00:00:00.000Z",
    }  # fmt: skip
    (other / ".schedule-state.json").write_text(json.dumps(state))
    shell.run("trigger", "report")
    assert shell.state()["stats"]["totalRuns"] == 1
    assert not (other / ".results").exists()


def test_an_edit_counts_at_once_also_while_nobody_watches(shell: SchedulerShell) -> None:
    shell.run("trigger", "report")
    edited = PIPELINE.replace("About", "Rather about").replace("0 9 1 1 *", "0 9 2 1 *")
    shell.write("report", edited)
    [shown] = shell.json("list")
    assert shown["state"]["nextRun"].endswith("-01-02T09:00:00.000Z")
    assert "Rather about one" in shell.json("trigger", "report")["result"]["output"]
    assert shell.state()["nextRun"].endswith("-01-02T09:00:00.000Z")


def test_a_try_that_fails_is_reported_with_its_error(shell: SchedulerShell) -> None:
    once = "  retryPolicy: {maxRetries: 1, retryDelayMs: 0}\nsettings:"
    text = PIPELINE.replace("settings:", f"{once}\n  retry: {{maxRetries: 0}}")
    shell.write("bad", text.replace("offline:echo", "away:echo"))
    (shell.folder / "ai.yaml").write_text(
        "providers: {away: {kind: openai, base_url: 'http://127.0.0.1:9/v1'}}"
    )
    said = shell.run("trigger", "bad", "--ai", "ai.yaml", code=1).stderr
    [line] = [line for line in said.splitlines() if line.startswith("this attempt failed")]
    assert "127.0.0.1:9" in line


def test_a_trigger_ends_with_the_code_of_its_execution(shell: SchedulerShell) -> None:
    none = "  retryPolicy: {maxRetries: 0}\nsettings:"
    shell.write("bad", PIPELINE.replace("settings:", none).replace("offline:echo", "nobody:echo"))
    result = shell.run("trigger", "bad", code=1)
    assert result.stdout.startswith("failed: 0 of 2 items")
    assert "nobody" in result.stderr
    assert shell.state("bad")["status"] == "error"


def test_history_shows_partial_executions_and_what_started_them(
    shell: SchedulerShell, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(shell.folder / "pipelines", ["good", "bad"], schedule={"cron": "0 9 1 1 *"})
    ai = str(shell.folder / "pipelines" / "ai.yaml")
    shell.run("trigger", "words", "--ai", ai, code=7)
    [shown] = shell.json("history", "words")
    assert (shown["status"], shown["trigger"], shown["success"]) == ("partial", "manual", False)
    assert "partial" in shell.run("history", "words").stdout
    shell.run("trigger", "report")
    assert shell.json("history", "report")[0]["status"] == "completed"


def test_pause_and_resume_without_a_scheduler_write_the_state(shell: SchedulerShell) -> None:
    said = shell.run("pause", "report", "--note", "holidays").stdout
    assert "is paused" in said
    assert shell.state()["status"] == "paused"
    [shown] = shell.json("list")
    assert (shown["state"]["status"], shown["note"]) == ("paused", "holidays")
    assert "holidays" in shell.run("list").stdout
    page = shell.run("status", "report").stdout
    assert "rota scheduler resume report" in page
    assert shell.json("upcoming") == []
    assert "is idle; it runs in" in shell.run("resume", "report").stdout
    assert shell.state()["status"] == "idle"
    assert "not paused" in shell.run("resume", "report", code=5).stderr


def test_the_history_shows_what_was_skipped_and_why(shell: SchedulerShell) -> None:
    late = PIPELINE.replace("settings:", "  window: {maxDelayMinutes: 30}\nsettings:")
    folder = shell.write("late", late.replace("0 9 1 1 *", "0 9 * * *"))
    state = {
        "version": 1, "scheduleId": "late-a1b2c3", "pipelineId": "late",
        "nextRun": "2020-01-01T09:00:00.000Z",
    }  # fmt: skip
    (folder / ".schedule-state.json").write_text(json.dumps(state))
    shell.run("pause", "late")
    shell.run("resume", "late")  # owed occurrences are skipped
    shell.run("trigger", "late")
    newest, oldest = shell.json("history", "late")
    assert (newest["status"], newest["itemsProcessed"]) == ("completed", 2)
    assert (oldest["status"], oldest["reason"]) == ("skipped", "paused")
    assert oldest["count"] > 1000
    lines = shell.run("history", "late").stdout.splitlines()
    assert lines[0].split()[:3] == ["AT", "STATUS", "TRIGGER"]
    assert "skipped" in lines[2]
    assert "up to here" in lines[2]


def test_nothing_to_cancel_is_a_conflict(shell: SchedulerShell) -> None:
    assert "nothing of schedule" in shell.run("cancel", "report", code=5).stderr


def test_an_unknown_name_is_answered_with_the_nearest(shell: SchedulerShell) -> None:
    for words in (["status"], ["history"], ["pause"], ["resume"], ["cancel"], ["trigger"]):
        error = shell.run(*words, "reprot", code=4).stderr
        assert 'did you mean "report"?' in error, words


def test_a_broken_pipeline_is_listed_with_what_is_wrong(shell: SchedulerShell) -> None:
    shell.write("bad", PIPELINE.replace("cron:", "corn:"))
    result = shell.run("list")
    [line] = [each for each in result.stdout.splitlines() if each.startswith("bad")]
    assert "broken" in line
    assert "corn" in line
    listed = shell.json("list")
    assert [(one["pipelineId"], one.get("status")) for one in listed] == [
        ("report", None),
        ("bad", "broken"),
    ]
    assert "is broken" in shell.run("status", "bad", code=4).stderr


def test_a_folder_without_pipelines_is_a_clear_error(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.chdir(empty)
    for words in (["list"], ["start"], ["trigger", "x"]):
        result = CliRunner().invoke(cli, ["scheduler", *words])
        assert result.exit_code == 2
        assert "there are no pipelines here" in result.stderr
    assert list(empty.iterdir()) == []


def test_a_pipeline_is_not_mistaken_for_a_folder_of_them(shell: SchedulerShell) -> None:
    error = shell.run("list", "--folder", "pipelines/report", code=2).stderr
    assert "is a pipeline itself" in error


def test_the_folder_may_be_named(shell: SchedulerShell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(shell.folder.parent)
    [shown] = shell.json("list", "--folder", "project/pipelines")
    assert shown["pipelineId"] == "report"


# -- while one runs ------------------------------------------------------------------------


def test_the_life_of_a_real_daemon(
    shell: SchedulerShell, daemon: Callable[..., SchedulerDaemon]
) -> None:
    one = daemon("--events")
    one.until(lambda: one.events("scheduler:status")[-1:] and _is_running(one))
    assert shell.json("status")["running"] is True
    assert shell.json("status")["pid"] == one.pid
    assert f"process {one.pid}" in shell.run("start", code=5).stderr
    assert "no scheduler" not in shell.run("list").stderr

    assert f"process {one.pid} executes it" in shell.run("trigger", "report").stdout
    one.until(lambda: len(one.events("execution:complete")) == 1)
    refused = shell.run("trigger", "report", "--ai", "ai.yaml", code=2)
    assert f"--ai has no effect: process {one.pid} executes the run" in refused.stderr
    assert shell.run("trigger", "report", "--wait").stdout.startswith("completed: 2 of 2 items")
    one.until(lambda: shell.state()["stats"]["totalRuns"] == 2)

    shell.run("pause", "report")
    one.until(lambda: shell.state()["status"] == "paused")
    shell.run("resume", "report")
    one.until(lambda: shell.state()["status"] == "idle")

    shell.write("second", PIPELINE)
    one.until(lambda: len(one.events("schedule:changed")) == 2)
    assert [each["pipelineId"] for each in shell.json("list")] == ["report", "second"]

    one.send(signal.SIGTERM)
    assert one.wait() == 0
    assert [each["status"] for each in one.events("scheduler:status")] == [
        "starting", "running", "stopping", "stopped",
    ]  # fmt: skip
    assert not (shell.folder / "pipelines/.scheduler.lock").exists()
    shell.run("status", code=1)


def test_a_daemon_that_was_killed_is_followed_by_the_next_at_once(
    shell: SchedulerShell, daemon: Callable[..., SchedulerDaemon]
) -> None:
    one = daemon("--events")
    one.until(lambda: _is_running(one))
    one.send(signal.SIGKILL)
    one.wait()
    assert (shell.folder / "pipelines/.scheduler.lock").exists()
    shell.run("status", code=1)  # its process is gone
    two = daemon("--events")
    two.until(lambda: _is_running(two))
    assert shell.json("status")["pid"] == two.pid


def test_a_daemon_informs_people_in_its_log(
    shell: SchedulerShell, daemon: Callable[..., SchedulerDaemon]
) -> None:
    one = daemon()
    one.until(lambda: "scheduler runs in" in one.log())
    shell.run("trigger", "report", "--wait")
    one.until(lambda: "report ended, completed: 2 of 2 items" in one.log())
    shell.write("report", PIPELINE.replace("prompt:", "promt:"))
    one.until(lambda: "its last good definition stays in force" in one.log())
    one.send(signal.SIGINT)
    assert one.wait() == 0
    assert "stopped gracefully" in one.log()
    assert "Traceback" not in one.log()


def test_a_daemon_killed_in_the_middle_of_a_run_is_followed_by_one_that_ends_it(
    folder: Path, daemon: Callable[..., SchedulerDaemon]
) -> None:
    words = made(folder, ["tea", "jam", "wait"], schedule={"cron": "0 9 1 1 *"})
    one = daemon(".", "--ai", "ai.yaml", "--events")
    one.until(lambda: _is_running(one))
    CliRunner().invoke(cli, ["scheduler", "trigger", "words"])
    one.until(lambda: "wait" in calls(folder))
    one.send(signal.SIGKILL)
    one.wait()
    (folder / "go").touch()
    two = daemon(".", "--ai", "ai.yaml", "--events")
    two.until(lambda: two.events("execution:complete"), timeout_s=60)
    state = json.loads((words / ".schedule-state.json").read_text())
    assert state["stats"]["totalRuns"] == 1
    assert state["lastRun"]["success"] is True
    assert state["lastRun"]["itemsProcessed"] == 3
    assert calls(folder) == ["tea", "jam", "wait", "wait"]  # nothing was asked twice but the last


def test_a_second_signal_stops_at_once_and_the_next_daemon_goes_on(
    folder: Path, daemon: Callable[..., SchedulerDaemon]
) -> None:
    made(folder, ["tea", "wait"], schedule={"cron": "0 9 1 1 *"})
    one = daemon(".", "--ai", "ai.yaml")
    one.until(lambda: "scheduler runs in" in one.log())
    CliRunner().invoke(cli, ["scheduler", "trigger", "words"])
    one.until(lambda: "wait" in calls(folder))
    # The scheduler counts what it has reported, which may be later than the first question.
    one.until(lambda: "words began" in one.log())
    one.send(signal.SIGTERM)
    one.until(lambda: "1 execution in progress, 30 s to end" in one.log())
    one.send(signal.SIGTERM)
    assert one.wait() == 130
    assert "stopped at once" in one.log()
    (folder / "go").touch()
    two = daemon(".", "--ai", "ai.yaml")
    two.until(lambda: "words ended, completed: 2 of 2 items" in two.log())


def test_ctrl_c_calls_off_what_a_trigger_performs_itself(folder: Path) -> None:
    words = made(folder, ["tea", "wait"], schedule={"cron": "0 9 1 1 *"})
    child = subprocess.Popen(
        [sys.executable, "-m", "rota", "scheduler", "trigger", "words", "--ai", "ai.yaml"],
        cwd=folder, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        wait_for(lambda: "wait" in calls(folder))
        child.send_signal(signal.SIGINT)
        out, _ = child.communicate(timeout=60)
    finally:
        child.kill()
    assert child.returncode == 130
    assert out.startswith("cancelled: 1 of 2 items")
    state = json.loads((words / ".schedule-state.json").read_text())
    assert "cancelled" in state["lastRun"]["error"]


def _is_running(daemon: SchedulerDaemon) -> bool:
    return [each["status"] for each in daemon.events("scheduler:status")][-1:] == ["running"]
