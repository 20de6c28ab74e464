"""How many calls a provider gets at once, and why an open breaker lets none through."""

from __future__ import annotations

import asyncio

import pytest

from rota.ai import Limiter, Limits, Offline, Reply, Request
from rota.ai import limits as rules
from rota.ai.base import passing
from rota.ai.limiter import Memory
from rota.ai.limits import State
from rota.core.time.instants import SECOND
from rota.errors import Rejected, Transient

START = 1_000_000 * SECOND


def test_calls_at_once_are_limited_and_a_lost_one_frees_its_place() -> None:
    limits = Limits(concurrency=2)
    state = State()
    for until in (START + 10 * SECOND, START + 20 * SECOND):
        state, decision = rules.admit(limits, state, now=START, tokens=1, until=until)
        assert not decision.wait_us
    state, decision = rules.admit(limits, state, now=START, tokens=1, until=START + 30 * SECOND)
    assert (decision.why, decision.wait_us > 0) == ("busy", True)
    state = rules.released(state, START + 20 * SECOND)
    _, decision = rules.admit(limits, state, now=START, tokens=1, until=START + 30 * SECOND)
    assert not decision.wait_us
    state = State(leases=(START + 10 * SECOND, START + 20 * SECOND))
    later = START + 10 * SECOND  # the first call's process has died
    state, decision = rules.admit(limits, state, now=later, tokens=1, until=START + 40 * SECOND)
    assert not decision.wait_us
    assert state.leases == (START + 20 * SECOND, START + 40 * SECOND)


async def test_two_invokers_with_one_keeper_share_their_calls_at_once() -> None:
    most = running = 0

    class Slow(Offline):
        async def ask(self, request: Request) -> Reply:
            nonlocal most, running
            running += 1
            most = max(most, running)
            await asyncio.sleep(0.001)
            running -= 1
            return await super().ask(request)

    async def sleep(seconds: float) -> None:
        await asyncio.sleep(0)

    keeper = Memory()
    both = [Limiter(Slow(), Limits(concurrency=3), keeper=keeper, sleep=sleep) for _ in range(2)]
    await asyncio.gather(*(ai.ask(Request("m", "x")) for ai in both for _ in range(10)))
    assert most == 3
    assert keeper.state.leases == ()


async def test_an_open_breaker_says_why_the_last_call_failed() -> None:
    inner = Offline(replies=[passing("them answered 503: the disk is full")])
    ai = Limiter(inner, Limits(failures_max=1))
    with pytest.raises(Transient):
        await ai.ask(Request("m", "x"))
    with pytest.raises(Transient, match=r"circuit breaker.*the disk is full"):
        await ai.ask(Request("m", "x"))


@pytest.mark.parametrize("error", [passing("503"), Rejected("no"), asyncio.CancelledError()])
async def test_a_call_frees_its_place_after_a_failure_too(error: BaseException) -> None:
    class Failing(Offline):
        async def ask(self, request: Request) -> Reply:
            raise error

    keeper = Memory()
    ai = Limiter(Failing(), Limits(concurrency=1), keeper=keeper)
    with pytest.raises(type(error)):
        await ai.ask(Request("m", "x"))
    assert keeper.state.leases == ()
