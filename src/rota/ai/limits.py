"""How fast a provider may be asked, and when not at all. Pure: state in, state out.

Two buckets (requests and tokens a minute), the wait that the provider asked for, and a circuit
breaker: so many failures in a row open it, then no call is made for a while, then one probe may.
All of it is one small `State`, which fits into a row that all workers change. The clock is an
argument, in microseconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec.structs import replace

from rota.core.runs import rate_limit
from rota.core.runs.retry import capped_delay_s
from rota.core.time.instants import MINUTE, SECOND

Meta = msgspec.Meta
DOUBLINGS_MAX = 20
# For a provider that throttles without saying for how long. Calls after that go one by one.
THROTTLED_S, THROTTLED_S_MAX = 1.0, 60.0
SPACING_S, SPACING_S_MAX = 0.05, 5.0
PROBE_POLL_US = SECOND // 2
BUSY_POLL_US = SECOND // 20
SAID_CHARS_MAX = 300


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The limits to keep to; no number, no limit."""

    requests_per_minute: Annotated[int, Meta(ge=1)] | None = None
    tokens_per_minute: Annotated[int, Meta(ge=1)] | None = None
    concurrency: Annotated[int, Meta(ge=1)] | None = None  # calls at once, of all workers
    burst_s: Annotated[float, Meta(gt=0, le=60)] = 10.0  # how much of a minute may go at once
    failures_max: Annotated[int, Meta(ge=1)] = 10
    open_s: Annotated[float, Meta(gt=0)] = 30.0  # doubles each time that a probe fails
    open_s_max: Annotated[float, Meta(gt=0)] = 600.0
    probe_s: Annotated[float, Meta(gt=0)] = 180.0  # then an unsettled probe is taken for lost


class State(msgspec.Struct, frozen=True):
    """All that has to be remembered between two calls."""

    requests_ready_at: int = 0
    tokens_ready_at: int = 0
    held_until: int = 0  # the provider asked us to wait
    failures: int = 0  # in a row
    openings: int = 0  # in a row
    open_until: int = 0  # 0 while the breaker is closed
    probe_until: int = 0  # 0 while there is no probe
    throttles: int = 0  # without a stated wait; an answer takes one back
    # One for each call in progress, if their number is limited: the instant at which it is lost.
    leases: tuple[int, ...] = ()
    said: str = ""  # the last failure
    seen_at: int = 0  # the clock when the instants above were set; 0 in a row of an older version


class Decision(NamedTuple):
    """Go now, if there is nothing to wait for; `why` is "rate", "asked", "busy", "broken" or
    "probed"."""

    wait_us: int = 0
    why: str = ""


GO = Decision()


def admit(
    limits: Limits, state: State, *, now: int, tokens: int, until: int = 0
) -> tuple[State, Decision]:
    """May one more call of about so many tokens begin? If so, it is counted in the new state; if
    it has not ended `until` then, it is lost."""
    state = _by_clock(state, now)
    if limits.concurrency is not None:
        state = replace(state, leases=tuple(at for at in state.leases if at > now))
    decision = _breaker(state, now) or _waits(limits, state, now, tokens) or _busy(limits, state)
    if decision is not None:
        return state, decision
    changes: dict[str, Any] = {
        name: rate_limit.advance(rate, ready_at=getattr(state, name), now=now, taken=count)
        for name, rate, count in _buckets(limits, tokens)
    }
    if limits.concurrency is not None:
        changes["leases"] = (*state.leases, until)
    if state.open_until:
        changes["probe_until"] = now + round(limits.probe_s * SECOND)
    if state.throttles:
        changes["held_until"] = now + _grown_us(SPACING_S, SPACING_S_MAX, state.throttles)
    return _seen(replace(state, **changes), now) if changes else state, GO


def released(state: State, until: int) -> State:
    """A call in progress has ended."""
    if until not in state.leases:
        return state
    at = state.leases.index(until)
    return replace(state, leases=state.leases[:at] + state.leases[at + 1 :])


def _busy(limits: Limits, state: State) -> Decision | None:
    if limits.concurrency is None or len(state.leases) < limits.concurrency:
        return None
    return Decision(BUSY_POLL_US, "busy")


def answered(limits: Limits, state: State, *, held: int, used: int) -> State:
    """The provider is well: it answered, or refused for a reason. Real tokens replace held ones."""
    return replace(
        _corrected(limits, state, held, used),
        failures=0,
        openings=0,
        open_until=0,
        probe_until=0,
        throttles=max(0, state.throttles - 1),
    )


