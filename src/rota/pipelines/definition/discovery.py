"""The pipelines of a folder: one level deep, by name; broken ones are listed with what is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from rota.core.suggest import did_you_mean
from rota.errors import BadInput, BadPipeline, RotaError
from rota.pipelines.definition.graph import cycles
from rota.pipelines.definition.loader import (
    NAMES,
    Loaded,
    entry_file,
    problems_of,
    read_pipeline,
)
from rota.pipelines.definition.placeholders import inline_items
from rota.pipelines.definition.problems import FilePosition, Level, Problem
from rota.pipelines.definition.yaml_tree import read_yaml


class Listed(NamedTuple):
    """A pipeline that was found; `loaded` when it is good, otherwise the problems say why not."""

    pipeline_id: str
    folder: Path
    loaded: Loaded | None
    problems: list[Problem]


def discover(root: Path, *, now: int, host_zone: str | None = None) -> list[Listed]:
    """Every pipeline below a folder. One that is broken does not disturb the others."""
    if not root.is_dir():
        raise BadInput(f"{root} is not a folder", hint="Name the folder that holds the pipelines.")
    folders = sorted(
        folder for folder in root.iterdir()
        if folder.is_dir() and any((folder / name).is_file() for name in NAMES)
    )  # fmt: skip
    return with_chains([look(folder, now=now, host_zone=host_zone) for folder in folders])


def with_chains(found: list[Listed]) -> list[Listed]:
    """The same, with what is wrong about `after`: pipelines that are not there, or wait in a ring.

    A pipeline that waits for a missing one is kept, since that may still come; one in a ring
    could never run.
    """
    waits = {each.pipeline_id: _waits_for(each) for each in found}
    rings = {name: ring for ring in cycles(waits) for name in ring}
    checked: list[Listed] = []
    for each in found:
        said = [
            f'schedule.after: no pipeline is called "{name}"{did_you_mean(name, waits)}'
            for name in waits[each.pipeline_id]
            if name not in waits
        ]
        problems = [*each.problems, *(_about_after(each, text, Level.WARNING) for text in said)]
        ring = rings.get(each.pipeline_id)
        if ring is not None:
            detail = f"these pipelines wait for each other: {' → '.join([*ring, ring[0]])}"
            problems.append(_about_after(each, detail, Level.ERROR))
        checked.append(each._replace(problems=problems, loaded=None if ring else each.loaded))
    return checked


def _waits_for(each: Listed) -> list[str]:
    block = each.loaded.pipeline.schedule if each.loaded else None
    return block.after_ids if block else []


def _about_after(each: Listed, message: str, level: Level) -> Problem:
    assert each.loaded is not None
    file = each.loaded.file
    document = read_yaml(file.read_bytes(), str(file))
    return Problem(str(file), document.place(("schedule", "after")), message, level)


def look(folder: Path, *, now: int, host_zone: str | None = None) -> Listed:
    """One pipeline, good or broken."""
    try:
        loaded = read_pipeline(folder, now=now, host_zone=host_zone)
    except BadPipeline as error:
        return Listed(folder.name, folder, None, problems_of(error))
    except (RotaError, OSError) as error:
        return Listed(folder.name, folder, None, [_plain(folder, error)])
    return Listed(folder.name, folder, loaded, loaded.warnings)


def _plain(folder: Path, error: Exception) -> Problem:
    try:
        file = str(entry_file(folder))
    except (RotaError, OSError):
        file = str(folder)
    return Problem(file, FilePosition(1, 1), str(error))


def input_kind(loaded: Loaded) -> tuple[str, int | None]:
    """The summary of an input, and how many items, as far as the file alone tells."""
    pipeline = loaded.pipeline
    if pipeline.mode == "job":
        return "job", 1
    if pipeline.mode == "graph":
        return "graph", None
    part = pipeline.input
    if part is None or part.generate is not None:
        return "generated", None
    if part.source is not None and not isinstance(part.source, list):
        return str(part.source.__struct_config__.tag), None
    return "inline", len(inline_items(part))
