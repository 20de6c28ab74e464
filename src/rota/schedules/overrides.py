"""Fields of a declared schedule that an operator has changed: kept by deploys, shown, reset. Pure.

The row holds the values in force; `Intent.code` holds the code's and names the changed fields.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from rota.client.start import RunOptions
from rota.core.runs.model import Schedule
from rota.core.schedules.intent import (
    POLICY_NAMES,
    CodeValues,
    Intent,
    Policies,
)
from rota.core.suggest import suggestion
from rota.core.time.instants import iso, span
from rota.core.time.recurrence import parse
from rota.core.time.spec import Timing
from rota.errors import BadInput

OPERATOR = "operator"
_CLOCK = ("zone", "gap", "repeat")
# Names of fields in rows -> the names that people use, where they differ.
_PUBLIC = {"zone": "timezone"}
_BOUNDS = {"start": "start_at", "end": "end_at"}
_ROW = ("workflow", "input", "queue", "priority")
FIELDS = ("when", *_CLOCK, *_BOUNDS, *_ROW, *POLICY_NAMES)
_NAMES = {_PUBLIC.get(field, field): field for field in FIELDS}


class FieldDifference(NamedTuple):
    """A field in which a schedule differs from its code; the values as people write them."""

    field: str
    declared: str  # in code, rota.toml or a pipeline's file
    value: str  # in force


def values_of(row: Schedule, intent: Intent) -> CodeValues:
    """The fields of a row that code may declare."""
    return CodeValues(
        intent.workflow, intent.spec, intent.text, intent.policies, row.queue, row.priority,
        row.input,
    )  # fmt: skip


def noted(
    old: Schedule, before: Intent, fresh: Schedule, intent: Intent, fields: Iterable[str]
) -> Intent:
    """The intent after an operator's change of `fields`; the code's values are kept in it."""
    if before.owner == OPERATOR:
        return intent
    code = before.code or values_of(old, before)
    changed = {*code.changed, *fields}
    code = msgspec.structs.replace(code, changed=tuple(f for f in FIELDS if f in changed))
    return _pruned(fresh, msgspec.structs.replace(intent, code=code))


def _pruned(row: Schedule, intent: Intent) -> Intent:
    """The intent without the fields in which the row and the code agree (again)."""
    code = intent.code
    if code is None:
        return intent
    now = values_of(row, intent)
    changed = tuple(name for name in code.changed if _value(now, name) != _value(code, name))
    kept = msgspec.structs.replace(
        code, changed=changed, input=code.input if "input" in changed else None
    )
    return msgspec.structs.replace(intent, code=kept if changed else None)


def overlaid(
    fresh: Schedule, intent: Intent, old: Schedule, before: Intent
) -> tuple[Schedule, Intent]:
    """The code's new row with the values that an operator gave the old one."""
    if before.code is None:
        return fresh, intent
    code, changed = _anchored(values_of(fresh, intent), before.code), before.code.changed
    row, laid = _applied(fresh, intent, _taken(code, values_of(old, before), changed))
    return row, _pruned(
        row,
        msgspec.structs.replace(laid, code=msgspec.structs.replace(code, changed=changed)),
    )


def restored(row: Schedule, intent: Intent, fields: Iterable[str]) -> tuple[Schedule, Intent]:
    """The row with the code's values of `fields`; of those it has already, nothing changes."""
    code = intent.code
    if code is None:
        return row, intent
    chosen = [name for name in fields if name in code.changed]
    row, intent = _applied(row, intent, _taken(values_of(row, intent), code, chosen))
    return row, _pruned(row, intent)


def declared_zone(intent: Intent) -> str | None:
    """The zone that a schedule has by its code, or had when it was made."""
    spec = intent.spec if intent.code is None else intent.code.spec
    return spec.timings[0].zone if spec.timings else None


def differences_text(found: Iterable[FieldDifference]) -> list[str]:
    """Differences in words: `when is 5m (declared: 10m)`."""
    return [f"{one.field} is {one.value} (declared: {one.declared})" for one in found]


def checked_fields(fields: Iterable[str]) -> tuple[str, ...]:
    """Names of fields, or BadInput; none named means all."""
    chosen = tuple(fields)
    for name in chosen:
        if name not in _NAMES:
            listed = f"Fields: {', '.join(_NAMES)}."
            hint = suggestion(name, _NAMES)
            raise BadInput(
                f"{name!r} is not a field of a schedule",
                hint=f"{hint} {listed}" if hint else listed,
            )
    return tuple(_NAMES[name] for name in chosen) or FIELDS


