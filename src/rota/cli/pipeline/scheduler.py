"""`rota pipeline schedule …`, also `rota scheduler …`: the pipelines of a folder on schedules."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import click
import msgspec

from rota import project
from rota.app import Rota
from rota.cli import connect, render
from rota.cli.base import CommonOptions, limit_option
from rota.cli.pipeline import location, scheduler_page
from rota.cli.pipeline.groups import scheduler
from rota.cli.pipeline.scheduler_start import start
from rota.cli.pipeline.scheduler_trigger import trigger
from rota.client.client import Client
from rota.pipelines.folder import lock_file
from rota.pipelines.folder.commands import ScheduleCommands, Scheduled, Skipped, is_looked_after
from rota.pipelines.folder.state_file import RunRecord
from rota.pipelines.usage import PipelineUsage

T = TypeVar("T")


scheduler.add_command(start)


def with_commands(
    call: CommonOptions,
    folder: str | None,
    work: Callable[[ScheduleCommands], Awaitable[T]],
    *,
    writes: bool = False,
) -> tuple[T, int]:
    """Run a command about a folder; returns its answer, and the time.

    Only a command that writes creates a database.
    """
    root = location.root_of(folder)
    place = location.place_of(call, root)
    is_there = project.database_exists(place.url)
    app = Rota(place.url, settings=place.settings, migrate=None if not is_there else False)

    async def timed(client: Client | None) -> tuple[T, int]:
        answer = await work(location.commands_of(call, root, client, now=app.clock.now))
        return answer, app.clock.now()

    return connect.run(app, timed) if is_there or writes else asyncio.run(timed(None))


# -- looking -----------------------------------------------------------------------------------


@scheduler.command("list")
@location.FOLDER
@click.pass_obj
def list_(call: CommonOptions, folder: str | None) -> None:
    """List scheduled pipelines, broken ones included."""

    async def query(commands: ScheduleCommands) -> tuple[list[Scheduled], dict[str, str]]:
        return await commands.list_schedules(), commands.registry.broken

    (scheduled, broken), now = with_commands(call, folder, query)
    if call.json:
        lines = msgspec.to_builtins(scheduled)
        lines += [scheduler_page.broken_document(*each) for each in broken.items()]
        render.document(lines)
        return
    empty = "no pipeline here has a schedule; add a `schedule:` block with `cron:` to one"
    scheduler_page.table(scheduled, broken, now, empty)
    root = location.root_of(folder)
    if lock_file.living(root, now=now) is None:  # on stderr, so that the list stays a list
        render.say(scheduler_page.holder_line(root, None, now), err=True)


@scheduler.command("status")
@click.argument("schedule_id", required=False, metavar="[ID]")
@location.FOLDER
@click.pass_obj
def status(call: CommonOptions, schedule_id: str | None, folder: str | None) -> None:
    """Show a schedule; without ID, whether a scheduler runs.

    Without an ID the exit code is 0 when one runs, and 1 when none does.
    """
    if schedule_id is None:
        _status_of_scheduler(call, folder)
        return

    async def query(commands: ScheduleCommands) -> tuple[Scheduled, PipelineUsage | None]:
        return await commands.show(schedule_id), await commands.spent(schedule_id)

    (info, spent), now = with_commands(call, folder, query)
    if call.json:
        render.document(msgspec.to_builtins(info) | {"spent": msgspec.to_builtins(spent)})
        return
    looked_after = is_looked_after(location.root_of(folder), now=now)
    scheduler_page.print_page(info, now, looked_after=looked_after, spent=spent)


def _status_of_scheduler(call: CommonOptions, folder: str | None) -> None:
    async def query(commands: ScheduleCommands) -> Path:
        return commands.registry.root

    root, now = with_commands(call, folder, query)
    holder = lock_file.living(root, now=now)
    line = scheduler_page.holder_line(root, holder, now)
    render.report(call.json, scheduler_page.holder_document(holder), line)
    if holder is None:
        click.get_current_context().exit(1)


@scheduler.command("history")
@click.argument("schedule_id", metavar="ID")
@limit_option(10)
@location.FOLDER
@click.pass_obj
def history(call: CommonOptions, schedule_id: str, limit: int, folder: str | None) -> None:
    """Show executions, newest first, skipped ones included.

    The last 50 that took place are kept in the pipeline's folder, the others in the database.
    """

    async def query(commands: ScheduleCommands) -> list[RunRecord | Skipped]:
        ran = await commands.get_history(schedule_id, limit + 1)
        skipped = await commands.skipped(schedule_id, limit + 1)
        return scheduler_page.newest_first(ran, skipped)

    entries, _ = with_commands(call, folder, query)
    render.listing(
        call.json, entries[:limit], scheduler_page.history_document, scheduler_page.history_row,
        "no execution has ended yet",
    )  # fmt: skip
    if len(entries) > limit and not call.json:
        click.echo("more: a higher --limit", err=True)


@scheduler.command("upcoming")
@limit_option(10)
@location.FOLDER
@click.pass_obj
def upcoming(call: CommonOptions, limit: int, folder: str | None) -> None:
    """Show the next executions of all pipelines."""
    executions, now = with_commands(call, folder, lambda commands: commands.get_upcoming(limit))
    render.listing(
        call.json, executions, scheduler_page.upcoming_document,
        lambda execution: scheduler_page.upcoming_row(execution, now), "no upcoming executions",
    )  # fmt: skip


# -- commands ----------------------------------------------------------------------------------

scheduler.add_command(trigger)


@scheduler.command("pause")
@click.argument("schedule_id", metavar="ID")
@click.option("--note", metavar="WHY", default="", help="Reason, shown while it is paused.")
@location.FOLDER
@click.pass_obj
def pause(call: CommonOptions, schedule_id: str, note: str, folder: str | None) -> None:
    """Pause a schedule. An execution in progress continues."""
    _change(call, folder, lambda commands: commands.pause(schedule_id, note=note))


@scheduler.command("resume")
@click.argument("schedule_id", metavar="ID")
@location.FOLDER
@click.pass_obj
def resume(call: CommonOptions, schedule_id: str, folder: str | None) -> None:
    """Resume a paused schedule from its next execution."""
    _change(call, folder, lambda commands: commands.resume(schedule_id))


def _change(
    call: CommonOptions,
    folder: str | None,
    change: Callable[[ScheduleCommands], Awaitable[Scheduled]],
) -> None:
    info, now = with_commands(call, folder, change, writes=True)
    next_run = info.state.next_run
    rest = f"; it runs {scheduler_page.when(next_run, now)}" if next_run else ""
    text = f"schedule {info.schedule_id} is {info.state.status}{rest}"
    render.report(call.json, msgspec.to_builtins(info), text)


@scheduler.command("cancel")
@click.argument("schedule_id", metavar="ID")
@location.FOLDER
@click.pass_obj
def cancel(call: CommonOptions, schedule_id: str, folder: str | None) -> None:
    """Cancel the execution in progress and the queued one.

    The schedule itself continues.
    """

    ids, _ = with_commands(call, folder, lambda commands: commands.cancel(schedule_id), writes=True)
    render.report(call.json, {"cancelled": ids}, f"cancelled: {', '.join(ids)}")
