"""From the common options to an open client, and one coroutine that runs with it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from rota import project
from rota.app import Rota
from rota.cli import argument_values, render
from rota.cli.base import CommonOptions
from rota.client.client import Client
from rota.client.operations import ARM_HINT, disarmed_clause
from rota.core import redaction
from rota.core.redaction import Redactor
from rota.errors import RotaError
from rota.http import options
from rota.http.options import HttpOptions
from rota.project import Given, Project, ProjectLocation
from rota.settings import Settings

T = TypeVar("T")


def project_of(call: CommonOptions) -> Project | None:
    """The project that was named, or the one this folder belongs to."""
    return project.find(call.project or os.environ.get("ROTA_PROJECT"), Path.cwd())


def given(call: CommonOptions, **flags: Any) -> Given:
    """The values from the command line and the environment."""
    return project.given(os.environ, database=call.database, namespace=call.namespace, **flags)


def place_of(call: CommonOptions) -> ProjectLocation:
    """The database and settings a command works with."""
    place = project.place(project_of(call), given(call))
    hide_secrets(call, place.url, place.settings)
    return place


def hide_secrets(call: CommonOptions, url: str, settings: Settings) -> None:
    """Keep the password of the URL and the values of secret fields out of all output."""
    call.url = url
    redaction.serve(Redactor(settings.secret_fields))


def app_of(call: CommonOptions, chosen: Project, **flags: Any) -> Rota:
    """The project's app, configured for this call."""
    values_given = given(call, **flags)  # first: a bad setting is not a fault of the project's code
    app = project.configure(project.load(chosen), chosen, values_given)
    hide_secrets(call, app.url, app.settings)
    return app


def project_app(call: CommonOptions) -> Rota | None:
    """The app of the project, if there is a project and it names one."""
    found = project_of(call)
    return None if found is None or found.app is None else app_of(call, found)


def bad_schedules(call: CommonOptions) -> Sequence[RotaError]:
    """The tables of rota.toml that a deploy refuses; the code is imported only if there are any."""
    known = project_of(call)
    if known is None:
        return []
    unreadable = list(known.bad_schedules.values())
    if known.app is None or not known.file.schedules:
        return unreadable
    try:
        return [*unreadable, *project.unfit_schedules(app_of(call, known), known)]
    except RotaError as error:  # the code cannot be imported, so nothing is deployed
        return [*unreadable, error]


def client_of(call: CommonOptions) -> Client:
    """The project's app, which knows its workflows; without one, a bare client.

    The database must exist, and is not migrated.
    """
    client: Client | None = project_app(call)
    if client is None:
        place = place_of(call)
        client = Client(place.url, settings=place.settings)
    project.must_exist(client.url)
    client.migrates = False
    return client


def http_options(found: Project | None, address: str | None) -> HttpOptions:
    """The address of the HTTP server of a project: the one given, or [http] of rota.toml."""
    table = found.file.http if found is not None else {}
    chosen = options.load(table, source=found.source if found is not None else "no project")
    return options.at(chosen, address) if address else chosen


def ask(call: CommonOptions, work: Callable[[Client], Awaitable[T]], *, notes: bool = True) -> T:
    """Open a client on a database that exists, run `work` with it, close it.

    A command that reads never creates or migrates a database; `rota up` and `rota migrate` do.
    """
    place = place_of(call)
    project.must_exist(place.url)
    client = Client(place.url, settings=place.settings, migrate=False)
    return run(client, work, notes=notes)


def ask_with_time(call: CommonOptions, work: Callable[[Client], Awaitable[T]]) -> tuple[T, int]:
    """The answer of `work`, and the time by the clock of the database."""

    async def timed(client: Client) -> tuple[T, int]:
        return await work(client), client.clock.now()

    return ask(call, timed)


def run_checked(
    call: CommonOptions,
    name: str,
    arguments: tuple[dict[str, Any], dict[str, str]],
    work: Callable[[Client, Any, dict[str, Any]], Awaitable[T]],
) -> T:
    """Run `work` with a workflow and its arguments, which come from `argument_values.arguments`.

    With a project's app the arguments are checked; with a bare database they are sent unchanged.
    """
    given, texts = arguments
    app = project_app(call)
    workflow = None if app is None else app.starter.workflow_named(name)
    if app is None or workflow is None:
        return ask(call, lambda client: work(client, name, given))
    kwargs = argument_values.checked(
        workflow, given, texts, bytes_max=app.settings.payload_bytes_max
    )
    return run(app, lambda client: work(client, workflow, kwargs))


def run(client: Client, work: Callable[[Client], Awaitable[T]], *, notes: bool = True) -> T:
    """Open the client, run `work` with it, close it.

    With `notes`, a disarmed database is reported on stderr.
    """

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
    disarmed = await client.operations.disarmed()
    if disarmed is not None:
        where = client.connection.database.place
        render.say(f"{where} {disarmed_clause(disarmed)}", err=True)
        render.say(f"→ {ARM_HINT}", hang=2, err=True)
