"""`rota pipeline schedule …`, also `rota scheduler …`: the pipelines of a folder on schedules."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from rota.cli import connect, render
from rota.cli.base import CommandGroup, CommonOptions
from rota.cli.pipeline import location, scheduler_page
from rota.cli.pipeline.scheduler_start import start
from rota.cli.pipeline.scheduler_trigger import trigger

if TYPE_CHECKING:
    from rota.client.client import Client
    from rota.pipelines.folder.commands import ScheduleCommands, Scheduled, Skipped
    from rota.pipelines.folder.state_file import RunRecord
    from rota.pipelines.usage import PipelineUsage

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


@click.group(cls=CommandGroup)
def scheduler() -> None:
    """Run and manage pipelines on schedules.

    `rota pipeline schedule` and `rota scheduler` are the same. All commands work while a scheduler
    runs and while none does. An ID is the name of the pipeline's folder, or the id of its schedule.
    The folder of the pipelines is this one, or its `pipelines`, or the one named by --folder.
    """


scheduler.add_command(start)


def in_folder(command: F) -> F:
    """The option that names the folder."""
    return click.option("--folder", metavar="PATH", help="The folder that holds the pipelines.")(
        command
    )


def with_commands(
    call: CommonOptions,
    folder: str | None,
    work: Callable[[ScheduleCommands], Awaitable[T]],
    *,
    writes: bool,
) -> T:
    """Look at a folder, or change something about it; only what changes it makes a database."""
    from rota.app import Rota
    from rota.pipelines.folder.commands import ScheduleCommands
    from rota.pipelines.folder.registry import PipelineRegistry

    root = location.root_of(folder)
    place = location.place_of(call, root)
    is_there = location.exists(place.url)
    app = Rota(place.url, settings=place.settings, migrate=None if not is_there else False)

    def folder_commands(client: Client | None) -> ScheduleCommands:
        trust = location.trust_of(call)
        registry = PipelineRegistry(client, root, trust=trust)
        return ScheduleCommands(client, registry, now=app.clock.now)

    async def query(client: Client) -> T:
        return await work(folder_commands(client))

    if is_there or writes:
        return connect.run(app, query)
    import asyncio

    async def without() -> T:
        return await work(folder_commands(None))

    return asyncio.run(without())


# -- looking -----------------------------------------------------------------------------------


@scheduler.command("list")
@in_folder
@click.pass_obj
def list_(call: CommonOptions, folder: str | None) -> None:
    """List scheduled pipelines, broken ones included."""

    async def query(
        folder_commands: ScheduleCommands,
    ) -> tuple[list[Scheduled], dict[str, str], int]:
        return (
            await folder_commands.list_schedules(),
            folder_commands.registry.broken,
            folder_commands.now(),
        )

    found, broken, now = with_commands(call, folder, query, writes=False)
    if call.json:
        lines = [scheduler_page.document(info) for info in found]
        lines += [scheduler_page.broken_document(*each) for each in broken.items()]
        render.document(lines)
        return
    empty = "no pipeline here has a schedule; add a `schedule:` block with `cron:` to one"
    scheduler_page.table(found, broken, now, empty)
    _report_holder(folder, now)


def _report_holder(folder: str | None, now: int) -> None:
    """Whether a scheduler executes what is listed: on stderr, so that the list stays a list."""
    from rota.pipelines.folder import lock_file

    root = location.root_of(folder)
    holder = lock_file.living(root, now=now)
    if holder is None:
        click.echo(scheduler_page.holder_line(root, holder, now), err=True)


@scheduler.command("status")
@click.argument("schedule_id", required=False, metavar="[ID]")
@in_folder
@click.pass_obj
def status(call: CommonOptions, schedule_id: str | None, folder: str | None) -> None:
    """Show a schedule; without ID, whether a scheduler runs.

    Without an ID the exit code is 0 when one runs, and 1 when none does.
    """
    if schedule_id is None:
        _status_of_scheduler(call, folder)
        return

    from rota.pipelines.folder.commands import is_looked_after

    async def query(
        folder_commands: ScheduleCommands,
    ) -> tuple[Scheduled, PipelineUsage | None, int]:
        return (
            await folder_commands.show(schedule_id),
            await folder_commands.spent(schedule_id),
            folder_commands.now(),
        )

    info, spent, now = with_commands(call, folder, query, writes=False)
    if call.json:
        render.document(scheduler_page.document(info) | scheduler_page.spent_document(spent))
        return
    looked_after = is_looked_after(location.root_of(folder), now=now)
    scheduler_page.page(info, now, looked_after=looked_after, spent=spent)


def _status_of_scheduler(call: CommonOptions, folder: str | None) -> None:
    from rota.pipelines.folder import lock_file

    async def query(folder_commands: ScheduleCommands) -> tuple[Path, int]:
        return folder_commands.registry.root, folder_commands.now()

    root, now = with_commands(call, folder, query, writes=False)
    holder = lock_file.living(root, now=now)
    if call.json:
        render.document(scheduler_page.holder_document(holder))
    else:
        click.echo(scheduler_page.holder_line(root, holder, now))
    if holder is None:
        click.get_current_context().exit(1)


@scheduler.command("history")
@click.argument("schedule_id", metavar="ID")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=10, show_default=True, help="How many."
)
@in_folder
@click.pass_obj
def history(call: CommonOptions, schedule_id: str, limit: int, folder: str | None) -> None:
    """Show executions, newest first, skipped ones included.

    The last 50 that took place are kept in the pipeline's folder, the others in the database.
    """

    async def query(folder_commands: ScheduleCommands) -> tuple[list[RunRecord], list[Skipped]]:
        return await folder_commands.get_history(schedule_id, limit), await folder_commands.skipped(
            schedule_id, limit
        )

    ran, skipped = with_commands(call, folder, query, writes=False)
    if call.json:
        render.document(scheduler_page.history_document(ran, skipped)[:limit])
    else:
        scheduler_page.history(ran, skipped, limit)


@scheduler.command("upcoming")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=10, show_default=True, help="How many."
)
@in_folder
@click.pass_obj
def upcoming(call: CommonOptions, limit: int, folder: str | None) -> None:
    """Show the next executions of all pipelines."""

    async def query(folder_commands: ScheduleCommands) -> tuple[list[Any], int]:
        return await folder_commands.get_upcoming(limit), folder_commands.now()

    found, now = with_commands(call, folder, query, writes=False)
    if call.json:
        render.document([
            {"scheduleId": one.schedule_id, "pipelineId": one.pipeline_id,
             "nextRun": one.next_run.isoformat()} for one in found
        ])  # fmt: skip
    else:
        scheduler_page.upcoming(found, now)


# -- commands ----------------------------------------------------------------------------------

scheduler.add_command(trigger)


@scheduler.command("pause")
@click.argument("schedule_id", metavar="ID")
@click.option("--note", metavar="WHY", default="", help="Reason, shown while it is paused.")
@in_folder
@click.pass_obj
def pause(call: CommonOptions, schedule_id: str, note: str, folder: str | None) -> None:
    """Pause a schedule. An execution in progress continues."""

    async def rest(folder_commands: ScheduleCommands) -> tuple[Scheduled, int]:
        return await folder_commands.pause(schedule_id, note=note), folder_commands.now()

    _done(call, *with_commands(call, folder, rest, writes=True))


@scheduler.command("resume")
@click.argument("schedule_id", metavar="ID")
@in_folder
@click.pass_obj
def resume(call: CommonOptions, schedule_id: str, folder: str | None) -> None:
    """Resume a paused schedule from its next execution."""

    async def wake(folder_commands: ScheduleCommands) -> tuple[Scheduled, int]:
        return await folder_commands.resume(schedule_id), folder_commands.now()

    _done(call, *with_commands(call, folder, wake, writes=True))


def _done(call: CommonOptions, info: Scheduled, now: int) -> None:
    if call.json:
        render.document(scheduler_page.document(info))
        return
    upcoming = info.state.next_run
    rest = f"; it runs {scheduler_page.when(upcoming, now)}" if upcoming else ""
    click.echo(f"schedule {info.schedule_id} is {info.state.status}{rest}")


@scheduler.command("cancel")
@click.argument("schedule_id", metavar="ID")
@in_folder
@click.pass_obj
def cancel(call: CommonOptions, schedule_id: str, folder: str | None) -> None:
    """Cancel the execution in progress and the queued one.

    The schedule itself continues.
    """

    async def call_off(folder_commands: ScheduleCommands) -> list[str]:
        return await folder_commands.cancel(schedule_id)

    ids = with_commands(call, folder, call_off, writes=True)
    if call.json:
        render.document({"cancelled": ids})
    else:
        click.echo(f"cancelled: {', '.join(ids)}")
