"""Finds the pipelines of a folder that have changed on disk, by polling.

Polling works on every file system. A change counts once the files have stayed the same for a while,
so that no half-written file is read.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeAlias

from rota.core.time.instants import SECOND
from rota.pipelines.definition.loader import NAMES

SETTLED_US = SECOND // 2

# The state of one pipeline: the path of each of its files, and its traits if it exists.
Seen: TypeAlias = tuple[tuple[str, int, int, int], ...]


def scan(root: Path, more: Mapping[str, Iterable[str]] | None = None) -> dict[str, Seen] | None:
    """The present state: every pipeline by the name of its folder; None when the folder is gone.

    `more` are files beside pipeline.yaml that a pipeline is made of, such as prompt files.
    """
    pipelines: dict[str, Seen] = {}
    try:
        with os.scandir(root) as folders:
            names = [each.name for each in folders if each.is_dir()]
    except OSError:
        return None
    for name in names:
        seen = _traits(os.path.join(root, name, entry) for entry in NAMES)
        if seen:
            pipelines[name] = seen + _traits((more or {}).get(name, ()))
    return pipelines


def _traits(files: Iterable[str]) -> Seen:
    """The traits of files. Paths are texts, since this is done twice a second for every file."""
    traits = []
    for file in files:
        try:
            status = os.stat(file)
        except OSError:
            continue
        traits.append((file, status.st_mtime_ns, status.st_size, status.st_ino))
    return tuple(traits)


class Watch:
    """Compares files with their last known state. Pure: that state and the time are arguments."""

    def __init__(self, seen: Mapping[str, Seen]) -> None:
        self._known = dict(seen)
        self._unsettled: dict[str, tuple[Seen | None, int]] = {}

    def changed(self, seen: Mapping[str, Seen], now: int) -> list[str]:
        """The pipelines that differ from before, and have stayed as they are for long enough."""
        settled = []
        for name in sorted(self._known.keys() | seen.keys()):
            fresh = seen.get(name)
            if fresh == self._known.get(name):
                self._unsettled.pop(name, None)
                continue
            before, since = self._unsettled.get(name, (None, None))
            if since is None or before != fresh or now < since:
                self._unsettled[name] = (fresh, now)
            elif now - since >= SETTLED_US:
                settled.append(name)
        return settled

    def took(self, name: str, seen: Seen | None) -> None:
        """Note the state of a pipeline that was synced."""
        self._unsettled.pop(name, None)
        if seen is None:
            self._known.pop(name, None)
        else:
            self._known[name] = seen
