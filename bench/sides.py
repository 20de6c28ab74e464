"""The two sides of every comparison, seen alike: the raw limit, and Rota."""

from __future__ import annotations

from typing import Literal, Protocol

Work = Literal["noop", "steps", "steps-grouped"]

STEPS = 10
BULK = 1000


class Side(Protocol):
    """One client on an empty database of its own. `url` is for its worker processes."""

    kind: Literal["raw", "ours"]
    url: str

    async def open(self) -> None:
        """Make the tables and connect."""
        ...

    async def close(self) -> None:
        """Disconnect and drop everything."""
        ...

    async def start(self, number: int) -> None:
        """Start one no-op run and wake a worker; durable on return."""
        ...

    async def start_one_by_one(self, count: int) -> None:
        """Start no-op runs, each durable before the next."""
        ...

    async def start_bulk(self, count: int, work: Work = "noop") -> None:
        """Start runs, `BULK` in a call."""
        ...

    async def unfinished(self) -> int:
        """How many runs are not done, as the database shows it."""
        ...


class StartsTogether(Side, Protocol):
    """A side that many callers can use at the same time."""

    async def start_together(self, count: int, starters: int) -> None:
        """Start runs from `starters` concurrent callers, each awaiting its own."""
        ...
