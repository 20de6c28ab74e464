"""Pipelines written in a test, and what is said about them."""

from __future__ import annotations

import textwrap
from pathlib import Path

from rota.errors import BadPipeline
from rota.pipelines.definition.discovery import (
    Listed,
    listed_pipeline,
    may_be_pipeline,
    names_in,
    with_chains,
)
from rota.pipelines.definition.loader import Loaded, problems_of, read_pipeline
from rota.pipelines.definition.problems import Level, Problem

NOW = 1_769_400_000_000_000  # 2026-01-26T04:00:00Z, a Monday

GOOD = """
name: Good
input:
  items:
    - {title: one}
map:
  prompt: "About {{title}}"
reduce:
  type: list
"""


def write(folder: Path, text: str) -> Path:
    """A folder with this pipeline.yaml."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pipeline.yaml").write_text(textwrap.dedent(text).lstrip("\n"), encoding="utf-8")
    return folder


def load(folder: Path, text: str) -> Loaded:
    """A pipeline that must be good."""
    return read_pipeline(write(folder, text), now=NOW, host_zone="UTC")


def discover(root: Path) -> list[Listed]:
    """The pipelines of a folder, good and broken ones."""
    folders = [root / name for name in names_in(root)]
    return with_chains(
        [listed_pipeline(each, now=NOW) for each in folders if may_be_pipeline(each)]
    )


def problems(folder: Path, text: str) -> list[Problem]:
    """Messages about a pipeline, errors and warnings."""
    try:
        return load(folder, text).warnings
    except BadPipeline as error:
        return problems_of(error)


def problem_lines(folder: Path, text: str) -> list[str]:
    """The same as `line:column message`; warnings begin with `warning`."""
    return [
        f"{'warning ' if each.level is Level.WARNING else ''}"
        f"{each.position.line}:{each.position.column} {each.message}"
        for each in problems(folder, text)
    ]
