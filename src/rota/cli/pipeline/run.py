"""`rota pipeline run`: run a pipeline here, results on stdout, the rest on stderr."""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path
from typing import Any

import click
import msgspec

from rota.app import Rota
from rota.cli import complete, exit_codes, render
from rota.cli.base import BaseCommand, CommonOptions, option_group
from rota.cli.pipeline import location
from rota.cli.pipeline.options import AI, choices, must_be_ready, piped, prepare
from rota.cli.pipeline.progress import Meter, money
from rota.cli.pipeline.runner import Begin, Life, PipelineRunEnd, chosen_run
from rota.client.handle import RunHandle
from rota.core.time.instants import SECOND, micros
from rota.errors import BadInput
from rota.pipelines.definition.locate import root_of
from rota.pipelines.definition.model import Pipeline
from rota.pipelines.definition.overrides import reads_stdin
from rota.pipelines.files import write_whole
from rota.pipelines.outcome import PipelineResult
from rota.pipelines.run.result_reader import must_have_rows
from rota.pipelines.run.row_files import has_rows

# Errors of replies without an answer, and their words in the summary.
UNANSWERED = {
    "TruncatedReply": "cut off", "UnfinishedReply": "unfinished", "EmptyReply": "empty",
    "FilteredReply": "refused",
}  # fmt: skip
ERRORS_SHOWN = 5
HINTS = {
    "NeedsLogin": "Set the key in the environment of this command, then continue.",
    "NeedsPermission": "Grant the account the permission or the credit, then continue.",
}

# The options of commands that execute a run in this process.
ending = option_group(
    click.option(
        "-o", "--output", "out", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False),
        help="Write the result to this file; .xlsx, .parquet too.",
    ),
    AI,
    click.option("-q", "--quiet", is_flag=True, help="Show no progress, only problems."),
)  # fmt: skip


@click.command("run", cls=BaseCommand)
@complete.PATH
@choices
@click.option("--parallel", type=click.IntRange(1), metavar="N", help="N calls at the same time.")
@click.option("--timeout", metavar="DURATION", help="End the run after this time, as in 30m.")
@click.option(
    "--reuse", metavar="RUN",
    help="Reuse equal results of this run: an id, or last.",
)  # fmt: skip
@ending
@click.pass_obj
def run(
    call: CommonOptions,
    /,
    path: str,
    *,
    parallel: int | None,
    timeout: str | None,
    reuse: str | None,
    model: str | None,
    out: Path | None,
    ai: Path | None,
    quiet: bool,
    **chosen: Any,
) -> int:
    """Run a pipeline in this process and print its result.

    PATH is a pipeline.yaml, its folder, or the name of a pipeline in this folder or in its folder
    `pipelines`. stdout has the result and nothing else; progress and problems are on stderr.

    Every item is stored when it is done. Ctrl-C cancels and keeps what is done; `rota pipeline
    resume` continues from there, and `rota pipeline retry` tries failed items again: neither pays
    for a call twice. Both continue with the definition the run began with. After a change of the
    file, start a new run with --reuse: it keeps the results that still apply.

    Runs are kept in --database or in that of the rota.toml of this folder. Without both, they are
    kept in `.rota.db` in the folder that the pipeline's folder is in.

    Parameters: -p wins over --params, which wins over `input.parameters` and `parameters` of the
    file; a field of an item wins over all of them. --model, --parallel, --limit and --timeout win
    over the file.

    \b
    Exit codes: 0 completed, 7 partial (some items failed), 1 failed,
    2 the definition or an option is wrong, 8 budget used up, 130 cancelled.
    """
    prepared = prepare(path, **chosen)
    must_be_ready(prepared, model=model, ai=ai)
    must_be_writable(out, prepared.loaded.pipeline)
    timeout_s = None if timeout is None else micros(timeout) / SECOND

    async def begin(app: Rota, queue: str) -> RunHandle[PipelineResult]:
        earlier = None
        if reuse is not None:
            wanted = None if reuse == "last" else reuse
            earlier = (await chosen_run(app, prepared.path, wanted)).root_id
        return await app.pipelines.start(
            prepared.loaded, parameters=prepared.given, model=model, parallel=parallel, queue=queue,
            cache_from=earlier, timeout=timeout_s,
            stdin=piped() if reads_stdin(prepared.loaded.pipeline) else None,
        )  # fmt: skip

    return live(call, path, prepared.path, begin, ai=ai, out=out, quiet=quiet)


def live(
    call: CommonOptions,
    typed_path: str,
    path: Path,
    begin: Begin,
    *,
    ai: Path | None,
    out: Path | None,
    quiet: bool,
) -> int:
    """Begin a run, execute it here, print its result; returns the exit code."""
    quiet_logs(call)

    async def perform() -> int:
        life = Life(location.app_of(call, root_of(path), ai=ai), Meter(quiet=quiet), out)
        end = await life.live(begin)
        _write_result(call, end, out, typed_path)
        if not quiet or end.result.outcome != "completed":
            _print_summary(end, typed_path)
        code = code_of(end)
        life.leave(code)
        return code

    return asyncio.run(perform())


def quiet_logs(call: CommonOptions) -> None:
    """Log lines of a daemon are shown here in other words; with --debug they are logged as well."""
    log = logging.getLogger("rota")
    level, wire = log.level, logging.StreamHandler(sys.stderr)
    wire.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
    log.setLevel(logging.DEBUG if call.debug else logging.CRITICAL)
    log.addHandler(wire)

    def undo() -> None:
        log.setLevel(level)
        log.removeHandler(wire)

    click.get_current_context().call_on_close(undo)


