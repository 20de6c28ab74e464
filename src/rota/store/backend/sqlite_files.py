"""The files of one SQLite database: still those that Rota opened?

A process loses its POSIX locks on a file when any code in it closes that file. Another process may
then take itself for the last user, and delete the log. Later commits of Rota go into a file without
a name, and are lost with the process. So both are checked before every answer.

A read of their folder is enough while no file in it was created, renamed or deleted.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time

import apsw

from rota import errors

Identity = tuple[int, int]
FolderStamp = tuple[int, int, int]
PRIVATE = 0o600
_creating = threading.Lock()
# File systems stamp changes by a clock that ticks every few milliseconds. After this long, no
# further change can leave a stamp as it is.
SETTLED_S = 0.1


def identity(path: str) -> Identity:
    """The identity of a file, whatever its name."""
    found = os.stat(path)
    return found.st_dev, found.st_ino


def create_private(path: str) -> None:
    """Create a database file that only its owner may read; leave one that exists as it is.

    SQLite gives the log and the shared memory the permissions of the file."""
    with _creating:  # closing the new file must not drop the locks of a connection made meanwhile
        if os.path.exists(path):
            return
        with contextlib.suppress(FileExistsError):
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE))


def open_to_others(path: str) -> list[str]:
    """Which of a database's files users other than the owner may read or write."""
    real = os.path.realpath(path)
    found = []
    for each in (real, f"{real}-wal", f"{real}-shm", f"{real}-wake"):
        with contextlib.suppress(OSError):
            if os.stat(each).st_mode & 0o077:
                found.append(each)
    return found


class OpenFiles:
    """The database file and the write-ahead log of one connection."""

    def __init__(self, connection: apsw.Connection, place: str) -> None:
        self._connection = connection
        self._place = place
        self._opened = [
            (path, identity(path)) for path in (connection.filename, connection.filename_wal)
        ]
        self._folder = os.path.dirname(connection.filename)
        self._stamp: FolderStamp | None = None  # of the folder, at the last check
        self._stamped_at = 0.0  # when this stamp was first seen
        self._is_settled = False  # whether both files were in place long after that

    def gone(self) -> str | None:
        """The path that no longer leads to the file that was opened, if there is one."""
        for path, opened in self._opened:
            try:
                if identity(path) != opened:
                    return path
            except (FileNotFoundError, NotADirectoryError):
                return path
            except OSError:  # this user may not look up the path, so its state is unknown
                continue
        return None

    def check(self) -> None:
        """Raise StoreGone when a file was deleted or replaced."""
        stamp = self._folder_stamp()
        if self._is_settled and stamp == self._stamp:
            return
        now = time.monotonic()
        if stamp is None or stamp != self._stamp:
            self._stamp, self._stamped_at, self._is_settled = stamp, now, False
        path = self.gone()
        if path is not None:
            raise errors.StoreGone(
                f"{self._place}: {path} was deleted or replaced while this process had it open"
            )
        self._is_settled = now - self._stamped_at > SETTLED_S

    def _folder_stamp(self) -> FolderStamp | None:
        """The folder, and when a file in it was last created, renamed or deleted."""
        try:
            found = os.stat(self._folder)
        except OSError:
            return None
        return found.st_dev, found.st_ino, found.st_mtime_ns

    def keep_from_checkpoint_if_gone(self) -> None:
        """Do not let SQLite copy a dead log into a file that others continued with."""
        if self.gone() is not None:
            self._connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
