"""One SQLite library for one file in a process.

Rota brings its own SQLite; Python's `sqlite3` (and what stands on it: SQLAlchemy, aiosqlite) has
another. The system forgets a process's locks on a file when any part of it closes the file, and
each library takes itself for the first to arrive and empties the memory that both share. That ends
in a damaged file or a bus error. So `sqlite3.connect` to a file that Rota holds is refused.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from functools import cache
from typing import Any
from urllib.parse import unquote, urlsplit

from rota import errors

Identity = tuple[int, int]
_held: Counter[Identity] = Counter()


def hold(path: str) -> Identity:
    """Refuse the file to the other library from now on."""
    _begin()
    found = os.stat(path)
    identity = (found.st_dev, found.st_ino)
    _held[identity] += 1
    return identity


def release(identity: Identity) -> None:
    """Rota closed the file."""
    _held[identity] -= 1
    if not _held[identity]:
        del _held[identity]


@cache
def _begin() -> None:
    """Once per process: there is no way to take it back."""
    sys.addaudithook(_watch)


def _watch(event: str, args: tuple[Any, ...]) -> None:
    if event != "sqlite3.connect" or not _held:
        return
    try:
        path = _path(args[0])
        found = os.stat(path)
    except (OSError, TypeError, ValueError):  # in memory, a new file, or nonsense: not ours to tell
        return
    if (found.st_dev, found.st_ino) in _held:
        raise errors.StoreHeld(
            f"sqlite3 cannot open {path}: Rota has the file open through another SQLite library"
        )


def _path(database: Any) -> str:
    """The file a caller of `sqlite3.connect` means, plain or as a URI."""
    path = os.fsdecode(database)
    return unquote(urlsplit(path).path) if path.startswith("file:") else path
