"""The system clock: the database's time where it has one, and jumps that are noticed."""

from __future__ import annotations

import asyncio

import pytest

from rota.core.time.instants import HOUR, SECOND
from rota.engine import clock as clock_
from rota.engine.clock import SystemClock


class FakeTime:
    """The two clocks of a machine, in nanoseconds."""

    def __init__(self) -> None:
        self.wall = 1_900_000_000_000_000_000
        self.steady = 5_000_000_000
        self.passed_us = 0

    def time_ns(self) -> int:
        return self.wall

    def monotonic_ns(self) -> int:
        return self.steady

    def run(self, us: int) -> None:
        """Time passes."""
        self.wall += us * 1000
        self.steady += us * 1000
        self.passed_us += us

    def step(self, us: int) -> None:
        """An administrator sets the wall clock."""
        self.wall += us * 1000


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeTime:
    fake = FakeTime()
    monkeypatch.setattr(clock_, "time", fake)
    return fake


def test_it_shows_the_time_of_this_machine(fake: FakeTime) -> None:
    clock = SystemClock()
    assert clock.now() == fake.wall // 1000
    fake.run(3 * SECOND)
    assert clock.now() == fake.wall // 1000
    assert clock.steady_for() == fake.passed_us


def test_it_follows_the_server(fake: FakeTime) -> None:
    clock = SystemClock()
    sent = clock.local_us()
    fake.run(40_000)
    clock.follow(sent + 20_000 + 7 * HOUR, sent=sent, received=clock.local_us())
    assert clock.now() == fake.wall // 1000 + 7 * HOUR
    fake.run(SECOND)
    assert clock.now() == fake.wall // 1000 + 7 * HOUR
    assert clock.steady_for() == fake.passed_us  # the first reading of the time is not a jump


@pytest.mark.parametrize("jump", [HOUR, -HOUR])
def test_a_step_of_the_wall_clock_is_noticed(fake: FakeTime, jump: int) -> None:
    clock = SystemClock()
    fake.run(SECOND)
    fake.step(jump)
    assert clock.now() == fake.wall // 1000
    assert clock.steady_for() == 0
    fake.run(10 * SECOND)
    assert clock.steady_for() == 10 * SECOND


def test_a_step_is_noticed_within_ten_milliseconds(fake: FakeTime) -> None:
    """Two readings that follow each other closely share one look at the wall clock."""
    clock = SystemClock()
    clock.now()
    fake.step(HOUR)
    assert clock.now() == fake.wall // 1000 - HOUR
    fake.run(10_000)
    assert clock.now() == fake.wall // 1000
    assert clock.steady_for() == 0


def test_a_drift_below_a_second_is_no_step(fake: FakeTime) -> None:
    clock = SystemClock()
    fake.step(SECOND // 2)
    assert clock.steady_for() == fake.passed_us


def test_a_slow_drift_is_never_a_step(fake: FakeTime) -> None:
    """A clock that is slewed by NTP goes off by minutes in a year, a little at a time."""
    clock = SystemClock()
    for _ in range(1000):
        fake.run(HOUR)
        fake.step(50_000)
        clock.now()
    assert clock.steady_for() == fake.passed_us


@pytest.mark.parametrize("jump", [HOUR, -HOUR])
def test_a_step_of_this_machine_does_not_move_the_shared_time(fake: FakeTime, jump: int) -> None:
    clock = SystemClock()
    server = fake.wall // 1000 + 5 * SECOND
    clock.follow(server, sent=clock.local_us(), received=clock.local_us())
    fake.run(SECOND)
    fake.step(jump)
    assert clock.now() == server + SECOND
    fake.run(SECOND)
    assert clock.now() == server + 2 * SECOND


def test_a_step_of_the_server_is_noticed(fake: FakeTime) -> None:
    clock = SystemClock()
    clock.follow(fake.wall // 1000, sent=clock.local_us(), received=clock.local_us())
    fake.run(SECOND)
    clock.follow(fake.wall // 1000 + HOUR, sent=clock.local_us(), received=clock.local_us())
    assert clock.now() == fake.wall // 1000 + HOUR
    assert clock.steady_for() == 0


def test_small_corrections_by_the_server_are_no_step(fake: FakeTime) -> None:
    clock = SystemClock()
    for n in range(5):
        fake.run(SECOND)
        clock.follow(fake.wall // 1000 + n * 1000, sent=clock.local_us(), received=clock.local_us())
    assert clock.steady_for() == fake.passed_us


def test_a_step_between_two_looks_at_the_server_is_noticed_once(fake: FakeTime) -> None:
    clock = SystemClock()
    clock.follow(fake.wall // 1000, sent=clock.local_us(), received=clock.local_us())
    before = clock.now()
    fake.step(HOUR)
    fake.run(SECOND)
    # The loop asks the server before any other task has read the clock.
    sent = clock.local_us()
    clock.follow(before + SECOND, sent=sent, received=clock.local_us())
    assert clock.now() == before + SECOND
    fake.run(SECOND)
    assert clock.now() == before + 2 * SECOND


async def test_a_call_comes_at_its_instant_or_at_once(fake: FakeTime) -> None:
    clock = SystemClock()
    called: list[str] = []
    clock.call_at(clock.now() - HOUR, lambda: called.append("past"))
    later = clock.call_at(clock.now() + HOUR, lambda: called.append("future"))
    await asyncio.sleep(0.01)
    assert called == ["past"]
    later.cancel()


async def test_waiting_ends_with_the_event_or_with_the_time() -> None:
    clock = SystemClock()
    event = asyncio.Event()
    await clock.wait(event, clock.now() + 1000)
    assert event.is_set()
    await clock.wait(event, clock.now() + HOUR)
    fresh = asyncio.Event()
    asyncio.get_running_loop().call_soon(fresh.set)
    await clock.wait(fresh, clock.now() + HOUR)
