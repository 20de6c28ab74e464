"""The occurrences of a spec: the next, the previous, those in a range, and how many. Pure."""

from __future__ import annotations

from rota.core.time.resolve import EveryTimes, OnceTimes, Times, cron_times
from rota.core.time.spec import Spec, Timing
from rota.errors import BadSchedule


def times_of(timing: Timing) -> Times:
    """A timing compiled. Raises BadSchedule or UnknownZone when it makes no sense (any more)."""
    if timing.cron is not None:
        return cron_times(timing.cron, timing.zone, timing.gap, timing.repeat)
    if timing.every_us is not None:
        if timing.every_us <= 0:
            raise BadSchedule("an interval must be longer than zero")
        return EveryTimes(timing.every_us, timing.anchor_at)
    if timing.at is not None:
        return OnceTimes(timing.at)
    raise BadSchedule("the timing names neither cron, nor an interval, nor a time")


def check(spec: Spec) -> None:
    """Raise BadSchedule or UnknownZone when a timing makes no sense (any more)."""
    for timing in spec.timings:
        times_of(timing)
    if not spec.timings:
        raise BadSchedule("the schedule names no time at all")


def next_after(spec: Spec, after: int) -> int | None:
    """The first occurrence strictly after an instant, or None when there is none."""
    if spec.start_at is not None and after < spec.start_at:
        after = spec.start_at - 1
    best: int | None = None
    for timing in spec.timings:
        found = times_of(timing).after(after)
        if found is not None and (best is None or found < best):
            best = found
    if best is not None and spec.end_at is not None and best > spec.end_at:
        return None
    return best


def previous_before(spec: Spec, before: int) -> int | None:
    """The last occurrence strictly before an instant, or None when there is none."""
    if spec.end_at is not None and before > spec.end_at:
        before = spec.end_at + 1
    best: int | None = None
    for timing in spec.timings:
        found = times_of(timing).before(before)
        if found is not None and (best is None or found > best):
            best = found
    if best is not None and spec.start_at is not None and best < spec.start_at:
        return None
    return best


def between(spec: Spec, after: int, until: int, *, limit: int) -> list[int]:
    """The first `limit` occurrences with after < t <= until, oldest first."""
    instants: list[int] = []
    at: int | None = after
    while len(instants) < limit:
        at = next_after(spec, at) if at is not None else None
        if at is None or at > until:
            break
        instants.append(at)
    return instants


def count_between(spec: Spec, after: int, until: int) -> int:
    """How many occurrences have after < t <= until, exactly.

    The densest timing is counted without listing it, at a cost that grows with the years (about
    ten microseconds each). Every further timing is listed, to see which of its instants the
    others have too: some two microseconds for each of its occurrences.
    """
    if spec.start_at is not None:
        after = max(after, spec.start_at - 1)
    if spec.end_at is not None:
        until = min(until, spec.end_at)
    if until <= after:
        return 0
    times = [times_of(timing) for timing in dict.fromkeys(spec.timings)]
    if len(times) == 1:
        return times[0].count(after, until)
    counted = sorted(times, key=lambda each: each.count(after, until), reverse=True)
    total = counted[0].count(after, until)
    for number, sparse in enumerate(counted[1:], start=1):
        at = sparse.after(after)
        while at is not None and at <= until:
            total += not any(other.count(at - 1, at) for other in counted[:number])
            at = sparse.after(at)
    return total
