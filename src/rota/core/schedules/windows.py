"""The window of an occurrence: from the one fired before it to its own nominal time. Pure."""

from __future__ import annotations

from collections.abc import Mapping

Occurrence = tuple[str, int | None]  # the id of the schedule, and the nominal time


def before_expired(previous: Mapping[Occurrence, int | None]) -> dict[Occurrence, int | None]:
    """For each expired occurrence, the last one before it that has not expired. `previous` has the
    one that was fired before each of them."""
    found: dict[Occurrence, int | None] = {}
    # Oldest first: the one before may have expired too.
    for schedule_id, due_at in sorted(previous, key=lambda one: one[1] or 0):
        earlier = previous[schedule_id, due_at]
        found[schedule_id, due_at] = found.get((schedule_id, earlier), earlier)
    return found
