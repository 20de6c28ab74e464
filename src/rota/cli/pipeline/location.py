"""Finds the folder of pipelines that is meant, and the database of its runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from rota import project
from rota.app import Rota
from rota.cli import connect
from rota.cli.base import CommonOptions
from rota.client.client import Client
from rota.errors import UsageError
from rota.pipelines.definition.loader import NAMES
from rota.pipelines.definition.locate import database_url
from rota.pipelines.folder.commands import ScheduleCommands
from rota.pipelines.folder.registry import PipelineRegistry
from rota.pipelines.trust import Trust
from rota.project import ProjectLocation

PLACES = (".", "pipelines", ".vscode/pipelines")
FOLDER = click.option("--folder", metavar="PATH", help="The folder that holds the pipelines.")


def root_of(folder: str | None) -> Path:
    """The folder that was named, or the first of the usual ones that holds pipelines."""
    if folder is not None:
        root = Path(folder).expanduser()
        if not root.is_dir():
            raise UsageError(
                f"{folder} is not a folder",
                hint="Name the folder that holds the pipelines' folders.",
            )
        if any((root / name).is_file() for name in NAMES):
            raise UsageError(
                f"{folder} is a pipeline itself, not a folder of pipelines",
                hint=f"Name the folder it is in: {root.resolve().parent}.",
            )
        return root
    for place in map(Path, PLACES):
        if any(next(place.glob(f"*/{name}"), None) is not None for name in NAMES):
            return place
    raise UsageError(
        "there are no pipelines here",
        hint=f"Looked in {', '.join(PLACES)}. Name a folder with --folder, or begin with "
        "`rota pipeline init pipelines/NAME`.",
    )


def place_of(call: CommonOptions, root: Path, **flags: Any) -> ProjectLocation:
    """Database and settings: those named, those of the project, or a file in the root.

    `flags` are settings of the command line; one that is None was not given.
    """
    known = connect.project_of(call)
    given = connect.given(call, **flags)
    url = project.chosen_database(known, given) or database_url(root)
    place = project.place(known, given._replace(database=url))
    connect.hide_secrets(call, place.url, place.settings)
    return place


def app_of(
    call: CommonOptions,
    root: Path,
    *,
    ai: Path | None = None,
    migrate: bool | None = None,
    **flags: Any,
) -> Rota:
    """An app on that database, without user code; with the notification rules of the file.

    `ai` is the file of AI settings that was named.
    """
    place = place_of(call, root, **flags)
    app = Rota(place.url, settings=place.settings, migrate=migrate)
    app.pipelines.trust = trust_of(call)
    if ai is not None:
        app.pipelines.use(ai)
    known = connect.project_of(call)
    if known is not None and known.is_file:
        origin = str(Path(known.source).resolve())
        app.notifications.declared.add_file(origin, known.file.notifications)
    return app


def trust_of(call: CommonOptions) -> Trust:
    """Which folders may execute: those of the project, or without one those in this folder."""
    known = connect.project_of(call)
    return Trust(known.folder if known is not None else Path.cwd())


def commands_of(
    call: CommonOptions, root: Path, client: Client | None, *, now: Callable[[], int]
) -> ScheduleCommands:
    """The commands about the schedules of a folder; without a client they read only files."""
    registry = PipelineRegistry(client, root, trust=trust_of(call))
    return ScheduleCommands(client, registry, now=now)
