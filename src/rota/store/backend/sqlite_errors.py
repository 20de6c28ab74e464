"""SQLite's errors as Rota's: what failed, why, and what to do about it.

SQLite has one code for a full quota, a read-only mount, a broken disk and missing shared memory.
The number that the system gave (errno) tells them apart.
"""

from __future__ import annotations

import errno
import os

import apsw

from rota import errors

_ERRORS: tuple[tuple[type[apsw.Error], type[errors.StoreError], str], ...] = (
    (apsw.FullError, errors.StoreFull, "the disk is full"),
    (apsw.BusyError, errors.StoreBusy, "another process holds the database"),
    (apsw.LockedError, errors.StoreBusy, "another process holds the database"),
    (apsw.ReadOnlyError, errors.StoreReadOnly, "the database may not be written"),
    (apsw.PermissionsError, errors.StoreReadOnly, "the database may not be opened"),
    (apsw.NotADBError, errors.StoreCorrupt, "the file is not a SQLite database"),
    (apsw.CorruptError, errors.StoreCorrupt, "the database file is damaged"),
    (apsw.CantOpenError, errors.StoreUnreachable, "the file cannot be opened"),
)

_HINTS: dict[type[apsw.Error], str] = {
    apsw.CantOpenError: "Check the path and its permissions; this user must be able to write it.",
    apsw.PermissionsError: "Check the permissions of the file and its folder.",
}

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_SHARED_MEMORY = (
    apsw.SQLITE_IOERR_SHMOPEN,
    apsw.SQLITE_IOERR_SHMSIZE,
    apsw.SQLITE_IOERR_SHMMAP,
    apsw.SQLITE_IOERR_SHMLOCK,
)
_ERRNO = "system_errno"


def keep_errno(error: BaseException, connection: apsw.Connection) -> None:
    """Keep the system's error number with the error: the next statement overwrites it."""
    if isinstance(error, (apsw.IOError, apsw.CantOpenError)):
        error.__dict__[_ERRNO] = connection.system_errno
    note_read_only_mount(error, connection.filename)


def note_read_only_mount(error: BaseException, path: str) -> None:
    """Note that the file system is mounted read-only: SQLite opens a file on it for reading, and
    then refuses writes, or fails to create its log, without the system's error number."""
    is_refusal = isinstance(error, (apsw.ReadOnlyError, apsw.CantOpenError))
    if is_refusal and path and _is_mounted_read_only(os.path.dirname(path)):
        error.__dict__[_ERRNO] = errno.EROFS


def _is_mounted_read_only(folder: str) -> bool:
    try:
        return bool(os.statvfs(folder).f_flag & os.ST_RDONLY)
    except (AttributeError, OSError):  # Windows, or no such folder
        return False


def translate(error: apsw.Error, place: str) -> errors.StoreError | apsw.Error:
    """An apsw error as one of ours; constraint errors and bugs stay what they are."""
    number = error.__dict__.get(_ERRNO, 0)
    if number == errno.EROFS:
        return errors.StoreReadOnly(
            f"{place}: the file system is read-only ({error})",
            hint="Mount it for writing (a failing disk is often remounted read-only: see the"
            " system's log), or move the database.",
        )
    if isinstance(error, apsw.IOError):
        return _io_error(error, number, place)
    for cls, ours, what in _ERRORS:
        if isinstance(error, cls):
            return ours(f"{place}: {what} ({error})", hint=_HINTS.get(cls))
    if isinstance(error, apsw.SQLError) and "no such table" in str(error):
        return errors.SchemaMissing(f"{place}: {error}")
    return error


def _io_error(error: apsw.IOError, number: int, place: str) -> errors.StoreError:
    reason = f"{error}: {os.strerror(number)}" if number else str(error)
    if number in _NO_SPACE:
        return errors.StoreFull(
            f"{place}: the disk, a quota or a file-size limit is full ({reason})"
        )
    if getattr(error, "extendedresult", None) in _SHARED_MEMORY:
        return errors.StoreNoSharedMemory(f"{place}: SQLite got no shared memory ({reason})")
    return errors.StoreIOError(f"{place}: the disk failed ({reason})")
