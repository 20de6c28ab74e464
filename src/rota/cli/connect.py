"""From the common options to an open client, and one coroutine run on it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from rota.cli.base import CommonOptions

# A command imports them when it needs them: `rota --help` should not pay for the engine.
if TYPE_CHECKING:
    from rota.app import Rota
    from rota.client.client import Client
    from rota.http.options import HttpOptions
    from rota.project import Given, Project, ProjectLocation

T = TypeVar("T")


def project_of(call: CommonOptions) -> Project | None:
    """The project that was named, or the one this folder belongs to."""
    from rota import project

    return project.find(call.project or os.environ.get("ROTA_PROJECT"), Path.cwd())


def given(call: CommonOptions, **flags: Any) -> Given:
    """The values from the command line and the environment."""
    from rota import project

    return project.given(os.environ, database=call.database, namespace=call.namespace, **flags)


def place_of(call: CommonOptions) -> ProjectLocation:
    """The database and settings a command works with."""
    from rota import project
    from rota.core import redaction
    from rota.core.redaction import Redactor

    place = project.place(project_of(call), given(call))
    call.url = place.url
    redaction.serve(Redactor(place.settings.secret_fields))
    return place


def known_place(call: CommonOptions, found: Project) -> ProjectLocation | None:
    """The database and settings, as far as they are known without the project's code."""
    from rota import project

    return project.place_without_code(found, given(call))


def app_of(call: CommonOptions, found: Project, **flags: Any) -> Rota:
    """The project's app, configured for this call."""
    from rota import project
    from rota.core import redaction
    from rota.core.redaction import Redactor

    said = given(call, **flags)  # first: a bad setting is not a fault of the project's code
    app = project.configure(project.load(found), found, said)
    call.url = app.url
    redaction.serve(Redactor(app.settings.secret_fields))
    return app


def http_options(found: Project | None, address: str | None) -> HttpOptions:
    """The address of the HTTP server of a project: the one given, or [http] of rota.toml."""
    from rota.http import options

    table = found.file.http if found is not None else {}
    chosen = options.load(table, source=found.source if found is not None else "no project")
    return options.at(chosen, address) if address else chosen


def ask(call: CommonOptions, work: Callable[[Client], Awaitable[T]], *, notes: bool = True) -> T:
    """Open a client on a database that is there, run `work` on it, close.

    Looking at a database never creates or migrates it; that is for `rota up` and `rota migrate`.
    """
    from rota import project
    from rota.client.client import Client

    place = place_of(call)
    project.must_exist(place.url)
    client = Client(place.url, settings=place.settings, migrate=False)
    return run(client, work, notes=notes)


def run(client: Client, work: Callable[[Client], Awaitable[T]], *, notes: bool = True) -> T:
    """Run `work` on the client, opened for it; `notes`: say on stderr if nothing will run."""

    async def life() -> T:
        await client.connect()
        try:
            if notes:
                await _note_disarmed(client)
            return await work(client)
        finally:
            await client.close()

    return asyncio.run(life())


async def _note_disarmed(client: Client) -> None:
    from rota.client.operations import ARM_HINT, disarmed_clause

    found = await client.operations.disarmed()
    if found is not None:
        click.echo(
            f"{client.connection.database.place} {disarmed_clause(found)}\n→ {ARM_HINT}", err=True
        )
