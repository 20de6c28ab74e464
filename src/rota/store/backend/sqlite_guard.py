"""A file that Rota holds is refused to all other code in this process.

The system forgets a process's locks on a file when any part of it closes that file. Two things do
that: Python's `sqlite3` (and what uses it: SQLAlchemy, aiosqlite), which is another library
than Rota's, and a plain copy (`shutil.copy`). Without its locks the log of the database is deleted
by the next process that closes the file, and two libraries damage it at once. The log itself
carries no locks and may be read.
"""

from __future__ import annotations

import contextlib
import os
import sys
from functools import cache
from typing import Any
from urllib.parse import unquote, urlsplit

from rota import errors
from rota.store.backend.sqlite_files import Identity, identity

# By identity, the paths of the files that are open.
_held: dict[Identity, list[str]] = {}
_SHARED_MEMORY = "-shm"
# Never opens a file that exists.
_NEW = os.O_CREAT | os.O_EXCL


def hold(path: str) -> list[Identity]:
    """Refuse the database, and the shared memory beside it, to other code from now on."""
    _begin()
    real = os.path.realpath(path)
    held = []
    for each in (real, f"{real}{_SHARED_MEMORY}"):
        held.append(identity(each))
        _held.setdefault(held[-1], []).append(each)
    return held


def release(held: list[Identity]) -> None:
    """Rota closed the file."""
    for one in held:
        _held[one].pop()
        if not _held[one]:
            del _held[one]


def is_held(path: str) -> bool:
    """Whether Rota has this file open in this process. The last close deletes the shared memory,
    and another file may get its identity before `release`: that one is free."""
    if not _held:
        return False
    found = identity(path)
    for held in _held.get(found, ()):
        if not held.endswith(_SHARED_MEMORY):
            return True
        with contextlib.suppress(FileNotFoundError):
            if identity(held) == found:
                return True
    return False


@cache
def _begin() -> None:
    """Install the audit hook, once per process: Python cannot remove one."""
    sys.addaudithook(_watch)
    # A child that was forked has none of its parent's locks, so it may lose none.
    os.register_at_fork(after_in_child=_held.clear)


def _watch(event: str, args: tuple[Any, ...]) -> None:
    if event == "open":
        if _held and args[2] & _NEW != _NEW:
            _refuse("open()", args[0], "in this process; a second close would drop its locks")
    elif event == "sqlite3.connect" and _held:
        _refuse("sqlite3", _path(args[0]), "through another SQLite library")


def _refuse(who: str, path: Any, why: str) -> None:
    try:
        if isinstance(path, int) or not is_held(path):
            return
    except (
        OSError,
        TypeError,
        ValueError,
    ):  # in memory, a new file, or not a path: not ours to refuse
        return
    raise errors.StoreHeld(f"{who} cannot open {os.fsdecode(path)}: Rota has the file open {why}")


def _path(database: Any) -> Any:
    """The file a caller of `sqlite3.connect` means, plain or as a URI."""
    try:
        path = os.fsdecode(database)
    except TypeError:
        return None
    return unquote(urlsplit(path).path) if path.startswith("file:") else path
