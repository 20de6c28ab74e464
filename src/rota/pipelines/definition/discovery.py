"""The pipelines of a folder: one level deep, by name; broken ones are listed with what is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from rota.core.suggest import did_you_mean
from rota.errors import BadInput, BadPipeline, RotaError
from rota.pipelines.definition.graph import cycles
from rota.pipelines.definition.loader import (
    Loaded,
    entry_file,
    holds_pipeline,
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


def names_in(root: Path) -> list[str]:
    """The names of the folders in a folder, pipelines or not."""
    if not root.is_dir():
        raise BadInput(f"{root} is not a folder", hint="Name the folder that holds the pipelines.")
    try:
        return sorted(folder.name for folder in root.iterdir() if folder.is_dir())
    except OSError as error:
        raise BadInput(f"{root} cannot be read: {error.strerror}") from error


def may_be_pipeline(folder: Path) -> bool:
    """Whether a folder is a pipeline. A folder that cannot be read counts as a broken one."""
    try:
        return holds_pipeline(folder)
    except OSError:
        return True


def with_chains(listed: list[Listed]) -> list[Listed]:
    """The pipelines with the problems of `after`: pipelines that do not exist, or a cycle.

    A pipeline that waits for a missing one stays valid, since that one may still be added. A
    pipeline in a cycle could never run.
    """
    waits = {each.pipeline_id: _waits_for(each) for each in listed}
    cycle_of = {name: cycle for cycle in cycles(waits) for name in cycle}
    checked: list[Listed] = []
    for each in listed:
        unknown = [
            f'schedule.after: no pipeline is called "{name}"{did_you_mean(name, waits)}'
            for name in waits[each.pipeline_id]
            if name not in waits
        ]
        problems = [*each.problems, *(_about_after(each, text, Level.WARNING) for text in unknown)]
        cycle = cycle_of.get(each.pipeline_id)
        if cycle is not None:
            detail = f"these pipelines wait for each other: {' → '.join([*cycle, cycle[0]])}"
            problems.append(_about_after(each, detail, Level.ERROR))
        checked.append(each._replace(problems=problems, loaded=None if cycle else each.loaded))
    return checked


def _waits_for(each: Listed) -> list[str]:
    block = each.loaded.pipeline.schedule if each.loaded else None
    return block.after_ids if block else []


def _about_after(each: Listed, message: str, level: Level) -> Problem:
    assert each.loaded is not None
    file = each.loaded.file
    document = read_yaml(file.read_bytes(), str(file))
    return Problem(str(file), document.position(("schedule", "after")), message, level)


def listed_pipeline(folder: Path, *, now: int) -> Listed:
    """One pipeline, good or broken."""
    try:
        loaded = read_pipeline(folder, now=now)
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
    """The kind of an input, and its number of items, as far as the file alone shows."""
    pipeline = loaded.pipeline
    if pipeline.mode == "job":
        return "job", 1
    if pipeline.mode == "graph":
        return "graph", None
    section = pipeline.input
    if section is None or section.generate is not None:
        return "generated", None
    if section.source is not None and not isinstance(section.source, list):
        return str(section.source.__struct_config__.tag), None
    return "inline", len(inline_items(section))
