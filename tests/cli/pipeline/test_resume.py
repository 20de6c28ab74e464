"""`rota pipeline resume` and `retry`: Ctrl-C, kills, failed items."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from rota.cli.main import cli
from tests.cli.kit.pipelines import (
    calls,
    document,
    made,
    rota,
    wait_for,
)


def has_begun() -> bool:
    """Whether the database has a run of the words, or is there at all."""
    result = CliRunner().invoke(cli, ["pipeline", "history", "words", "--json"])
    return result.exit_code == 0 and bool(json.loads(result.stdout))


@pytest.fixture
def begun(folder: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts real processes, and leaves none behind."""
    started: list[subprocess.Popen[str]] = []

    def start(*words: str) -> subprocess.Popen[str]:
        child = subprocess.Popen(
            [sys.executable, "-m", "rota", "pipeline", *words], cwd=folder, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        started.append(child)
        return child

    yield start
    for child in started:
        if child.poll() is None:
            child.kill()
        child.communicate()


def test_failed_items_are_tried_again_alone_and_all_is_reduced_again(folder: Path) -> None:
    made(folder, ["tea", "bad", "jam"])
    rota("run", "words", "--ai", "ai.yaml", code=7)
    assert "has ended; 1 of its items failed" in rota("resume", "words", code=5).stderr
    [first] = document("history", "words")
    rota("retry", "words", "--ai", "ai.yaml", code=7)
    [again] = document("history", "words")
    assert again["attempt"] == 2
    # A retry is the same run: it began when its first attempt did, and for the same reason.
    assert (again["trigger"], again["started_at"]) == ("manual", first["started_at"])
    (folder / "fixed").touch()
    result = rota("retry", "words", "--ai", "ai.yaml")
    assert result.stdout.splitlines()[1:] == [
        "tea,said tea,true,", "bad,said bad,true,", "jam,said jam,true,",
    ]  # fmt: skip
    assert calls(folder) == ["tea", "bad", "jam", "bad", "bad"]
    assert "nothing failed, nothing is left" in rota("retry", "words", code=5).stderr
    [entry] = document("history", "words")
    assert (entry["outcome"], entry["attempt"]) == ("completed", 3)


def test_resume_of_a_run_that_has_completed_prints_its_result(folder: Path) -> None:
    made(folder, ["tea"])
    first = rota("run", "words", "--ai", "ai.yaml")
    again = rota("resume", "words", "--ai", "ai.yaml", "-o", "out.csv")
    assert (again.stdout, (folder / "out.csv").read_text()) == ("", first.stdout)
    assert "is complete; this is its result" in again.stderr
    assert calls(folder) == ["tea"]


def test_all_of_it_works_on_either_database(folder: Path, database_url: str) -> None:
    made(folder, ["tea", "bad"])
    place = ["--ai", "ai.yaml", "--database", database_url]
    migrate(database_url)
    rota("run", "words", *place, code=7)
    (folder / "fixed").touch()
    rota("retry", "words", *place)
    rota("run", "words", "--limit", "1", *place)
    newest, oldest = document("history", "words", "--database", database_url)
    assert (newest["attempt"], oldest["attempt"]) == (1, 2)
    assert calls(folder) == ["tea", "bad", "bad", "tea"]


def migrate(url: str) -> None:
    """Make the tables."""
    words = [sys.executable, "-m", "rota", "migrate", "--database", url]
    subprocess.run(words, check=True, capture_output=True)


def test_a_run_goes_on_as_it_began_whatever_became_of_the_file(folder: Path) -> None:
    made(folder, ["tea", "bad"])
    rota("run", "words", "--ai", "ai.yaml", code=7)
    made(folder, ["other"])
    (folder / "fixed").touch()
    result = rota("retry", "words", "--ai", "ai.yaml")
    assert len(result.stdout.splitlines()) == 3
    assert "the pipeline has changed since this run began" in result.stderr
    assert calls(folder) == ["tea", "bad", "bad"]


def test_what_has_never_run_cannot_go_on(folder: Path) -> None:
    made(folder, ["tea"])
    for verb in ("resume", "retry"):
        assert "words has not run yet" in rota(verb, "words", code=4).stderr
    assert not (folder / ".rota.db").exists()
    rota("run", "words", "--ai", "ai.yaml")
    said = rota("retry", "words", "--run", "nonsense", code=4).stderr
    assert "there is no run 'nonsense'" in said


@pytest.mark.slow
def test_one_ctrl_c_cancels_and_keeps_what_is_done(
    folder: Path, begun: Callable[..., subprocess.Popen[str]]
) -> None:
    made(folder, ["tea", "jam", "wait", "milk"])
    child = begun("run", "words", "--ai", "ai.yaml")
    wait_for(lambda: "wait" in calls(folder))
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=60)
    assert child.returncode == 130, err
    assert out.splitlines()[1:] == ["tea,said tea,true,", "jam,said jam,true,"]
    assert "words: cancelled: 2 of 4 items done, 2 not done" in err
    assert "continue from what is done: rota pipeline resume words" in err
    assert document("history", "words")[0]["outcome"] == "cancelled"
    (folder / "go").touch()
    resumed = rota("resume", "words", "--ai", "ai.yaml")
    assert [line.partition(",")[0] for line in resumed.stdout.splitlines()[1:]] == [
        "tea", "jam", "wait", "milk",
    ]  # fmt: skip
    assert calls(folder) == ["tea", "jam", "wait", "wait", "milk"]


@pytest.mark.slow
def test_ctrl_c_does_not_wait_for_a_pipe_that_never_ends(folder: Path) -> None:
    made(folder, [])
    reader, writer = os.pipe()
    words = ["pipeline", "run", "words", "--ai", "ai.yaml", "--items", "-"]
    child = subprocess.Popen(
        [sys.executable, "-m", "rota", *words], cwd=folder, text=True, stdin=reader,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        os.close(reader)
        os.write(writer, b'{"word": "tea"}\n')
        wait_for(has_begun)
        child.send_signal(signal.SIGINT)
        _, err = child.communicate(timeout=60)
        assert child.returncode == 130, err
        assert "words: cancelled" in err
    finally:
        os.close(writer)
        child.kill()
        child.wait()


@pytest.mark.slow
def test_two_ctrl_c_leave_at_once_and_nothing_done_is_lost(
    folder: Path, begun: Callable[..., subprocess.Popen[str]]
) -> None:
    made(folder, ["tea", "wait", "milk"])
    child = begun("run", "words", "--ai", "ai.yaml")
    wait_for(lambda: "wait" in calls(folder))
    for _ in range(2):
        child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=60)
    assert child.returncode == 130, err
    (folder / "go").touch()
    resumed = rota("resume", "words", "--ai", "ai.yaml")
    assert len(resumed.stdout.splitlines()) == 4
    assert calls(folder).count("tea") == 1


@pytest.mark.slow
def test_a_killed_run_is_resumed_and_a_living_one_is_not(
    folder: Path, begun: Callable[..., subprocess.Popen[str]]
) -> None:
    made(folder, ["tea", "jam", "wait"])
    child = begun("run", "words", "--ai", "ai.yaml")
    wait_for(lambda: "wait" in calls(folder))
    said = rota("resume", "words", "--ai", "ai.yaml", code=5).stderr
    assert f"is in progress, in process {child.pid} on " in said
    child.kill()
    child.communicate()
    (folder / "go").touch()
    resumed = rota("resume", "words", "--ai", "ai.yaml")
    assert len(resumed.stdout.splitlines()) == 4
    assert calls(folder) == ["tea", "jam", "wait", "wait"]
