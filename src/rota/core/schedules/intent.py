"""A schedule as intent: when, what, and by which policies.

The row in the database keeps this as JSON (`spec`), the next nominal instant in `due_at` and the
instant to fire at in `available_at`. Nothing here knows how it is stored.
"""

from __future__ import annotations

import sys
from enum import StrEnum

import msgspec

from rota.core.runs.retry import RetryPolicy
from rota.core.time.recurrence import Spec, check
from rota.errors import BadSchedule

# Why a schedule rests that has come to its end; an edit that gives it more wakes it again.
RUNS_DONE = "all its runs are done"
NO_FURTHER = "no further occurrence"
ENDED = (RUNS_DONE, NO_FURTHER)
QUARANTINED_REASON = "quarantined: "


class Overlap(StrEnum):
    """The policy when the run before has not ended."""

    QUEUE = "queue"  # let one wait; further ones merge into it
    QUEUE_ALL = "queue-all"  # let every one wait for its turn
    SKIP = "skip"
    ALLOW = "allow"
    CANCEL = "cancel-running"


class Missed(StrEnum):
    """The policy for missed occurrences."""

    RUN = "run"  # once, the latest
    SKIP = "skip"
    ALL = "all"  # up to `missed_max`, the latest ones; under `queue` one after another


# Option -> attribute of `Policies`.
POLICY_NAMES = {
    "overlap": "overlap", "missed": "missed", "missed_max": "missed_max",
    "max_delay": "delay_us_max", "jitter": "jitter_us", "max_runs": "runs_max",
    "pause_after_failures": "failures_max", "retries": "retry", "timeout": "timeout_us",
    "grace": "on_time_us", "expires_after": "expires_us",
}  # fmt: skip
_OPTIONS = {field: option for option, field in POLICY_NAMES.items()}
_LEAST = {
    **dict.fromkeys(("missed_max", "jitter_us", "on_time_us", "delay_us_max"), 0),
    **dict.fromkeys(("runs_max", "failures_max", "expires_us"), 1),
}
MISSED_MAX = 100


class Policies(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a schedule behaves; the same on every path: start-up, resume, edit, backlog, jump."""

    overlap: Overlap = Overlap.QUEUE
    missed: Missed = Missed.RUN
    missed_max: int = MISSED_MAX
    delay_us_max: int | None = None  # later than this is not run at all
    jitter_us: int = 0
    runs_max: int | None = None
    failures_max: int | None = None  # pause after so many in a row
    on_time_us: int = 30_000_000  # the grace period: so late still counts as on time
    expires_us: int | None = None  # a fired run that has not begun after this ends
    retry: RetryPolicy | None = None
    timeout_us: int | None = None

    def __post_init__(self) -> None:
        wrong = [
            name
            for name, least in _LEAST.items()
            if (value := getattr(self, name)) is not None and value < least
        ]
        if wrong:
            options = [_OPTIONS[name] for name in wrong]
            raise BadSchedule(
                f"{', '.join(options)}: out of range",
                hint="Counts are at least 1, times at least 0.",
            )


class CodeValues(msgspec.Struct, frozen=True, omit_defaults=True):
    """The declared values of a schedule in which an operator has changed fields."""

    workflow: str
    spec: Spec
    text: str
    policies: Policies = Policies()
    queue: str = "default"
    priority: int = 0
    input: str | None = None
    changed: tuple[str, ...] = ()  # the fields with an operator's value, by their public names


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
    changed_at: int = 0  # when that definition was replaced
    forgiven_at: int = 0  # failures of occurrences before this do not count any more
    paused_at: int = 0  # since when it rests, if it does
    outcomes_until: int = 0  # occurrences from the next one up to this one may have an outcome
    ignored: str | None = None  # the program with the ignored declaration of this name
    code: CodeValues | None = None  # what the code says, where an operator has changed it
    kind: str = "workflow"  # of its runs: which executor executes them

    @property
    def runs_left(self) -> int:
        """How many more it may fire."""
        most = self.policies.runs_max
        return sys.maxsize if most is None else max(0, most - self.fired_count)


_INTENT = msgspec.json.Decoder(Intent)


def read_intent(text: str) -> Intent:
    """The stored intent of a schedule; whether it can be evaluated is not checked."""
    return _INTENT.decode(text)


def understand(text: str) -> Intent:
    """A stored intent that can be evaluated here and now; raises when it makes no sense."""
    intent = read_intent(text)
    check(intent.spec)
    return intent
