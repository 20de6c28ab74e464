"""`rota disarm` and `rota arm`, and which commands say that a database is disarmed."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from rota import Client
from tests.cli.kit import Daemon, Shell

WARNING = "(restored): nothing fires, runs or is sent"


def test_every_look_at_a_disarmed_database_says_so(either: Shell) -> None:
    run_id = either.start("add", "n=1")
    assert "is armed already" in either.run("arm").stdout
    said = either.run("disarm", "--reason", "restored").stdout
    assert f"is disarmed {WARNING} until `rota arm`" in said
    again = either.json("disarm", "--reason", "twice")
    assert again["reason"] == "restored", "the first one counts"
    for words in (
        ["run", "list"],
        ["schedule", "list"],
        ["worker", "list"],
        ["run", "show", run_id],
    ):
        found = either.run(*words)
        assert WARNING in found.stderr
        assert "`rota arm` lets this database act" in found.stderr
        assert WARNING not in found.stdout
    why = either.json("why", run_id)
    assert (why["verdict"], WARNING in why["sentence"]) == ("disarmed", True)
    assert why["hint"].startswith("`rota arm`")
    [finding] = [one for one in either.json("doctor")["findings"] if one["what"] == "disarmed"]
    assert (finding["level"], WARNING in finding["says"]) == ("warn", True)
    assert 'rota_disarmed{namespace="default"} 1' in either.run("metrics").stdout
    assert "workers begin at their next heartbeat" in either.run("arm").stdout
    assert either.run("run", "list").stderr == ""
    assert either.json("why", run_id)["verdict"] == "no_worker"


def test_why_about_a_schedule_says_that_the_database_is_disarmed(either: Shell) -> None:
    either.run("schedule", "create", "nightly", "add", "0 3 * * *", "n=1", "--timezone", "UTC")
    either.run("disarm", "--reason", "restored")
    assert WARNING in either.run("why", "nightly").stdout
    assert either.json("why", "nightly")["facts"]["disarmed_at"]


@pytest.mark.slow
def test_a_daemon_on_a_disarmed_database_waits_for_arm(
    either: Shell, up: Callable[..., Daemon]
) -> None:
    run_id = either.start("add", "n=1")
    either.run("disarm")
    daemon = up()
    assert "claims, fires and sends nothing until `rota arm`" in daemon.receives("is up")
    either.run("arm")
    assert either.run("run", "result", run_id, "--timeout", "60s").exit_code == 0
    daemon.send(signal.SIGTERM)
    assert daemon.wait() == 0
    assert daemon.said().index("is armed again") < daemon.said().index("(add) completed")


def test_a_pipeline_run_in_this_process_is_refused(shell: Shell) -> None:
    shell.run("migrate")
    shell.run("pipeline", "init", "words")
    shell.run("disarm", "--reason", "restored")
    assert WARNING in shell.run("pipeline", "run", "words", code=5).stderr
    assert shell.json("run", "list") == []


def test_a_copy_can_be_made_disarmed(shell: Shell, tmp_path: Path) -> None:
    shell.run("migrate")
    shell.run("backup", "--disarmed", str(tmp_path / "copy.db"))

    async def states() -> list[bool]:
        found = []
        for url in (shell.url, f"sqlite:///{tmp_path / 'copy.db'}"):
            async with Client(url) as client:
                found.append(await client.operations.disarmed() is not None)
        return found

    assert asyncio.run(states()) == [False, True]
