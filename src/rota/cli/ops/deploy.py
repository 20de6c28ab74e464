"""`rota deploy check`: whether the code of the project can continue the runs of the database."""

from __future__ import annotations

import sys

import click

from rota import project
from rota.cli import connect, exit_codes, render
from rota.cli.base import CommandGroup, CommonOptions
from rota.core.plurals import counted
from rota.core.runs.ids import short_id
from rota.errors import UsageError
from rota.workflows.deploy_check import DeployProblem, DeployReport

SAMPLE = 20


@click.group(cls=CommandGroup)
def deploy() -> None:
    """Check code before it is deployed."""


@deploy.command("check")
@click.option("--workflow", metavar="NAME", help="Check the runs of this workflow only.")
@click.option(
    "--sample", default=SAMPLE, show_default=True, type=click.IntRange(0, 1_000),
    help="Completed runs of each workflow to replay as well.",
)  # fmt: skip
@click.pass_obj
def check(call: CommonOptions, workflow: str | None, sample: int) -> None:
    """Check that the code of the project can continue stored runs.

    It replays every open run and the newest completed runs of each workflow. No step is executed,
    and nothing is written: a replay ends where new work would begin. Code of a workflow outside of
    its steps does run.

    The exit code is 1 if a run would be stranded (non-deterministic change) or would fail.
    """
    app = connect.project_app(call)
    if app is None:
        raise UsageError(
            "there is no project with an app here", hint="Run it in the folder of rota.toml."
        )
    project.must_exist(app.url)
    app.migrates = False
    report = connect.run(app, lambda _: app.check_deploy(workflow=workflow, sample=sample))
    _print(call, report)
    if report.problems:
        sys.exit(exit_codes.FAILED)


def _print(call: CommonOptions, report: DeployReport) -> None:
    checked = (
        f"{counted(report.open_runs, 'open run')} and "
        f"{counted(report.finished_runs, 'completed run')} replayed"
    )
    if call.json:
        problems = [problem._asdict() for problem in report.problems]
        render.document(report._asdict() | {"problems": problems})
        return
    render.table([_row(one) for one in report.problems], f"{checked}: this code continues all")
    if report.problems:
        click.echo(f"{checked}: this code cannot continue {len(report.problems)} of them")


def _row(problem: DeployProblem) -> dict[str, str]:
    return {
        "run": short_id(problem.run_id), "workflow": problem.workflow, "status": problem.status,
        "verdict": problem.verdict, "call": problem.call or "", "message": problem.message,
    }  # fmt: skip
