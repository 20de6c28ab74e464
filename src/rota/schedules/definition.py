"""The definition of a schedule: a definition becomes a row, an edit becomes another row.

Also reads what is left of an unreadable row. Writes nothing.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple, TypedDict, Unpack, cast

import msgspec

from rota.core.runs.lifecycle import Status
from rota.core.runs.model import NewRun, Schedule
from rota.core.runs.names import checked_name, checked_priority
from rota.core.runs.retry import RetryPolicy
from rota.core.schedules.firing_plan import jitter_us
from rota.core.schedules.intent import (
    ENDED,
    MISSED_MAX,
    NO_FURTHER,
    POLICY_NAMES,
    QUARANTINED_REASON,
    RUNS_DONE,
    Intent,
    Missed,
    Overlap,
    Policies,
    understand,
)
from rota.core.time.instants import SECOND, Duration, micros, shown, timeout_micros
from rota.core.time.recurrence import Spec, count_between, next_after, parse
from rota.errors import BadInput, BadSchedule, WrongState
from rota.schedules import overrides
from rota.schedules.edit import Retiming, When, bound
from rota.store.schedules.templates import stored

CODE = "code"
GONE = f"{QUARANTINED_REASON}workflow"  # a deploy found its workflow gone from the code
LOST = "?"
# An edit that makes more than this due at once must be confirmed.
BURST = 1
# Firing takes time: with a shorter grace period every occurrence would be late.
GRACE_US_MIN = SECOND


class PolicyOptions(TypedDict, total=False):
    """The policies of a schedule, as people write them."""

    overlap: str
    missed: str
    missed_max: int
    max_delay: Duration | None
    jitter: Duration
    max_runs: int | None
    pause_after_failures: int | None
    retries: int | RetryPolicy | None
    timeout: Duration | None
    grace: Duration
    expires_after: Duration | None


class ScheduleOptions(PolicyOptions, total=False):
    """The options of `@app.schedule` and of `Schedules.create`."""

    args: Sequence[Any]
    input: dict[str, Any] | None
    gap: str
    repeat: str
    start: datetime | None
    end: datetime | None
    queue: str | None
    priority: int | None
    paused: bool
    sub_second: bool


def chosen_policies(options: Mapping[str, Any]) -> PolicyOptions:
    """The policies among the options of a schedule."""
    names = PolicyOptions.__annotations__
    return cast(PolicyOptions, {name: options[name] for name in names if name in options})


# How options are read that are stored in another form; None stays None where it means: no limit.
_READERS: dict[str, Callable[[Any], Any]] = {
    "overlap": Overlap,
    "missed": Missed,
    "retries": RetryPolicy.of,
    "timeout": timeout_micros,
    **dict.fromkeys(("max_delay", "jitter", "grace", "expires_after"), micros),
}
_MAY_BE_NONE = ("max_delay", "retries", "timeout", "expires_after")


def policies(**options: Unpack[PolicyOptions]) -> Policies:
    """Policies from the options that people write."""
    if "grace" in options and micros(options["grace"]) < GRACE_US_MIN:
        raise BadSchedule(
            f"grace={options['grace']!r} is shorter than a second, so every occurrence would be "
            "late",
            hint="Write at least 1s; 30s is the default.",
        )
    most, missed = options.get("missed_max", MISSED_MAX), options.get("missed", Missed.RUN)
    if most != MISSED_MAX and missed != Missed.ALL:
        raise BadSchedule(
            f'missed_max={most} needs missed="all", but missed is "{missed}"',
            hint='Write missed="all" too, or leave missed_max out.',
        )
    delay = options.get("max_delay")
    if delay is not None and micros(delay) < GRACE_US_MIN:
        raise BadSchedule(
            f"max_delay={delay!r} is shorter than a second, so no occurrence would run",
            hint="Write at least 1s; leave it out for no limit.",
        )
    kinds: dict[str, type[StrEnum]] = {"overlap": Overlap, "missed": Missed}
    for name, value in options.items():
        if (kind := kinds.get(name)) and value not in [*kind]:
            text = f"{name}={value!r} is not a policy"
            raise BadSchedule(text, hint=f"Use one of: {', '.join(kind)}.")
    return Policies(**{POLICY_NAMES[name]: _read(name, one) for name, one in options.items()})


def _read(option: str, value: object) -> Any:
    is_plain = option not in _READERS or (value is None and option in _MAY_BE_NONE)
    return value if is_plain else _READERS[option](value)


def arguments(options: ScheduleOptions) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of the workflow, by position and by name."""
    args = options.get("args", ())
    if isinstance(args, str | bytes | Mapping):
        hint = "Write args=[…] for arguments by position, input={…} for named ones."
        raise BadInput(f"args={shown(args)} is not a list", hint=hint)
    return tuple(args), dict(options.get("input") or {})


