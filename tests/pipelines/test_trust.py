"""Pipelines from elsewhere execute nothing until a person has confirmed their files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rota.errors import NotTrusted
from rota.pipelines.definition.loader import Loaded
from rota.pipelines.trust import Trust, records_folder
from tests.pipelines.kit import load

COMMAND = """
name: n
input: {from: {type: command, run: "sh items.sh", format: lines}}
map: {prompt: "{{line}}"}
reduce: {type: list}
"""
NO_COMMAND = COMMAND.replace('type: command, run: "sh items.sh", format: lines', "type: stdin")
GRAPH = """
name: n
nodes:
  a: {kind: load, source: {type: inline, items: [{x: 1}]}}
  b: {kind: script, from: a, run: "cat"}
"""
CONDITION = """
name: n
schedule: {cron: "@daily", condition: {command: "test -e go"}}
input: {items: [{x: 1}]}
map: {prompt: "{{x}}"}
reduce: {type: list}
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


@pytest.fixture
def trust(tmp_path: Path, project: Path) -> Trust:
    return Trust(project, tmp_path / "records")


def elsewhere(tmp_path: Path, text: str = COMMAND) -> Loaded:
    loaded = load(tmp_path / "downloads" / "p", text)
    (loaded.folder / "items.sh").write_text("echo one\n")
    return loaded


def test_pipelines_of_the_project_need_no_trust(project: Path, trust: Trust) -> None:
    loaded = load(project / "pipelines" / "deep" / "p", COMMAND)
    trust.check_run(loaded.pipeline, loaded.folder)
    assert trust.recorded() == []


@pytest.mark.parametrize("text", [COMMAND, GRAPH])
def test_commands_of_a_folder_from_elsewhere_are_refused_with_what_to_type(
    tmp_path: Path, trust: Trust, text: str
) -> None:
    loaded = elsewhere(tmp_path, text)
    with pytest.raises(NotTrusted, match=r"is not trusted.*runs `") as caught:
        trust.check_run(loaded.pipeline, loaded.folder)
    assert f"rota pipeline trust {loaded.folder}" in caught.value.advice


def test_a_condition_command_counts_in_scheduled_runs_only(tmp_path: Path, trust: Trust) -> None:
    loaded = elsewhere(tmp_path, CONDITION)
    trust.check_run(loaded.pipeline, loaded.folder)
    with pytest.raises(NotTrusted, match="test -e go"):
        trust.check_run(loaded.pipeline, loaded.folder, is_scheduled=True)


def test_a_pipeline_without_commands_needs_no_trust(tmp_path: Path, trust: Trust) -> None:
    loaded = elsewhere(tmp_path, NO_COMMAND)
    trust.check_run(loaded.pipeline, loaded.folder)


@pytest.mark.parametrize("changed", ["pipeline.yaml", "items.sh", "new.py", "deep/lib.json"])
def test_trust_ends_when_a_file_of_the_folder_changes(
    tmp_path: Path, trust: Trust, changed: str
) -> None:
    loaded = elsewhere(tmp_path)
    trust.add(loaded.folder)
    assert trust.allows(loaded.folder)
    file = loaded.folder / changed
    file.parent.mkdir(exist_ok=True)
    file.write_text(file.read_text() + "# more\n" if file.exists() else "{}")
    assert not trust.allows(loaded.folder)
    with pytest.raises(NotTrusted, match="has changed since it was trusted"):
        trust.check_run(loaded.pipeline, loaded.folder)
    assert [each.is_unchanged for each in trust.recorded()] == [False]


def test_a_file_that_becomes_executable_ends_the_trust(tmp_path: Path, trust: Trust) -> None:
    loaded = elsewhere(tmp_path)
    (loaded.folder / "rows.csv").write_text("a\n1\n")
    trust.add(loaded.folder)
    (loaded.folder / "items.sh").chmod(0o755)
    assert not trust.allows(loaded.folder)
    trust.add(loaded.folder)
    (loaded.folder / "rows.csv").chmod(0o755)
    assert not trust.allows(loaded.folder)


def test_tables_results_and_state_may_change(tmp_path: Path, trust: Trust) -> None:
    loaded = elsewhere(tmp_path)
    trust.add(loaded.folder)
    (loaded.folder / "rows.csv").write_text("a\n1\n")
    (loaded.folder / ".results").mkdir()
    (loaded.folder / ".results" / "x.json").write_text("{}")
    (loaded.folder / ".schedule-state.json").write_text("{}")
    assert trust.allows(loaded.folder)


def test_trust_is_about_one_folder_and_can_be_withdrawn(tmp_path: Path, trust: Trust) -> None:
    loaded = elsewhere(tmp_path)
    trust.add(loaded.folder)
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in loaded.folder.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    assert not trust.allows(copy)
    assert trust.remove(loaded.folder)
    assert not trust.remove(loaded.folder)
    assert not trust.allows(loaded.folder)


def test_a_link_out_of_the_project_and_a_repository_inside_it_are_from_elsewhere(
    tmp_path: Path, project: Path, trust: Trust
) -> None:
    loaded = elsewhere(tmp_path)
    (project / "linked").symlink_to(loaded.folder)
    assert not trust.allows(project / "linked")
    clone = load(project / "vendor" / "clone" / "p", COMMAND)
    assert trust.allows(clone.folder)
    (project / ".git").mkdir()
    assert trust.allows(clone.folder)
    (project / "vendor" / "clone" / ".git").mkdir()
    assert not trust.allows(clone.folder)


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives files away")
def test_a_folder_of_another_user_is_from_elsewhere(project: Path, trust: Trust) -> None:
    loaded = load(project / "p", COMMAND)
    os.chown(loaded.folder, 4711, 4711)
    assert not trust.allows(loaded.folder)
    os.chown(project, 4711, 4711)
    assert trust.allows(loaded.folder)  # a service runs what the owner of the project deployed


def test_records_are_private_and_lie_in_the_data_folder_of_the_user(
    tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    loaded = elsewhere(tmp_path)
    Trust(project).add(loaded.folder)
    [file] = records_folder().iterdir()
    assert file.is_relative_to(tmp_path / "data")
    assert file.stat().st_mode & 0o777 == 0o600
    file.write_text("rubbish")
    assert not Trust(project).allows(loaded.folder)
