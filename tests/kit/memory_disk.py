"""A place in memory for the files of tests, where SQLite need not wait for a disk at every commit.

Power cuts are tried by tests/faults and tests/store with simulated disks.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

PLACE = Path("/dev/shm")
ROOM_BYTES = 4 << 30


def memory_disk() -> Path | None:
    """The place, if it has room for a run of all tests and programs may be executed there."""
    if not PLACE.is_dir() or not os.access(PLACE, os.W_OK):
        return None
    if os.statvfs(PLACE).f_flag & os.ST_NOEXEC or shutil.disk_usage(PLACE).free < ROOM_BYTES:
        return None
    return PLACE
