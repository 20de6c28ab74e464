"""Warnings about the models that a pipeline names, before the first call: routes, names, facts."""

from __future__ import annotations

from collections.abc import Iterator

from rota.ai import model_data
from rota.ai.registry import Switchboard, invoker_of
from rota.core.pipelines.templates import Template
from rota.core.suggest import did_you_mean
from rota.errors import RotaError, UsageError
from rota.pipelines.definition.compiler import graph_of, prompt_path
from rota.pipelines.definition.loader import Loaded, asking_parts
from rota.pipelines.definition.nodes import LoadNode
from rota.pipelines.definition.problems import Path
from rota.pipelines.definition.sections import AiSection
from rota.pipelines.definition.sources import Generator
from rota.pipelines.run.prompt_builder import options_of
from rota.pipelines.run.readiness import Obstacle


def model_remarks(loaded: Loaded) -> list[Obstacle]:
    """Problems of the models, with the AI settings of the environment."""
    try:
        ai = invoker_of()
    except RotaError as error:
        return [Obstacle(("settings",), f"the AI settings cannot be used: {error.message}")]
    settings = loaded.pipeline.settings
    found: list[Obstacle] = []
    for section, keys in _asking(loaded):
        model = section.model or settings.model or ""
        if Template(model).names or not (model or ai.model):
            continue
        where = keys if section.model else ("settings",)
        temperature = options_of(section, settings).temperature
        found += [Obstacle(where, text) for text in _problems(ai, model, temperature)]
    return list(dict.fromkeys(found))


def _asking(loaded: Loaded) -> Iterator[tuple[AiSection | Generator, Path]]:
    """Every part that asks a model, with its place in the file."""
    pipeline = loaded.pipeline
    for key, section, keys in asking_parts(pipeline):
        if key in loaded.prompts:
            yield section, keys
    for node_id, node in graph_of(pipeline).items():
        if isinstance(node, LoadNode) and isinstance(node.source, Generator):
            inner = () if pipeline.nodes is None else ("source",)
            yield node.source, (*prompt_path(pipeline, node_id), *inner)


def _problems(ai: Switchboard, model: str, temperature: float | None) -> Iterator[str]:
    try:
        provider, name = ai.route(model)
    except UsageError as error:
        yield f"{error.message}. {error.advice}"
        return
    facts = model_data.find(provider, name)
    known = model_data.known_models(provider)
    date = model_data.listed().date
    if facts is None and known:
        meant = did_you_mean(name, known)
        yield f"the list of models of {date} has no {name!r} of {provider}{meant}"
    if facts is not None and temperature is not None and not facts.takes_temperature:
        yield (
            f"{name} refuses a temperature, by the list of models of {date}; remove `temperature`"
        )
    if facts is not None and facts.only_responses and provider == "openai":
        yield f"{name} has the Responses API only; write responses:{name}"