def check_declared(when: When, zone: str, options: ScheduleOptions) -> None:
    """Refuse a declaration in code that can be known to be wrong where it is written."""
    # A timing that is over is valid here, because code may stay longer than its times.
    parse(
        when, zone=zone, now=0, gap=options.get("gap", "auto"),
        repeat=options.get("repeat", "auto"), sub_second=options.get("sub_second", False),
        start_at=bound(options.get("start"), zone), end_at=bound(options.get("end"), zone),
    )  # fmt: skip
    policies(**chosen_policies(options))
    arguments(options)
    if (queue := options.get("queue")) is not None:
        checked_name(queue, "queue")
    if (priority := options.get("priority")) is not None:
        checked_priority(priority)


def merged(old: Policies, words: PolicyOptions) -> Policies:
    """Policies with the options of an edit applied."""
    fresh = policies(**(PolicyOptions(missed=old.missed) | words))
    changes = {POLICY_NAMES[name]: getattr(fresh, POLICY_NAMES[name]) for name in words}
    return msgspec.structs.replace(old, **changes)


def written(when: When) -> str:
    """The written form, as text to show back."""
    if isinstance(when, str):
        return when
    if isinstance(when, datetime):
        return when.isoformat()
    if isinstance(when, Iterable):
        return "; ".join(written(one) for one in when)
    return str(when)


class ScheduleDefinition(NamedTuple):
    """The definition of a schedule when it is made, or made again."""

    name: str
    when: When
    zone: str | None  # as written; without one, a schedule that exists keeps its own
    host_zone: str
    gap: str
    repeat: str
    start: datetime | None
    end: datetime | None
    sub_second: bool
    rules: Policies
    run: NewRun  # what all its runs share
    owner: str
    origin: str | None
    paused: bool | None  # as written; without it, a schedule that exists keeps its own state

    @property
    def mark(self) -> str:
        """A digest of the definition: two deploys of the same code have the same."""
        run = self.run
        declared = (written(self.when), self.zone, self.gap, self.repeat, self.start, self.end,
            self.sub_second, self.rules, run.name, run.input, run.queue, run.priority)  # fmt: skip
        return hashlib.sha256(msgspec.json.encode(declared)).hexdigest()[:16]

    def made(self, zone: str, *, schedule_id: str, now: int) -> Schedule:
        """The row of a new schedule."""
        text = written(self.when)
        spec = parse(
            self.when, zone=zone, now=now, gap=self.gap, repeat=self.repeat,
            start_at=bound(self.start, zone), end_at=bound(self.end, zone),
            sub_second=self.sub_second,
        )  # fmt: skip
        due_at = _first_due(spec, text, now)
        mark = self.mark if self.owner == CODE else None
        intent = Intent(
            self.run.name, spec, text, self.rules, self.owner, self.origin, mark,
            paused_at=now if self.paused else 0, kind=self.run.kind,
        )  # fmt: skip
        at = due_at + jitter_us(self.name, self.rules)
        return Schedule(
            schedule_id, self.run.namespace, self.name, self.run.queue, self.run.priority,
            Status.PAUSED if self.paused else Status.SCHEDULED,
            "created paused" if self.paused else None, None if self.paused else at, due_at, text,
            stored(intent), self.run.options, self.run.input, now, self.origin,
        )  # fmt: skip


