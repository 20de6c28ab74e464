"""The problems of a pipeline that show without a run: in its file, and in its input."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rota.core.pipelines.templates import Template
from rota.errors import BadPipeline
from rota.pipelines.definition.discovery import Listed
from rota.pipelines.definition.loader import Loaded, asking_parts, entry_file, problems_of
from rota.pipelines.definition.locate import open_pipeline
from rota.pipelines.definition.nodes import FilterNode, LoadNode
from rota.pipelines.definition.parameters import check_given
from rota.pipelines.definition.problems import FilePosition, Level, Problem, ordered
from rota.pipelines.definition.problems import Path as Keys
from rota.pipelines.definition.rules import AiRule, questions_of
from rota.pipelines.definition.yaml_tree import read_yaml
from rota.pipelines.run.readiness import obstacles


def examined(path: Path, given: Mapping[str, Any] | None = None) -> Listed:
    """One pipeline, good or broken, with the obstacles to a run with these parameters.

    A mistake in the file is an error. A value that may still be there when a run starts is a
    warning: a name without a value, a file that does not exist yet.
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
    """Problems that the file alone does not show: its input, and unused parameters."""
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
    """Whether the problem is a name without a value that was given."""
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
    parts: list[Any] = [part for key, part, _ in asking_parts(pipeline) if key in loaded.prompts]
    if pipeline.input is not None and pipeline.input.generate is not None:
        parts.append(pipeline.input.generate)
    parts += _questions(loaded)
    named = [part.model or pipeline.settings.model or "" for part in parts]
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
