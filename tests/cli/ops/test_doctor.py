"""`rota doctor`: every complaint it can make, and its exit codes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import msgspec
import pytest

from rota.client import doctor
from rota.core.runs.model import Queue
from rota.core.time.instants import MINUTE
from rota.engine import process_identity
from rota.errors import StoreFull
from tests.cli.kit import Daemon, Shell
from tests.cli.kit.workers import (
    declare,
    mine,
    sign_on,
)
from tests.kit import select
from tests.kit.builders import worker_row


class Usage(NamedTuple):
    total: int
    used: int
    free: int


AGO = "available_at = available_at - 600000000"


def findings(shell: Shell, *options: str, code: int = 0) -> list[dict[str, Any]]:
    """Its findings, as documents."""
    return list(shell.json("doctor", *options, code=code)["findings"])


def about(shell: Shell, what: str, *options: str, code: int = 0) -> dict[str, Any]:
    """The worst finding about one thing."""
    found = [one for one in findings(shell, *options, code=code) if one["what"] == what]
    return max(found, key=lambda one: ["ok", "warn", "bad"].index(one["level"]))


def change(shell: Shell, statement: str) -> None:
    """Write past Rota, to make what should not be."""
    asyncio.run(select(shell.url, statement))


def test_a_good_database_with_a_worker_is_well(either: Shell) -> None:
    sign_on(either, mine("a"))
    page = either.run("doctor").stdout
    assert page.endswith("\nall is well\n")
    assert {one["level"] for one in findings(either)} == {"ok"}
    assert either.json("doctor")["level"] == "ok"
    whats = [one["what"] for one in findings(either) if one["what"] != "grants"]  # PostgreSQL only
    assert whats == ["store", "schema", "clock", "invariants", "workers", "pending", "leases"]


def test_only_the_full_doctor_reads_all_that_is_stored(either: Shell) -> None:
    sign_on(either, mine("a"))
    assert "`--full` reads all runs" in about(either, "invariants")["says"]
    assert about(either, "invariants", "--full")["says"].startswith("all ")


def test_runs_that_are_stored_past_their_time_are_named(either: Shell) -> None:
    either.start("add", "n=1")
    either.work()
    assert "retention" not in {one["what"] for one in findings(either)}
    # Ids begin with the time of creation; this one is of 2001.
    change(either, "update runs set id = '00e0000000007000000000000000000a', root_id = "
           "'00e0000000007000000000000000000a', finished_at = 980000000000000")  # fmt: skip
    found = about(either, "retention")
    assert found["level"] == "warn"
    assert "1 run past keep_days (30)" in found["says"]


def test_it_names_the_store_and_how_it_keeps_its_promises(shell: Shell) -> None:
    shell.run("migrate")
    says = about(shell, "store")["says"]
    assert says.startswith("SQLite 3.")
    assert "journal wal, synchronous full" in says


def test_a_setting_that_may_lose_commits_is_a_warning(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell.run("migrate")
    monkeypatch.setenv("ROTA_SYNCHRONOUS", "normal")
    assert about(shell, "store")["level"] == "warn"


def test_files_that_other_users_may_open_are_a_warning(shell: Shell) -> None:
    shell.run("migrate")
    assert "permissions" not in [one["what"] for one in findings(shell)]
    path = Path(shell.url.removeprefix("sqlite:///"))
    path.chmod(0o644)
    finding = about(shell, "permissions")
    assert finding["level"] == "warn"
    assert str(path.resolve()) in finding["says"]
    assert f"chmod go= {path.resolve()}" in finding["hint"]


def test_a_log_that_is_not_moved_into_the_file_is_a_warning(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell.run("migrate")
    reader = apsw.Connection(shell.url.removeprefix("sqlite:///"))
    reader.execute("begin; select count(*) from runs").fetchall()
    for n in range(3):
        shell.start("add", f"n={n}")
    assert "log" not in [one["what"] for one in findings(shell)]
    monkeypatch.setattr("rota.store.backend.sqlite_inspect.BACKLOG_PAGES", 3)
    finding = about(shell, "log")
    assert finding["level"] == "warn"
    assert "not yet in the database file" in finding["says"]
    reader.close()


MIB, GIB = 1 << 20, 1 << 30


@pytest.mark.parametrize(
    ("free", "total", "level"),
    [
        (0, 100 * GIB, "bad"),
        (MIB - 1, 8 * MIB, "bad"),  # less than the log grows by
        (10 * MIB, 40 * MIB, "warn"),  # less than the log between two checkpoints
        (400 * MIB, 100 * GIB, "warn"),
        (400 * MIB, 2 * GIB, None),  # small, but a fifth of it is free
        (600 * MIB, 100 * GIB, None),
    ],
)
def test_a_disk_that_is_nearly_full_is_named_with_its_free_bytes(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, free: int, total: int, level: str | None
) -> None:
    shell.run("migrate")
    usage = Usage(total, total - free, free)
    monkeypatch.setattr("rota.store.backend.sqlite_inspect.disk_usage", lambda _: usage)
    code = int(level == "bad")
    found = [one for one in findings(shell, code=code) if one["what"] == "disk"]
    assert [one["level"] for one in found] == ([level] if level else [])
    for one in found:
        path = Path(shell.url.removeprefix("sqlite:///")).resolve()
        assert one["says"].startswith(f"{free:,} bytes (")
        assert str(path.parent) in one["says"]
        assert "Free some space" in one["hint"]


def test_a_full_disk_is_named_even_if_the_database_cannot_be_opened(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell.run("migrate")
    usage = Usage(100 * GIB, 100 * GIB, 0)
    monkeypatch.setattr("rota.store.backend.sqlite_inspect.disk_usage", lambda _: usage)

    async def full(self: object) -> None:
        raise StoreFull("the disk is full")

    monkeypatch.setattr("rota.store.backend.sqlite.SqliteDatabase.open", full)
    found = findings(shell, code=3)
    assert [(one["level"], one["what"]) for one in found] == [("bad", "database"), ("bad", "disk")]


@pytest.mark.parametrize(
    ("mounted", "says", "hint"),
    [
        (False, "the database may not be written", "Check the permissions of the file"),
        (True, "the file system is read-only", "Mount it for writing"),
    ],
)
def test_a_file_that_cannot_be_written_is_bad_and_the_cause_is_named(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, mounted: bool, says: str, hint: str
) -> None:
    shell.run("migrate")

    def refused(*_: object) -> None:
        raise apsw.ReadOnlyError("attempt to write a readonly database")

    monkeypatch.setattr("rota.store.backend.sqlite_inspect._inspect", refused)
    monkeypatch.setattr("rota.store.backend.sqlite_errors._is_mounted_read_only", lambda _: mounted)
    finding = about(shell, "database", code=3)
    assert finding["level"] == "bad"
    assert says in finding["says"]
    assert hint in finding["hint"]


def test_an_old_sqlite_is_bad(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    shell.run("migrate")
    monkeypatch.setattr("rota.store.backend.sqlite.SAFE_SQLITE", (99, 0, 0))
    finding = about(shell, "store", code=1)
    assert finding["level"] == "bad"
    assert "Upgrade apsw" in finding["hint"]


def test_no_worker_is_a_warning_until_runs_wait_in_vain(either: Shell) -> None:
    assert about(either, "workers")["level"] == "warn"
    either.start("add", "n=1")
    assert about(either, "pending")["level"] == "warn"
    change(either, f"update runs set {AGO} where status = 'pending' returning id")
    finding = about(either, "pending", code=1)
    assert finding["level"] == "bad"
    assert "1 run of add in queue default, waiting up to 10m" in finding["says"]
    assert "no live worker serves the queue" in finding["says"]


def test_runs_that_wait_though_somebody_serves_their_queue(either: Shell) -> None:
    sign_on(either, msgspec.structs.replace(mine("a"), names='["add"]'))
    either.start("add", "n=1")
    assert about(either, "pending")["level"] == "ok"
    change(either, f"update runs set {AGO} where status = 'pending' returning id")
    finding = about(either, "pending")
    assert finding["level"] == "warn"
    assert "All slots are busy, or a limit of queue default is reached" in finding["hint"]


def test_runs_that_no_worker_knows_are_named_at_once(either: Shell) -> None:
    sign_on(either, msgspec.structs.replace(mine("a"), names='["other"]'))
    # It knows the workflow, but serves another queue.
    sign_on(either, msgspec.structs.replace(mine("b"), names='["add"]', queues='["mail"]'))
    either.start("add", "n=1")
    finding = about(either, "pending")
    assert finding["level"] == "warn"
    assert "no live worker that serves the queue knows add" in finding["says"]
    change(either, f"update runs set {AGO} where status = 'pending' returning id")
    assert about(either, "pending", code=1)["level"] == "bad"
    assert "code that registers add" in about(either, "pending", code=1)["hint"]


def test_a_silent_worker_is_named_with_host_and_pid(either: Shell) -> None:
    sign_on(either, worker_row("far", host="elsewhere/x/y", pid=77), age_us=5 * MINUTE)
    finding = about(either, "workers")
    texts = [one["says"] for one in findings(either)]
    silent = "worker far (elsewhere, pid 77) has sent no heartbeat for 5m"
    assert any(silent in text for text in texts)
    assert finding["level"] == "warn"


def test_a_silent_worker_on_this_machine_is_distinguished_from_a_gone_one(either: Shell) -> None:
    sign_on(either, mine("hangs"), age_us=5 * MINUTE)
    sign_on(
        either, worker_row("dead", host=process_identity.host(), pid=2**22 + 1, pid_started="1")
    )
    texts = " ".join(f"{one['says']} {one['hint']}" for one in findings(either))
    assert "the event loop of worker hangs " in texts
    assert "its last heartbeat is 5m old" in texts
    assert "worker dead" in texts
    assert "is gone without signing off" in texts


def test_a_paused_queue_is_a_warning(either: Shell) -> None:
    declare(either, Queue("default", "mail", 5))
    either.start("add", "n=1", "--queue", "mail")
    either.run("queue", "pause", "mail")
    finding = about(either, "queues")
    assert (finding["level"], finding["hint"]) == ("warn", "`rota queue resume mail`.")
    assert "the queue is paused" in about(either, "pending")["says"]


def test_a_lapsed_lease_is_found(either: Shell) -> None:
    run_id = either.start("add", "n=1")
    change(
        either,
        "update runs set status = 'running', lease_owner = 'nobody', lease_until = 5,"
        " claim_count = 1, started_at = created_at where status = 'pending' returning id",
    )
    finding = about(either, "leases", code=1)
    assert finding["level"] == "bad"
    assert run_id in finding["says"]
    sign_on(either, mine("a"))
    assert about(either, "leases")["level"] == "warn", "somebody is there to take it over"


def test_a_lapsed_lease_is_found_behind_newer_runs(
    either: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "LOOK_MAX", 1)
    for lease_until in (5, 2**52):
        run_id = either.start("add", "n=1")
        change(
            either,
            "update runs set status = 'running', lease_owner = 'nobody', started_at = created_at,"
            f" claim_count = 1, lease_until = {lease_until} where id = '{run_id}' returning id",
        )
    assert "1 lease lapsed" in about(either, "leases", code=1)["says"]


def test_a_sleeper_that_nobody_woke_is_found(either: Shell) -> None:
    either.start("add", "n=1", "--delay", "1h")
    assert not [one for one in findings(either) if one["what"] == "sleeping"]
    change(either, "update runs set available_at = 5 where status = 'sleeping' returning id")
    assert about(either, "sleeping", code=1)["level"] == "bad"


def test_chains_that_were_quarantined_are_found(either: Shell) -> None:
    run_id = either.start("add", "n=1")
    change(
        either,
        "update runs set status = 'crashed', reason = 'lapsed', finished_at = created_at"
        " where status = 'pending' returning id",
    )
    finding = about(either, "crashed")
    assert finding["level"] == "warn"
    assert run_id in finding["says"]
    either.run("run", "retry", run_id)
    assert not [one for one in findings(either) if one["what"] == "crashed"], "taken up again"


def test_runs_that_wait_for_a_person_are_found(either: Shell) -> None:
    run_id = either.start("login")
    either.work()
    assert f"{run_id} (login, auth)" in about(either, "waiting")["says"]


def test_schedules_that_were_quarantined_are_found(either: Shell) -> None:
    either.run("schedule", "create", "nightly", "add", "0 3 * * *", "--input", '{"n": 1}')
    change(either, "update runs set status = 'paused', reason = 'quarantined: unreadable'"
        " where kind = 'schedule' returning id")  # fmt: skip
    finding = about(either, "schedules")
    assert (finding["level"], finding["says"]) == ("warn", "1 schedule quarantined: nightly")
    assert "rota why" in finding["hint"]


def test_a_broken_invariant_is_bad(either: Shell) -> None:
    change(
        either,
        "insert into steps (root_id, key, position, kind, status, attempt, run_attempt, started_at,"
        " finished_at) values ('nobody', 'a#0', 1, 'step', 'completed', 1, 1, 1, 1) returning key",
    )
    finding = about(either, "invariants", "--full", code=1)
    assert finding["level"] == "bad"
    assert "every step belongs to a chain" in finding["says"]
    assert "1 bad" in either.run("doctor", "--full", code=1).stdout


def test_a_database_that_was_never_migrated_ends_with_3(either: Shell) -> None:
    if either.url.startswith("sqlite"):
        apsw.Connection("empty.db").execute("create table mine (x)").fetchall()
        url = "sqlite:///empty.db"
    else:
        url = f"{either.url}x"
    document = either.json("doctor", "--database", url, code=3)
    assert document["level"] == "bad"
    assert "lacks migration 0001" in document["findings"][-1]["says"]
    assert "`rota migrate`" in document["findings"][-1]["hint"]


def test_a_file_that_is_no_database_ends_with_3(shell: Shell) -> None:
    Path("jobs.db").write_text("a letter\n" * 200)
    page = shell.run("doctor", code=3).stdout
    assert "is not a SQLite database" in page


def test_a_locked_database_ends_with_3(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    shell.run("migrate")
    monkeypatch.setenv("ROTA_BUSY_S", "0.1")
    other = apsw.Connection("jobs.db")
    other.execute("begin immediate")
    assert "another process holds the database" in shell.run("doctor", code=3).stdout
    other.close()


def test_it_changes_nothing(shell: Shell) -> None:
    shell.start("add", "n=1")
    before = shell.json("run", "list")
    shell.run("doctor")
    assert shell.json("run", "list") == before


@pytest.mark.wall_clock("a heartbeat is late by real seconds")
def test_a_blocked_event_loop_is_named_with_what_it_executes(
    shell: Shell, up: Callable[..., Daemon]
) -> None:
    (shell.folder / "jobs.py").write_text(BLOCKING)
    daemon = up()
    daemon.receives("is up")
    run_id = shell.start("blocks")
    daemon.receives("blocking now")

    def blocked() -> str | None:
        finding = about(shell, "workers")
        return finding["says"] if "is blocked" in finding["says"] else None

    deadline = time.monotonic() + 60
    while (says := blocked()) is None:
        assert time.monotonic() < deadline
    assert f"(pid {daemon.pid}) is blocked: its last heartbeat is " in says
    assert says.endswith(f"it executes blocks ({run_id[-8:]})")


BLOCKING = """
import sys, time
from rota import Rota

