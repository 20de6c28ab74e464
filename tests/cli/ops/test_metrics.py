"""`rota metrics`: text for Prometheus, a file that is whole, one document."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from tests.cli.kit import Shell
from tests.cli.kit.workers import (
    mine,
    sign_on,
)
from tests.kit.prometheus_parser import parse


def test_it_prints_what_prometheus_reads(either: Shell) -> None:
    either.start("add", "n=1")
    either.work()
    either.start("add", "n=1", "--queue", "mail")
    either.start("add", "n=1", "--delay", "1h")
    either.start("login", "--queue", "lonely")
    sign_on(either, mine("a"))
    found = parse(either.run("metrics").stdout)
    runs = found["rota_runs_open"]
    assert runs.at(kind="workflow", status="pending") == 2
    assert runs.at(kind="workflow", status="sleeping") == 1
    assert found["rota_runs_ended"].at(kind="workflow", status="completed") == 1
    assert found["rota_queue_pending_runs"].at(queue="mail") == 1
    assert found["rota_workers"].at(state="alive") == 1
    assert all(name.startswith("rota_") for name in found)


def test_a_run_that_waits_for_a_person_is_in_it(either: Shell) -> None:
    either.start("login")
    either.work()
    found = parse(either.run("metrics").stdout)
    assert found["rota_waiting_for_person"].at(kind="workflow", why="auth") == 1


def test_only_the_namespace_that_is_asked_for_is_reported(either: Shell) -> None:
    either.start("add", "n=1")
    found = parse(either.run("metrics", "--namespace", "other").stdout)
    assert found["rota_runs_open"].at(kind="workflow", status="pending") == 0
    spaces = {dict(key)["namespace"] for one in found.values() for key in one.samples}
    assert spaces == {"other"}


def test_the_document_has_the_same_numbers(either: Shell) -> None:
    either.start("add", "n=1")
    document = either.json("metrics")
    found = parse(either.run("metrics").stdout)
    assert [one["name"] for one in document] == list(found)
    for one in document:
        assert (one["type"], one["help"]) == ("gauge", found[one["name"]].help)
        labels = {tuple(sample["labels"].items()) for sample in one["samples"]}
        assert labels == set(found[one["name"]].samples)


def test_a_file_is_written_whole_for_others_to_read(shell: Shell) -> None:
    shell.start("add", "n=1")
    Path("rota.prom").write_text("old")
    assert shell.run("metrics", "--output", "rota.prom").stdout == ""
    found = parse(Path("rota.prom").read_text())
    assert found["rota_runs_open"].at(kind="workflow", status="pending") == 1
    assert Path("rota.prom").stat().st_mode & stat.S_IROTH, "node_exporter is another user"
    assert [path.name for path in Path().glob("*rota.prom*")] == ["rota.prom"]
    said = shell.json("metrics", "-o", "rota.prom")
    count = sum(len(one.samples) for one in found.values())
    assert said == {"file": "rota.prom", "samples": count}


def test_a_file_that_cannot_be_written_is_said_so(shell: Shell) -> None:
    shell.start("add", "n=1")
    Path("taken").write_text("a file, no folder")
    said = shell.error("metrics", "--output", "taken/rota.prom", code=2)
    assert "taken/rota.prom cannot be written" in said


def test_the_old_file_stays_when_the_new_one_does_not_get_there(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell.start("add", "n=1")
    Path("rota.prom").write_text("old\n")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    assert "No space left" in shell.error("metrics", "--output", "rota.prom", code=2)
    assert Path("rota.prom").read_text() == "old\n"
    assert [path.name for path in Path().glob("*rota.prom*")] == ["rota.prom"]


def test_a_database_that_is_not_there_leaves_the_old_file_alone(shell: Shell) -> None:
    Path("rota.prom").write_text("old\n")
    shell.run("metrics", "--output", "rota.prom", code=3)
    assert Path("rota.prom").read_text() == "old\n"
    assert not Path("jobs.db").exists()
