"""Filter rules as written: those of the linear form, and those of nodes, which are executed."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from rota.core.pipelines import filter_rules as core
from rota.pipelines.definition.sections import AiFilter, Section

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


class AiRule(AiFilter, frozen=True, kw_only=True, tag="ai", tag_field="type"):
    """A question to the AI; yes is true."""


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
            return _test(rule)


def questions_of(rule: NodeRule) -> list[AiRule]:
    """The questions to the AI, by their number in the tree."""
    asked: list[AiRule] = []
    tree_of_node(rule, asked)
    return asked


def _test(rule: FieldRule) -> core.Test:
    name = SHORT.get(rule.op, rule.op)
    operand: Any = rule.value
    if name in ("in", "not_in"):
        operand = rule.values if rule.values is not None else rule.value
    elif name == "matches":
        operand = rule.pattern if rule.pattern is not None else rule.value
    return core.Test(rule.field, core.Operator(name), operand)
