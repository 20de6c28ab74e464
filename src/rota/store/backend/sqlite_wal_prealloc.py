"""Room in SQLite's write-ahead log, made before it is needed.

A commit that lengthens the log costs the disk half as much again as one that writes over what is
there: the file system has to make the new length durable too. So a log that grows by small commits
is lengthened a mebibyte at a time, with zeros, which SQLite takes for the end of the log.
"""

from __future__ import annotations

import os

import apsw

CHUNK = bytes(1 << 20)
FRAME_BYTES_MAX = 4096 + 24
# A checkpoint costs as much as it moves pages, so a long log, in which pages come again, is cheap.
CHECKPOINT_PAGES = 4000
AHEAD = 16  # frames; more than that in a commit, and the zeros would cost more than they save


class WalPreallocation:
    """Lengthens the log of one writing connection."""

    def __init__(self, connection: apsw.Connection, path: str) -> None:
        self._path = path
        self._file: int | None = None
        self._used = self._before = 0  # frames
        self._room = 0
        connection.set_wal_hook(self._committed)

    def close(self) -> None:
        """Let the file go."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def make(self) -> None:
        """Called with the write lock held: nobody else may add to the log meanwhile."""
        if self._used + AHEAD <= self._room or self._used - self._before > AHEAD:
            return
        try:
            self._room = self._lengthen() // FRAME_BYTES_MAX
        except OSError:  # a full disk, say: whether the commit still fits is SQLite's to tell
            self._room = self._used + CHECKPOINT_PAGES

    def _lengthen(self) -> int:
        if self._file is None:
            self._file = os.open(f"{self._path}-wal", os.O_RDWR | os.O_CLOEXEC)
        length = os.fstat(self._file).st_size
        if self._used + AHEAD > length // FRAME_BYTES_MAX:
            length += os.pwrite(self._file, CHUNK, length)
        return length

    def _committed(self, connection: apsw.Connection, name: str, frames: int) -> int:
        self._before, self._used = self._used, frames
        if frames >= CHECKPOINT_PAGES:
            # Another process may be at it; then it is not ours to do.
            try:
                connection.wal_checkpoint(name, apsw.SQLITE_CHECKPOINT_PASSIVE)
            except (apsw.BusyError, apsw.LockedError):
                return apsw.SQLITE_OK
        return apsw.SQLITE_OK
