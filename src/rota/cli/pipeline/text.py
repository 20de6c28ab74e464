"""The text of pipelines: problems, the list, the page about one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
import msgspec

from rota.cli import render
from rota.core.pipelines.templates import Template
from rota.core.time.describe import describe
from rota.core.time.instants import iso_if_known
from rota.pipelines.definition.discovery import Listed, input_kind
from rota.pipelines.definition.graph import order
from rota.pipelines.definition.loader import Loaded
from rota.pipelines.definition.model import Filter, Pipeline
from rota.pipelines.definition.nodes import parents_of
from rota.pipelines.definition.parameters import parameters_of
from rota.pipelines.definition.problems import Problem
from rota.pipelines.definition.sections import AiSection, BudgetLimits, OutputField, PipelineBudget
from rota.pipelines.preview.validation import names_of

LEVELS = {"error": "red", "warning": "yellow"}
VALUE_WIDTH = 60


# -- problems ----------------------------------------------------------------------------------


def problem_document(problem: Problem) -> dict[str, Any]:
    """A problem for machines."""
    return {
        "file": problem.file, "line": problem.position.line, "column": problem.position.column,
        "level": problem.level.value, "message": problem.message,
    }  # fmt: skip


def problem_line(problem: Problem) -> str:
    """A problem for people and for editors: `file:line:column: level: message`."""
    line, column = problem.position
    level = click.style(problem.level.value, fg=LEVELS[problem.level.value])
    place = render.clean(f"{problem.file}:{line}:{column}")
    return f"{place}: {level}: {render.clean(problem.message)}"


def verdict_document(listed: Listed) -> dict[str, Any]:
    """Whether a pipeline is good, for machines."""
    return {
        "pipeline": listed.pipeline_id,
        "folder": str(listed.folder),
        "valid": listed.loaded is not None,
        "problems": [problem_document(problem) for problem in listed.problems],
    }


def tally(problems: Sequence[Problem]) -> str:
    """`2 errors, 1 warning`, or `no problems`."""
    counts = [(level, sum(problem.level == level for problem in problems)) for level in LEVELS]
    return ", ".join(render.count(n, level) for level, n in counts if n) or "no problems"


# -- the list ----------------------------------------------------------------------------------


def list_document(listed: Listed) -> dict[str, Any]:
    """A row of the list for machines."""
    document = verdict_document(listed)
    loaded = listed.loaded
    if loaded is None:
        return document
    kind, count = input_kind(loaded)
    return document | {
        "name": loaded.pipeline.name,
        "description": loaded.pipeline.description,
        "form": loaded.pipeline.mode,
        "input": kind,
        "items": count,
        "schedule": when(loaded),
    }


def list_row(listed: Listed) -> render.Row:
    """A row of the list for people."""
    loaded = listed.loaded
    if loaded is None:
        first = listed.problems[0].message if listed.problems else ""
        return {
            "pipeline": listed.pipeline_id, "status": "bad", "input": "-", "schedule": "-",
            "note": first,
        }  # fmt: skip
    kind, count = input_kind(loaded)
    return {
        "pipeline": listed.pipeline_id,
        "status": "warn" if listed.problems else "ok",
        "input": f"{kind}, {render.count(count, 'item')}" if kind == "inline" and count else kind,
        "schedule": when(loaded) or "-",
        "note": loaded.pipeline.description or loaded.pipeline.name,
    }


def when(loaded: Loaded) -> str | None:
    """The schedule in words."""
    if loaded.schedule is None:
        return None
    text = describe(loaded.schedule.intent.spec)
    return text if loaded.schedule.enabled else f"{text} (not enabled)"


# -- the page about one ------------------------------------------------------------------------


def document(listed: Listed, loaded: Loaded, next_at: int | None) -> dict[str, Any]:
    """The page for machines: the definition as it was understood."""
    return list_document(listed) | {
        "file": str(loaded.file),
        "digest": loaded.digest,
        "parameters": parameters_of(loaded.pipeline),
        "names": names_of(loaded),
        "prompts": loaded.prompts,
        "next_at": iso_if_known(next_at),
        "definition": msgspec.to_builtins(loaded.pipeline),
    }


def print_page(listed: Listed, loaded: Loaded, next_at: int | None, now: int) -> None:
    """The page for people."""
    pipeline = loaded.pipeline
    click.echo(
        f"pipeline {listed.pipeline_id}  {click.style(render.clean(pipeline.name), bold=True)}"
    )
    next_words = next_at and f"{render.clock(next_at)} ({render.ago(next_at, now)})"
    render.facts([
        ("file", str(loaded.file)),
        ("about", pipeline.description),
        ("form", pipeline.mode),
        ("model", pipeline.settings.model),
        ("budget", budget_words(pipeline.settings.budget)),
        ("schedule", when(loaded)),
        ("next", next_words),
    ])  # fmt: skip
    given = parameters_of(pipeline)
    if given:
        render.heading("parameters")
        rows = [
            {"name": name, "value": render.short(str(value), VALUE_WIDTH)}
            for name, value in given.items()
        ]
        render.table(rows, "")
    render.heading("parts")
    render.table(parts(loaded), "")
    if listed.problems:
        render.heading("warnings")
        for problem in listed.problems:
            click.echo(f"  {problem_line(problem)}")


def budget_words(budget: PipelineBudget | None) -> str | None:
    """`at most $5, 100 calls; $20 a day`."""
    if budget is None:
        return None
    parts = [
        words + suffix
        for limits, suffix in (
            (budget, ""),
            (budget.per_day, " a day"),
            (budget.per_month, " a month"),
        )
        if (words := _limit_words(limits))
    ]
    return f"at most {'; '.join(parts)}" if parts else None


def _limit_words(budget: BudgetLimits | None) -> str:
    if budget is None:
        return ""
    limits = [
        f"${budget.max_cost:g}" if budget.max_cost is not None else "",
        f"{budget.max_tokens} tokens" if budget.max_tokens else "",
        f"{budget.max_calls} calls" if budget.max_calls else "",
    ]
    return ", ".join(filter(None, limits))


def parts(loaded: Loaded) -> list[render.Row]:
    """The work of the pipeline, part by part, in its order."""
    pipeline = loaded.pipeline
    if pipeline.nodes is not None:
        return _nodes(loaded)
    rows = [_row("input", _input(pipeline), None, loaded)] if pipeline.input else []
    if pipeline.filter is not None:
        rows.append(_row("filter", _filter(pipeline.filter), pipeline.filter.ai, loaded))
    if pipeline.map is not None:
        size = pipeline.map.batch_size
        items = "item" if size == 1 else f"{size} items"
        at_once = pipeline.map.parallel or pipeline.settings.parallel or 5
        rows.append(
            _row("map", f"one call for each {items}, {at_once} at a time", pipeline.map, loaded)
        )
    if pipeline.reduce is not None:
        kind = pipeline.reduce.type
        does = "one AI call over all results" if kind == "ai" else f"all results as {kind}"
        rows.append(_row("reduce", does, pipeline.reduce if kind == "ai" else None, loaded))
    if pipeline.job is not None:
        rows.append(_row("job", "one AI call", pipeline.job, loaded))
    return rows


def _row(part: str, does: str, section: AiSection | None, loaded: Loaded) -> render.Row:
    row = {"part": part, "does": does, "model": "", "asks for": "", "gives": ""}
    if section is None:
        return row
    return row | {
        "model": section.model or loaded.pipeline.settings.model or "default",
        "asks for": ", ".join(Template(loaded.prompts.get(part, "")).names) or "-",
        "gives": _fields(section.output) or "text",
    }


def _fields(output: Sequence[str | OutputField]) -> str:
    return ", ".join(field if isinstance(field, str) else field.name for field in output)


def _input(pipeline: Pipeline) -> str:
    part = pipeline.input
    assert part is not None
    if part.generate is not None:
        text = f"items made by an AI: {_fields(part.generate.schema)}"
    elif part.source is not None and not isinstance(part.source, list):
        kind = part.source.__struct_config__.tag
        where = next(
            (str(getattr(part.source, name)) for name in ("path", "pattern", "run")
             if hasattr(part.source, name)), "",
        )  # fmt: skip
        text = f"{kind} {where}".strip()
    else:
        listed = part.source if isinstance(part.source, list) else part.items or []
        text = f"{render.count(len(listed), 'item')} in the file"
        text = text if listed else "items given at the start"
    more = [f"offset {part.offset}" if part.offset else ""]
    more += [f"limit {part.limit}" if part.limit is not None else ""]
    more += [f"sample of {part.sample.size}" if part.sample else ""]
    return ", ".join(filter(None, [text, *more]))


def _filter(part: Filter) -> str:
    count = len(part.rule.rules) if part.rule else 0
    rules = f"{render.count(count, 'rule')}, {part.rule.mode}" if part.rule else ""
    if part.type == "rule":
        return rules
    if part.type == "ai":
        return "an AI decides"
    return f"{rules}; {part.combine_mode} an AI decides"


def _nodes(loaded: Loaded) -> list[render.Row]:
    nodes = loaded.pipeline.nodes or {}
    rows = []
    for node_id in order({each: parents_of(node) for each, node in nodes.items()}):
        node = nodes[node_id]
        kind = str(node.__struct_config__.tag)
        before = parents_of(node)
        does = f"{kind} ← {', '.join(before)}" if before else kind
        asking = node if isinstance(node, AiSection) and node_id in loaded.prompts else None
        rows.append(_row(node_id, does, asking, loaded))
    return rows
