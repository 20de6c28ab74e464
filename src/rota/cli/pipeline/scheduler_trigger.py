"""`rota scheduler trigger`: an execution now, by the scheduler that runs, otherwise here."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from rota.app import Rota
from rota.cli import exit_codes, render
from rota.cli.base import BaseCommand, CommonOptions
from rota.cli.pipeline import location, scheduler_page
from rota.cli.pipeline.progress import Meter
from rota.cli.pipeline.run import code_of, quiet_logs, result_document
from rota.cli.pipeline.runner import Life, PipelineRunEnd
from rota.cli.run.wait import check_timeout
from rota.client.handle import RunHandle
from rota.core.runs.stored_errors import read_error
from rota.pipelines.folder import lock_file
from rota.pipelines.folder.commands import ScheduleCommands, Scheduled
from rota.pipelines.outcome import PipelineResult, Progress


@click.command(cls=BaseCommand)
@click.argument("schedule_id", metavar="ID")
@click.option("--wait", is_flag=True, help="Wait for the end and print the outcome.")
@click.option("--timeout", metavar="DURATION", help="With --wait: longest wait.")
@click.option(
    "--ai", metavar="FILE", type=click.Path(path_type=Path),
    help="AI settings for a run in this process. [ROTA_AI_FILE]",
)  # fmt: skip
@location.FOLDER
@click.pass_obj
def trigger(
    call: CommonOptions,
    schedule_id: str,
    wait: bool,
    timeout: str | None,
    ai: Path | None,
    folder: str | None,
) -> int:
    """Run a scheduled pipeline now.

    While a scheduler runs, it does the work; with --wait this command waits for it. While none
    runs, this command does the work itself and waits for the end; Ctrl-C then cancels it.
    Failures are tried again as the pipeline's retryPolicy says.

    The exit code is that of the execution: 0 completed, 1 failed, 7 some items failed, 8 the
    budget was used up, 130 cancelled.
    """
    check_timeout(timeout, waits=wait)
    quiet_logs(call)
    root = location.root_of(folder)
    app = location.app_of(call, root, ai=ai)
    end = asyncio.run(_live(call, app, root, schedule_id, wait=wait, timeout=timeout, ai=ai))
    if end is None:
        return exit_codes.OK
    if call.json:
        render.document({"id": end.run_id, "result": result_document(end.result)})
    else:
        click.echo(scheduler_page.outcome_line(end.result))
        if end.result.error:
            click.echo(f"  {render.clean(end.result.error)}", err=True)
    return code_of(end)


async def _live(
    call: CommonOptions,
    app: Rota,
    root: Path,
    schedule_id: str,
    *,
    wait: bool,
    timeout: str | None,
    ai: Path | None,
) -> PipelineRunEnd | None:
    await app.connect()
    try:
        folder_commands = location.commands_of(call, root, app, now=app.clock.now)
        scheduled = await folder_commands.show(schedule_id)
        holder = lock_file.living(root, now=app.clock.now())
        if holder is None:
            if timeout is not None:
                raise click.UsageError(
                    "--timeout bounds the wait for a scheduler, and none runs here: omit it."
                )
            return await _perform(app, folder_commands, scheduled)
        if ai is not None:
            raise click.UsageError(
                f"--ai has no effect: process {holder.pid} executes the run. "
                "Give --ai to `rota scheduler start`."
            )
        run_id = await folder_commands.trigger(scheduled.schedule_id)
        if wait:
            return await _await(app, run_id, timeout)
        text = f"run {run_id} of {scheduled.schedule_id} started; process {holder.pid} executes it"
        render.report(call.json, {"id": run_id, "schedule": scheduled.schedule_id}, text)
        return None
    finally:
        await app.close()


async def _perform(
    app: Rota, folder_commands: ScheduleCommands, scheduled: Scheduled
) -> PipelineRunEnd:
    """Do the work in this process, and nothing else: no other schedule is fired."""
    meter = Meter()
    name, folder = _name_and_folder(scheduled)

    async def begin(app: Rota, _: str) -> RunHandle[PipelineResult]:
        app.pipelines.know(name, folder)
        run_id = await folder_commands.trigger(scheduled.schedule_id)
        meter.say(f"no scheduler runs here: this command executes run {run_id}")
        return app.runs.handle(run_id)

    def tried(progress: Progress) -> None:
        if progress.phase == "ended" and progress.outcome is None:
            why = f": {render.clean(progress.error)}" if progress.error else ""
            meter.say(f"this attempt failed{why}; Rota retries it by its retryPolicy")

    unlisten = app.pipelines.listen(tried)
    try:
        end = await Life(app, meter).live(begin, "default")
    finally:
        unlisten()
    await app.connect()
    await folder_commands.write_state(scheduled.schedule_id)
    return end


def _name_and_folder(scheduled: Scheduled) -> tuple[str, Path]:
    """The name of the pipeline in its runs, which is that of the target of a link; its folder."""
    folder = Path(scheduled.pipeline_directory)
    return folder.resolve().name, folder


async def _await(app: Rota, run_id: str, timeout: str | None) -> PipelineRunEnd:
    """Wait for a run of another process. The run continues after a timeout or Ctrl-C."""
    hint = f"Look with `rota run show {run_id}`."
    try:
        await app.connection.wakeups.listen()
        ended = await app.runs.wait(run_id, timeout=timeout)
    except TimeoutError as error:
        message = f"run {run_id} has not ended within {timeout}; it continues"
        raise exit_codes.TookTooLong(message, hint=hint) from error
    except asyncio.CancelledError:
        message = f"stopped waiting; run {run_id} continues"
        raise exit_codes.Interrupted(message, hint=hint) from None
    error_type = read_error(ended.error)["type"] if ended.error else None
    return PipelineRunEnd(run_id, await app.pipelines.result(run_id), error_type, None)
