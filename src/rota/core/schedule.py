"""A schedule as intent: when, what, and by which policies; and the pure decision of firing.

The row in the database keeps this as JSON (`spec`), the next nominal instant in `due_at` and the
instant to fire at in `available_at`. Nothing here knows how it is stored.
"""

from __future__ import annotations

import zlib
from enum import StrEnum
from typing import NamedTuple

import msgspec

from rota.core.recurrence import Spec, count_between, latest_between, next_after
from rota.core.retry import RetryPolicy
from rota.errors import BadSchedule

# Late occurrences beyond this many are looked at only as one collapsed range.
OWED_MAX = 1000


class Overlap(StrEnum):
    """What to do when the run before has not ended."""

    QUEUE = "queue"  # let one wait; further ones merge into it
    SKIP = "skip"
    ALLOW = "allow"
    CANCEL = "cancel-running"


class Missed(StrEnum):
    """What to do with occurrences that nobody was there to fire."""

    RUN = "run"  # once, the latest
    SKIP = "skip"
    ALL = "all"  # up to `missed_max`, the latest ones


class Policies(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a schedule behaves; the same on every path: start-up, resume, edit, backlog, jump."""

    overlap: Overlap = Overlap.QUEUE
    missed: Missed = Missed.RUN
    missed_max: int = 100
    delay_us_max: int | None = None  # later than this is not run at all
    jitter_us: int = 0
    runs_max: int | None = None
    failures_max: int | None = None  # pause after so many in a row
    on_time_us: int = 30_000_000  # so late still counts as on time
    retry: RetryPolicy | None = None
    timeout_us: int | None = None

    def __post_init__(self) -> None:
        wrong = [
            name
            for name, low in (
                ("missed_max", 0), ("jitter_us", 0), ("on_time_us", 0),
            )
            if getattr(self, name) < low
        ]  # fmt: skip
        for name in ("delay_us_max", "runs_max", "failures_max"):
            value = getattr(self, name)
            if value is not None and value < (1 if name != "delay_us_max" else 0):
                wrong.append(name)
        if wrong:
            raise BadSchedule(
                f"{', '.join(wrong)}: out of range", hint="Counts are at least 1, times at least 0."
            )


class Intent(msgspec.Struct, frozen=True, omit_defaults=True):
    """Everything a schedule row means."""

    workflow: str
    spec: Spec
    text: str  # as it was written, for people
    policies: Policies = Policies()
    owner: str = "operator"  # or "code": declared by a deployment
    origin: str | None = None  # which program declared it
    declared: str | None = None  # what the code said when it was last applied
    fired_count: int = 0
    since_at: int = 0  # occurrences before this belong to an earlier definition
    forgiven_at: int = 0  # failures before this do not count any more


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


class Plan(NamedTuple):
    """What to do about one due schedule."""

    fires: list[Fire]
    skips: list[Skip]
    next_due_at: int | None
    cancels: bool  # the running one is to be cancelled first
    pause: str | None  # the reason to rest, if it should


class Before(NamedTuple):
    """What is still open from earlier occurrences of a schedule."""

    running: int = 0  # claimed or claimable
    waiting: int = 0  # waits for its turn
    failures: int = 0  # ended badly in a row, as far as it was asked


def jitter_us(name: str, policies: Policies) -> int:
    """A stable delay for this schedule, so that many at one instant spread out."""
    if not policies.jitter_us:
        return 0
    return zlib.crc32(name.encode()) % policies.jitter_us


def decide(intent: Intent, *, due_at: int, now: int, before: Before) -> Plan:
    """Which occurrences owed since `due_at` (the first one not yet accounted for) to run."""
    policies = intent.policies
    skips: list[Skip]
    if policies.failures_max is not None and before.failures >= policies.failures_max:
        return Plan([], [], due_at, False, f"failed {before.failures} times in a row")
    upcoming = next_after(intent.spec, due_at)
    if upcoming is None or upcoming > now:
        owed, skips = [due_at], []  # the common case: exactly one is due
    else:
        most = OWED_MAX
        if policies.missed is Missed.ALL:
            most += policies.missed_max
        owed, skips = _owed(intent.spec, due_at, now, most)
        upcoming = next_after(intent.spec, now)
    chosen, late = _choose(owed, policies, now)
    skips += late
    if policies.runs_max is not None:
        room = max(0, policies.runs_max - intent.fired_count)
        skips += _collapse(chosen[room:], "max runs")
        chosen = chosen[:room]
    fires, merged, cancels = _overlap(chosen, policies.overlap, before)
    skips += merged
    pause = None
    if policies.runs_max is not None and intent.fired_count + len(fires) >= policies.runs_max:
        upcoming, pause = None, "all its runs are done"
    elif upcoming is None:
        pause = "no further occurrence"
    return Plan(fires, sorted(skips), upcoming, cancels, pause)


def _owed(spec: Spec, due_at: int, now: int, most: int) -> tuple[list[int], list[Skip]]:
    """Occurrences from `due_at` to now: the latest ones by themselves, a long rest as one range."""
    after = due_at - 1
    owed = latest_between(spec, after, now, most)
    if len(owed) < most:
        return owed, []
    total = count_between(spec, after, now)
    rest = total - len(owed)
    if rest <= 0:
        return owed, []
    last = latest_between(spec, after, owed[0] - 1, 1)[-1]
    return owed, [Skip(last, "missed", due_at, rest)]


def _choose(owed: list[int], policies: Policies, now: int) -> tuple[list[int], list[Skip]]:
    limit = policies.delay_us_max
    too_late = [due for due in owed if limit is not None and now - due > limit]
    eligible = owed[len(too_late) :]
    on_time = sum(now - due <= policies.on_time_us for due in eligible)
    wanted = {
        Missed.SKIP: on_time,
        Missed.RUN: max(on_time, 1),
        Missed.ALL: on_time + policies.missed_max,
    }[policies.missed]
    cut = max(0, len(eligible) - wanted)
    skips = _collapse(too_late, "too late") + _collapse(eligible[:cut], "missed")
    return eligible[cut:], skips


def _collapse(dues: list[int], reason: str) -> list[Skip]:
    """A few skips stay single, a long row becomes one entry with from, to and count."""
    if len(dues) > 3:
        return [Skip(dues[-1], reason, dues[0], len(dues))]
    return [Skip(due, reason, due, 1) for due in dues]


def _overlap(
    chosen: list[int], overlap: Overlap, before: Before
) -> tuple[list[Fire], list[Skip], bool]:
    if overlap is Overlap.ALLOW or not chosen:
        return [Fire(due, False) for due in chosen], [], False
    open_count = before.running + before.waiting
    if overlap is Overlap.CANCEL:
        # Of several at once only the newest can survive the others.
        return (
            [Fire(chosen[-1], False)],
            _collapse(chosen[:-1], "overtaken"),
            open_count > 0,
        )
    if overlap is Overlap.SKIP:
        if open_count:
            return [], _collapse(chosen, "overlap"), False
        return [Fire(chosen[0], False)], _collapse(chosen[1:], "overlap"), False
    if before.waiting:
        return [], _collapse(chosen, "merged"), False
    if before.running:
        return [Fire(chosen[0], True)], _collapse(chosen[1:], "merged"), False
    fires = [Fire(chosen[0], False)] + [Fire(due, True) for due in chosen[1:2]]
    return fires, _collapse(chosen[2:], "merged"), False
