"""Shell completion of names and ids: what the database and the project know, and never an error.

A key press must not print, create or change anything. Whatever goes wrong, nothing is offered.
"""

from __future__ import annotations

import contextlib
import io
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from rota.cli import connect, render
from rota.cli.base import CommonOptions
from rota.core.runs.ids import short_id

if TYPE_CHECKING:
    from rota.client.client import Client

RUNS_MAX = 200
WHOLE = 32  # digits of an id
Found = list[CompletionItem]


def _asked(context: click.Context, query: Callable[[Client], Awaitable[Found]]) -> Found:
    """The answer of `look` from the database of this call."""
    call = context.find_object(CommonOptions) or CommonOptions()
    logging.disable()
    try:
        return connect.ask(call, query, notes=False)
    except Exception:
        return []
    finally:
        logging.disable(logging.NOTSET)


def _beginning(found: Found, incomplete: str) -> Found:
    fitting = {one.value: one for one in found if one.value.startswith(incomplete)}
    return list(fitting.values())


def run_ids(context: click.Context, _: click.Parameter, incomplete: str) -> Found:
    """The newest runs, by external id and short id; by whole id where only that fits."""
    found = _beginning(_asked(context, _runs), incomplete)
    return [one for one in found if len(one.value) < WHOLE] or found


async def _runs(client: Client) -> Found:
    found = []
    for run in await client.runs.list(limit=RUNS_MAX):
        text = render.clean(f"{run.name} {run.label}")
        values = (run.external_id, short_id(run.id), run.id)
        found += [CompletionItem(value, help=text) for value in values if value]
    return found


def schedules(context: click.Context, _: click.Parameter, incomplete: str) -> Found:
    """Schedules by name."""
    return _beginning(_asked(context, _schedules), incomplete)


async def _schedules(client: Client) -> Found:
    return [
        CompletionItem(one.schedule.name, help=render.clean(f"{one.schedule.label}, {one.text}"))
        for one in await client.schedules.list()
    ]


def fields(context: click.Context, _: click.Parameter, incomplete: str) -> Found:
    """Fields of the named schedule that an operator has changed."""
    name = context.params.get("name", "")

    async def query(client: Client) -> Found:
        shown = await client.schedules.get(name)
        return [
            CompletionItem(one.field, help=render.clean(f"declared: {one.declared}"))
            for one in shown.differences
        ]

    return _beginning(_asked(context, query), incomplete)


def automations(context: click.Context, _: click.Parameter, incomplete: str) -> Found:
    """Automations by name."""
    return _beginning(_asked(context, _automations), incomplete)


async def _automations(client: Client) -> Found:
    return [
        CompletionItem(one.automation.name, help=one.status)
        for one in await client.automations.list()
    ]


def queues(context: click.Context, _: click.Parameter, incomplete: str) -> Found:
    """Queues that are declared or served."""
    return _beginning(_asked(context, _queues), incomplete)


async def _queues(client: Client) -> Found:
    from rota.client.doctor import served

    names = {row.name for row in await client.queues()}
    names |= {name for row in await client.workers() for name in served(row)}
    return [CompletionItem(name) for name in sorted(names)]


def workflows(context: click.Context, _: click.Parameter, incomplete: str) -> Found:
    """Workflows of the project; without one, those that workers know."""
    call = context.find_object(CommonOptions) or CommonOptions()
    try:
        found = connect.project_of(call)
        if found is not None and found.app is not None:
            with contextlib.redirect_stdout(io.StringIO()):  # its code may print
                names = sorted(connect.app_of(call, found).workflows)
            return _beginning([CompletionItem(name) for name in names], incomplete)
    except Exception:
        return []
    return _beginning(_asked(context, _known_workflows), incomplete)


async def _known_workflows(client: Client) -> Found:
    from rota.client.doctor import known

    names = {name for row in await client.workers() for name in known(row)}
    return [CompletionItem(name) for name in sorted(names)]


def anything(context: click.Context, parameter: click.Parameter, incomplete: str) -> Found:
    """The names that `rota why` knows."""
    return [
        item
        for query in (schedules, automations, run_ids)
        for item in query(context, parameter, incomplete)
    ]


def files(_: click.Context, __: click.Parameter, incomplete: str) -> Found:
    """The shell's own completion of paths."""
    return [CompletionItem(incomplete, type="file")]


RUN_ID = click.argument("run_id", metavar="ID", shell_complete=run_ids)
RUN_ID_OR_ALL = click.argument("run_id", required=False, metavar="[ID]", shell_complete=run_ids)
SCHEDULE = click.argument("name", shell_complete=schedules)
AUTOMATION = click.argument("name", shell_complete=automations)
QUEUE = click.argument("name", shell_complete=queues)
PATH = click.argument("path", shell_complete=files)