def _first_due(spec: Spec, text: str, now: int) -> int:
    due_at = next_after(spec, now)
    if due_at is None:
        raise BadSchedule(
            f"{text!r} has no occurrence in the future",
            hint="Give a time in the future, or a later end.",
        )
    return due_at


# -- what is there -----------------------------------------------------------------------------


class ParsedDefinition(NamedTuple):
    """The meaning of a row: all of it, or what can still be read, and then the problem."""

    intent: Intent
    problem: str | None = None


def found(schedule: Schedule) -> ParsedDefinition:
    """The intent of a row; an unreadable row keeps the parts that can still be read."""
    try:
        return ParsedDefinition(understand(schedule.spec))
    except Exception as error:
        return ParsedDefinition(_salvaged(schedule), str(error))


def _salvaged(schedule: Schedule) -> Intent:
    fields: Any = {}
    with contextlib.suppress(msgspec.MsgspecError):
        fields = msgspec.json.decode(schedule.spec)
    parts: dict[str, Any] = {
        "workflow": LOST, "spec": Spec(()), "text": schedule.cron_expr or LOST,
    }  # fmt: skip
    for field in msgspec.structs.fields(Intent):
        if isinstance(fields, dict) and field.name in fields:
            with contextlib.suppress(msgspec.MsgspecError, BadSchedule):
                parts[field.name] = msgspec.convert(fields[field.name], field.type)
    return Intent(**parts)


# -- what becomes of it ------------------------------------------------------------------------


def redefined(old: Schedule, definition: ScheduleDefinition, *, now: int) -> Schedule:
    """A new definition under an old name: same id and history; a pause by a person stays, and a
    timing that is written as before continues as before (an interval keeps its anchor)."""
    before, problem = found(old)
    if definition.owner == CODE and before.owner != CODE and before.workflow != LOST:
        # Code does not change an operator's schedule. The row records that it tried.
        marked = msgspec.structs.replace(before, ignored=definition.origin)
        if problem is not None:
            return old
        return msgspec.structs.replace(old, spec=stored(marked), parent_id=definition.origin)
    if definition.owner == CODE and before.declared == definition.mark and problem is None:
        # An operator's edit stays if this deploy declares the same as the last one.
        moved = msgspec.structs.replace(before, origin=definition.origin)
        return msgspec.structs.replace(old, spec=stored(moved), parent_id=definition.origin)
    known = overrides.declared_zone(before) if problem is None else None
    zone = definition.zone if definition.zone is not None else known or definition.host_zone
    fresh = definition.made(zone, schedule_id=old.id, now=now)
    placed = renewed(old, fresh, understand(fresh.spec), now=now)
    may_fire = placed.status == Status.SCHEDULED or placed.reason in ENDED
    if definition.owner == CODE:
        return placed  # Code asks for a pause of a new schedule only; later, operators decide.
    if definition.paused and may_fire:
        return paused(placed, now=now)
    if definition.paused is False and not may_fire:
        raise WrongState(
            f"schedule {old.name} is paused ({placed.reason}); replacing it does not resume it",
            hint=f"Omit `paused` to keep the pause; `rota schedule resume {old.name}` ends it.",
        )
    return placed


def wakes(reason: str, repaired: bool) -> bool:
    """Whether a new definition ends a pause that has this reason."""
    lost = reason.startswith(QUARANTINED_REASON) and not reason.startswith(GONE)
    return reason in ENDED or (repaired and lost)


