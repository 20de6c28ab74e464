"""Occurrences from the end of a range to its beginning."""

from __future__ import annotations

from rota.core.time.recurrence import Spec, previous_before


def latest_between(spec: Spec, after: int, until: int, limit: int) -> list[int]:
    """The last `limit` occurrences with after < t <= until, oldest first."""
    found: list[int] = []
    at: int | None = until + 1
    while len(found) < limit:
        at = previous_before(spec, at) if at is not None else None
        if at is None or at <= after:
            break
        found.append(at)
    return found[::-1]
