"""What can be known to be wrong with a run before the first call is paid for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rota.core.pipelines.templates import RESERVED, Template
from rota.errors import BadInput
from rota.pipelines.definition.loader import Loaded
from rota.pipelines.definition.parameters import parameters_of
from rota.pipelines.definition.placeholders import BATCH, inline_items
from rota.pipelines.definition.sources import (
    CommandSource,
    CsvSource,
    GlobSource,
    JsonlSource,
    JsonSource,
)
from rota.pipelines.run.inputs import lines_of, opened, read_items
from rota.pipelines.run.tables import columns_of

Item = Mapping[str, Any]


def obstacles(
    loaded: Loaded, *, given: Mapping[str, Any] | None = None, items: Sequence[Item] | None = None
) -> list[str]:
    """Why a run could not come to its end, each in a sentence; empty when nothing is in the way.

    `given` are parameters and `items` the items handed over at the start.
    """
    pipeline = loaded.pipeline
    if pipeline.mode == "graph":
        return []  # What its items hold is known only while it runs.
    known = list(parameters_of(pipeline, given))
    found = [*_lacking("job", loaded, known), *_lacking("reduce", loaded, [*known, *RESERVED])]
    if pipeline.mode == "job":
        return found
    try:
        fields = _fields(loaded, items)
    except BadInput as error:
        return [*found, error.message]
    if fields is not None:
        for place in ("filter", "map"):
            found.extend(_lacking(place, loaded, [*known, *fields, *BATCH]))
    return found


def _lacking(place: str, loaded: Loaded, known: Sequence[str]) -> list[str]:
    template = Template(loaded.prompts.get(place, ""))
    return [
        f"{{{{{absent.name}}}}} in the prompt of {place} has no value{absent.advice}"
        for absent in template.missing(known)
    ]


def _fields(loaded: Loaded, items: Sequence[Item] | None) -> list[str] | None:
    """The fields that every item has, or None when only the run will tell."""
    part = loaded.pipeline.input
    if part is None:
        return None
    if part.generate is not None:
        return [each if isinstance(each, str) else each.name for each in part.generate.schema]
    inline = inline_items(part) or items or []
    if inline:
        return list(set.intersection(*(set(item) for item in inline)))
    match part.source:
        case CsvSource(has_headers=True) as source:
            return _csv_columns(source, loaded.folder)
        case JsonSource() | JsonlSource() | CsvSource() as source:
            first = next(read_items(source, loaded.folder), None)
            return None if first is None else list(first)
        case GlobSource(content=content):
            return ["path", "name", "stem", "folder", *(["content"] if content else [])]
        case CommandSource(format="lines"):
            return ["line"]
        case _:
            return None


def _csv_columns(source: CsvSource, folder: Path) -> list[str]:
    with opened(folder / source.path) as raw:
        lines = lines_of(raw, source.path, source.encoding)
        return columns_of(lines, name=source.path, delimiter=source.delimiter)
