"""The problems of a pipeline that show without a run: in its file, and in its input."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rota.core.pipelines.templates import Template
from rota.errors import BadPipeline
from rota.pipelines.definition.compiler import graph_of
from rota.pipelines.definition.discovery import Listed
from rota.pipelines.definition.loader import Loaded, asking_parts, entry_file, problems_of
from rota.pipelines.definition.locate import open_pipeline
from rota.pipelines.definition.model import Pipeline
from rota.pipelines.definition.parameters import check_given
from rota.pipelines.definition.problems import FilePosition, Level, Problem, ordered
from rota.pipelines.definition.sources import Generator
from rota.pipelines.definition.yaml_tree import read_yaml
from rota.pipelines.preview.model_checks import model_remarks
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
    kept = [each for each in loaded.warnings if each.placeholder not in (given or {})]
    return Listed(pipeline_id, folder, loaded, ordered([*kept, *_remarks(loaded, given or {})]))


def _remarks(loaded: Loaded, given: Mapping[str, Any]) -> list[Problem]:
    """Problems that the file alone does not show: its input, and unused parameters."""
    document = read_yaml(loaded.file.read_bytes(), str(loaded.file))
    # The loader reports these with their position in the prompt.
    reported = {each.placeholder for each in loaded.warnings if each.placeholder is not None}
    positioned = [
        (document.position(each.keys), each.message)
        for each in [*obstacles(loaded, given=given), *model_remarks(loaded)]
        if each.placeholder not in reported
    ]
    unused = check_given(given, loaded.pipeline, names_of(loaded))
    positioned += [(FilePosition(1, 1), text) for text in unused]
    return [
        Problem(str(loaded.file), position, text, Level.WARNING) for position, text in positioned
    ]


def models_of(pipeline: Pipeline, prompts: Mapping[str, str]) -> list[str]:
    """The models that its calls name, "" for the default; those that items name are skipped."""
    models = [section.model for key, section, _ in asking_parts(pipeline) if key in prompts]
    models += [each.model for each in pipeline.sources if isinstance(each, Generator)]
    named = [each or pipeline.settings.model or "" for each in models]
    return [each for each in dict.fromkeys(named) if not Template(each).names]


def names_of(loaded: Loaded) -> list[str]:
    """Every name that a template of the pipeline asks for."""
    pipeline = loaded.pipeline
    texts = list(loaded.prompts.values())
    texts += [each.prompt for each in pipeline.sources if isinstance(each, Generator)]
    texts += [section.model or "" for _, section, _ in asking_parts(pipeline)]
    for node in graph_of(pipeline).values():
        texts.extend(str(getattr(op, "value", "")) for op in getattr(node, "ops", []))
    return list(dict.fromkeys(name for text in texts for name in Template(text).names))