def throttled(
    limits: Limits,
    state: State,
    *,
    now: int,
    held: int,
    retry_after_s: float | None,
    chance: float = 0.0,
) -> State:
    """The provider is well and asks for a pause: all calls wait.

    If it does not say how long, the wait doubles from time to time; `chance` in [0, 1) shortens it
    by up to a half. Calls that were in progress together count once.
    """
    before = state = _by_clock(state, now)
    state = replace(answered(limits, state, held=held, used=0), throttles=before.throttles)
    asked_s = capped_delay_s(retry_after_s)
    if asked_s is not None:
        until = now + round(asked_s * SECOND)
        return _seen(replace(state, held_until=max(state.held_until, until)), now)
    if before.throttles and now < before.held_until:
        return state
    wait_us = _grown_us(THROTTLED_S, THROTTLED_S_MAX, before.throttles + 1)
    until = now + round(wait_us * (1 - chance / 2))
    held_until = max(state.held_until, until)
    return _seen(replace(state, held_until=held_until, throttles=before.throttles + 1), now)


def _grown_us(first_s: float, most_s: float, times: int) -> int:
    grown_s: float = first_s * 2 ** min(times - 1, DOUBLINGS_MAX)
    return round(min(grown_s, most_s) * SECOND)


def failed(
    limits: Limits,
    state: State,
    *,
    now: int,
    held: int,
    used: int,
    retry_after_s: float | None,
    said: str = "",
) -> State:
    """The provider is not well: it broke, was away, or too slow."""
    state = _corrected(limits, _by_clock(state, now), held, used)
    changes: dict[str, Any] = {"failures": state.failures + 1, "said": said[:SAID_CHARS_MAX]}
    if asked_s := capped_delay_s(retry_after_s):
        changes["held_until"] = max(state.held_until, now + round(asked_s * SECOND))
    if state.probe_until or (not state.open_until and changes["failures"] >= limits.failures_max):
        factor = 2 ** min(state.openings, DOUBLINGS_MAX)
        rest_s = min(limits.open_s * factor, max(limits.open_s, limits.open_s_max))
        changes["open_until"] = now + round(rest_s * SECOND)
        changes["openings"] = state.openings + 1
        changes["probe_until"] = 0
    return _seen(replace(state, **changes), now)


def abandoned(limits: Limits, state: State, *, held: int, used: int) -> State:
    """The caller gave up, which says nothing about the provider: another may probe."""
    return replace(_corrected(limits, state, held, used), probe_until=0)


_INSTANTS = ("requests_ready_at", "tokens_ready_at", "held_until", "open_until", "probe_until")


def _by_clock(state: State, now: int) -> State:
    """The state by the present clock. If the clock was set back, every wait keeps the length that
    it had when it was set: no call stops until the old time comes again, and none goes earlier.

    A largest wait, as queues have it, would not do. A provider may ask for days, and a question
    larger than the bucket is paid for by a long wait."""
    back_us = rate_limit.set_back_us(seen_at=state.seen_at, now=now)
    if not back_us:
        return state
    waits = {name: at for name in _INSTANTS if (at := getattr(state, name))}
    moved = {name: max(1, at - back_us) for name, at in waits.items()}  # 0 means: none
    leases = tuple(max(1, at - back_us) for at in state.leases)
    return replace(state, **moved, leases=leases, seen_at=now)


def _seen(state: State, now: int) -> State:
    return replace(state, seen_at=max(state.seen_at, now))


def _breaker(state: State, now: int) -> Decision | None:
    if not state.open_until:
        return None
    if now < state.open_until:
        return Decision(state.open_until - now, "broken")
    # A probe is soon answered; no call needs to sleep as long as it may take at most.
    wait_us = min(state.probe_until - now, PROBE_POLL_US)
    return Decision(wait_us, "probed") if wait_us > 0 else None


def _waits(limits: Limits, state: State, now: int, tokens: int) -> Decision | None:
    waits = [(state.held_until - now, "asked")]
    for name, rate, count in _buckets(limits, tokens):
        waits.append((_free_at(rate, getattr(state, name), count) - now, "rate"))
    longest = max(waits)
    return Decision(*longest) if longest[0] > 0 else None


def _buckets(limits: Limits, tokens: int) -> Iterator[tuple[str, rate_limit.Rate, int]]:
    """The buckets in use: the field of the state, the rate, and what one call takes of it."""
    if limits.requests_per_minute is not None:
        yield "requests_ready_at", _rate(limits.requests_per_minute, limits), 1
    if limits.tokens_per_minute is not None:
        yield "tokens_ready_at", _rate(limits.tokens_per_minute, limits), tokens


def _rate(per_minute: int, limits: Limits) -> rate_limit.Rate:
    burst = max(1, int(per_minute * limits.burst_s / 60))
    return rate_limit.Rate(count=burst, per_us=-(-burst * MINUTE // per_minute))


def _free_at(rate: rate_limit.Rate, ready_at: int, count: int) -> int:
    """When so many fit. A count above the size of the bucket waits until the bucket is full."""
    needed = min(max(count, 0), rate.count)
    return ready_at - rate.per_us + -(-needed * rate.per_us // rate.count)


def _corrected(limits: Limits, state: State, held: int, used: int) -> State:
    if limits.tokens_per_minute is None or held == used:
        return state
    rate = _rate(limits.tokens_per_minute, limits)
    difference = -(-(used - held) * rate.per_us // rate.count)
    return replace(state, tokens_ready_at=max(0, state.tokens_ready_at + difference))
