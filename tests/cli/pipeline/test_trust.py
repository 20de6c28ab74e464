"""`rota pipeline trust`, and what runs of pipelines from elsewhere before and after it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from rota.cli.main import cli
from tests.cli.kit.pipelines import document, rota
from tests.cli.kit.scheduler_daemon import SchedulerDaemon

PIPELINE = """
name: n
settings: {model: "offline:echo"}
input: {from: {type: command, run: "echo ran >> ran.log; echo one", format: lines%s}}
map: {prompt: "about {{line}}"}
reduce: {type: list}
"""


@pytest.fixture
def foreign(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pipeline beside the project that a person is in."""
    monkeypatch.setenv("XDG_DATA_HOME", str(folder.parent / "data"))
    place = folder.parent / "downloads" / "p"
    place.mkdir(parents=True)
    (place / "pipeline.yaml").write_text(PIPELINE % "")
    return place


def test_a_pipeline_from_elsewhere_runs_once_it_is_trusted(folder: Path, foreign: Path) -> None:
    said = rota("run", str(foreign), code=2).stderr
    assert f"rota pipeline trust {foreign}" in said
    assert not (foreign / "ran.log").exists()
    shown = rota("trust", str(foreign)).stdout
    assert shown == f"trusted {foreign}\n  runs `echo ran >> ran.log; echo one`\n"
    assert "about one" in rota("run", str(foreign)).stdout
    assert (foreign / "ran.log").read_text() == "ran\n"
    assert document("trust") == [{"folder": str(foreign), "unchanged": True}]
    assert rota("trust", "--remove", str(foreign)).stdout == f"no longer trusted: {foreign}\n"
    rota("run", str(foreign), code=2)


def test_a_withdrawal_names_its_folder(folder: Path, foreign: Path) -> None:
    refused = CliRunner().invoke(cli, ["pipeline", "trust", "--remove"])
    assert refused.exit_code == 2
    assert "--remove needs PATH" in refused.stderr


def test_the_same_pipeline_inside_the_project_runs_at_once(folder: Path, foreign: Path) -> None:
    shutil.copytree(foreign, folder / "pipelines" / "p")
    assert "about one" in rota("run", "p").stdout


def test_commands_get_a_small_environment_and_the_variables_they_name(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
    monkeypatch.setenv("WANTED", "yes")
    place = folder / "p"
    place.mkdir()
    text = PIPELINE.replace("echo ran >> ran.log; echo one", "env | sort")
    (place / "pipeline.yaml").write_text(text % ", passEnv: [WANTED], env: {MORE: x}")
    said = rota("run", "p").stdout
    assert "WANTED=yes" in said
    assert "MORE=x" in said
    assert "PATH=" in said
    assert "OPENAI_API_KEY" not in said
    monkeypatch.delenv("WANTED")
    assert "the environment has no WANTED" in rota("run", "p", code=1).stderr


@pytest.mark.slow
def test_a_schedule_from_elsewhere_begins_while_the_scheduler_runs_once_it_is_trusted(
    folder: Path, foreign: Path
) -> None:
    (foreign / "pipeline.yaml").write_text(PIPELINE % "" + 'schedule: {cron: "* * * * * *"}\n')
    root = foreign.parent
    result = CliRunner().invoke(cli, ["scheduler", "list", "--folder", str(root), "--json"])
    [entry] = json.loads(result.stdout)
    assert f"rota pipeline trust {foreign}" in entry["problem"]
    daemon = SchedulerDaemon(folder, str(root))
    try:
        daemon.until(lambda: "is not trusted" in daemon.log())
        assert not (foreign / "ran.log").exists()
        rota("trust", str(root))
        daemon.until((foreign / "ran.log").exists)
        (foreign / "new.sh").write_text("echo more")  # the schedule is in force, the files differ
        daemon.until(lambda: "has changed since it was trusted" in daemon.log())
    finally:
        daemon.end()
