"""`rota pipeline run|resume|retry`: perform a pipeline here, results on stdout."""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from rota.cli import exits, render
from rota.cli.base import Call, Command
from rota.cli.pipeline_life import Begin, End, Life, app_of, flag_of
from rota.cli.pipeline_options import choices, must_be_ready, piped, prepare
from rota.cli.pipeline_progress import Meter, money
from rota.errors import BadInput, UnknownRun, WrongState

if TYPE_CHECKING:
    from rota.app import Rota
    from rota.client import Client
    from rota.core.model import Run
    from rota.pipelines.outcome import PipelineResult
    from rota.runref import RunRef

ERRORS_SHOWN = 5
HINTS = {
    "NeedsLogin": "Set the key in the environment of this command, then go on.",
    "NeedsPermission": "Let the account do this, or pay for it, then go on.",
}

_OUT = (
    click.option(
        "-o", "--output", "out", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False),
        help="Write the result to this file instead of stdout.",
    ),
    click.option(
        "--ai", metavar="FILE", type=click.Path(path_type=Path),
        help="AI settings: providers, limits, prices. [ROTA_AI_FILE]",
    ),
    click.option("-q", "--quiet", is_flag=True, help="No progress; problems are still told."),
)  # fmt: skip


def _ending(command: Any) -> Any:
    for option in reversed(_OUT):
        command = option(command)
    return command


@click.command("run", cls=Command)
@click.argument("path")
@choices
@click.option("--parallel", type=click.IntRange(1), metavar="N", help="N calls at the same time.")
@click.option(
    "--reuse", metavar="RUN",
    help="Take over results of this run (an id, or last) where item, prompt and model are equal.",
)  # fmt: skip
@_ending
@click.pass_obj
def run(
    call: Call,
    /,
    path: str,
    *,
    parallel: int | None,
    reuse: str | None,
    model: str | None,
    out: Path | None,
    ai: Path | None,
    quiet: bool,
    **chosen: Any,
) -> int:
    """Run a pipeline now, in this process, and print its result.

    PATH is a pipeline.yaml, its folder, or the name of a pipeline in this folder or in its folder
    `pipelines`. stdout has the result and nothing else; progress and problems are on stderr.

    Every item is stored when it is done. Ctrl-C cancels and keeps what is done; `rota pipeline
    resume` goes on from there, and `rota pipeline retry` tries failed items again: neither pays
    for a call twice. Both go on with the definition the run began with; after a change of the
    file --reuse takes over what has not changed.

    Runs are kept in --database, in that of the rota.toml of this folder, or else in `.rota.db` in
    the folder that the pipeline's folder stands in.

    Parameters: -p wins over --params, which wins over `input.parameters` and `parameters` of the
    file; a field of an item wins over all of them. --model, --parallel and --limit win over the
    file.

    \b
    Exit codes: 0 completed, 7 partial (some items failed), 1 failed,
    2 the definition or an option is wrong, 8 budget used up, 130 cancelled.
    """
    from rota.pipelines.adjusting import reads_stdin

    found = prepare(path, **chosen)
    must_be_ready(found, model=model, ai=ai)
    _must_be_writable(out)

    async def begin(app: Rota, queue: str) -> RunRef:
        earlier = None
        if reuse is not None:
            wanted = None if reuse == "last" else reuse
            earlier = (await chosen_run(app, found.path, wanted)).root_id
        return await app.pipelines.start(
            found.loaded, parameters=found.given, model=model, parallel=parallel, queue=queue,
            cache_from=earlier,
            stdin=piped() if reads_stdin(found.loaded.pipeline) else None,
        )  # fmt: skip

    return _live(call, path, found.path, begin, ai=ai, out=out, quiet=quiet)


