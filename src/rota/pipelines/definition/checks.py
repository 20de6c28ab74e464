"""Rules of the linear form that types cannot express: keys that belong together, and values."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from rota.ai.request_fields import body_problems, header_problems
from rota.core.pipelines.filter_rules import Operator, number_of, pattern_of
from rota.core.pipelines.templates import RESERVED, Template
from rota.errors import BadInput
from rota.pipelines.definition.model import Filter, Input, Pipeline
from rota.pipelines.definition.problems import Path, ProblemReport, path_text
from rota.pipelines.definition.rules import SHORT, FieldRule, Rule, RuleGroup
from rota.pipelines.definition.sections import (
    AiFilter,
    AiSection,
    CallOptions,
    MapStep,
    OutputField,
    Parameter,
    ReduceStep,
)

_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_RANKS = {Operator.GREATER_THAN, Operator.LESS_THAN, Operator.GTE, Operator.LTE}
LINEAR = ("input", "filter", "map", "reduce")


def check_linear(pipeline: Pipeline, written: set[str], report: ProblemReport) -> None:
    """Check the linear form; `written` are the keys of the file, also those that are broken."""
    _check_mode(written, report)
    check_parameters(pipeline.parameters, ("parameters",), report)
    check_call_options(pipeline.settings, ("settings",), report)
    if pipeline.input is not None:
        _check_input(pipeline.input, report)
    if pipeline.filter is not None:
        _check_filter(pipeline.filter, report)
    if pipeline.map is not None:
        check_mapping(pipeline.map, ("map",), report)
    if pipeline.job is not None:
        check_asking(pipeline.job, ("job",), report)
    if pipeline.reduce is not None:
        check_reduce(pipeline.reduce, ("reduce",), report)


def _check_mode(written: set[str], report: ProblemReport) -> None:
    linear = [key for key in LINEAR if key in written]
    others = [key for key in ("nodes", "job") if key in written]
    if others:
        for key in [*linear, *others[1:]]:
            message = f"{key} and {others[0]} exclude each other; choose one"
            report.error((key,), message, at_key=True)
        return
    if not linear:
        report.error((), "there is nothing to do: give input, map and reduce; or job; or nodes")
        return
    for key in ("input", "map", "reduce"):
        if key not in written:
            report.error((), f'"{key}" is missing: a pipeline has input, map and reduce')


# -- input ---------------------------------------------------------------------------------


def _check_input(section: Input, report: ProblemReport) -> None:
    sources = {"items": section.items, "from": section.source, "generate": section.generate}
    given = [key for key, value in sources.items() if value is not None]
    if not given:
        report.missing(("input",), "input has no source: give items, from or generate")
    for key in given[1:]:
        report.error(
            ("input", key),
            f"input has more than one source: {' and '.join(given)}; keep one",
            at_key=True,
        )
    check_parameters(section.parameters, ("input", "parameters"), report)
    if section.limit == 0:
        report.warning(("input", "limit"), "input.limit is 0, so no item is taken")
    if section.generate is not None:
        path: Path = ("input", "generate")
        check_call_options(section.generate, path, report)
        check_fields(section.generate.schema, (*path, "schema"), report, identifiers=True)
        if not section.generate.auto_approve and (*path, "autoApprove") not in report.wrong:
            report.warning(
                path,
                "input.generate without autoApprove: review the items before the run continues",
                at_key=True,
            )


def check_parameters(
    given: Sequence[Parameter] | dict[str, Any], path: Path, report: ProblemReport
) -> None:
    """Names once, none of them reserved, no value null."""
    if isinstance(given, dict):
        listed = [(name, value, (*path, name)) for name, value in given.items()]
    else:
        listed = [(each.name, each.value, (*path, n)) for n, each in enumerate(given)]
    seen: set[str] = set()
    for name, value, where in listed:
        if value is None:
            report.error(where, f'the parameter "{name}" has no value')
        if name in RESERVED:
            report.error(where, f'"{name}" is filled in by the runner; choose another name')
        if name in seen:
            report.error(where, f'the parameter "{name}" is given twice')
        seen.add(name)


# -- fields and prompts --------------------------------------------------------------------


def check_fields(
    fields: Sequence[str | OutputField],
    path: Path,
    report: ProblemReport,
    *,
    identifiers: bool = False,
) -> None:
    """Each field once; for generated items, names that can be in a template."""
    seen: set[str] = set()
    for index, field in enumerate(fields):
        name = field if isinstance(field, str) else field.name
        if not name.strip():
            report.error((*path, index), f"{path_text(path)}: a field has no name")
        elif name in seen:
            report.error((*path, index), f'{path_text(path)}: "{name}" is here twice')
        elif identifiers and not _IDENTIFIER.fullmatch(name):
            report.error(
                (*path, index),
                f'{path_text(path)}: "{name}" is not a name; use letters, digits and _, '
                "a letter first",
            )
        if isinstance(field, OutputField) and field.enum == []:
            report.error((*path, index, "enum"), f'"{name}": enum has no values')
        seen.add(name)


def check_asking(section: AiSection, path: Path, report: ProblemReport) -> None:
    """Exactly one prompt, and fields that are once."""
    where = path_text(path)
    if section.prompt is not None and section.prompt_file is not None:
        report.error(
            (*path, "promptFile"), f"{where} has prompt and promptFile; keep one", at_key=True
        )
    elif section.prompt is None and section.prompt_file is None:
        report.missing(path, f"{where} has no prompt: give prompt or promptFile")
    for key, text in (("prompt", section.prompt), ("promptFile", section.prompt_file)):
        if text is not None and not text.strip():
            report.error((*path, key), f"{where}.{key} is empty")
    check_fields(section.output, (*path, "output"), report)
    check_call_options(section, path, report)
    if section.skill is not None and not section.skill.strip():
        report.error((*path, "skill"), f"{where}.skill is empty")


def check_call_options(options: CallOptions, path: Path, report: ProblemReport) -> None:
    """Headers and fields that Rota does not set itself, and a system prompt without names."""
    for problem in header_problems(options.headers):
        report.error((*path, "headers"), problem)
    for problem in body_problems(options.body):
        report.error((*path, "body"), problem)
    names = Template(options.system or "").names
    if names:
        report.error(
            (*path, "system"),
            f"system is sent unchanged, so {{{{{names[0]}}}}} would not be filled in; put it into "
            "the prompt",
        )


def check_mapping(section: MapStep, path: Path, report: ProblemReport) -> None:
    """The same, and a warning about a batch with a prompt that does not show its items."""
    check_asking(section, path, report)
    prompt = section.prompt if section.batch_size > 1 else None
    if prompt and "ITEMS" not in Template(prompt).names:
        message = "batchSize is more than 1, but the prompt does not hold {{ITEMS}}"
        report.warning((*path, "prompt"), message)


def check_reduce(section: ReduceStep, path: Path, report: ProblemReport) -> None:
    """A prompt for a reduce by an AI, and nothing of a call for another one."""
    if section.type == "ai":
        check_asking(section, path, report)
        return
    for name, key in zip(
        AiSection.__struct_fields__, AiSection.__struct_encode_fields__, strict=True
    ):
        is_given = getattr(section, name) not in (None, "", [], {})
        if is_given and name not in ("timeout_ms", "retry"):
            report.error(
                (*path, key),
                f"{path_text(path)}.{key} means something only with type: ai; this is "
                f"type: {section.type}",
                at_key=True,
            )


def check_question(section: AiFilter, path: Path, report: ProblemReport) -> None:
    """A prompt; and the field that says whether the item is kept, if there are fields."""
    check_asking(section, path, report)
    names = [each if isinstance(each, str) else each.name for each in section.output]
    if names and "include" not in names:
        report.error(
            (*path, "output"),
            f'{path_text(path)}.output needs the field "include": it says whether the item is kept',
        )


# -- filter --------------------------------------------------------------------------------


def _check_filter(section: Filter, report: ProblemReport) -> None:
    wanted = {"rule": ("rule",), "ai": ("ai",), "hybrid": ("rule", "ai")}[section.type]
    for key, value in (("rule", section.rule), ("ai", section.ai)):
        if key in wanted and value is None:
            report.missing(("filter",), f'filter: "{key}" is missing for type: {section.type}')
        elif key not in wanted and value is not None:
            report.warning(
                ("filter", key), f"filter.{key} is not used with type: {section.type}", at_key=True
            )
    if section.rule is not None:
        _check_group(section.rule, report)
    if section.ai is not None:
        check_question(section.ai, ("filter", "ai"), report)


def _check_group(group: RuleGroup, report: ProblemReport) -> None:
    path: Path = ("filter", "rule", "rules")
    if not group.rules:
        report.error(path, "filter.rule has no rules")
    for index, rule in enumerate(group.rules):
        _check_rule(rule, (*path, index), report)


def _check_rule(rule: Rule, path: Path, report: ProblemReport) -> None:
    kinds = {"field": rule.field, "all": rule.all, "any": rule.any, "not": rule.negated}
    given = [key for key, value in kinds.items() if value is not None]
    if len(given) != 1:
        detail = " and ".join(given) or "none"
        report.error(path, f"a rule has exactly one of field, all, any and not; this has {detail}")
        return
    for key, inner in (("all", rule.all), ("any", rule.any)):
        if inner == []:
            report.error((*path, key), f"{key} has no rules")
        for index, each in enumerate(inner or []):
            _check_rule(each, (*path, key, index), report)
    if rule.negated is not None:
        _check_rule(rule.negated, (*path, "not"), report)
    if rule.field is not None:
        if rule.operator is None:
            report.error(path, f'the rule about "{rule.field}" has no operator')
        else:
            check_operand(rule, rule.operator, path, report)


def check_operand(rule: Rule | FieldRule, operator: str, path: Path, report: ProblemReport) -> None:
    """The one operand that an operator needs."""
    name = Operator(SHORT.get(operator, operator))
    if name in (Operator.IN, Operator.NOT_IN):
        if rule.values is None and not isinstance(rule.value, list):
            report.error(path, f"{operator} needs values: a list of what to compare with")
    elif name is Operator.MATCHES:
        _check_pattern(rule.pattern if rule.pattern is not None else rule.value, path, report)
    elif rule.value is None:
        report.error(path, f"{operator} needs value: what to compare with")
    elif name in _RANKS and not _ranked(rule.value):
        report.error((*path, "value"), f"{operator} compares numbers and dates; this is neither")


def _ranked(value: object) -> bool:
    is_date = isinstance(value, str) and _DATE.match(value) is not None
    return is_date or number_of(value) is not None


def _check_pattern(pattern: object, path: Path, report: ProblemReport) -> None:
    if not isinstance(pattern, str) or not pattern:
        report.error(path, "matches needs pattern: a regular expression")
        return
    try:
        pattern_of(pattern)
    except BadInput as error:
        report.error((*path, "pattern"), error.message)
