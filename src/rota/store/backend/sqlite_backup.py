"""A copy of a SQLite database while others write to it."""

from __future__ import annotations

import os
import tempfile

import apsw

from rota.errors import StoreUnreachable, UsageError


def backup(path: str, target: str, busy_s: float, *, disarmed_at: int | None = None) -> int:
    """Write one moment of the database to a new, private file; returns its size in bytes.

    The copy is compact, and holds all that was committed before. It has its name only when it is
    complete and durable. With `disarmed_at` the copy is disarmed since then."""
    target = os.path.abspath(target)
    if os.path.lexists(target):
        raise UsageError(f"{target} exists already", hint="Name a new file for the copy.")
    folder = os.path.dirname(target)
    try:
        number, partial = tempfile.mkstemp(prefix=f".{os.path.basename(target)}-", dir=folder)
    except OSError as error:
        raise StoreUnreachable(
            f"the copy cannot be written to {folder}: {error.strerror}",
            hint="Create the folder, or check its permissions.",
        ) from error
    try:
        _copy(path, partial, busy_s)
        if disarmed_at is not None:
            _disarm(partial, disarmed_at)
        os.fsync(number)
        size = os.fstat(number).st_size
        os.rename(partial, target)
    except BaseException:
        os.unlink(partial)
        raise
    finally:
        os.close(number)
    _sync_folder(folder)
    return size


def _copy(path: str, partial: str, busy_s: float) -> None:
    connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        connection.set_busy_timeout(round(busy_s * 1000))
        connection.execute("pragma auto_vacuum = incremental")  # the copy of an old file can shrink
        connection.execute("vacuum into ?", (partial,))
    finally:
        connection.close()


def _disarm(partial: str, at: int) -> None:
    connection = apsw.Connection(partial, flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        connection.execute(
            "insert into disarmed (id, at, reason) values (1, ?, 'a copy by rota backup')"
            " on conflict do nothing",
            (at,),
        )
    except apsw.SQLError as error:
        raise UsageError(
            "a database of an older Rota cannot be copied as disarmed",
            hint="Run `rota migrate` first, or copy without --disarmed.",
        ) from error
    finally:
        connection.close()


def _sync_folder(folder: str) -> None:
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