def renewed(
    old: Schedule,
    fresh: Schedule,
    intent: Intent,
    *,
    now: int,
    resumes: Callable[[str, bool], bool] = wakes,
    pause: str | None = None,
) -> Schedule:
    """The row of a new definition under an old name. Code, rota.toml, files of pipelines and
    operators share this rule.

    The id, the history and the counts stay. So do an operator's values of single fields, and a
    pause unless `resumes` says that its reason is gone. A timing that is written as before keeps
    its anchor and its next occurrence. With `pause`, a schedule that may fire is paused for that
    reason.
    """
    before, problem = found(old)
    if intent.owner != overrides.OPERATOR and problem is None:
        fresh, intent = overrides.overlaid(fresh, intent, old, before)
    same = problem is None and _as_written(before) == _as_written(intent)
    intent = continued(intent, before, spec=before.spec if same else intent.spec)
    resumed = old.status == Status.PAUSED and resumes(old.reason or "", problem is not None)
    keeps_time = same and not resumed and old.due_at is not None
    kept = msgspec.structs.replace(
        fresh, status=old.status, reason=old.reason, available_at=old.available_at,
        created_at=old.created_at, started_at=old.started_at,
        due_at=old.due_at if keeps_time else next_after(intent.spec, now),
    )  # fmt: skip
    may_fire = resumed or old.status == Status.SCHEDULED
    return _placed(kept, intent, now, may_fire=may_fire, pause=pause)


def paused(old: Schedule, *, now: int, note: str = "", until_at: int | None = None) -> Schedule:
    """The row, paused by an operator; a pause that lasts already keeps its begin."""
    intent, problem = found(old)
    since = intent.paused_at if old.status == Status.PAUSED and intent.paused_at else now
    spec = stored(msgspec.structs.replace(intent, paused_at=since))
    return msgspec.structs.replace(
        old, status=Status.PAUSED, reason=note or "by request", available_at=until_at,
        spec=old.spec if problem else spec,
    )  # fmt: skip


def continued(intent: Intent, before: Intent, *, spec: Spec) -> Intent:
    """A new intent of an existing schedule, with its counts and times so far.

    `spec` is that of the new intent or of the old one.
    """
    return msgspec.structs.replace(
        intent, fired_count=before.fired_count, paused_at=before.paused_at,
        forgiven_at=before.forgiven_at, since_at=before.since_at, changed_at=before.changed_at,
        outcomes_until=before.outcomes_until, spec=spec,
    )  # fmt: skip


def _as_written(intent: Intent) -> tuple[Any, ...]:
    spec = intent.spec
    rules = [(timing.zone, timing.gap, timing.repeat) for timing in spec.timings]
    return intent.text, rules, spec.start_at, spec.end_at


def with_changes_noted(old: Schedule, fresh: Schedule, fields: Iterable[str]) -> Schedule:
    """The row after an operator's change of `fields`, which later deploys keep."""
    before, problem = found(old)
    intent = overrides.noted(old, before, fresh, understand(fresh.spec), fields)
    if problem is not None:  # The declared value is not known: the next deploy compares again.
        intent = msgspec.structs.replace(intent, declared=None)
    return msgspec.structs.replace(fresh, spec=stored(intent))


def reset(old: Schedule, fields: Iterable[str], now: int, *, confirm: bool) -> Schedule:
    """The row with the code's values of `fields`."""
    intent = understand(old.spec)
    if intent.owner == overrides.OPERATOR:
        raise WrongState(
            f"no code declares schedule {old.name}, so there is nothing to restore",
            hint=f"Change it with `rota schedule update {old.name}`.",
        )
    row, restored = overrides.restored(old, intent, fields)
    if restored == intent:
        return old
    if restored.spec == intent.spec:  # Its times are as they were, and so is what is owed.
        return _placed(row, restored, now, may_fire=_may_fire(row, repaired=False))
    return retimed(row, restored, now, problem=None, confirm=confirm)


