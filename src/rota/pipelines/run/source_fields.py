"""The fields of the items of a source, as far as they are known without running anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from rota.core.pipelines.templates import Template
from rota.pipelines.definition.sections import OutputField
from rota.pipelines.definition.sources import (
    CommandSource,
    CsvSource,
    GlobSource,
    InlineSource,
    JsonlSource,
    JsonSource,
)
from rota.pipelines.run.inputs import lines_of, opened, read_items
from rota.pipelines.run.tables import columns_of

Fields: TypeAlias = list[str] | None  # None: only the run will tell


def fields_of_source(source: object, folder: Path) -> Fields:
    """The fields that every item has; BadInput when its file cannot be read."""
    match source:
        case InlineSource():
            return common_fields(source.items) if source.items else None
        case CsvSource(has_headers=True):
            with opened(folder / source.path) as raw:
                lines = lines_of(raw, source.path, source.encoding)
                return columns_of(lines, name=source.path, delimiter=source.delimiter)
        case JsonSource() | JsonlSource() | CsvSource():
            first = next(read_items(source, folder), None)
            return None if first is None else list(first)
        case GlobSource(content=content):
            return ["path", "name", "stem", "folder", *(["content"] if content else [])]
        case CommandSource(format="lines"):
            return ["line"]
        case _:
            return None


def common_fields(items: Sequence[Mapping[str, Any]]) -> list[str]:
    """The fields that all of these items have."""
    return list(set.intersection(*(set(item) for item in items)))


def field_names(fields: Sequence[str | OutputField]) -> list[str]:
    """The names of fields that are declared by name or with a type."""
    return [each if isinstance(each, str) else each.name for each in fields]


def lacking(place: str, text: str, known: Sequence[str]) -> list[str]:
    """The names in a prompt that have no value, each in a sentence."""
    return [
        f"{{{{{absent.name}}}}} in the prompt of {place} has no value{absent.advice}"
        for absent in Template(text).missing(known)
    ]
