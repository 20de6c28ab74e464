"""Filter rules as written, in the linear and in the graph form.

Both become `core.pipelines.filter_rules`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from rota.core.pipelines import filter_rules as core
from rota.pipelines.definition.sections import CallOptions, Parallel, Positive, Section

Meta = msgspec.Meta

Operator: TypeAlias = Literal[
    "equals", "not_equals", "in", "not_in", "contains", "not_contains", "greater_than",
    "less_than", "gte", "lte", "matches", "eq", "neq", "nin", "gt", "lt",
]  # fmt: skip
SHORT = {"eq": "equals", "neq": "not_equals", "nin": "not_in", "gt": "greater_than",
         "lt": "less_than"}  # fmt: skip

Field: TypeAlias = Annotated[
    str, Meta(min_length=1, description="A field of the item; dots lead into nested values.")
]
Single: TypeAlias = Annotated[Any, Meta(description="The value to compare with.")]
Several: TypeAlias = Annotated[
    list[Any] | None, Meta(description="For in and not_in: the values to compare with.")
]
Pattern: TypeAlias = Annotated[
    str | None, Meta(description="For matches: a regular expression, found anywhere in the text.")
]


class Rule(Section, frozen=True, kw_only=True):
    """One comparison; or all, any or not with further rules."""

    field: Annotated[
        str | None, Meta(description="A field of the item; dots lead into nested values.")
    ] = None
    operator: Annotated[Operator | None, Meta(description="How to compare.")] = None
    value: Single = None
    values: Several = None
    pattern: Pattern = None
    all: Annotated[list[Rule] | None, Meta(description="All of these must be true.")] = None
    any: Annotated[list[Rule] | None, Meta(description="One of these must be true.")] = None
    negated: Annotated[Rule | None, Meta(description="This must not be true.")] = msgspec.field(
        default=None, name="not"
    )


class RuleGroup(Section, frozen=True, kw_only=True):
    """The rules of a filter."""

    rules: Annotated[list[Rule], Meta(description="The rules.")]
    mode: Annotated[
        Literal["all", "any"], Meta(description="Whether all must be true, or one.")
    ] = "all"


class FieldRule(Section, frozen=True, kw_only=True, tag="field", tag_field="type"):
    """One comparison."""

    field: Field
    op: Annotated[Operator, Meta(description="How to compare.")]
    value: Single = None
    values: Several = None
    pattern: Pattern = None


class AiRule(CallOptions, frozen=True, kw_only=True, tag="ai", tag_field="type"):
    """A question to the AI; yes is true."""

    prompt: Annotated[str, Meta(min_length=1, description="The question about the item.")]
    model: Annotated[str | None, Meta(description="The model; otherwise settings.model.")] = None
    concurrency: Parallel = None
    timeout_ms: Annotated[Positive | None, Meta(description="Milliseconds for one call.")] = None


class AndRule(Section, frozen=True, kw_only=True, tag="and", tag_field="type"):
    """All of these must be true."""

    rules: Annotated[list[NodeRule], Meta(description="The rules.")]


class OrRule(Section, frozen=True, kw_only=True, tag="or", tag_field="type"):
    """One of these must be true."""

    rules: Annotated[list[NodeRule], Meta(description="The rules.")]


class NotRule(Section, frozen=True, kw_only=True, tag="not", tag_field="type"):
    """This must not be true."""

    rule: Annotated[NodeRule, Meta(description="The rule.")]


NodeRule: TypeAlias = FieldRule | AiRule | AndRule | OrRule | NotRule


def tree_of_group(group: RuleGroup) -> core.Rule:
    """The rules of a linear filter as one tree."""
    inner = tuple(_tree_of_rule(rule) for rule in group.rules)
    return core.AllOf(inner) if group.mode == "all" else core.AnyOf(inner)


def _tree_of_rule(rule: Rule) -> core.Rule:
    if rule.all is not None:
        return core.AllOf(tuple(_tree_of_rule(each) for each in rule.all))
    if rule.any is not None:
        return core.AnyOf(tuple(_tree_of_rule(each) for each in rule.any))
    if rule.negated is not None:
        return core.Not(_tree_of_rule(rule.negated))
    return _test(rule.field or "", rule.operator or "", rule.value, rule.values, rule.pattern)


def tree_of_node(rule: NodeRule, asked: list[AiRule]) -> core.Rule:
    """The rule of a filter node as one tree; `asked` receives its questions to the AI, which are
    numbered as written."""
    match rule:
        case AndRule():
            return core.AllOf(tuple(tree_of_node(each, asked) for each in rule.rules))
        case OrRule():
            return core.AnyOf(tuple(tree_of_node(each, asked) for each in rule.rules))
        case NotRule():
            return core.Not(tree_of_node(rule.rule, asked))
        case AiRule():
            asked.append(rule)
            return core.Ask(len(asked) - 1)
        case FieldRule():
            return _test(rule.field, rule.op, rule.value, rule.values, rule.pattern)


def questions_of(rule: NodeRule) -> list[AiRule]:
    """The questions to the AI, by their number in the tree."""
    asked: list[AiRule] = []
    tree_of_node(rule, asked)
    return asked


def _test(
    field: str, operator: str, value: Any, values: list[Any] | None, pattern: str | None
) -> core.Test:
    name = SHORT.get(operator, operator)
    operand: Any = value
    if name in ("in", "not_in"):
        operand = values if values is not None else value
    elif name == "matches":
        operand = pattern if pattern is not None else value
    return core.Test(field, core.Operator(name), operand)
