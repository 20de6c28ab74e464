"""A drain on PostgreSQL while a client keeps a snapshot open, as a dump or a long report does.

Until it ends the server keeps every version of every row, so what was claimed stays in the way of
the next claim.
"""

from __future__ import annotations

from collections.abc import Sequence

from bench import raw_postgres
from bench.measure import Sample, Sizes, Target
from bench.parts.drain import drain_rate
from bench.places import Place, PostgresPlace


class Churn:
    """Runs executed per second beside an open snapshot; `raw` is Rota without one."""

    name = "churn"
    about = "drain of no-op runs with and without an open snapshot"
    once = True

    async def round(self, places: Sequence[Place], sizes: Sizes) -> list[Sample]:
        """Without, with."""
        return [
            await _churn(place, sizes.churn) for place in places if isinstance(place, PostgresPlace)
        ]


async def _churn(place: PostgresPlace, count: int) -> Sample:
    without = await drain_rate(place, "ours", "noop", count)
    snapshot = await raw_postgres.connect(place.url())
    try:
        await snapshot.execute("begin isolation level repeatable read; select txid_current()")
        beside = await drain_rate(place, "ours", "noop", count)
    finally:
        await snapshot.close()
    return Sample(
        f"{count:,} runs, open snapshot; raw: none", place.name, "runs/s", beside, without,
        Target(">=", 0.67),
    )  # fmt: skip
