"""`rota scheduler trigger`: an execution now, by the scheduler that runs, or else here."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click
import msgspec

from rota.cli import exits, pipeline_place, render, scheduler_page
from rota.cli.base import Call, Command
from rota.core.instants import micros

if TYPE_CHECKING:
    from rota.app import Rota
    from rota.pipelines.outcome import PipelineResult


@click.command(cls=Command)
@click.argument("schedule_id", metavar="ID")
@click.option("--wait", is_flag=True, help="Wait for the end and tell what came of it.")
@click.option("--timeout", metavar="DURATION", help="With --wait: how long.")
@click.option("--folder", metavar="PATH", help="The folder that holds the pipelines.")
@click.pass_obj
def trigger(
    call: Call, schedule_id: str, wait: bool, timeout: str | None, folder: str | None
) -> int:
    """Execute a scheduled pipeline now. The schedule itself does not move.

    While a scheduler runs, it does the work; with --wait this command waits for it. While none
    runs, this command does the work itself and waits for the end; Ctrl-C then calls it off.

    The exit code is that of the execution: 0 completed, 1 failed, 7 some items failed, 8 the
    budget was used up.
    """
    if timeout is not None:
        micros(timeout)
    root = pipeline_place.root_of(folder)
    app = pipeline_place.app_of(call, root)
    found = asyncio.run(_live(call, app, root, schedule_id, wait=wait, timeout=timeout))
    if found is None:
        return exits.OK
    if call.json:
        render.document({"id": found.run_id, "result": msgspec.to_builtins(found.result)})
    else:
        click.echo(scheduler_page.outcome_line(found.result))
    return found.result.exit_code


class Executed(NamedTuple):
    """An execution that has its result."""

    run_id: str
    result: PipelineResult


async def _live(
    call: Call, app: Rota, root: Path, schedule_id: str, *, wait: bool, timeout: str | None
) -> Executed | None:
    from rota.pipelines import lockfile
    from rota.pipelines.desk import Desk
    from rota.pipelines.roster import Roster
    from rota.pipelines.statefile import HISTORY_MAX

    await app.connect()
    try:
        desk = Desk(app, Roster(app, root, history_max=HISTORY_MAX), now=app.clock.now)
        run_id = await desk.trigger(schedule_id)
        info = await desk.show(schedule_id)
        holder = lockfile.living(root, now=app.clock.now())
        if holder is None:
            click.echo(f"no scheduler runs: run {run_id} is performed here", err=True)
            app.pipelines.know(info.pipeline_id, Path(info.pipeline_directory))
            await app.start_worker(fires=False)
        elif not wait:
            _tell_started(call, run_id, info.schedule_id, holder.pid)
            return None
        result = await _result(app, run_id, timeout, here=holder is None)
        if holder is None:
            await desk.write_down(schedule_id)
        return Executed(run_id, result)
    finally:
        await app.close()


def _tell_started(call: Call, run_id: str, schedule_id: str, pid: int) -> None:
    if call.json:
        render.document({"id": run_id, "schedule": schedule_id})
    else:
        click.echo(f"run {run_id} of {schedule_id} started; process {pid} performs it")


async def _result(app: Rota, run_id: str, timeout: str | None, *, here: bool) -> PipelineResult:
    """What came of it. Ctrl-C, or too little time, calls off only what is performed here."""
    from rota.core.outcomes import end_of, run_failed
    from rota.pipelines.outcome import PipelineResult

    try:
        await app.wakeups.listen()
        ended = await app.wait(run_id, timeout=timeout)
    except TimeoutError as error:
        if here:
            await app.cancel(run_id)
        raise exits.TookTooLong(
            f"run {run_id} has not ended within {timeout}; " + _left(here),
            hint=f"Look with `rota run show {run_id}`.",
        ) from error
    except asyncio.CancelledError:
        if here:
            await app.cancel(run_id)
        raise exits.Interrupted(f"interrupted; run {run_id} " + _left(here)) from None
    if ended.status != "completed":
        raise run_failed(run_id, end_of(ended.status, ended.reason, ended.error))
    return msgspec.json.decode(ended.output or "null", type=PipelineResult)


def _left(here: bool) -> str:
    return "was called off" if here else "goes on"
