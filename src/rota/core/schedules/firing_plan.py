"""The pure decision which occurrences of a due schedule run: missed, late, overlap, max runs."""

from __future__ import annotations

import hashlib
import sys
from typing import NamedTuple

from rota.core.schedules.intent import (
    NO_FURTHER,
    RUNS_DONE,
    Intent,
    Missed,
    Overlap,
    Policies,
)
from rota.core.time.occurrence_range import OccurrenceRange
from rota.core.time.recurrence import next_after

# A few skips in a row stay single entries; more become one.
SINGLE_MAX = 3


class Skip(NamedTuple):
    """Occurrences that did not run, and why; a long gap is one entry."""

    due_at: int
    reason: str
    first_at: int
    occurrences: int


class Fire(NamedTuple):
    """One occurrence to run; `waits` for its turn behind the run before it."""

    due_at: int
    waits: bool


class FiringPlan(NamedTuple):
    """The decision about one due schedule."""

    fires: list[Fire]
    skips: list[Skip]
    next_due_at: int | None
    cancels: bool  # the running one is to be cancelled first
    pause: str | None  # the reason to rest, if it should


class Before(NamedTuple):
    """The open runs of earlier occurrences of a schedule."""

    running: int = 0  # claimed or claimable
    waiting: int = 0  # waits for its turn
    failures: int = 0  # ended badly in a row, as far as it was asked

    @property
    def released(self) -> Before:
        """The same after one that waited has begun."""
        return self._replace(running=self.running + 1, waiting=self.waiting - 1)


def jitter_us(name: str, policies: Policies) -> int:
    """A stable delay for this schedule, so that many at one instant spread out."""
    if not policies.jitter_us:
        return 0
    # 64 bits spread over any range that people choose, and are the same in every process.
    digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest) % policies.jitter_us


def decide(
    intent: Intent, *, due_at: int, now: int, before: Before, most: int = sys.maxsize
) -> FiringPlan:
    """Which occurrences owed since `due_at` (the first one not yet accounted for) to run.

    At most `most` fires at once; the rest is owed still, from `next_due_at` on.
    """
    policies = intent.policies
    if policies.failures_max is not None and before.failures >= policies.failures_max:
        return FiringPlan([], [], due_at, False, f"failed {before.failures} times in a row")
    upcoming = next_after(intent.spec, due_at)
    if upcoming is not None and upcoming > now and _is_plain(policies, before, now - due_at):
        return FiringPlan([Fire(due_at, False)], [], upcoming, False, None)
    owed = OccurrenceRange(intent.spec, due_at - 1, due_at, 1)
    if upcoming is not None and upcoming <= now:
        owed = OccurrenceRange.of(intent.spec, due_at - 1, now)
        upcoming = next_after(intent.spec, now)
    chosen, skips = _choose(owed, policies, now)
    runs_left = intent.runs_left
    overlap = _overlap_of(policies, chosen, now)
    if overlap in (Overlap.ALLOW, Overlap.QUEUE_ALL) and min(chosen.size, runs_left) > most:
        *dues, upcoming = chosen.dues(most + 1)
        return FiringPlan(_every(dues, overlap, before), skips, upcoming, False, None)
    if runs_left < chosen.size:
        chosen, beyond = chosen.split(runs_left)
        skips += _skips(beyond, "max runs")
    fires, merged, cancels = _overlap(chosen, overlap, before)
    skips += merged
    pause = None
    if len(fires) >= runs_left:
        upcoming, pause = None, RUNS_DONE
    elif upcoming is None:
        pause = NO_FURTHER
    return FiringPlan(fires, sorted(skips) if skips else skips, upcoming, cancels, pause)


def _is_plain(policies: Policies, before: Before, late_us: int) -> bool:
    """The common case, in which no policy has a say: one is due, in time, and nothing is open."""
    return (
        policies.runs_max is None
        and (policies.delay_us_max is None or late_us <= policies.delay_us_max)
        and (policies.missed is Missed.RUN or late_us <= policies.on_time_us)
        and (policies.overlap is Overlap.ALLOW or not (before.running or before.waiting))
    )


def _choose(
    owed: OccurrenceRange, policies: Policies, now: int
) -> tuple[OccurrenceRange, list[Skip]]:
    """The part that may run by the policies about lateness, and what does not."""
    limit = policies.delay_us_max
    late_us = now - owed.after
    if late_us <= policies.on_time_us and (limit is None or late_us <= limit):
        return owed, []  # the common case: all of it is on time
    too_late, eligible = owed.split_at(owed.after if limit is None else now - limit - 1)
    _, on_time = eligible.split_at(now - policies.on_time_us - 1)
    wanted = {
        Missed.SKIP: on_time.size,
        Missed.RUN: max(on_time.size, 1),
        Missed.ALL: on_time.size + policies.missed_max,
    }[policies.missed]
    missed, chosen = eligible.split(max(0, eligible.size - wanted))
    return chosen, _skips(too_late, "too late") + _skips(missed, "missed")


def _skips(occurrences: OccurrenceRange, reason: str) -> list[Skip]:
    """A few skips stay single, a long row becomes one entry with from, to and count."""
    if not occurrences.size:
        return []
    if occurrences.size > SINGLE_MAX:
        return [Skip(occurrences.last, reason, occurrences.first, occurrences.size)]
    return [Skip(due, reason, due, 1) for due in occurrences.dues(occurrences.size)]


def _overlap_of(policies: Policies, chosen: OccurrenceRange, now: int) -> Overlap:
    """The overlap policy of this firing: catching up on all merges none of them into another."""
    catches_up = (
        policies.overlap is Overlap.QUEUE
        and policies.missed is Missed.ALL
        and chosen.size > 0
        and now - chosen.first > policies.on_time_us
    )
    return Overlap.QUEUE_ALL if catches_up else policies.overlap


def _every(dues: list[int], overlap: Overlap, before: Before) -> list[Fire]:
    """All of them: beside each other, or each behind the one before it."""
    if overlap is Overlap.ALLOW:
        return [Fire(due, False) for due in dues]
    is_open = bool(before.running or before.waiting)
    return [Fire(due, is_open or index > 0) for index, due in enumerate(dues)]


def _overlap(
    chosen: OccurrenceRange, overlap: Overlap, before: Before
) -> tuple[list[Fire], list[Skip], bool]:
    if overlap in (Overlap.ALLOW, Overlap.QUEUE_ALL) or not chosen.size:
        return _every(chosen.dues(chosen.size), overlap, before), [], False
    open_count = before.running + before.waiting
    if overlap is Overlap.CANCEL:
        # If several are due at once, only the newest can survive the others.
        rest, newest = chosen.split(chosen.size - 1)
        return [Fire(newest.last, False)], _skips(rest, "overtaken"), open_count > 0
    if overlap is Overlap.SKIP:
        kept, rest = chosen.split(0 if open_count else 1)
        return [Fire(due, False) for due in kept.dues(1)], _skips(rest, "overlap"), False
    # One runs at once if none is before it, and one waits if none does already.
    runs = 0 if open_count else 1
    kept, rest = chosen.split(runs + (0 if before.waiting else 1))
    fires = [Fire(due, index >= runs) for index, due in enumerate(kept.dues(kept.size))]
    return fires, _skips(rest, "merged"), False
