"""`.scheduler.lock`: one scheduler for one folder. It names the holder, and has a heartbeat.

A lock is stale when its process is gone (on this machine) or its heartbeat is too old. A stale
lock is taken over; of several takers at once, one succeeds. A scheduler notices the loss of its
lock at its next heartbeat. The time, and whether a process lives, are arguments.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import socket
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from rota.core.time.instants import SECOND, instant, iso, span
from rota.engine.process_identity import is_alive
from rota.errors import SchedulerLockError
from rota.pipelines.files import write_whole

if TYPE_CHECKING:
    from rota.engine.clock import Clock

log = logging.getLogger("rota.pipelines")

LOCK_FILE = ".scheduler.lock"
PRIVATE = 0o600
STALE_US = 60 * SECOND
HEARTBEAT_US = 10 * SECOND

# Paths locked by this process. A lock with the id of this process may be that of an earlier one.
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
        other = holder(folder)
        if other is not None and (other.hostname, other.pid) == (mine.hostname, mine.pid):
            is_stale = _key(path) not in _held  # an earlier process had the same id
        else:
            is_stale = other is None or _is_stale(other, mine.hostname, now, stale_us, alive)
        if other is not None and not is_stale:
            raise _refused(path, other, now)
        path.unlink(missing_ok=True)
        if not _created(path, mine):  # only where the file system has no guard
            raise SchedulerLockError(f"{path} was taken by another scheduler at this moment")
    _held.add(_key(path))
    return Lock(path, mine)


def heartbeat(lock: Lock, *, now: int) -> Lock:
    """Write that the holder is alive; SchedulerLockError when the lock is not ours any more."""
    with _guarded(lock.path.parent):
        current = holder(lock.path.parent)
        if current is not None and _identity(current) == _identity(lock.content):
            content = msgspec.structs.replace(lock.content, heartbeat=iso(now))
            write_whole(lock.path, [_text(content)], mode=PRIVATE)
            return Lock(lock.path, content)
    _held.discard(_key(lock.path))
    state = "it is free" if current is None else f"{_named(current)} holds it"
    raise SchedulerLockError(
        f"this scheduler no longer holds {lock.path}: {state}",
        hint="This scheduler wrote no heartbeat for too long, so it must stop.",
    )


def release(lock: Lock) -> bool:
    """Give the lock back; returns whether it was still ours."""
    _held.discard(_key(lock.path))
    with _guarded(lock.path.parent):
        current = holder(lock.path.parent)
        if current is None or _identity(current) != _identity(lock.content):
            return False
        lock.path.unlink(missing_ok=True)
        return True


def holder(folder: Path) -> LockContent | None:
    """The holder of a folder's lock, stale or not. A file that cannot be decoded has no holder."""
    try:
        content = msgspec.json.decode((folder / LOCK_FILE).read_bytes(), type=LockContent)
        _instant(content.heartbeat)
    except (FileNotFoundError, msgspec.DecodeError, ValueError, RecursionError):
        return None
    return content


def living(folder: Path, *, now: int) -> LockContent | None:
    """The holder of a folder's lock, if it is alive. This process counts like any other."""
    current = holder(folder)
    if current is None or _is_stale(current, socket.gethostname(), now, STALE_US, is_alive):
        return None
    return current


def _is_stale(
    content: LockContent, hostname: str, now: int, stale_us: int, alive: Callable[[int], bool]
) -> bool:
    is_dead = content.hostname == hostname and not alive(content.pid)
    return is_dead or now - _instant(content.heartbeat) > stale_us


def _refused(path: Path, other: LockContent, now: int) -> SchedulerLockError:
    ago = span(max(0, now - _instant(other.heartbeat)))
    return SchedulerLockError(
        f"another scheduler runs in {path.parent}: {_named(other)}, since {other.started_at}, "
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
    """Read and write the lock as one step: lock the folder itself, where the system can."""
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


def _identity(content: LockContent) -> tuple[int, str, str]:
    """The part of a lock that stays the same from heartbeat to heartbeat."""
    return content.pid, content.hostname, content.started_at


def _instant(text: str) -> int:
    return instant(datetime.fromisoformat(text))


def _text(content: LockContent) -> str:
    return msgspec.json.format(msgspec.json.encode(content), indent=2).decode() + "\n"


def _key(path: Path) -> str:
    return str(path.resolve())


class LockHeartbeat:
    """The lock of one folder; `lost` is called once when another process has it."""

    def __init__(
        self,
        folder: Path,
        clock: Clock,
        *,
        stale_us: int,
        beat_us: int,
        lost: Callable[[], None],
    ) -> None:
        self._folder = folder
        self._clock = clock
        self._stale_us, self._beat_us = stale_us, beat_us
        self._on_lost = lost
        self._lock: Lock | None = None
        self.lost: SchedulerLockError | None = None

    def take(self) -> None:
        """Take the lock, or raise SchedulerLockError that names the holder."""
        now = self._clock.now()
        self._lock = acquire(self._folder, now=now, stale_us=self._stale_us)
        self.lost = None

    def release(self) -> None:
        """Give it back, if it is held."""
        if self._lock is not None:
            release(self._lock)
            self._lock = None

    async def beat(self) -> None:
        """Write a heartbeat at every interval, until the lock is lost."""
        while self._lock is not None:
            clock = self._clock
            await clock.wait(asyncio.Event(), clock.now() + self._beat_us)
            if not self._folder.is_dir():
                continue  # away, as a mount may be: no other process can take it either
            try:
                self._lock = heartbeat(self._lock, now=clock.now())
            except SchedulerLockError as error:
                log.error("%s %s", error, error.advice)
                self.lost, self._lock = error, None
                self._on_lost()
            except OSError as error:  # a full disk does not mean that the folder is left alone
                log.warning("the heartbeat of the lock cannot be written: %s", error)
