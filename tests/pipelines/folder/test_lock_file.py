"""The lock file: one scheduler for one folder, and abandoned locks."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rota.core.time.instants import SECOND
from rota.errors import SchedulerLockError
from rota.pipelines.folder import lock_file
from rota.pipelines.folder.lock_file import LOCK_FILE, Lock, acquire, heartbeat, holder, release
from tests.pipelines.kit import NOW

DEAD, ALIVE = 11, 22


def take(folder: Path, *, now: int = NOW, pid: int = 1, host: str = "here") -> Lock:
    return acquire(folder, now=now, pid=pid, hostname=host, alive=lambda pid: pid != DEAD)


def test_the_promised_format_is_written(tmp_path: Path) -> None:
    lock = take(tmp_path, pid=12345, host="dev-machine")
    heartbeat(lock, now=NOW + 10 * SECOND)
    assert json.loads((tmp_path / LOCK_FILE).read_text()) == {
        "pid": 12345,
        "hostname": "dev-machine",
        "startedAt": "2026-01-26T04:00:00.000Z",
        "heartbeat": "2026-01-26T04:00:10.000Z",
    }
    assert release(lock)
    assert list(tmp_path.iterdir()) == []


def test_the_lock_is_private_also_after_a_heartbeat(tmp_path: Path) -> None:
    lock = take(tmp_path)
    assert lock.path.stat().st_mode & 0o777 == 0o600
    heartbeat(lock, now=NOW + 10 * SECOND)
    assert lock.path.stat().st_mode & 0o777 == 0o600
    assert release(lock)


def test_a_second_scheduler_is_refused_and_shown_whom_to_ask(tmp_path: Path) -> None:
    take(tmp_path, pid=ALIVE)
    with pytest.raises(SchedulerLockError) as caught:
        take(tmp_path, pid=3, now=NOW + 30 * SECOND)
    assert str(caught.value) == (
        f"another scheduler runs in {tmp_path}: process 22 on here, "
        "since 2026-01-26T04:00:00.000Z, last heartbeat 30s ago"
    )
    assert caught.value.facts == {"pid": 22, "hostname": "here"}
    assert [path.name for path in tmp_path.iterdir()] == [LOCK_FILE]


def test_a_second_one_in_the_same_process_is_refused_too(tmp_path: Path) -> None:
    lock = take(tmp_path)
    with pytest.raises(SchedulerLockError):
        take(tmp_path)
    release(lock)
    release(take(tmp_path))


@pytest.mark.parametrize(
    ("pid", "host", "seconds", "stale"),
    [
        (DEAD, "here", 1, True),  # its process is gone
        (ALIVE, "here", 60, False),
        (ALIVE, "here", 61, True),  # alive but silent: perhaps another program has its id
        (DEAD, "there", 60, False),  # ids of other machines say nothing
        (DEAD, "there", 61, True),
        (ALIVE, "there", -3600, False),  # its clock is ahead of ours
    ],
)
def test_when_a_lock_is_stale(
    tmp_path: Path, pid: int, host: str, seconds: int, stale: bool
) -> None:
    take(tmp_path, pid=pid, host=host)
    later = NOW + seconds * SECOND
    if stale:
        assert take(tmp_path, now=later).content.pid == 1
        assert [path.name for path in tmp_path.iterdir()] == [LOCK_FILE]
    else:
        with pytest.raises(SchedulerLockError):
            take(tmp_path, now=later)


def test_an_earlier_life_with_the_same_id_holds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    take(tmp_path)
    monkeypatch.setattr(lock_file, "_held", set())  # as after a restart of a container
    assert take(tmp_path, now=NOW + SECOND).content.started_at.endswith("04:00:01.000Z")


@pytest.mark.parametrize(
    "text", ["", "{", '{"pid": 1}', '{"pid":1,"hostname":"x","startedAt":"","heartbeat":"?"}']
)
def test_a_lock_that_cannot_be_read_is_taken_over(tmp_path: Path, text: str) -> None:
    (tmp_path / LOCK_FILE).write_text(text)
    assert holder(tmp_path) is None
    assert take(tmp_path).content.pid == 1


def test_who_lost_the_lock_learns_so_and_does_not_harm_the_new_holder(tmp_path: Path) -> None:
    old = take(tmp_path, pid=ALIVE, host="there")
    new = take(tmp_path, now=NOW + 61 * SECOND)
    with pytest.raises(SchedulerLockError, match=r"no longer holds .*: process 1 on here holds it"):
        heartbeat(old, now=NOW + 62 * SECOND)
    assert not release(old)
    assert holder(tmp_path) == new.content
    (tmp_path / LOCK_FILE).unlink()
    with pytest.raises(SchedulerLockError, match=r"no longer holds .*: it is free"):
        heartbeat(new, now=NOW)


def test_of_many_who_take_over_one_succeeds(tmp_path: Path) -> None:
    for _ in range(20):
        take(tmp_path, pid=DEAD)

        def attempt(pid: int) -> bool:
            try:
                acquire(
                    tmp_path, now=NOW + SECOND, pid=pid, hostname="here", alive=lambda p: p != DEAD
                )
            except SchedulerLockError:
                return False
            return True

        with ThreadPoolExecutor(8) as pool:
            won = list(pool.map(attempt, range(100, 108)))
        assert sum(won) == 1
        found = holder(tmp_path)
        assert found is not None
        assert won[found.pid - 100]
        (tmp_path / LOCK_FILE).unlink()
        assert list(tmp_path.iterdir()) == []