def _live(
    call: Call,
    said: str,
    path: Path,
    begin: Begin,
    *,
    ai: Path | None,
    out: Path | None,
    quiet: bool,
) -> int:
    _hush(call)
    meter = Meter(quiet=quiet)
    end = asyncio.run(Life(app_of(call, path, ai), meter).live(begin))
    _give(call, end, out, said)
    if not quiet or end.result.outcome != "completed":
        _sum_up(end, said)
    return code_of(end)


def _hush(call: Call) -> None:
    """What a daemon would log is told here in other words; with --debug it is logged as well."""
    logging.basicConfig(
        level=logging.DEBUG if call.debug else logging.CRITICAL, stream=sys.stderr, force=True
    )
    logging.getLogger("asyncio").setLevel(logging.WARNING)


def code_of(end: End) -> int:
    """The exit code of a run."""
    if end.error_type == "BudgetSpent":
        return exits.BUDGET
    return end.result.exit_code


def _must_be_writable(out: Path | None) -> None:
    """Refuse a place for the result before anything is paid for."""
    if out is not None and not out.resolve().parent.is_dir():
        raise BadInput(f"{out} cannot be written: there is no folder {out.parent}")


def _give(call: Call, end: End, out: Path | None, said: str) -> None:
    """The result: to the file, or to stdout and nowhere else."""
    from rota.pipelines.files import write_whole

    text = end.text
    if out is not None and text is not None:
        try:
            write_whole(out, [text, "" if text.endswith("\n") else "\n"])
        except OSError as error:
            raise BadInput(
                f"{out} cannot be written: {error.strerror}",
                hint=f"The result is stored: `rota pipeline history {said} --result` prints it.",
            ) from error
    if call.json:
        document = {"run": end.run_id} | result_document(end.result)
        document |= {"output": text} if out is None else {"output": None, "file": str(out)}
        render.document(document)
    elif out is None and text:
        click.echo(text, nl=not text.endswith("\n"))


def result_document(result: PipelineResult) -> dict[str, Any]:
    """A result for machines, every field of it."""
    return {
        name: msgspec.to_builtins(getattr(result, name)) for name in result.__struct_fields__
    } | {"success": result.success}


def _sum_up(end: End, said: str) -> None:
    """What happened, in a line; then what went wrong, and what may be done."""
    result = end.result
    click.echo(f"{result.pipeline_id}: {summary(result)} (run {end.run_id})", err=True)
    for each in result.errors[:ERRORS_SHOWN]:
        told = render.clean(each.message)
        click.echo(f"  item {each.position + 1}: {each.type}: {told}", err=True)
    more = result.failed - min(len(result.errors), ERRORS_SHOWN)
    if more > 0:
        click.echo(f"  and {render.count(more, 'more failed item')}", err=True)
    if result.error and result.outcome != "cancelled" and not result.errors:
        click.echo(f"  {render.clean(result.error)}", err=True)
    for warning in result.warnings:
        click.echo(f"  warning: {render.clean(warning)}", err=True)
    if result.outcome != "completed":
        _advise(end, said)


def _advise(end: End, said: str) -> None:
    """What may be done about it."""
    result = end.result
    if end.error_type in HINTS:
        click.echo(f"Hint: {HINTS[end.error_type]}", err=True)
    if end.text is None and result.processed and result.result_file:
        click.echo(f"what is done: {result.result_file} in the pipeline's folder", err=True)
    if end.error_type == "BudgetSpent":
        told = "raise the budget in the file; what is done is not paid for again"
        click.echo(f"{told}: rota pipeline run {said} --reuse last", err=True)
    elif result.outcome == "partial":
        click.echo(f"try the failed items again: rota pipeline retry {said}", err=True)
    else:
        what = "go on from what is done" if result.processed else "try again"
        click.echo(f"{what}: rota pipeline resume {said}", err=True)


