"""The files of one SQLite database: still those that Rota opened?

A process loses its POSIX locks on a file when any code in it closes that file. Another process may
then take itself for the last user, and delete the log. What Rota commits afterwards goes into a
file without a name, and is lost with the process. So no answer is given before a look at both.
"""

from __future__ import annotations

import os

import apsw

from rota import errors

Identity = tuple[int, int]


def identity(path: str) -> Identity:
    """What stays the same about a file whatever its name."""
    found = os.stat(path)
    return found.st_dev, found.st_ino


class OpenFiles:
    """The database file and the write-ahead log of one connection."""

    def __init__(self, connection: apsw.Connection, place: str) -> None:
        self._connection = connection
        self._place = place
        self._opened = [
            (path, identity(path)) for path in (connection.filename, connection.filename_wal)
        ]

    def gone(self) -> str | None:
        """The path that no longer leads to the file that was opened, if there is one."""
        for path, opened in self._opened:
            try:
                if identity(path) != opened:
                    return path
            except (FileNotFoundError, NotADirectoryError):
                return path
            except OSError:  # the path may not be looked up by this user: that says nothing
                continue
        return None

    def check(self) -> None:
        """Raise StoreGone when a file was deleted or replaced."""
        path = self.gone()
        if path is not None:
            raise errors.StoreGone(
                f"{self._place}: {path} was deleted or replaced while this process had it open"
            )

    def keep_from_checkpoint_if_gone(self) -> None:
        """Do not let SQLite copy a dead log into a file that others went on with."""
        if self.gone() is not None:
            self._connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
