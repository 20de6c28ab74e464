"""Everything that can be said about a pipeline without running it: its file, and its input."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rota.core.pipelines.templates import Template
from rota.errors import BadPipeline
from rota.pipelines.definition.discovery import Listed
from rota.pipelines.definition.loader import Loaded, entry_file, problems_of
from rota.pipelines.definition.locate import open_pipeline
from rota.pipelines.definition.nodes import FilterNode, LoadNode
from rota.pipelines.definition.parameters import check_given
from rota.pipelines.definition.problems import FilePosition, Level, Problem, ordered
from rota.pipelines.definition.problems import Path as Keys
from rota.pipelines.definition.rules import AiRule, questions_of
from rota.pipelines.definition.yaml_tree import read_yaml
from rota.pipelines.run.readiness import obstacles


def examined(path: Path, given: Mapping[str, Any] | None = None) -> Listed:
    """One pipeline, good or broken, and what would be in the way of a run with these parameters.

    A wrong statement in the file is an error. A value that a run could still be given, or may find
    when it starts, is a warning: a name without a value, a file that is not there yet.
    """
    file = entry_file(path)
    folder = file.parent
    pipeline_id = folder.resolve().name
    try:
        loaded = open_pipeline(file)
    except BadPipeline as error:
        return Listed(pipeline_id, folder, None, problems_of(error))
    kept = [each for each in loaded.warnings if not _is_settled(each, given or {})]
    return Listed(pipeline_id, folder, loaded, ordered([*kept, *_remarks(loaded, given or {})]))


def _remarks(loaded: Loaded, given: Mapping[str, Any]) -> list[Problem]:
    """The parts that the file alone does not tell: its input, and unused parameters."""
    document = read_yaml(loaded.file.read_bytes(), str(loaded.file))
    known = {each.message.partition("}}")[0] for each in loaded.warnings}
    found = []
    for text in obstacles(loaded, given=given):
        if text.partition("}}")[0] in known:
            continue  # reported already, with its position in the prompt
        place = document.place(_keys_of(text))
        found.append(Problem(str(loaded.file), place, text, Level.WARNING))
    for text in check_given(given, loaded.pipeline, names_of(loaded)):
        found.append(Problem(str(loaded.file), FilePosition(1, 1), text, Level.WARNING))
    return found


def _is_settled(problem: Problem, given: Mapping[str, Any]) -> bool:
    """Whether a name that the file leaves open is among what was given."""
    return any(problem.message.startswith(f"{{{{{name}}}}} ") for name in given)


def _keys_of(obstacle: str) -> Keys:
    """The part of the file that an obstacle is about."""
    if not obstacle.startswith("{{"):
        node = re.match(r"node ([^ ]+): ", obstacle)
        return ("nodes", node[1], "source", "path") if node else ("input", "from", "path")
    place = obstacle.partition("in the prompt of ")[2].partition(" has no value")[0]
    if place.startswith("node "):
        node_id = place.removeprefix("node ")
        return ("nodes", node_id, "prompt")
    parts = {"filter": ("filter", "ai"), "input.generate": ("input", "generate")}
    return (*parts.get(place, (place,)), "prompt")


def models_of(loaded: Loaded) -> list[str]:
    """The models that its calls name, "" for the default; those that items name are skipped."""
    pipeline = loaded.pipeline
    parts: list[Any] = [pipeline.job, pipeline.map, pipeline.filter and pipeline.filter.ai]
    if pipeline.reduce is not None and pipeline.reduce.type == "ai":
        parts.append(pipeline.reduce)
    if pipeline.input is not None:
        parts.append(pipeline.input.generate)
    parts += [node for key, node in (pipeline.nodes or {}).items() if key in loaded.prompts]
    parts += _questions(loaded)
    named = [part.model or pipeline.settings.model or "" for part in parts if part is not None]
    return [each for each in dict.fromkeys(named) if not Template(each).names]


def _questions(loaded: Loaded) -> list[AiRule]:
    """The questions to the AI within the rules of filter nodes."""
    nodes = (loaded.pipeline.nodes or {}).values()
    rules = [node.rule for node in nodes if isinstance(node, FilterNode)]
    return [question for rule in rules for question in questions_of(rule)]


def names_of(loaded: Loaded) -> list[str]:
    """Every name that a template of the pipeline asks for."""
    pipeline = loaded.pipeline
    texts = list(loaded.prompts.values())
    if pipeline.input is not None and pipeline.input.generate is not None:
        texts.append(pipeline.input.generate.prompt)
    for question in _questions(loaded):
        texts += [question.prompt, question.model or ""]
    for part in (pipeline.map, pipeline.job, pipeline.reduce):
        texts.append(part.model or "" if part is not None else "")
    for node in (pipeline.nodes or {}).values():
        source = node.source if isinstance(node, LoadNode) else None
        texts.append(str(getattr(source, "prompt", "")))
        texts.append(str(getattr(node, "model", None) or ""))
        texts.extend(str(getattr(op, "value", "")) for op in getattr(node, "ops", []))
    return list(dict.fromkeys(name for text in texts for name in Template(text).names))