def differences(row: Schedule, intent: Intent) -> list[FieldDifference]:
    """The fields in which the row differs from its code."""
    code = intent.code
    if code is None:
        return []
    now = values_of(row, intent)
    return [
        FieldDifference(_PUBLIC.get(name, name), _said(code, name), _said(now, name))
        for name in code.changed
    ]


def run_options(rules: Policies) -> RunOptions:
    """The policies that each run gets as options."""
    timeout = None if rules.timeout_us is None else rules.timeout_us / 1e6
    return RunOptions(retries=rules.retry, timeout=timeout)


# -- single fields -----------------------------------------------------------------------------


def _value(values: CodeValues, name: str) -> Any:
    if name == "when":
        return values.text
    if name in _CLOCK:
        return getattr(values.spec.timings[0], name) if values.spec.timings else None
    if name in _BOUNDS:
        return getattr(values.spec, _BOUNDS[name])
    if name in POLICY_NAMES:
        return getattr(values.policies, POLICY_NAMES[name])
    return getattr(values, name)


def _taken(base: CodeValues, other: CodeValues, fields: Iterable[str]) -> CodeValues:
    """`base` with some fields of `other`."""
    chosen = set(fields)
    row = {name: getattr(other, name) for name in _ROW if name in chosen}
    rules = {POLICY_NAMES[name]: _value(other, name) for name in POLICY_NAMES if name in chosen}
    bounds = {_BOUNDS[name]: _value(other, name) for name in _BOUNDS if name in chosen}
    source = other if "when" in chosen else base
    clock = {name: _value(other if name in chosen else base, name) for name in _CLOCK}
    spec = msgspec.structs.replace(base.spec, timings=_timings(source, clock), **bounds)
    policies = msgspec.structs.replace(base.policies, **rules)
    return msgspec.structs.replace(base, spec=spec, text=source.text, policies=policies, **row)


def _anchored(code: CodeValues, before: CodeValues) -> CodeValues:
    """The code's values; a timing with the same text keeps its anchor."""
    if code.text != before.text:
        return code
    clock = {name: _value(code, name) for name in _CLOCK}
    spec = msgspec.structs.replace(code.spec, timings=_timings(before, clock))
    return msgspec.structs.replace(code, spec=spec)


def _timings(source: CodeValues, clock: dict[str, Any]) -> tuple[Timing, ...]:
    """The times of `source` by another clock; one wall time is read again in another zone."""
    timings = source.spec.timings
    if len(timings) == 1 and timings[0].at is not None and timings[0].zone != clock["zone"]:
        return parse(source.text, now=0, sub_second=True, **clock).timings
    return tuple(_timed(each, clock) for each in timings)


def _timed(timing: Timing, clock: dict[str, Any]) -> Timing:
    rules = clock if timing.cron is not None else {"zone": clock["zone"]}
    return msgspec.structs.replace(timing, **rules)


def _applied(row: Schedule, intent: Intent, values: CodeValues) -> tuple[Schedule, Intent]:
    laid = msgspec.structs.replace(
        intent, workflow=values.workflow, spec=values.spec, text=values.text,
        policies=values.policies,
    )  # fmt: skip
    return (
        msgspec.structs.replace(
            row, queue=values.queue, priority=values.priority, input=values.input,
            cron_expr=values.text, options=run_options(values.policies).stored(),
        ),
        laid,
    )  # fmt: skip


# -- what people read --------------------------------------------------------------------------


def _said(values: CodeValues, name: str) -> str:
    value = policy_words(values.policies)[name] if name in POLICY_NAMES else _value(values, name)
    if value is None:
        return "none"
    return iso(value) if name in _BOUNDS else str(value)


def policy_words(policies: Policies) -> dict[str, Any]:
    """Policies by the names of their options."""

    def length(duration_us: int | None) -> str | None:
        return None if duration_us is None else span(duration_us)

    return {
        "overlap": policies.overlap.value,
        "missed": policies.missed.value,
        "missed_max": policies.missed_max,
        "max_delay": length(policies.delay_us_max),
        "jitter": length(policies.jitter_us or None),
        "max_runs": policies.runs_max,
        "pause_after_failures": policies.failures_max,
        "retries": None if policies.retry is None else policies.retry.attempts - 1,
        "timeout": length(policies.timeout_us),
        "grace": length(policies.on_time_us),
        "expires_after": length(policies.expires_us),
    }
