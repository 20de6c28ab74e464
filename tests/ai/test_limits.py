"""Rates and the breaker: as decisions, over all histories, and as a wrapper that waits."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.ai import Limiter, Limits, Offline, Reply, Request
from rota.ai import limits as rules
from rota.ai.base import passing
from rota.ai.limits import State
from rota.core.runs import rate_limit
from rota.core.time.instants import DAY, HOUR, MINUTE, SECOND
from rota.errors import Rejected, Transient

START = 1_000_000 * SECOND
gaps = st.lists(st.integers(0, 20 * SECOND), min_size=1, max_size=60)
per_minute = st.integers(1, 600)
bursts = st.sampled_from([1.0, 10.0, 60.0])


@given(per_minute, bursts, gaps)
def test_no_window_ever_sees_more_requests_than_it_may(
    count: int, burst_s: float, gaps: list[int]
) -> None:
    limits = Limits(requests_per_minute=count, burst_s=burst_s)
    state, now, gone = State(), START, list[int]()
    for gap in gaps:
        now += gap
        for _ in range(20):
            state, decision = rules.admit(limits, state, now=now, tokens=1)
            if decision.wait_us:
                break
            gone.append(now)
    burst = max(1, int(count * burst_s / 60))
    for first, last in itertools.combinations(range(len(gone)), 2):
        window = gone[last] - gone[first]
        assert last - first + 1 <= burst + window * count / MINUTE + 1e-6


@given(per_minute, bursts, gaps, st.lists(st.integers(0, 400), min_size=60, max_size=60))
def test_no_window_ever_sees_more_tokens_than_it_may(
    count: int, burst_s: float, gaps: list[int], sizes: list[int]
) -> None:
    """One question larger than the bucket may go when it is full; the next one pays for it."""
    limits = Limits(tokens_per_minute=count, burst_s=burst_s)
    state, now, gone = State(), START, list[tuple[int, int]]()
    for gap, size in zip(gaps, sizes, strict=False):
        now += gap
        state, decision = rules.admit(limits, state, now=now, tokens=size)
        if not decision.wait_us:
            gone.append((now, size))
    burst = max(1, int(count * burst_s / 60))
    for first, last in itertools.combinations(range(len(gone)), 2):
        window = gone[last][0] - gone[first][0]
        before_last = sum(size for _, size in gone[first:last])
        last_one = min(gone[last][1], burst)
        assert before_last + last_one <= burst + window * count / MINUTE + 1e-6


@given(per_minute, bursts, gaps, st.integers(0, 300))
def test_the_wait_that_is_reported_is_just_enough(
    count: int, burst_s: float, gaps: list[int], tokens: int
) -> None:
    limits = Limits(requests_per_minute=count, tokens_per_minute=count, burst_s=burst_s)
    state, now = State(), START
    for gap in gaps:
        now += gap
        state, decision = rules.admit(limits, state, now=now, tokens=tokens)
        if decision.wait_us:
            _, early = rules.admit(limits, state, now=now + decision.wait_us - 1, tokens=tokens)
            assert early.wait_us == 1
            now += decision.wait_us
            state, late = rules.admit(limits, state, now=now, tokens=tokens)
            assert late.wait_us == 0


@given(st.integers(1, 1000), st.integers(0, 5000), st.integers(0, 5000))
def test_what_is_settled_counts_as_if_it_had_been_known(count: int, held: int, used: int) -> None:
    limits = Limits(tokens_per_minute=count)
    guessed, _ = rules.admit(limits, State(), now=START, tokens=held)
    settled = rules.answered(limits, guessed, held=held, used=used)
    known, _ = rules.admit(limits, State(), now=START, tokens=used)
    assert abs(settled.tokens_ready_at - known.tokens_ready_at) <= 2


verbs = st.lists(
    st.tuples(
        st.sampled_from(["ask", "answered", "failed", "throttled", "abandoned"]),
        st.integers(0, 40 * SECOND),
    ),
    max_size=80,
)


@given(verbs, st.integers(1, 4))
def test_an_open_breaker_lets_one_probe_through_at_a_time(
    verbs: list[tuple[str, int]], failures_max: int
) -> None:
    limits = Limits(failures_max=failures_max)
    state, now, probe_until = State(), START, 0
    for verb, gap in verbs:
        now += gap
        if verb == "ask":
            was_open, was_until = state.open_until, state.open_until
            state, decision = rules.admit(limits, state, now=now, tokens=1)
            if not decision.wait_us and was_open:
                assert now >= was_until
                assert now >= probe_until, "two probes at once"
                probe_until = state.probe_until
            assert decision.why != "broken" or was_open
        else:
            state = settled(verb, limits, state, now)
            probe_until = state.probe_until
        if verb in ("answered", "throttled"):
            assert (state.failures, state.open_until) == (0, 0)
        assert state.open_until == 0 or state.openings > 0
        assert state.failures < failures_max or state.open_until
        assert msgspec.json.decode(msgspec.json.encode(state), type=State) == state


def settled(verb: str, limits: Limits, state: State, now: int) -> State:
    if verb == "failed":
        return rules.failed(limits, state, now=now, held=1, used=0, retry_after_s=None)
    if verb == "throttled":
        return rules.throttled(limits, state, now=now, held=1, retry_after_s=3.0)
    done = rules.answered if verb == "answered" else rules.abandoned
    return done(limits, state, held=1, used=1)


def test_a_breaker_opens_rests_longer_each_time_and_closes() -> None:
    limits = Limits(failures_max=2, open_s=10, open_s_max=25, probe_s=5)
    state, now = State(), START

    def fail() -> None:
        nonlocal state
        state = rules.failed(limits, state, now=now, held=0, used=0, retry_after_s=None)

    def ask() -> tuple[int, str]:
        nonlocal state
        state, decision = rules.admit(limits, state, now=now, tokens=0)
        return decision.wait_us // SECOND, decision.why

    fail()
    assert ask() == (0, "")
    fail()
    assert ask() == (10, "broken")
    fail()  # one that was in progress: it changes nothing
    for rest in (20, 25, 25):
        now = state.open_until
        assert ask() == (0, "")
        assert ask() == (0, "probed")  # half a second: the probe is soon answered
        fail()
        assert ask() == (rest, "broken")
    now = state.open_until
    assert ask() == (0, "")
    now += 5 * SECOND  # the probe was lost with its worker
    assert ask() == (0, "")
    state = rules.answered(limits, state, held=0, used=0)
    assert ask() == (0, "")
    assert state.openings == 0


class Clock:
    """Time that passes only when a caller sleeps."""

    def __init__(self) -> None:
        self.now = START
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += round(seconds * SECOND)


def limiter(clock: Clock, limits: Limits, **options: Any) -> Limiter:
    ai = Offline(**options)
    return Limiter(ai, limits, now=lambda: clock.now, sleep=clock.sleep)


ASK = Request("m", "x" * 40, max_tokens=10)


async def test_questions_wait_in_the_queue_in_order() -> None:
    clock = Clock()
    done: list[int] = []
    ai = limiter(clock, Limits(requests_per_minute=60, burst_s=2))

    async def ask(number: int) -> None:
        await ai.ask(ASK)
        done.append(number)

    await asyncio.gather(*(ask(number) for number in range(10)))
    assert done == list(range(10))
    assert sum(clock.slept) == pytest.approx(8)


async def test_a_wait_that_takes_too_long_is_handed_back() -> None:
    clock = Clock()
    ai = limiter(clock, Limits(requests_per_minute=1, burst_s=60))
    await ai.ask(ASK)
    clock.now += SECOND // 2
    await ai.ask(ASK)
    assert clock.slept == [59.5]
    clock.now -= SECOND
    with pytest.raises(Transient, match="reached its rate limit") as raised:
        await ai.ask(ASK)
    assert raised.value.retry_after_s == pytest.approx(61)
    assert raised.value.facts["why"] == "rate"


async def test_everybody_waits_when_the_provider_asks_for_it() -> None:
    clock = Clock()
    ai = limiter(clock, Limits(), replies=[passing("429", retry_after_s=7, throttled=True)])
    with pytest.raises(Transient, match="429"):
        await ai.ask(ASK)
    await asyncio.gather(ai.ask(ASK), ai.ask(ASK))
    assert clock.slept == [7.0]


async def test_a_provider_that_is_broken_is_left_alone_and_then_probed() -> None:
    clock = Clock()
    broken = [passing("500") for _ in range(4)]
    inner = Offline(replies=broken)
    ai = Limiter(inner, Limits(failures_max=3, open_s=30), now=lambda: clock.now)
    for _ in range(5):
        with pytest.raises(Transient):
            await ai.ask(ASK)
    assert inner.calls == 3
    clock.now += 30 * SECOND
    with pytest.raises(Transient, match="500"):
        await ai.ask(ASK)
    with pytest.raises(Transient, match="circuit breaker") as raised:
        await ai.ask(ASK)
    assert raised.value.retry_after_s == 60
    clock.now += 60 * SECOND
    await ai.ask(ASK)
    await ai.ask(ASK)
    assert inner.calls == 6


@pytest.mark.parametrize("error", [Rejected("no"), passing("429", throttled=True), ValueError()])
async def test_a_refusal_is_no_sign_of_being_broken(error: Exception) -> None:
    inner = Offline(replies=[error] * 5)
    ai = Limiter(inner, Limits(failures_max=2))
    for _ in range(5):
        with pytest.raises(type(error)):
            await ai.ask(ASK)
    await ai.ask(ASK)
    assert inner.calls == 6


async def test_one_who_gives_up_leaves_its_slot_to_the_next() -> None:
    class Endless:
        name = "endless"
        estimate = Offline().estimate

        async def ask(self, request: Request) -> Any:
            reached.set()
            await asyncio.Event().wait()

    reached = asyncio.Event()
    clock = Clock()
    ai = Limiter(Endless(), Limits(failures_max=1), now=lambda: clock.now)
    ai._keeper.state = State(failures=1, openings=1, open_until=START)  # type: ignore[attr-defined]
    probe = asyncio.create_task(ai.ask(ASK))
    await asyncio.wait_for(reached.wait(), 60)
    with pytest.raises(Transient, match="one call probes"):
        await ai.ask(ASK)
    probe.cancel()
    with pytest.raises(asyncio.CancelledError):
        await probe
    reached.clear()
    second = asyncio.create_task(ai.ask(ASK))
    await asyncio.wait_for(reached.wait(), 60)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second


async def test_workers_that_share_a_state_share_the_limit() -> None:
    """Two processes with one row: each change reads, decides and writes in one go."""

    class Row:
        text = msgspec.json.encode(State())

        async def change(self, step: Callable[[State], tuple[State, Any]]) -> Any:
            await asyncio.sleep(0)
            state, result = step(msgspec.json.decode(Row.text, type=State))
            Row.text = msgspec.json.encode(state)
            return result

    clock = Clock()
    wait: Callable[[float], Awaitable[None]] = clock.sleep
    both = [
        Limiter(
            Offline(), Limits(requests_per_minute=60, burst_s=1),
            keeper=Row(), now=lambda: clock.now, sleep=wait,
        )
        for _ in range(2)
    ]  # fmt: skip
    await asyncio.gather(*(ai.ask(ASK) for ai in both for _ in range(5)))
    assert clock.now - START == pytest.approx(9 * SECOND, abs=10)


def test_throttling_without_a_time_backs_off_with_jitter_and_lets_calls_through_one_by_one() -> (
    None
):
    limits, state, now = Limits(), State(), 1_000_000_000
    waits = []
    for _ in range(8):
        state = rules.throttled(limits, state, now=now, held=1, retry_after_s=None, chance=0.0)
        # The other calls of the same wave change nothing.
        same = rules.throttled(limits, state, now=now + 5, held=1, retry_after_s=None, chance=0.9)
        assert same.held_until == state.held_until
        waits.append((state.held_until - now) / SECOND)
        now = state.held_until
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]
    short = rules.throttled(limits, State(), now=0, held=1, retry_after_s=None, chance=0.99)
    assert short.held_until < 0.51 * SECOND
    state, first = rules.admit(limits, state, now=now, tokens=1)
    state, second = rules.admit(limits, state, now=now, tokens=1)
    assert not first.wait_us
    assert second.wait_us == 5 * SECOND
    for _ in range(8):
        state = rules.answered(limits, state, held=1, used=1)
    assert state.throttles == 0


async def test_callers_that_are_throttled_together_do_not_come_back_together() -> None:
    class Narrow(Offline):
        """Answers one question in a tenth of a second, and throttles the others silently."""

        free_at = 0
        instants: ClassVar[list[int]] = []

        async def ask(self, request: Request) -> Reply:
            self.instants.append(clock.now)
            if clock.now < self.free_at:
                raise passing("429", throttled=True)
            self.free_at = clock.now + SECOND // 10
            return await super().ask(request)

    clock = Clock()
    ai = Limiter(Narrow(), Limits(), now=lambda: clock.now, sleep=clock.sleep)

    async def asks() -> None:
        while True:
            try:
                await ai.ask(Request("m", "x"))
            except Transient:
                continue
            return

    await asyncio.gather(*(asks() for _ in range(20)))
    again = Narrow.instants[20:]
    assert len(Narrow.instants) <= 20 + 3 * 19
    assert max(Counter(again).values()) <= 3


# -- a clock that is set back ------------------------------------------------------------------

BACK = [MINUTE, 3 * HOUR, 5 * DAY]


@given(per_minute, bursts, gaps, st.sampled_from(BACK), st.integers(1, 400))
def test_a_clock_that_is_set_back_leaves_each_wait_as_it_was_and_gives_no_burst(
    count: int, burst_s: float, gaps: list[int], back_us: int, tokens: int
) -> None:
    limits = Limits(requests_per_minute=count, tokens_per_minute=count, burst_s=burst_s)
    state, now = State(), START
    for gap in gaps:
        now += gap
        state, _ = rules.admit(limits, state, now=now, tokens=tokens)
    _, before = rules.admit(limits, state, now=state.seen_at, tokens=tokens)
    earlier = state.seen_at - back_us
    state, decision = rules.admit(limits, state, now=earlier, tokens=tokens)
    assert decision == before
    if decision.wait_us:
        _, last = rules.admit(limits, state, now=earlier + decision.wait_us, tokens=tokens)
        assert last.wait_us == 0


@pytest.mark.parametrize("back_us", BACK)
def test_a_wait_that_the_provider_asked_for_does_not_grow_by_the_step_of_the_clock(
    back_us: int,
) -> None:
    state = rules.throttled(Limits(), State(), now=START, held=0, retry_after_s=7)
    state, decision = rules.admit(Limits(), state, now=START - back_us, tokens=1)
    assert decision == (7 * SECOND, "asked")
    _, decision = rules.admit(Limits(), state, now=START - back_us + 7 * SECOND, tokens=1)
    assert decision == (0, "")


@pytest.mark.parametrize("back_us", BACK)
def test_a_breaker_and_its_probe_end_after_the_clock_was_set_back(back_us: int) -> None:
    limits = Limits(failures_max=1, open_s=30, probe_s=60)
    state = rules.failed(limits, State(), now=START, held=0, used=0, retry_after_s=None)
    now = START - back_us
    state, decision = rules.admit(limits, state, now=now, tokens=1)
    assert decision == (30 * SECOND, "broken")
    now += 30 * SECOND
    state, decision = rules.admit(limits, state, now=now, tokens=1)
    assert decision.wait_us == 0  # the probe, which is lost
    now -= back_us
    state, decision = rules.admit(limits, state, now=now, tokens=1)
    assert decision.why == "probed"
    _, decision = rules.admit(limits, state, now=now + 60 * SECOND, tokens=1)
    assert decision.wait_us == 0


def test_a_new_wait_counts_from_the_clock_that_was_set_back() -> None:
    limits = Limits(failures_max=1, open_s=30)
    ahead = rules.throttled(limits, State(), now=START, held=0, retry_after_s=7)
    now = START - 3 * HOUR
    asked = rules.throttled(limits, ahead, now=now, held=0, retry_after_s=20)
    assert (asked.held_until, asked.seen_at) == (now + 20 * SECOND, now)
    broken = rules.failed(limits, ahead, now=now, held=0, used=0, retry_after_s=None)
    assert (broken.held_until, broken.open_until) == (now + 7 * SECOND, now + 30 * SECOND)


@pytest.mark.parametrize("behind_us", [0, 1, rate_limit.SKEW_US])
def test_a_worker_with_a_clock_that_is_behind_waits_as_the_others_do(behind_us: int) -> None:
    state = rules.throttled(Limits(), State(), now=START, held=0, retry_after_s=7)
    after, decision = rules.admit(Limits(), state, now=START - behind_us, tokens=1)
    assert (after, decision) == (state, (7 * SECOND + behind_us, "asked"))


def test_a_provider_that_is_well_has_nothing_to_write() -> None:
    state, _ = rules.admit(Limits(), State(), now=START, tokens=1)
    assert state == rules.answered(Limits(), state, held=1, used=2) == State()
