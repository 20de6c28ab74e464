"""The errors of a run that can be known before the first call is paid for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rota.core.pipelines.templates import RESERVED
from rota.errors import BadInput
from rota.pipelines.definition.loader import Loaded
from rota.pipelines.definition.parameters import parameters_of
from rota.pipelines.definition.placeholders import BATCH, inline_items
from rota.pipelines.run.graph_readiness import graph_obstacles
from rota.pipelines.run.source_fields import (
    Fields,
    common_fields,
    field_names,
    fields_of_source,
    lacking,
)

Item = Mapping[str, Any]


def obstacles(
    loaded: Loaded, *, given: Mapping[str, Any] | None = None, items: Sequence[Item] | None = None
) -> list[str]:
    """Why a run could not come to its end, each in a sentence; empty when nothing is in the way.

    `given` are parameters and `items` the items handed over at the start.
    """
    pipeline, prompts = loaded.pipeline, loaded.prompts
    known = list(parameters_of(pipeline, given))
    if pipeline.mode == "graph":
        return graph_obstacles(loaded, known)
    found = lacking("job", prompts.get("job", ""), known)
    found += lacking("reduce", prompts.get("reduce", ""), [*known, *RESERVED])
    if pipeline.mode == "job":
        return found
    made = pipeline.input.generate if pipeline.input is not None else None
    if made is not None and items is None:
        found += lacking("input.generate", made.prompt, known)
    try:
        fields = _fields(loaded, items)
    except BadInput as error:
        return [*found, error.message]
    if fields is not None:
        for place in ("filter", "map"):
            found += lacking(place, prompts.get(place, ""), [*known, *fields, *BATCH])
    return found


def _fields(loaded: Loaded, items: Sequence[Item] | None) -> Fields:
    """The fields that every item has, or None when only the run will tell."""
    part = loaded.pipeline.input
    if part is None:
        return None
    if part.generate is not None:
        return field_names(part.generate.schema)
    inline = inline_items(part) or items or []
    if inline:
        return common_fields(inline)
    return fields_of_source(part.source, loaded.folder)
