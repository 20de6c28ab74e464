"""The write-ahead log of SQLite: preallocation and checkpoints.

A commit that lengthens the log costs the disk half as much again as one that overwrites: the file
system has to make the new length durable too. So a log that grows by small commits is lengthened a
mebibyte at a time, with zeros. SQLite takes them for the end of the log.

The zeros go in small writes. Linux caches one large write as one large folio, and ext4 then walks
through all its blocks at every later write of a page.
"""

from __future__ import annotations

import logging
import os
import time

import apsw

from rota.store.backend.sqlite_files import OpenFiles

log = logging.getLogger("rota.store")

ZEROS = bytes(1 << 16)
CHUNK_BYTES = 1 << 20
FRAME_BYTES_MAX = 4096 + 24
# The cost of a checkpoint is the number of distinct pages. A long log has many versions of the same
# pages, so rare checkpoints cost less.
CHECKPOINT_PAGES = 4000
AHEAD = 16  # frames; more than that in a commit, and the zeros would cost more than they save
# A checkpoint that failed moves everything again; a full disk should not have that at every commit.
RETRY_S = 1.0
LOG_EVERY_S = 60.0


class WalPreallocation:
    """Lengthens the log of one writing connection, and moves it into the database file."""

    def __init__(self, connection: apsw.Connection, files: OpenFiles) -> None:
        self._path = connection.filename_wal
        self._files = files
        self._file: int | None = None
        self._used = self._before = 0  # frames
        self._space = 0
        self._retry_at = 0.0
        self._log_at = 0.0
        connection.set_wal_hook(self._committed)

    def close(self) -> None:
        """Close the log file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def make(self) -> None:
        """Preallocate log space for the next commit. The caller holds the write lock, so no other
        process appends to the log."""
        if self._used + AHEAD <= self._space or self._used - self._before > AHEAD:
            return
        try:
            self._space = self._lengthen() // FRAME_BYTES_MAX
        except OSError:  # for example a full disk: only SQLite knows whether the commit still fits
            self._space = self._used + CHECKPOINT_PAGES

    def _lengthen(self) -> int:
        if self._file is None:
            self._file = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        length = os.fstat(self._file).st_size
        if self._used + AHEAD > length // FRAME_BYTES_MAX:
            for _ in range(CHUNK_BYTES // len(ZEROS)):
                length += os.pwrite(self._file, ZEROS, length)
        return length

    def _committed(self, connection: apsw.Connection, name: str, frames: int) -> int:
        """WAL hook, called after each commit. The commit is durable, so this must not raise."""
        self._before, self._used = self._used, frames
        if frames >= CHECKPOINT_PAGES and time.monotonic() >= self._retry_at:
            self._checkpoint(connection, name)
        return apsw.SQLITE_OK

    def _checkpoint(self, connection: apsw.Connection, name: str) -> None:
        if self._files.gone() is not None:  # frames of the dead log must not reach the file
            return
        try:
            connection.wal_checkpoint(name, apsw.SQLITE_CHECKPOINT_PASSIVE)
        except (apsw.BusyError, apsw.LockedError):
            return  # another process does the checkpoint
        except apsw.Error as error:
            now = time.monotonic()
            self._retry_at = now + RETRY_S
            if now >= self._log_at:
                self._log_at = now + LOG_EVERY_S
                log.warning(
                    "the log of %s cannot be moved into it, and grows: %s (errno %d). Commits are"
                    " durable. Free some space or check the disk; `rota doctor` shows the backlog.",
                    connection.filename, error, connection.system_errno,
                )  # fmt: skip
