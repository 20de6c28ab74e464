"""Filter rules over items: one meaning of every comparison. Pure.

A field that is missing or null makes every comparison false, the negative ones too. A number equals
a number, and text that spells one: `5` and `"5"`. Two texts are never numbers: `"007"`, `"1.10"`. A
boolean equals a boolean, and text that spells one. Otherwise they are compared as text, where
capital letters count. Greater and less compare numbers, and dates and times in ISO form; anything
else is false. `contains` searches text without regard to capital letters, or a list for an equal
element.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from rota.errors import BadInput, Fatal

if TYPE_CHECKING:
    import regex

MATCH_S_MAX = 0.1  # of CPU time, for one text
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]{1,3})?")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")


class Operator(StrEnum):
    """The eleven comparisons."""

    EQUALS = "equals"
    NOT_EQUALS = "not_equals"
    IN = "in"
    NOT_IN = "not_in"
    CONTAINS = "contains"
    NOT_CONTAINS = "not_contains"
    GREATER_THAN = "greater_than"
    LESS_THAN = "less_than"
    GTE = "gte"
    LTE = "lte"
    MATCHES = "matches"


@dataclass(frozen=True, slots=True)
class Test:
    """One comparison of a field; a list for in and not_in, a pattern for matches."""

    __test__ = False  # pytest must not collect it by its name

    field: str
    operator: Operator
    operand: Any


@dataclass(frozen=True, slots=True)
class AllOf:
    """True when all are; even when there are none."""

    rules: tuple[Rule, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """True when one is; false when there are none."""

    rules: tuple[Rule, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """True when the rule is not."""

    rule: Rule


@dataclass(frozen=True, slots=True)
class Ask:
    """A question that only an AI can answer, by its number."""

    number: int


Rule: TypeAlias = Test | AllOf | AnyOf | Not | Ask


class Verdict(NamedTuple):
    """Whether the item is kept, and why; or the question to be answered first."""

    kept: bool
    reason: str
    asks: int | None = None


def judge(
    rule: Rule, item: Mapping[str, Any], answers: Mapping[int, bool] | None = None
) -> Verdict:
    """Decide about an item. A question is asked only when no comparison settles the matter."""
    given = {} if answers is None else answers
    match rule:
        case Test():
            return _tested(rule, item)
        case Ask():
            return _asked(rule, given)
        case Not():
            inner = judge(rule.rule, item, given)
            if inner.asks is not None:
                return inner
            return Verdict(not inner.kept, f"not ({inner.reason})")
        case AllOf():
            return _combined(rule.rules, item, given, wanted=False)
        case AnyOf():
            return _combined(rule.rules, item, given, wanted=True)


def _tested(rule: Test, item: Mapping[str, Any]) -> Verdict:
    found, value = look_up(item, rule.field)
    rule_text = f"{rule.field} {rule.operator} {_shown(rule.operand)}"
    if not found or value is None:
        return Verdict(False, f"{rule_text}: the item has no {rule.field}")
    try:
        kept = COMPARE[rule.operator](value, rule.operand)
    except (RecursionError, ValueError):  # nested too deeply, or a number of thousands of digits
        return Verdict(False, f"{rule_text}: its {rule.field} cannot be compared")
    return Verdict(kept, rule_text if kept else f"{rule_text}: it is {_shown(value)}")


def _asked(rule: Ask, answers: Mapping[int, bool]) -> Verdict:
    if rule.number not in answers:
        return Verdict(False, "the AI is to be asked", rule.number)
    kept = answers[rule.number]
    return Verdict(kept, "the AI said yes" if kept else "the AI said no")


def _combined(
    rules: tuple[Rule, ...], item: Mapping[str, Any], answers: Mapping[int, bool], *, wanted: bool
) -> Verdict:
    """Look for one that is `wanted`, which settles the matter; cheap rules come first."""
    verdicts: list[Verdict] = []
    for rule in sorted(rules, key=_asks):
        verdict = judge(rule, item, answers)
        if verdict.asks is None and verdict.kept is wanted:
            return verdict
        verdicts.append(verdict)
    summary = verdicts[0] if len(rules) == 1 else Verdict(not wanted, _summary(rules, wanted))
    return next((each for each in verdicts if each.asks is not None), summary)


def _summary(rules: tuple[Rule, ...], wanted: bool) -> str:
    if not rules:
        return "there is no rule"
    return f"none of {len(rules)} rules is true" if wanted else f"all {len(rules)} rules are true"


def _asks(rule: Rule) -> bool:
    match rule:
        case Ask():
            return True
        case Test():
            return False
        case Not():
            return _asks(rule.rule)
        case AllOf() | AnyOf():
            return any(_asks(each) for each in rule.rules)


def look_up(item: Mapping[str, Any], path: str) -> tuple[bool, Any]:
    """A field by its name, or by a dotted path into nested values; whether it is there."""
    if path in item:
        return True, item[path]
    value: Any = item
    for part in path.split("."):
        if isinstance(value, Mapping) and part in value:
            value = value[part]
        elif isinstance(value, list) and part.isdecimal() and int(part) < len(value):
            value = value[int(part)]
        else:
            return False, None
    return True, value


def equal(one: Any, other: Any) -> bool:
    """Whether two values mean the same; see the top of this module."""
    if isinstance(one, bool) or isinstance(other, bool):
        return _truth(one) is not None and _truth(one) is _truth(other)
    if _is_number(one) or _is_number(other):
        first, second = number_of(one), number_of(other)
        return first is not None and first == second
    return bool(one == other)


def number_of(value: Any) -> Decimal | None:
    """The number that a value is, or spells; exactly, as it is written."""
    if isinstance(value, float):
        return Decimal(str(value)) if math.isfinite(value) else None
    if _is_number(value):
        return Decimal(value)
    text = value.strip() if isinstance(value, str) and len(value) < 400 else ""
    return Decimal(text) if _NUMBER.fullmatch(text) else None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _truth(value: Any) -> bool | None:
    if isinstance(value, bool):
        return value
    text = value.strip().lower() if isinstance(value, str) else ""
    return {"true": True, "false": False}.get(text)


def _ranked(value: Any, operand: Any, holds: Callable[[Any, Any], bool]) -> bool:
    first, second = number_of(value), number_of(operand)
    if first is not None and second is not None:
        return holds(first, second)
    early, late = _moment(value), _moment(operand)
    return early is not None and late is not None and holds(early, late)


def _moment(value: Any) -> datetime | None:
    if not isinstance(value, str) or not _DATE.match(value):
        return None
    try:
        read = datetime.fromisoformat(value.strip())
    except ValueError:
        return None
    return read if read.tzinfo else read.replace(tzinfo=UTC)


def _contains(value: Any, operand: Any) -> bool:
    if isinstance(value, list):
        return any(equal(each, operand) or _folded(each) == _folded(operand) for each in value)
    return _folded(operand) in _folded(value)


def _folded(value: Any) -> str:
    return _text(value).casefold()


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _in(value: Any, operand: Any) -> bool:
    many = operand if isinstance(operand, list | tuple) else [operand]
    return any(equal(value, each) for each in many)


@lru_cache(256)
def pattern_of(text: str) -> regex.Pattern[str]:
    """A pattern of `matches`, or BadInput."""
    import regex  # Here, because few filters need it and importing it takes milliseconds.

    try:
        return regex.compile(text)
    except (regex.error, OverflowError, RecursionError) as error:
        raise BadInput(f"the pattern is not a regular expression: {error}") from error


def _matches(value: Any, pattern: str) -> bool:
    """Whether the pattern is found. The event loop waits meanwhile, so that its time is bounded:
    a pattern such as (a|aa)+$ could take years."""
    text = _text(value)
    try:
        return pattern_of(pattern).search(text, timeout=MATCH_S_MAX) is not None
    except TimeoutError:
        raise Fatal(
            f"matches: the pattern {pattern!r} took longer than {MATCH_S_MAX} s "
            f"on a text of {len(text):,} characters",
            hint="Write the pattern without alternatives or repetitions that overlap: "
            "^a+$ for ^(a|aa)+$.",
        ) from None


COMPARE: dict[Operator, Callable[[Any, Any], bool]] = {
    Operator.EQUALS: equal,
    Operator.NOT_EQUALS: lambda value, operand: not equal(value, operand),
    Operator.IN: _in,
    Operator.NOT_IN: lambda value, operand: not _in(value, operand),
    Operator.CONTAINS: _contains,
    Operator.NOT_CONTAINS: lambda value, operand: not _contains(value, operand),
    Operator.GREATER_THAN: lambda v, o: _ranked(v, o, lambda a, b: a > b),
    Operator.LESS_THAN: lambda v, o: _ranked(v, o, lambda a, b: a < b),
    Operator.GTE: lambda v, o: _ranked(v, o, lambda a, b: a >= b),
    Operator.LTE: lambda v, o: _ranked(v, o, lambda a, b: a <= b),
    Operator.MATCHES: _matches,
}


def _shown(value: Any) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False, default=str)
    except (RecursionError, ValueError):
        return f"a {type(value).__name__} that cannot be shown"
    return text if len(text) <= 60 else text[:57] + "..."
