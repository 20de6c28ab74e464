"""Dead-man's switches: the address to call for each event. Pure.

A monitor outside expects these calls and raises the alarm when they stay away, even when no process
is left here to report a failure. `{event}` in the address represents start, success, fail or
missed. Without it the paths of healthchecks and its like are used: the address itself is success,
`/start` and `/fail` are what they say, and a missed execution is `/log`. The monitor notes it and
still awaits the expected call.
"""

from __future__ import annotations

import uuid
from typing import Literal, TypeAlias
from urllib.parse import urlsplit, urlunsplit

Ping: TypeAlias = Literal["start", "success", "fail", "missed"]
PLACE = "{event}"
PATHS: dict[Ping, str] = {"start": "/start", "success": "", "fail": "/fail", "missed": "/log"}


def address(url: str, event: Ping, *, run_id: str) -> str:
    """The address to call. Calls of one execution have the same `rid`."""
    if PLACE in url:
        return url.replace(PLACE, event)
    parts = urlsplit(url)
    query = f"{parts.query}&" if parts.query else ""
    path = parts.path.rstrip("/") + PATHS[event]
    return urlunsplit(parts._replace(path=path, query=f"{query}rid={_rid(run_id)}", fragment=""))


def _rid(run_id: str) -> str:
    try:
        return str(uuid.UUID(run_id))
    except ValueError:
        return run_id
