"""Pauses of a busy worker in favour of a run that is executed alone."""

from __future__ import annotations

from rota.core.runs.recovery import LEASES_BETWEEN_PAUSES
from rota.core.time.instants import HOUR, SECOND
from rota.engine.slots import AloneRuns

LEASE = 30 * SECOND
NOW = 1_900_000_000 * SECOND


def test_a_busy_worker_pauses_for_a_lease_and_then_not_for_a_while() -> None:
    alone = AloneRuns(LEASE)
    alone.expect(True, busy=True, now=NOW)
    assert alone.keeps_slots_empty([], NOW + LEASE - 1)
    assert not alone.keeps_slots_empty([], NOW + LEASE)
    alone.expect(True, busy=True, now=NOW + 2 * LEASE)
    assert not alone.keeps_slots_empty([], NOW + 2 * LEASE)
    alone.expect(True, busy=True, now=NOW + LEASES_BETWEEN_PAUSES * LEASE)
    assert alone.keeps_slots_empty([], NOW + LEASES_BETWEEN_PAUSES * LEASE)


def test_a_clock_that_is_set_back_does_not_stop_a_busy_worker() -> None:
    alone = AloneRuns(LEASE)
    alone.expect(True, busy=True, now=NOW)
    earlier = NOW - 3 * HOUR
    assert not alone.keeps_slots_empty([], earlier)
    alone.expect(True, busy=True, now=earlier)
    assert alone.keeps_slots_empty([], earlier)
    assert not alone.keeps_slots_empty([], earlier + LEASE)
