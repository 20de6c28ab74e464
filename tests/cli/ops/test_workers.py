"""`rota worker …` and `rota queue …`."""

from __future__ import annotations

import os

from rota.core.runs.model import Queue
from rota.core.time.instants import MINUTE
from rota.engine import process_identity
from tests.cli.kit import Shell
from tests.cli.kit.workers import (
    declare,
    mine,
    sign_on,
)
from tests.kit.builders import worker_row


def test_no_worker_is_said_so(either: Shell) -> None:
    said = either.run("worker", "list").stdout
    assert said == "no worker is running; start one with `rota up`\n"
    assert either.json("worker", "list") == []


def test_workers_are_listed_with_the_age_of_their_heartbeat(either: Shell) -> None:
    sign_on(either, mine("a"))
    head, line = either.run("worker", "list").stdout.splitlines()
    assert " ".join(head.split()) == "ID HOST PID SLOTS STATUS VERSION HEARTBEAT STARTED QUEUES"
    assert line.split()[0] == "a"
    assert line.split()[2:5] == [str(os.getpid()), "10", "online"]
    assert line.split()[-1] == "default"
    [row] = either.json("worker", "list")
    assert row["queues"] == ["default"]
    assert row["absent"] is None
    assert row["heartbeat_age_s"] < 60


def test_a_worker_that_does_not_report_is_marked(either: Shell) -> None:
    sign_on(either, mine("a"), worker_row("b", host="elsewhere/x/y"), age_us=2 * MINUTE)
    said = either.run("worker", "list").stdout
    assert said.count("silent for 2m") == 2
    assert [row["absent"] for row in either.json("worker", "list")] == ["silent", "silent"]


def test_a_worker_whose_process_is_gone_is_marked_at_once(either: Shell) -> None:
    sign_on(either, worker_row("a", host=process_identity.host(), pid=2**22 + 1, pid_started="1"))
    assert "gone for" in either.run("worker", "list").stdout
    assert either.json("worker", "list")[0]["absent"] == "gone"


def test_stopped_workers_are_listed_on_request(either: Shell) -> None:
    either.start("add", "n=1")
    either.work()
    assert either.json("worker", "list") == []
    [row] = either.json("worker", "list", "--all")
    assert row["status"] == "offline"
    assert row["stopped_at"]


def test_queues_are_listed_with_what_waits_and_who_serves(either: Shell) -> None:
    declare(either, Queue("default", "mail", 5, 1, 100, MINUTE))
    either.start("add", "n=1", "--queue", "lonely")
    sign_on(either, mine("a"))
    rows = {row["name"]: row for row in either.json("queue", "list")}
    assert set(rows) == {"default", "lonely", "mail"}
    assert (rows["lonely"]["pending"], rows["lonely"]["workers"]) == (1, 0)
    assert rows["default"]["workers"] == 1
    assert rows["mail"]["running_max"] == 5
    assert "5 running, 1 per key, 100 per 1m" in either.run("queue", "list").stdout


def test_a_silent_worker_does_not_count_as_one_that_serves(either: Shell) -> None:
    declare(either, Queue("default", "default"))
    sign_on(either, mine("a"), age_us=2 * MINUTE)
    [row] = either.json("queue", "list")
    assert (row["name"], row["workers"]) == ("default", 0)


def test_no_queue_is_said_so(either: Shell) -> None:
    assert either.run("queue", "list").stdout == "no queues: nothing waits, no worker is running\n"


def test_a_queue_is_paused_and_resumed(either: Shell) -> None:
    declare(either, Queue("default", "mail", 5))
    assert either.json("queue", "pause", "mail") == {"name": "mail", "paused": True}
    assert either.json("queue", "list")[0]["paused"] is True
    assert "mail  paused" in either.run("queue", "list").stdout
    assert either.run("queue", "resume", "mail").stdout == "queue mail is resumed\n"
    assert either.json("queue", "list")[0]["paused"] is False


def test_a_queue_nobody_declared_cannot_be_paused(either: Shell) -> None:
    assert "there is no queue 'mial'" in either.error("queue", "pause", "mial", code=4)
