"""Files that are there whole or not at all, and the result files of runs."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from collections.abc import Iterable
from pathlib import Path

from rota.core.time.instants import moment

RESULTS = ".results"
_NAME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}-[0-9]{2}-[0-9]{2}(-[0-9]+)?\.json")


def write_whole(path: Path, pieces: Iterable[str], *, mode: int = 0o666) -> None:
    """Write a file so that a reader, or a crash, sees the old one or the new one.

    When the disk is full the old file stays unchanged, and OSError says so.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with open(descriptor, "w", encoding="utf-8", newline="\n") as file:
            file.writelines(pieces)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Make a rename survive a power cut, where the system can."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def write_result(folder: Path, started_at: int, pieces: Iterable[str]) -> str:
    """Write the result of a run beside its pipeline; returns its path relative to the folder.

    Two runs that begin in the same second have two files.
    """
    name = free_result_name(folder, started_at)
    write_whole(folder / name, pieces)
    return name


def free_result_name(folder: Path, started_at: int) -> str:
    """`.results/2026-01-26T14-00-00.json` by the start of a run; numbered if it is taken."""
    stem = f"{RESULTS}/{moment(started_at):%Y-%m-%dT%H-%M-%S}"
    name, number = f"{stem}.json", 1
    while (folder / name).exists():
        number += 1
        name = f"{stem}-{number}.json"
    return name


def prune_results(folder: Path, keep: int) -> list[str]:
    """Delete the oldest result files beyond `keep`; returns their names. Other files stay."""
    files = (folder / RESULTS).glob("*.json")
    names = sorted((path for path in files if _NAME.fullmatch(path.name)), key=_age)
    gone = names[: max(0, len(names) - keep)]
    for path in gone:
        path.unlink(missing_ok=True)
    return [f"{RESULTS}/{path.name}" for path in gone]


def _age(path: Path) -> tuple[str, int]:
    """The order of result files: by second, then by their number within it."""
    second, number = path.stem[:19], path.stem[20:]
    return second, int(number) if number.isdecimal() else 1
