"""This machine's time zone, for schedules that name none."""

from __future__ import annotations

import os
from pathlib import Path

from rota.core.time.zones import host_zone


def host_zone_name() -> str:
    """This machine's zone, asked once when a schedule is made, and stored with it."""
    return host_zone(os.environ, _read_link_or_text)


def zone_or_host(zone: str | None) -> str:
    """The named zone, or this machine's zone if none is named. An empty name stays an error."""
    return host_zone_name() if zone is None else zone


def _read_link_or_text(path: str) -> str | None:
    file = Path(path)
    try:
        return str(file.readlink()) if file.is_symlink() else file.read_text()
    except (OSError, UnicodeDecodeError):
        return None
