"""`rota up` as a real process: its first and last line, its signals, its death."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.cli.kit import Daemon, Shell

pytestmark = pytest.mark.slow

Up = Callable[..., Daemon]


def eventually(ask: Callable[[], Any], timeout_s: float = 60) -> Any:
    """Ask again until the answer is true."""
    deadline = time.monotonic() + timeout_s
    while not (answer := ask()):
        assert time.monotonic() < deadline, f"still {answer!r}"
    return answer


def status(shell: Shell, run_id: str) -> str:
    """The status of the newest attempt."""
    return str(shell.json("run", "show", run_id)["run"]["status"])


def test_it_says_who_it_is_works_and_stops_gracefully(either: Shell, up: Up) -> None:
    daemon = up()
    line = daemon.receives("is up").splitlines()[0]
    [worker] = either.json("worker", "list")
    assert f"worker {worker['id']} is up on " in line
    assert "namespace default, queues default, 100 slots, workflows add, answer, fails" in line
    assert worker["pid"] == daemon.pid
    result = either.run("run", "start", "add", "n=4", "--wait", "--timeout", "60s")
    assert json.loads(result.stdout)["sum"] == 5
    daemon.send(signal.SIGTERM)
    assert daemon.wait() == 0
    assert "stopped gracefully" in daemon.said().splitlines()[-1]
    assert either.json("worker", "list") == []


@pytest.mark.wall_clock("the worker must be killed within the second that its run takes")
def test_a_killed_worker_is_found_out_and_its_run_resumed(shell: Shell, up: Up) -> None:
    first = up()
    first.receives("is up")
    run_id = shell.start("long", "seconds=1")
    eventually(lambda: status(shell, run_id) == "running")
    first.send(signal.SIGKILL)
    assert first.wait() == -signal.SIGKILL
    began = time.monotonic()
    second = up()
    second.receives("a recovery takes over")
    assert json.loads(shell.run("run", "result", run_id, "--timeout", "60s").stdout) is None
    page = shell.json("run", "show", run_id)
    assert [run["status"] for run in page["attempts"]] == ["crashed", "completed"]
    assert page["run"]["trigger"] == "recovery"
    assert time.monotonic() - began < 20, "no lease had to lapse"


@pytest.mark.wall_clock("the signal must come within the seconds that the run takes")
def test_runs_in_hand_may_end_before_it_stops(shell: Shell, up: Up) -> None:
    daemon = up()
    daemon.receives("is up")
    run_id = shell.start("long", "seconds=1.5")
    eventually(lambda: status(shell, run_id) == "running")
    daemon.send(signal.SIGINT)
    assert "1 run may take up to" in daemon.receives("stopping")
    assert daemon.wait() == 0
    assert status(shell, run_id) == "completed"


@pytest.mark.wall_clock("a daemon stops at once, in real time")
def test_a_second_signal_stops_it_at_once_and_hands_runs_over(shell: Shell, up: Up) -> None:
    daemon = up()
    daemon.receives("is up")
    ids = [shell.start("long"), shell.start("stuck")]
    eventually(lambda: {status(shell, run_id) for run_id in ids} == {"running"})
    daemon.send(signal.SIGTERM)
    daemon.receives("stopping")
    daemon.send(signal.SIGTERM)
    assert daemon.wait() == 130
    said = daemon.said()
    assert "stopped at once, runs released" in said
    assert "user code still runs in 1 thread" in said
    assert [status(shell, run_id) for run_id in ids] == ["pending", "pending"]


def test_flags_beat_the_environment_which_beats_the_file(shell: Shell, up: Up) -> None:
    with (shell.folder / "rota.toml").open("a") as file:
        file.write("slots = 7\n[queues.mail]\nconcurrency = 2\n")
    assert "7 slots" in up().receives("is up")
    assert "8 slots" in up(ROTA_SLOTS="8").receives("is up")
    said = up("--slots", "9", "--queue", "mail", "--namespace", "ann", ROTA_SLOTS="8").receives(
        "is up"
    )
    assert "namespace ann, queues mail, 9 slots" in said
    assert "from_environment.db" in up(ROTA_DATABASE="sqlite:///from_environment.db").receives(
        "is up"
    )


def test_a_namespace_that_only_the_code_knows_is_warned_of(shell: Shell, up: Up) -> None:
    code = (shell.folder / "jobs.py").read_text()
    (shell.folder / "jobs.py").write_text(code.replace("Rota(", 'Rota(namespace="ann", url='))
    assert "put `namespace` under [settings] in rota.toml" in up().receives("is up")


def test_a_file_is_enough(shell: Shell, up: Up) -> None:
    (shell.folder / "rota.toml").unlink()
    database = f"sqlite {shell.folder / 'from_code.db'}"
    assert database in up("jobs.py").receives("is up")
    assert database in up("jobs:app").receives("is up")


def test_with_json_every_log_line_is_an_object(shell: Shell, up: Up) -> None:
    daemon = up("--json")
    daemon.receives("is up")
    daemon.send(signal.SIGTERM)
    assert daemon.wait() == 0
    lines = [json.loads(line) for line in daemon.said().splitlines()]
    assert {line["level"] for line in lines} == {"info"}
    assert {"at", "level", "logger", "message"} == set(lines[0])


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nowhere.py"], "there is no nowhere.py"),
        (["nowhere:app"], "there is no module nowhere"),
        (["jobs:ap"], "jobs has no Rota app called 'ap'"),
        (["--slots", "0"], "settings: slots = 0: expected int >= 1"),
        (["--namespace", "a b"], "settings: namespace = 'a b': expected str matching regex"),
    ],
)
def test_what_cannot_be_started_is_refused(shell: Shell, words: list[str], says: str) -> None:
    assert says in shell.error("up", *words, code=2)


def test_without_a_project_or_a_workflow_there_is_nothing_to_do(shell: Shell) -> None:
    (shell.folder / "rota.toml").unlink()
    assert "there is no project here" in shell.error("up", code=2)
    (shell.folder / "other.py").write_text("from rota import Rota\napp = Rota()\n")
    assert "registers no workflow" in shell.error("up", "other.py", code=2)


def test_a_module_that_breaks_says_where(shell: Shell) -> None:
    (shell.folder / "broken.py").write_text("import rota\n\n1 / 0\n")
    said = shell.error("up", "broken.py", code=2)
    assert "broken.py cannot be imported: ZeroDivisionError: division by zero" in said
    assert "broken.py:3" in said


def test_ctrl_c_while_waiting_leaves_the_run_alone(shell: Shell) -> None:
    run_id = shell.start("naps")
    child = subprocess.Popen(
        [sys.executable, "-m", "rota", "run", "result", run_id], cwd=shell.folder,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    wake = shell.folder / "jobs.db-wake"
    eventually(lambda: wake.is_dir() and os.listdir(wake))  # it listens, so it waits
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=60)
    assert child.returncode == 130
    assert out == ""
    assert f"stopped waiting; run {run_id} continues" in err
    assert "Traceback" not in err
    assert status(shell, run_id) == "pending"


LOGGING = """
import logging
from rota import Rota, Transient, sleep