def summary(result: PipelineResult) -> str:
    """`partial: 96 of 100 items done, 4 failed; 103 calls, 51,200 tokens, $0.1234, 1m3s`."""
    counts = [f"{result.processed} of {render.count(result.total, 'item')} done"]
    for word, number in (
        ("filtered out", result.filtered), ("failed", result.failed), ("not done", result.skipped),
    ):  # fmt: skip
        counts += [f"{number} {word}"] if number else []
    cost = money(result.cost_usd)
    if result.unpriced_calls:
        cost += f" and {render.count(result.unpriced_calls, 'call')} without a price"
    took = render.took(0, result.duration_ms * 1000)
    return (
        f"{result.outcome}: {', '.join(counts)}; {render.count(result.calls, 'call')}, "
        f"{result.tokens:,} tokens, {cost}, {took}"
    )


# -- going on ----------------------------------------------------------------------------------


def _again(name: str, text: str) -> click.Command:
    @click.command(name, cls=Command, help=text)
    @click.argument("path")
    @click.option("--run", "run_id", metavar="ID", help="This run, instead of the newest one.")
    @_ending
    @click.pass_obj
    def again(
        call: Call, /, path: str, run_id: str | None, out: Path | None, ai: Path | None, quiet: bool
    ) -> int:
        from rota.pipelines.finding import locate

        place = locate(path)
        _must_be_writable(out)

        async def begin(app: Rota, queue: str) -> RunRef:
            last = await chosen_run(app, place, run_id)
            _must_have(name, last, path)
            await _must_be_free(app, last, flag_of(call))
            return await app.pipelines.retry(last.root_id, queue=queue)

        return _live(call, path, place, begin, ai=ai, out=out, quiet=quiet)

    return again


async def chosen_run(app: Client, path: Path, run_id: str | None) -> Run:
    """The newest attempt of the run that is meant."""
    from rota.pipelines.reading import entry_file
    from rota.pipelines.snapshot import run_name

    name = run_name(entry_file(path).parent.resolve().name)
    if run_id is not None:
        last = (await app.chain(run_id))[-1]
        if last.name != name:
            raise UnknownRun(f"run {run_id} is one of {last.name}, not of {name}", run_id=run_id)
        return last
    found = await app.list(name=name, limit=1)
    if not found:
        raise never_ran(path)
    return found[0]


def never_ran(path: Path) -> UnknownRun:
    """There is nothing to go on with, or to look at."""
    return UnknownRun(
        f"{path} has not run yet, as far as this database knows",
        hint=f"Run it: `rota pipeline run {path}`; or name another --database.",
    )


def _must_have(verb: str, last: Run, path: str) -> None:
    """Refuse where there is nothing to do."""
    from rota.pipelines.outcome import PipelineResult

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
            f"run {last.root_id} came to its end; {result.failed} of its items failed",
            hint=f"Try these again: `rota pipeline retry {path}`.",
        )


async def _must_be_free(app: Rota, last: Run, flag: str) -> None:
    """Refuse a run that another process performs; one whose process is gone is ours to take."""
    from rota.checkup import absence

    if last.status != "running":
        return
    now = app.clock.now()
    workers = await app.workers(everyone=True)
    holder = next((each for each in workers if each.id == last.lease_owner), None)
    if holder is not None and holder.stopped_at is None and not absence(holder, app.settings, now):
        host = holder.host.partition("/")[0]
        raise WrongState(
            f"run {last.root_id} is performed right now, by process {holder.pid} on {host}",
            hint=f"Wait for it, or call it off: `rota run cancel {last.root_id}{flag}`.",
        )


resume = _again(
    "resume",
    """Go on with a run that was cut off, from what is done.

    For runs that were cancelled, failed, crashed or ran out of budget: the newest run of the
    pipeline PATH, or --run. It goes on with the definition and the parameters it began with, and
    pays for no call twice. Exit codes are those of `rota pipeline run`.
    """,
)
retry = _again(
    "retry",
    """Try the failed items of a run again, and only these.

    Then all results are reduced anew. The newest run of the pipeline PATH, or --run. It goes on
    with the definition and the parameters it began with. Exit codes are those of
    `rota pipeline run`.
    """,
)
