"""Shell completion of names and ids that the database and the project know.

Completion prints, creates and changes nothing. After an error it offers nothing.
"""

from __future__ import annotations

import contextlib
import io
import logging
from collections.abc import Awaitable, Callable

import click
from click.shell_completion import CompletionItem

from rota.cli import connect, render
from rota.cli.base import CommonOptions
from rota.client.client import Client
from rota.client.doctor import known
from rota.core.runs.ids import short_id

RUNS_MAX = 200
WHOLE = 32  # digits of an id
Found = list[CompletionItem]
Completion = Callable[[click.Context, click.Parameter, str], Found]


def _completion(query: Callable[[Client, click.Context], Awaitable[Found]]) -> Completion:
    """A completion from the items that `query` finds in the database of this call."""

    def complete(context: click.Context, _: click.Parameter, incomplete: str) -> Found:
        call = context.find_object(CommonOptions) or CommonOptions()
        logging.disable()
        try:
            items = connect.ask(call, lambda client: query(client, context), notes=False)
        except Exception:
            return []
        finally:
            logging.disable(logging.NOTSET)
        return _beginning(items, incomplete)

    return complete


def _beginning(items: Found, incomplete: str) -> Found:
    fitting = {item.value: item for item in items if item.value.startswith(incomplete)}
    return list(fitting.values())


@_completion
async def _run_ids(client: Client, _: click.Context) -> Found:
    items = []
    for run in await client.runs.list(limit=RUNS_MAX):
        text = render.clean(f"{run.name} {run.label}")
        names = (run.external_id, short_id(run.id), run.id)
        items += [CompletionItem(name, help=text) for name in names if name]
    return items


def run_ids(context: click.Context, parameter: click.Parameter, incomplete: str) -> Found:
    """The newest runs, by external id and short id; by whole id where only that fits."""
    items = _run_ids(context, parameter, incomplete)
    return [item for item in items if len(item.value) < WHOLE] or items


@_completion
async def schedules(client: Client, _: click.Context) -> Found:
    """Schedules by name."""
    return [
        CompletionItem(view.schedule.name, help=render.clean(f"{view.schedule.label}, {view.text}"))
        for view in await client.schedules.list()
    ]


@_completion
async def fields(client: Client, context: click.Context) -> Found:
    """Fields of the named schedule that an operator has changed."""
    view = await client.schedules.get(context.params.get("name", ""))
    return [
        CompletionItem(difference.field, help=render.clean(f"declared: {difference.declared}"))
        for difference in view.differences
    ]


@_completion
async def automations(client: Client, _: click.Context) -> Found:
    """Automations by name."""
    views = await client.automations.list()
    return [CompletionItem(view.automation.name, help=view.status) for view in views]


@_completion
async def queues(client: Client, _: click.Context) -> Found:
    """Queues that are declared, served or waited in."""
    return [CompletionItem(state.name) for state in await client.overview.queues()]


@_completion
async def _known_workflows(client: Client, _: click.Context) -> Found:
    names = {name for row in await client.workers() for name in known(row)}
    return [CompletionItem(name) for name in sorted(names)]


def workflows(context: click.Context, parameter: click.Parameter, incomplete: str) -> Found:
    """Workflows of the project; without one, those that workers know."""
    call = context.find_object(CommonOptions) or CommonOptions()
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # the project's code may print
            app = connect.project_app(call)
    except Exception:
        return []
    if app is None:
        return _known_workflows(context, parameter, incomplete)
    return _beginning([CompletionItem(name) for name in sorted(app.workflows)], incomplete)


def anything(context: click.Context, parameter: click.Parameter, incomplete: str) -> Found:
    """The names that `rota why` knows."""
    return [
        item
        for completion in (schedules, automations, run_ids)
        for item in completion(context, parameter, incomplete)
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
