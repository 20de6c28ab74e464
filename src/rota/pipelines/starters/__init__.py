"""Starter folders: pipelines to begin with, each a folder beside this file. All run offline.

Also the JSON Schema for editors, which the starters name.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from rota.errors import BadInput, WrongState
from rota.pipelines.definition import model
from rota.pipelines.definition.loader import NAMES

HERE = Path(__file__).parent
NAME_MARK = '"{name}"'
SCHEMA_FILE = Path(model.__file__).with_name("pipeline.schema.json")


def begin(kind: str, folder: Path) -> list[Path]:
    """Write a starter into a folder that has no pipeline yet; returns the files it wrote.

    Nothing that is there is changed: a file of the same name is refused before any is written.
    """
    source = HERE / kind
    inner = [path.relative_to(source) for path in sorted(source.rglob("*")) if path.is_file()]
    if folder.exists() and not folder.is_dir():
        raise BadInput(f"{folder} is a file, not a folder", hint="Name another folder.")
    taken = [name for name in (*NAMES, *map(str, inner)) if (folder / name).exists()]
    if taken:
        raise WrongState(
            f"{folder} has {', '.join(dict.fromkeys(taken))} already; nothing was written",
            hint="Name another folder, or move these away first.",
        )
    for name in inner:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / name, folder / name)
    _name(folder / NAMES[0], folder)
    _name_schema(folder / NAMES[0])
    return [folder / name for name in inner]


def _name(file: Path, folder: Path) -> None:
    """Name the pipeline after its folder."""
    words = folder.resolve().name.replace("-", " ").replace("_", " ").strip()
    name = words[:1].upper() + words[1:] or "Pipeline"
    shown = name.replace("\\", "\\\\").replace('"', '\\"')
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace(NAME_MARK, f'"{shown}"', 1), encoding="utf-8")


def _name_schema(file: Path) -> None:
    """Name the JSON Schema in the first line, if the file's folder or the one above has it."""
    folder = file.resolve().parent
    for place in (folder, folder.parent):
        schema = place / SCHEMA_FILE.name
        if schema.is_file():
            relative = Path(os.path.relpath(schema, folder)).as_posix()
            line = f"# yaml-language-server: $schema={relative}\n"
            file.write_text(line + file.read_text(encoding="utf-8"), encoding="utf-8")
            return
