"""`rota pipeline resume|retry`: continue with a run from what is done, paying for nothing twice."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from rota.app import Rota
from rota.cli import complete, render
from rota.cli.base import BaseCommand, CommonOptions
from rota.cli.pipeline.run import ending, live, must_be_writable
from rota.cli.pipeline.runner import chosen_run, client_of, flag_of, never_ran
from rota.client.doctor import absence
from rota.client.handle import RunHandle
from rota.core.runs.model import Run
from rota.errors import BadPipeline, WrongState
from rota.pipelines import snapshot
from rota.pipelines.definition.loader import entry_file
from rota.pipelines.definition.locate import locate, open_pipeline
from rota.pipelines.outcome import PipelineResult


def _again(name: str, text: str) -> click.Command:
    @click.command(name, cls=BaseCommand, help=text)
    @complete.PATH
    @click.option("--run", "run_id", metavar="ID", help="This run, instead of the newest one.")
    @click.option(
        "--model", metavar="MODEL", help="The model of the calls that are left: provider:model."
    )
    @ending
    @click.pass_obj
    def again(
        call: CommonOptions,
        /,
        path: str,
        run_id: str | None,
        model: str | None,
        out: Path | None,
        ai: Path | None,
        quiet: bool,
    ) -> int:
        place = locate(path)
        must_be_writable(out)
        home = entry_file(place).parent.resolve()
        if client_of(call, place) is None:
            raise never_ran(place)

        async def begin(app: Rota, queue: str) -> RunHandle[PipelineResult]:
            last = await chosen_run(app, place, run_id)
            if name == "resume" and _is_complete(last):
                render.say(f"run {last.root_id} is complete; this is its result", err=True)
                must_be_writable(out, snapshot.read(last.input).pipeline)
                return app.runs.handle(last.root_id)
            _must_have(name, last, path)
            must_be_writable(out, snapshot.read(last.input).pipeline)
            await _must_be_free(app, last, flag_of(call))
            _report_changes(last, place, path)
            app.pipelines.know(home.name, home)
            return await app.pipelines.retry(last.root_id, model=model, queue=queue)

        return live(call, path, place, begin, ai=ai, out=out, quiet=quiet)

    return again


def _is_complete(last: Run) -> bool:
    """Whether a run completed with all its items, perhaps in the moment of a kill."""
    if last.status != "completed":
        return False
    return msgspec.json.decode(last.output or "{}", type=PipelineResult).outcome == "completed"


def _must_have(verb: str, last: Run, path: str) -> None:
    """Refuse where there is nothing to do."""
    if last.status == "skipped":
        raise WrongState(
            f"run {last.root_id} was skipped, so it has nothing to continue with",
            hint=f"Run it now: `rota pipeline run {path}`.",
        )
    if last.status != "completed":
        return
    result = msgspec.json.decode(last.output or "{}", type=PipelineResult)
    if result.outcome == "completed":
        raise WrongState(
            f"run {last.root_id} is complete: nothing failed, nothing is left",
            hint=f"A new run: `rota pipeline run {path}`; see `rota pipeline history {path}`.",
        )
    if verb == "resume" and not result.skipped:
        raise WrongState(
            f"run {last.root_id} has ended; {result.failed} of its items failed",
            hint=f"Try these again: `rota pipeline retry {path}`.",
        )


def _report_changes(last: Run, place: Path, path: str) -> None:
    """A user who has fixed the file should know that this run does not see it."""
    try:
        now = open_pipeline(place).digest
    except BadPipeline:
        now = ""
    if now != snapshot.read(last.input).digest:
        render.say(
            "note: the pipeline has changed since this run began; it continues unchanged (the new "
            f"one, without paying again for what is the same: rota pipeline run {path} "
            f"--reuse last)",
            err=True,
        )


async def _must_be_free(app: Rota, last: Run, flag: str) -> None:
    """Refuse a run that another living process executes."""
    if last.status != "running":
        return
    now = app.clock.now()
    workers = await app.workers(everyone=True)
    holder = next((worker for worker in workers if worker.id == last.lease_owner), None)
    if holder is not None and holder.stopped_at is None and not absence(holder, app.settings, now):
        host = holder.host.partition("/")[0]
        raise WrongState(
            f"run {last.root_id} is in progress, in process {holder.pid} on {host}",
            hint=f"Wait for it, or cancel it: `rota run cancel {last.root_id}{flag}`.",
        )


resume = _again(
    "resume",
    """Resume an interrupted run from its finished items.

    For runs that were cancelled, failed, crashed, ran out of budget or wait for a login: the newest
    run of the pipeline PATH, or --run. It continues with the definition, the parameters and the
    models it began with, and pays for no call twice. If the default model has changed, --model has
    to choose. Exit codes are those of `rota pipeline run`.
    """,
)
retry = _again(
    "retry",
    """Retry only the failed items of a run.

    Then all results are reduced again. The newest run of the pipeline PATH, or --run. It continues
    with the definition, the parameters and the models it began with. If the default model has
    changed, --model has to choose. Exit codes are those of `rota pipeline run`.
    """,
)
