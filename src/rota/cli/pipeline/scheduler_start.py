"""`rota scheduler start`: the daemon of a folder of pipelines."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import click

from rota.app import Rota
from rota.cli import render
from rota.cli.base import BaseCommand, CommonOptions
from rota.cli.ops.up import StopSignals, leave_threads, write_logs
from rota.cli.pipeline import location, scheduler_page
from rota.cli.pipeline.options import AI
from rota.core.time.instants import micros
from rota.pipelines.folder import events as kinds
from rota.pipelines.folder.events import AnyEvent
from rota.pipelines.folder.scheduler import PipelineScheduler

log = logging.getLogger("rota.scheduler")


@click.command(cls=BaseCommand)
@click.argument("folder", required=False)
@click.option("--folder", "named", metavar="PATH", help="The same as FOLDER.")
@click.option("--events", is_flag=True, help="Print every event as a line of JSON on stdout.")
@AI
@click.option("--slots", type=int, help="Runs to execute at the same time. [ROTA_SLOTS]")
@click.option("--migrate", is_flag=True, help="PostgreSQL: migrate the tables first.")
@click.option(
    "--stop-timeout", metavar="DURATION", default="30s", show_default=True,
    help="Time for executions to end when the scheduler stops.",
)  # fmt: skip
@click.pass_obj
def start(
    call: CommonOptions,
    *,
    folder: str | None,
    named: str | None,
    events: bool,
    ai: Path | None,
    slots: int | None,
    migrate: bool,
    stop_timeout: str,
) -> int:
    """Run a scheduler for the pipelines of FOLDER.

    Without FOLDER it is this folder, or its `pipelines`. It watches the files: additions, changes
    and deletions take effect by themselves. A second scheduler for the same folder is refused (exit
    code 5).

    SIGTERM and Ctrl-C stop it gracefully: executions in progress get --stop-timeout to end, and the
    next scheduler continues the rest. A second signal stops it at once. Logs go to stderr; with
    --json, one object per line.
    """
    timeout_s = micros(stop_timeout) / 1e6
    if folder and named:
        raise click.UsageError("FOLDER and --folder are the same: give one.")
    root = location.root_of(folder or named)
    app = location.app_of(call, root, ai=ai, migrate=migrate or None, slots=slots)
    write_logs(call)
    code = asyncio.run(SchedulerDaemon(app, root, prints=events, timeout_s=timeout_s).live())
    leave_threads(code)
    return code


class SchedulerDaemon:
    """One scheduler, until a signal stops it."""

    def __init__(self, app: Rota, root: Path, *, prints: bool, timeout_s: float) -> None:
        self._app = app
        self._root = root
        self._prints = prints
        self._timeout_s = timeout_s
        self._signals = StopSignals()

    async def live(self) -> int:
        """Run until a signal comes, drain, release the lock; returns the exit code."""
        self._signals.listen()
        scheduler = PipelineScheduler(self._app, self._root)
        scheduler.on("*", _print if self._prints else _log)
        try:
            await scheduler.start()
            await self._say_up(scheduler)
            stopping = asyncio.create_task(self._signals.stop.wait())
            ended = asyncio.create_task(scheduler.stopped.wait())
            await asyncio.wait({stopping, ended}, return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            ended.cancel()
            if scheduler.lost is not None:
                raise scheduler.lost
            return await self._drain(scheduler)
        finally:
            await self._app.close()

    async def _drain(self, scheduler: PipelineScheduler) -> int:
        count = scheduler.begun_count
        if count:
            log.info(
                "stopping: %s in progress, %.0f s to end; a second signal stops at once",
                render.count(count, "execution"), self._timeout_s,
            )  # fmt: skip
        stop = scheduler.stop(self._timeout_s)
        how, code = await self._signals.drain(stop, scheduler.stop_at_once)
        log.info("stopped %s", how)
        return code

    async def _say_up(self, scheduler: PipelineScheduler) -> None:
        schedules = await scheduler.list_schedules()
        upcoming = await scheduler.get_upcoming(1)
        then = ""
        if upcoming:
            local = upcoming[0].next_run.astimezone()
            then = f"; next is {upcoming[0].pipeline_id} at {local:%Y-%m-%d %H:%M:%S %Z}"
        place = self._app.connection.database.place
        log.info(
            "scheduler runs in %s: %s, runs are stored in %s%s. Press Ctrl-C to stop.",
            self._root, render.count(len(schedules), "schedule"), place, then,
        )  # fmt: skip


def _print(event: AnyEvent) -> None:
    click.echo(event.line())


def _log(event: AnyEvent) -> None:
    """The event in words, in the log."""
    match event:
        case kinds.ExecutionStart():
            why = f"retry {event.retry_attempt}" if event.retry_attempt else event.trigger
            log.info("%s began (%s), run %s", event.pipeline_id, why, event.run_id)
        case kinds.ExecutionComplete():
            log.info("%s ended, %s", event.pipeline_id, scheduler_page.outcome_of(event))
        case kinds.ExecutionError():
            then = "Rota retries it" if event.will_retry else "no retry is left"
            if event.waits:
                then = f"it waits: `rota pipeline resume {event.pipeline_id}` continues it"
            log.error("%s failed: %s; %s", event.pipeline_id, event.error, then)
        case kinds.ExecutionWaiting() if event.reason is None:
            log.info("%s: the provider answers again", event.pipeline_id)
        case kinds.ExecutionWaiting():
            log.warning("%s waits for its provider: %s", event.pipeline_id, event.reason)
        case kinds.ScheduleChanged() if not event.problem:  # otherwise the log has it already
            log.info("schedule %s %s", event.schedule_id, event.change)
        case kinds.SchedulerStatus():
            log.debug("scheduler %s", event.status)
