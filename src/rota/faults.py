"""Named points at which a crash test may kill the process."""

from __future__ import annotations

from collections.abc import Callable

# Set by crash tests only; called with the name of the point that was reached.
strike: Callable[[str], None] | None = None


def reach(point: str) -> None:
    """Mark a point of the program; a test may kill the process here."""
    if strike is not None:
        strike(point)
