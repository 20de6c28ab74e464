"""`rota deploy check`: stored runs against the code of the project; text, JSON and exit codes."""

from __future__ import annotations

import sys

from tests.cli.kit import JOBS, Shell

WITHOUT_THE_SLEEP = JOBS.replace("    await sleep(long)\n", "    await one(1)\n")


def deploy(shell: Shell, code: str) -> None:
    """Put other code into the project; the next command imports it."""
    (shell.folder / "jobs.py").write_text(code)
    sys.modules.pop("jobs", None)


def test_code_that_continues_all_runs_is_said_so(either: Shell) -> None:
    either.start("naps")
    either.start("add", "n=1")
    either.work()
    said = either.run("deploy", "check").stdout
    assert said == "1 open run and 1 completed run replayed: this code continues all\n"
    assert either.json("deploy", "check", "--workflow", "naps", "--sample", "0") == {
        "open_runs": 1, "finished_runs": 0, "problems": [],
    }  # fmt: skip


def test_a_run_that_the_code_would_strand_is_named_with_its_call(either: Shell) -> None:
    run_id = either.start("naps")
    either.work()
    deploy(either, WITHOUT_THE_SLEEP)
    said = either.run("deploy", "check", code=1).stdout
    head, line, *_, last = said.splitlines()
    assert head.split() == ["RUN", "WORKFLOW", "STATUS", "VERDICT", "CALL", "MESSAGE"]
    assert line.split()[:4] == [run_id[-8:], "naps", "sleeping:sleep", "stranded"]
    assert "sleep#0" in line
    assert last == ("1 open run and 0 completed runs replayed: this code cannot continue 1 of them")
    report = either.json("deploy", "check", code=1)
    [problem] = report["problems"]
    assert (problem["run_id"], problem["verdict"]) == (run_id, "stranded")
    assert "sleep#0" in problem["message"]
    deploy(either, JOBS)
    either.run("deploy", "check")


def test_an_unknown_workflow_is_refused(either: Shell) -> None:
    either.start("naps")
    assert "nothing" in either.error("deploy", "check", "--workflow", "nothing", code=4)