class Edit(NamedTuple):
    """An edit; fields that it does not name stay."""

    timing: Retiming
    words: PolicyOptions
    workflow: str | None
    confirm: bool

    def of(self, old: Schedule, now: int) -> tuple[Schedule, Intent]:
        """The row after the edit, and its intent. An edit may repair a quarantined row."""
        before, problem = found(old)
        if problem is not None:
            self._check_lost(old.name, before, problem)
        if self.workflow is not None and before.kind != "workflow":
            raise BadSchedule(
                f"schedule {old.name} runs {before.workflow}, which an edit cannot change",
                hint="Make another schedule for the other workflow: `rota schedule create`.",
            )
        intent = msgspec.structs.replace(
            before,
            workflow=self.workflow or before.workflow,
            spec=self.timing.of(before, now),
            text=before.text if self.timing.when is None else written(self.timing.when),
            policies=merged(before.policies, self.words),
        )
        row = msgspec.structs.replace(old, cron_expr=intent.text)
        return retimed(row, intent, now, problem=problem, confirm=self.confirm), intent

    @property
    def fields(self) -> set[str]:
        """The fields that it names."""
        return self.timing.fields | self.words.keys()

    def _check_lost(self, name: str, before: Intent, problem: str) -> None:
        lost = []
        if before.workflow == LOST and self.workflow is None:
            lost.append("workflow")
        if not before.spec.timings and self.timing.zone is None:
            lost.append("timezone")
        if before.text == LOST and self.timing.when is None:
            lost.append("when")
        if lost:
            raise BadSchedule(
                f"schedule {name} cannot be read any more: {problem}",
                hint=f"Give these fields again with `rota schedule update {name}`: "
                f"{', '.join(lost)}.",
            )


def retimed(
    row: Schedule, intent: Intent, now: int, *, problem: str | None, confirm: bool
) -> Schedule:
    """The row of a changed intent, due at what is owed still or at the next occurrence."""
    due_at = _first_due(intent.spec, intent.text, now)
    if problem is None:
        due_at = _owed(row, intent, now, confirm) or due_at
    kept = msgspec.structs.replace(row, due_at=due_at)
    return _placed(kept, intent, now, may_fire=_may_fire(row, repaired=problem is not None))


def _owed(old: Schedule, intent: Intent, now: int, confirm: bool) -> int | None:
    """The first occurrence that is owed still; more than one at once must be confirmed."""
    if old.status != Status.SCHEDULED or old.due_at is None or old.due_at > now:
        return None
    owed = count_between(intent.spec, old.due_at - 1, now)
    if owed > BURST and not confirm:
        raise BadSchedule(
            f"this edit would release {owed} missed occurrences at once",
            hint="Accept that with `--confirm` (confirm=True), or skip them: pause and resume the "
            "schedule.",
        )
    return next_after(intent.spec, old.due_at - 1) if owed else None


def _may_fire(row: Schedule, *, repaired: bool) -> bool:
    return row.status == Status.SCHEDULED or wakes(row.reason or "", repaired)


def _placed(
    kept: Schedule, intent: Intent, now: int, *, may_fire: bool, pause: str | None = None
) -> Schedule:
    """The row with its state: a paused schedule stays paused, unless it `may_fire`."""
    if not may_fire:
        return msgspec.structs.replace(kept, spec=stored(intent))
    due_at = kept.due_at
    if pause is None and (due_at is None or not intent.runs_left):
        pause = NO_FURTHER if due_at is None else RUNS_DONE
        kept = msgspec.structs.replace(kept, due_at=None)
    if pause is not None or due_at is None:
        intent = msgspec.structs.replace(intent, paused_at=intent.paused_at or now)
        return msgspec.structs.replace(
            kept, spec=stored(intent), status=Status.PAUSED, reason=pause, available_at=None
        )
    at = due_at + jitter_us(kept.name, intent.policies)
    intent = msgspec.structs.replace(intent, paused_at=0)
    return msgspec.structs.replace(
        kept, spec=stored(intent), status=Status.SCHEDULED, reason=None, available_at=at
    )
