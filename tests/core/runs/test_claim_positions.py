"""Claims from a backlog begin where the last one ended, and at the front now and then."""

from __future__ import annotations

from rota import Rota
from rota.core.runs.claim_positions import (
    BACKLOG_MIN,
    FRONT_EVERY_US,
    FRONT_SHARE,
    QueuePosition,
    QueuePositions,
)
from rota.core.runs.model import Claim
from rota.core.time.instants import SECOND
from tests.engine.kit import Gate, eventually, live
from tests.kit.builders import NOW


def claim_of(place: int, priority: int = 0) -> Claim:
    return Claim(
        f"r{place}", 1, "w1", "default", "workflow", "flow", "default", priority, NOW + place,
        f"r{place}", None, 1, 0, "manual", None, None, None, None, None, None, None, None, NOW, NOW,
        None,
    )  # fmt: skip


def claims_to(place: int, priority: int = 0) -> list[Claim]:
    """A backlog's worth of claims, the last of them at this place."""
    return [claim_of(place - back, priority) for back in reversed(range(BACKLOG_MIN))]


def position(held: Claim) -> QueuePosition:
    return QueuePosition(held.priority, held.available_at, held.id)


def test_a_full_claim_leaves_a_position_and_a_smaller_one_takes_it_away() -> None:
    claims = claims_to(20)
    positions = QueuePositions()
    assert positions.after(NOW) == {}
    positions.note({"default": True}, claims, began=NOW, ended=NOW)
    assert positions.after(NOW) == {"default": position(claims[-1])}
    positions.note({"default": False}, [], began=NOW, ended=NOW)
    assert positions.after(NOW) == {}


def test_a_small_claim_is_no_sign_of_a_backlog() -> None:
    positions = QueuePositions()
    positions.note({"default": True}, claims_to(20)[1:], began=NOW, ended=NOW)
    assert positions.after(NOW) == {}


def test_runs_of_higher_priority_do_not_move_a_position_back() -> None:
    urgent, plain = claims_to(40, priority=5), claims_to(20)
    positions = QueuePositions()
    positions.note({"default": True}, plain, began=NOW, ended=NOW)
    positions.note({"default": True}, urgent, began=NOW, ended=NOW)
    assert positions.after(NOW) == {"default": position(plain[-1])}


def test_a_claim_begins_at_the_front_after_a_while() -> None:
    held = claims_to(20)
    positions = QueuePositions()
    positions.note({"default": True}, held, began=NOW, ended=NOW + 7)
    positions.note({"default": True}, held, began=NOW + 10, ended=NOW + 10)
    assert positions.after(NOW + FRONT_EVERY_US - 1)
    assert not positions.after(NOW + FRONT_EVERY_US)


def test_a_claim_begins_at_the_front_when_the_clock_went_back() -> None:
    positions = QueuePositions()
    positions.note({"default": True}, claims_to(20), began=NOW, ended=NOW)
    assert not positions.after(NOW - SECOND)


def test_a_front_that_takes_long_is_looked_at_less_often() -> None:
    held = claims_to(20)
    positions = QueuePositions()
    positions.note({"default": True}, held, began=NOW, ended=NOW + SECOND)
    assert positions.after(NOW + FRONT_SHARE * SECOND - 1)
    assert not positions.after(NOW + FRONT_SHARE * SECOND)


async def test_a_run_that_comes_late_into_a_backlog_is_executed_too(database_url: str) -> None:
    gate = Gate()
    app = Rota(slots=40)

    @app.workflow
    async def flow(n: int) -> None:
        await gate(n)

    async with live(app, database_url) as clock:
        await app.options(delay="1h").start(flow, -1)
        await app.start_many(flow, [(n,) for n in range(100)])
        await eventually(lambda: gate.under_way == 40)
        clock.move_to(clock.now() + 3600 * SECOND)
        gate.open.set()
        await eventually(lambda: len(gate.entered) == 101)
        assert sorted(gate.entered) == list(range(-1, 100))