def code_of(end: PipelineRunEnd) -> int:
    """The exit code of a run."""
    if end.error_type == "BudgetSpent":
        return exit_codes.BUDGET
    return end.result.exit_code


def must_be_writable(out: Path | None, pipeline: Pipeline | None = None) -> None:
    """Refuse a file that cannot be written, before any call is paid for."""
    if out is not None and str(out) == "-":
        raise BadInput("the result goes to stdout anyway", hint="Omit --output.")
    if out is not None and not out.resolve().parent.is_dir():
        raise BadInput(f"{out} cannot be written: there is no folder {out.parent}")
    if out is not None and has_rows(out) and pipeline is not None:
        must_have_rows(pipeline, out)


def _write_result(
    call: CommonOptions, end: PipelineRunEnd, out: Path | None, typed_path: str
) -> None:
    """The result: to the file, or to stdout and nowhere else."""
    text = end.text
    if out is not None and text is not None and not has_rows(out):
        try:
            write_whole(out, [text, "" if text.endswith("\n") else "\n"])
        except OSError as error:
            raise BadInput(
                f"{out} cannot be written: {error.strerror}",
                hint="The result is stored: "
                f"`rota pipeline history {typed_path} --result` prints it.",
            ) from error
    if call.json:
        document = {"run": end.run_id} | result_document(end.result)
        document |= {"output": text} if out is None else {"output": None, "file": str(out)}
        render.document(document)
    elif out is None and text:
        render.whole(text)


def result_document(result: PipelineResult) -> dict[str, Any]:
    """A result for machines, every field of it."""
    return {
        name: msgspec.to_builtins(getattr(result, name)) for name in result.__struct_fields__
    } | {"success": result.success}


def _print_summary(end: PipelineRunEnd, typed_path: str) -> None:
    """The outcome, in a line; then the failures, and what may be done."""
    result = end.result
    render.say(f"{result.pipeline_id}: {summary(result)} (run {end.run_id})", err=True)
    for error in result.errors[:ERRORS_SHOWN]:
        message = render.clean(error.message)
        render.say(f"  item {error.position + 1}: {error.type}: {message}", hang=4, err=True)
    more = result.failed - min(len(result.errors), ERRORS_SHOWN)
    if more > 0:
        click.echo(f"  and {render.count(more, 'more failed item')}", err=True)
    if result.error and result.outcome != "cancelled" and not result.errors:
        render.say(f"  {render.clean(result.error)}", err=True)
    for warning in [*result.warnings, *_emptiness(result)]:
        render.say(f"  warning: {render.clean(warning)}", hang=4, err=True)
    if result.outcome != "completed":
        _advise(end, typed_path)


def _emptiness(result: PipelineResult) -> list[str]:
    """A run without items succeeds, and is seldom what the user wanted."""
    if result.outcome != "completed" or result.processed:
        return []
    return ["no item passed the filter" if result.filtered else "no items came in"]


def _advise(end: PipelineRunEnd, typed_path: str) -> None:
    """The commands that may help."""
    result = end.result
    if end.error_type in HINTS:
        render.say(f"Hint: {HINTS[end.error_type]}", err=True)
    if end.text is None and result.processed and result.result_file:
        click.echo(f"finished items: {result.result_file} in the pipeline's folder", err=True)
    if end.error_type == "BudgetSpent":
        advice = "raise the budget in the file; finished items are not paid for again"
        click.echo(f"{advice}: rota pipeline run {typed_path} --reuse last", err=True)
    elif result.outcome == "partial":
        click.echo(f"try the failed items again: rota pipeline retry {typed_path}", err=True)
    else:
        what = "continue from what is done" if result.processed else "try again"
        click.echo(f"{what}: rota pipeline resume {typed_path}", err=True)


def summary(result: PipelineResult, outcome: str | None = None) -> str:
    """`partial: 96 of 100 items done, 4 failed; 103 calls, 51,200 tokens, $0.1234, 1m3s`."""
    counts = [f"{result.processed} of {render.count(result.total, 'item')} done"]
    for word, number in (
        ("filtered out", result.filtered), ("failed", result.failed), ("not done", result.skipped),
    ):  # fmt: skip
        counts += [f"{number} {word}"] if number else []
        if word == "failed" and (reasons := _reasons(result)):
            counts[-1] += f" ({reasons})"
    calls = render.count(result.calls, "call")
    if result.unanswered_calls:
        calls += f" ({result.unanswered_calls} without an answer)"
    if result.estimated_calls:
        calls += f" ({result.estimated_calls} without a count of tokens)"
    cost = money(result.cost_usd)
    if result.unpriced_calls:
        unpriced = f"{render.count(result.unpriced_calls, 'call')} without a price"
        cost = f"{cost} and {unpriced}" if result.cost_usd else unpriced
    if result.assumed_cost_usd:
        cost += f" certain and up to {money(result.assumed_cost_usd)} assumed"
    took = render.took(0, result.duration_ms * 1000)
    return (
        f"{outcome or result.outcome}: {', '.join(counts)}; {calls}, "
        f"{result.tokens:,} tokens, {cost}, {took}"
    )


def _reasons(result: PipelineResult) -> str:
    """`2 cut off, 1 empty`: replies that were no answers."""
    counts = [(words, result.failed_by.get(name)) for name, words in UNANSWERED.items()]
    return ", ".join(f"{number} {words}" for words, number in counts if number)
