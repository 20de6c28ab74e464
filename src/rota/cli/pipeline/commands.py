"""`rota pipeline …`: create, check, list and show pipelines; and the group of all commands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from rota.cli import complete, exit_codes, render
from rota.cli.base import CommonOptions
from rota.cli.pipeline import text as pipeline_text
from rota.cli.pipeline.cost_report import cost_report
from rota.cli.pipeline.diff import diff
from rota.cli.pipeline.generate import generate
from rota.cli.pipeline.groups import pipeline, scheduler
from rota.cli.pipeline.history import history
from rota.cli.pipeline.options import PARAMETERS
from rota.cli.pipeline.render import render_
from rota.cli.pipeline.resume import resume, retry
from rota.cli.pipeline.run import run
from rota.cli.pipeline.trust import trust
from rota.pipelines.definition.discovery import Listed, with_chains
from rota.pipelines.definition.locate import locate, next_of, pipelines_in
from rota.pipelines.definition.parameters import read_given
from rota.pipelines.definition.problems import refusal
from rota.pipelines.preview.validation import examined
from rota.pipelines.starters import SCHEMA_FILE, begin

STARTERS = ("custom", "data", "models", "generated")


# -- beginning ---------------------------------------------------------------------------------


@pipeline.command("init")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option(
    "--template",
    type=click.Choice(STARTERS),
    default="custom",
    show_default=True,
    help="Kind of starter.",
)
@click.pass_obj
def init(call: CommonOptions, folder: Path, template: str) -> None:
    """Write a starter pipeline into FOLDER.

    Templates: custom (a few items), data (rows of a CSV file), models (one question to several
    models), generated (a model creates the items).

    The starter runs offline and costs nothing. Existing files are never changed. If FOLDER or the
    folder above it has a pipeline.schema.json, the starter names it for editors.
    """
    try:
        written = begin(template, folder)
    except OSError as error:
        raise click.UsageError(f"{folder} cannot be written: {error.strerror}") from error
    if call.json:
        render.document(
            {"folder": str(folder), "template": template, "files": [str(path) for path in written]}
        )
        return
    for path in written:
        click.echo(f"wrote {path}")
    click.echo(f"try it: rota pipeline run {folder}", err=True)


@pipeline.command("schema")
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the schema to this file.",
)
@click.pass_obj
def schema(call: CommonOptions, output: Path | None) -> None:
    """Print the JSON Schema of pipeline.yaml.

    Editors complete and check a pipeline.yaml that names the schema in its first line:
    `# yaml-language-server: $schema=../pipeline.schema.json`. `rota pipeline init` writes that line
    if the schema is beside the pipelines: `-o pipelines/pipeline.schema.json`.
    """
    text = SCHEMA_FILE.read_text(encoding="utf-8")
    if output is None:
        click.echo(text, nl=False)
        return
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise click.UsageError(f"{output} cannot be written: {error.strerror}") from error
    if call.json:
        render.document({"file": str(output)})
    else:
        click.echo(f"wrote {output}")


# -- checking ----------------------------------------------------------------------------------


@pipeline.command("validate")
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@PARAMETERS
@click.option("--strict", is_flag=True, help="Treat warnings as errors.")
@click.pass_obj
def validate(
    call: CommonOptions, paths: tuple[str, ...], params: tuple[str, ...], strict: bool
) -> int:
    """Check pipelines and report every problem.

    PATH is a pipeline.yaml, its folder, a folder of pipelines, or a name; without one it is this
    folder. Each problem is a line `file:line:column: level: message`, on stdout. Errors stop a
    pipeline: exit code 2. Warnings name what a run still needs: a parameter, a file.
    """
    given = read_given(params)
    found = _examined(paths or (".",), given)
    bad = [checked for checked in found if checked.loaded is None or (strict and checked.problems)]
    if call.json:
        render.document([pipeline_text.verdict_document(checked) for checked in found])
        return exit_codes.USAGE if bad else exit_codes.OK
    for checked in found:
        for problem in checked.problems:
            click.echo(pipeline_text.problem_line(problem))
    problems = [problem for checked in found for problem in checked.problems]
    good = len(found) - len(bad)
    click.echo(
        f"{render.count(len(found), 'pipeline')}: {good} valid, {len(bad)} broken; "
        f"{pipeline_text.tally(problems)}",
        err=bool(problems),
    )
    return exit_codes.USAGE if bad else exit_codes.OK


def _examined(paths: tuple[str, ...], given: dict[str, Any]) -> list[Listed]:
    """Every pipeline that the paths name; a folder of pipelines represents all in it."""
    found: list[Listed] = []
    for text in paths:
        several = pipelines_in(Path(text))
        if several:
            found.extend(with_chains([examined(path, given) for path in several]))
        else:
            found.append(examined(locate(text), given))
    return found


# -- looking -----------------------------------------------------------------------------------


@pipeline.command("list")
@click.argument("folder", default=".", type=click.Path(path_type=Path), metavar="[FOLDER]")
@click.pass_obj
def list_(call: CommonOptions, folder: Path) -> None:
    """List the pipelines of a folder, broken ones included.

    FOLDER defaults to this folder. If it has no pipelines, the command lists those of its folder
    `pipelines` (or `.vscode/pipelines`).
    """
    if not folder.is_dir():
        raise click.UsageError(f"{folder} is not a folder")
    found = with_chains([examined(each) for each in pipelines_in(folder)])
    render.listing(
        call.json, found, pipeline_text.list_document, pipeline_text.list_row,
        f"no pipelines in {folder}; `rota pipeline init {folder / 'NAME'}` makes one",
    )  # fmt: skip
    bad = [each for each in found if each.problems]
    if bad and not call.json:
        click.echo(f"to see the problems: rota pipeline validate {bad[0].folder}", err=True)


@pipeline.command("show")
@complete.PATH
@click.pass_obj
def show(call: CommonOptions, path: str) -> None:
    """Show the parts of a pipeline and its schedule.

    PATH is a pipeline.yaml, its folder, or the name of a pipeline in this folder or in its folder
    `pipelines`.
    """
    listed = examined(locate(path))
    loaded = listed.loaded
    if loaded is None:
        raise refusal(listed.problems[0].file, listed.problems)
    next_at, now = next_of(loaded)
    if call.json:
        render.document(pipeline_text.document(listed, loaded, next_at))
    else:
        pipeline_text.print_page(listed, loaded, next_at, now)


for command in (
    render_, generate, run, resume, retry, history, cost_report, diff, trust
):  # fmt: skip
    pipeline.add_command(command)
pipeline.add_command(scheduler, "schedule")