app = Rota("sqlite:///from_code.db")
log = logging.getLogger("shop")

@app.step
def charge() -> None:
    log.info("charging in a thread")

@app.step(retries=1)
async def ship() -> None:
    raise ConnectionError("the ship is late")

@app.workflow
async def sells() -> None:
    log.info("selling")
    await charge.aio()
    await sleep(0.01)

@app.workflow(retries=1)
async def fails() -> None:
    raise Transient("the bank is closed", retry_after_s=0.01)

@app.workflow
async def breaks() -> None:
    await ship()
"""


def test_it_logs_start_end_retry_and_failure_of_each_run(shell: Shell, up: Up) -> None:
    (shell.folder / "jobs.py").write_text(LOGGING)
    daemon = up()
    sells = shell.start("sells")
    daemon.receives(f"run {sells} (sells) completed in ")
    fails = shell.start("fails")
    daemon.receives("failed: Transient")
    breaks = shell.start("breaks")
    said = daemon.receives("failed: StepFailed")
    daemon.send(signal.SIGTERM)
    assert daemon.wait() == 0
    said = daemon.said()
    assert f"INFO rota.runs: run {sells} (sells) started\n" in said
    assert f"WARNING rota.runs: run {fails} (fails) failed, attempt 2 in 10ms: Transient: " in said
    assert "(fails) started, attempt 2\n" in said
    assert f"ERROR rota.runs: run {breaks} (breaks) failed: StepFailed: step ship failed" in said
    assert (
        f"WARNING rota.runs: run {breaks} (breaks): step ship#0 failed, attempt 2 in 1s: "
        "ConnectionError: the ship is late\n"
    ) in said
    assert 'raise ConnectionError("the ship is late")\n' in said, "the traceback of the failure"
    assert "\nHint: Run `rota run show ID`" in said
    assert "/rota/workflows/" not in said, "frames of Rota are not what is wrong"


def test_the_run_id_is_in_every_log_line_of_user_code(shell: Shell, up: Up) -> None:
    (shell.folder / "jobs.py").write_text(LOGGING)
    daemon = up()
    run_id = shell.start("sells")
    daemon.receives("completed in ")
    said = daemon.said()
    for line in ("selling", "charging in a thread"):
        assert f"INFO shop [run {run_id[-8:]}]: {line}\n" in said


def test_with_json_every_record_of_a_run_has_its_id(shell: Shell, up: Up) -> None:
    (shell.folder / "jobs.py").write_text(LOGGING)
    daemon = up("--json")
    sells, breaks = shell.start("sells"), shell.start("breaks")
    daemon.receives("failed: StepFailed")
    daemon.send(signal.SIGTERM)
    assert daemon.wait() == 0
    lines = [json.loads(line) for line in daemon.said().splitlines()]
    by_run = {line["message"]: line.get("run_id") for line in lines}
    assert by_run["selling"] == by_run["charging in a thread"] == sells
    assert by_run[f"run {sells} (sells) started"] == sells
    assert [line["run_id"] for line in lines if line["level"] == "error"] == [breaks]
    assert [line["run_name"] for line in lines if line["level"] == "error"] == ["breaks"]
    assert "the ship is late" in next(line["trace"] for line in lines if "trace" in line)
    assert all("run_id" not in line for line in lines if line["logger"] == "rota.up")


def test_a_refused_address_stops_the_worker_before_any_run(shell: Shell) -> None:
    run_id = shell.start("add", "n=1")
    assert "there is no token" in shell.error("up", "--http", "0.0.0.0:0", code=2)
    assert status(shell, run_id) == "pending"


def test_an_address_that_is_named_beats_the_environment(shell: Shell, up: Up) -> None:
    daemon = up("--http", "127.0.0.1:0", ROTA_NO_HTTP="1")
    daemon.receives("API and dashboard: http://127.0.0.1:")
    said = shell.error("up", "--http", "127.0.0.1:0", "--no-http", code=2)
    assert "--http and --no-http contradict each other" in said