app = Rota()

@app.workflow
async def blocks() -> None:
    print("blocking now", file=sys.stderr, flush=True)
    time.sleep(60)
"""


def test_repair_releases_a_run_that_is_queued_behind_nobody(either: Shell) -> None:
    sign_on(either, mine("a"))
    either.run("schedule", "create", "nightly", "naps", "@daily")
    either.run("schedule", "trigger", "nightly")
    change(
        either,
        "update runs set status = 'sleeping', reason = 'turn', available_at = null "
        "where kind = 'workflow' returning id",
    )
    found = about(either, "invariants", code=1)
    assert "a queued occurrence has a run before it" in found["says"]
    assert found["hint"].startswith("`rota doctor --repair`")
    page = either.run("doctor", "--repair").stdout
    assert "released 1 run that waited for no run" in page
    assert about(either, "invariants")["level"] == "ok"
    assert "repaired" not in either.run("doctor", "--repair").stdout


def test_a_change_of_a_chain_that_has_ended_is_found_with_the_command_that_takes_it_up(
    either: Shell,
) -> None:
    sign_on(either, mine("a"))
    change(
        either,
        "insert into runs (id, namespace, kind, name, queue, priority, status, reason, root_id, "
        "attempt, recoveries, trigger, created_at, finished_at) values ('0a', 'default', "
        "'automation', 'bad', 'default', 0, 'failed', 'logic', '0a', 1, 0, 'event', 1, 2) "
        "returning id",
    )
    change(
        either,
        "insert into mutations (id, root_id, run_id, namespace, automation, handler, tool, safety, "
        "params, status, created_at, updated_at) values ('0a-001', '0a', '0a', 'default', 'bad', "
        "'worker', 'send', 'unknowable', '{}', 'in_flight', 1, 1) returning id",
    )
    found = about(either, "automations", code=1)
    assert "automation bad ended without an answer about its change" in found["says"]
    assert found["hint"].startswith("`rota automation resume bad` takes them up")
