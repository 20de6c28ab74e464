"""`.scheduler.lock`: one scheduler for one folder. It holds who, since when, and a heartbeat.

A lock is stale when its process is gone (on this machine) or its heartbeat is too old. A stale
lock is taken over; of several who try at once, one succeeds. A scheduler that lost its lock learns
so at its next heartbeat. The clock, and the question whether a process lives, are arguments.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import msgspec

from rota.core.time.instants import SECOND, instant, iso, span
from rota.errors import SchedulerLockError
from rota.pipelines.files import write_whole

LOCK_FILE = ".scheduler.lock"
PRIVATE = 0o600
STALE_US = 60 * SECOND
HEARTBEAT_US = 10 * SECOND

# Paths locked by this very process: its own id says nothing about an earlier life of it.
_held: set[str] = set()


class LockContent(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The whole file."""

    pid: int
    hostname: str
    started_at: str
    heartbeat: str


class Lock(NamedTuple):
    """A lock that is held."""

    path: Path
    content: LockContent


def is_alive(pid: int) -> bool:
    """Whether a process of this machine lives; when in doubt, it does."""
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return not _is_zombie(pid)


def _is_zombie(pid: int) -> bool:
    """Whether a process is dead, and only its parent has not taken note (a container without an
    init never does). Linux tells; elsewhere the heartbeat decides."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        return False
    return state.rpartition(")")[2].split()[:1] == ["Z"]


def acquire(
    folder: Path,
    *,
    now: int,
    stale_us: int = STALE_US,
    pid: int | None = None,
    hostname: str | None = None,
    alive: Callable[[int], bool] = is_alive,
) -> Lock:
    """Take the lock of a folder, or raise SchedulerLockError that names the holder."""
    path = folder / LOCK_FILE
    mine = LockContent(
        pid=os.getpid() if pid is None else pid,
        hostname=hostname or socket.gethostname(),
        started_at=iso(now),
        heartbeat=iso(now),
    )
    folder.mkdir(parents=True, exist_ok=True)
    with _guarded(folder):
        raw = _raw(path)
        other = None if raw is None else _content(raw)
        if other is not None and not _stale(other, mine, path, now, stale_us, alive):
            raise _refused(path, other, now)
        path.unlink(missing_ok=True)
        if not _created(path, mine):  # only where the file system has no guard
            raise SchedulerLockError(f"{path} was taken by another scheduler at this moment")
    _held.add(_key(path))
    return Lock(path, mine)


def heartbeat(lock: Lock, *, now: int) -> Lock:
    """Say that the holder is alive; SchedulerLockError when the lock is not ours any more."""
    with _guarded(lock.path.parent):
        found = _content(_raw(lock.path) or b"")
        if found is not None and _same(found, lock.content):
            content = msgspec.structs.replace(lock.content, heartbeat=iso(now))
            write_whole(lock.path, [_text(content)], mode=PRIVATE)
            return Lock(lock.path, content)
    _held.discard(_key(lock.path))
    who = "nobody" if found is None else _named(found)
    raise SchedulerLockError(
        f"{lock.path} is not ours any more: it belongs to {who}",
        hint="This scheduler was silent for too long; it must stop.",
    )


def release(lock: Lock) -> bool:
    """Give the lock back; answers whether it was still ours."""
    _held.discard(_key(lock.path))
    with _guarded(lock.path.parent):
        found = _content(_raw(lock.path) or b"")
        if found is None or not _same(found, lock.content):
            return False
        lock.path.unlink(missing_ok=True)
        return True


def holder(folder: Path) -> LockContent | None:
    """Who holds the lock of a folder, stale or not."""
    raw = _raw(folder / LOCK_FILE)
    return None if raw is None else _content(raw)


def living(
    folder: Path, *, now: int, stale_us: int = STALE_US, alive: Callable[[int], bool] = is_alive
) -> LockContent | None:
    """Who holds the lock of a folder and is alive; this process counts like any other."""
    found = holder(folder)
    if found is None or now - _instant(found.heartbeat) > stale_us:
        return None
    gone = found.hostname == socket.gethostname() and not alive(found.pid)
    return None if gone else found


def _stale(
    other: LockContent,
    mine: LockContent,
    path: Path,
    now: int,
    stale_us: int,
    alive: Callable[[int], bool],
) -> bool:
    if other.hostname == mine.hostname:
        if other.pid == mine.pid:
            return _key(path) not in _held  # an earlier process that had the same id
        if not alive(other.pid):
            return True
    return now - _instant(other.heartbeat) > stale_us


def _refused(path: Path, other: LockContent, now: int) -> SchedulerLockError:
    ago = span(max(0, now - _instant(other.heartbeat)))
    return SchedulerLockError(
        f"another scheduler looks after {path.parent}: {_named(other)}, since {other.started_at}, "
        f"last heartbeat {ago} ago",
        hint=f"Stop it first. If its machine is gone, wait a minute or delete {path}.",
        pid=other.pid,
        hostname=other.hostname,
    )


def _named(content: LockContent) -> str:
    return f"process {content.pid} on {content.hostname}"


def _created(path: Path, content: LockContent) -> bool:
    """Put a whole file in place unless one is there; a half-written lock is never seen."""
    draft = path.with_name(f"{LOCK_FILE}.{secrets.token_hex(4)}.tmp")
    write_whole(draft, [_text(content)], mode=PRIVATE)
    try:
        os.link(draft, path)
    except FileExistsError:
        return False
    finally:
        draft.unlink(missing_ok=True)
    return True


@contextlib.contextmanager
def _guarded(folder: Path) -> Iterator[None]:
    """Look and act as one step: the folder itself is locked meanwhile, where the system can."""
    try:
        import fcntl

        descriptor = os.open(folder, os.O_RDONLY)
    except (ImportError, OSError):
        yield
        return
    try:
        with contextlib.suppress(OSError):  # some network file systems have no such locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _raw(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _content(raw: bytes) -> LockContent | None:
    """The content of a lock; an unreadable one is as good as none."""
    try:
        content = msgspec.json.decode(raw, type=LockContent)
        _instant(content.heartbeat)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    return content


def _same(one: LockContent, other: LockContent) -> bool:
    return (one.pid, one.hostname, one.started_at) == (other.pid, other.hostname, other.started_at)


def _instant(text: str) -> int:
    return instant(datetime.fromisoformat(text))


def _text(content: LockContent) -> str:
    return msgspec.json.format(msgspec.json.encode(content), indent=2).decode() + "\n"


def _key(path: Path) -> str:
    return str(path.resolve())
