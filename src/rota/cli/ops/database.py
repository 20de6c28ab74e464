"""`rota migrate`, `rota backup` and `rota doctor`: the database itself."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import click

from rota import project
from rota.cli import connect, exit_codes, render
from rota.cli.base import BaseCommand, CommonOptions
from rota.client import doctor as store_doctor
from rota.client.doctor import MigrationPlan
from rota.client.findings import Finding


@click.command(cls=BaseCommand)
@click.option("--plan", "plans", is_flag=True, help="Print what it would do and lock; do nothing.")
@click.pass_obj
def migrate(call: CommonOptions, plans: bool) -> None:
    """Create or migrate the tables. Safe to repeat."""
    place = connect.place_of(call)
    if plans:
        _print_plan(call, *asyncio.run(store_doctor.plan_migration(place.url, place.settings)))
        return
    where, applied = asyncio.run(store_doctor.bring_up_to_date(place.url, place.settings))
    text = f"applied {', '.join(applied)}" if applied else "up to date"
    render.report(call.json, {"database": where, "applied": applied}, f"{where}: {text}")


def _print_plan(call: CommonOptions, where: str, plan: MigrationPlan) -> None:
    if call.json:
        documents = [
            {
                "migration": step.migration.title,
                "statements": [
                    {"does": statement.does, "locks": statement.locks}
                    for statement in step.statements
                ],
            }
            for step in plan
        ]
        render.document({"database": where, "plan": documents})
        return
    if not plan:
        click.echo(f"{where}: up to date")
        return
    click.echo(f"{where}: {render.count(len(plan), 'migration')} to apply")
    for step in plan:
        click.echo(f"\n{step.migration.title}")
        for statement in step.statements:
            click.echo(f"  {statement.does}\n    locks {statement.locks}")
    click.echo("\nNothing was changed.")


@click.command(cls=BaseCommand)
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--disarmed", is_flag=True, help="Keep the copy from acting until `rota arm`.")
@click.pass_obj
def backup(call: CommonOptions, file: Path, disarmed: bool) -> None:
    """Copy a SQLite database to FILE while workers run.

    The copy holds everything committed before the command began. FILE must not exist.
    """
    place = connect.place_of(call)
    project.must_exist(place.url)
    target = str(file.absolute())
    copying = store_doctor.back_up(place.url, place.settings, target, disarmed=disarmed)
    where, size = asyncio.run(copying)
    facts = {"database": where, "file": target, "bytes": size}
    render.report(call.json, facts, f"{where}: copied to {target} ({size} bytes)")


@click.command(cls=BaseCommand)
@click.option(
    "--repair", "repairs", is_flag=True, help="Release queued runs that wait for no other run."
)
@click.option("--full", is_flag=True, help="Check everything stored. Slow on a large database.")
@click.pass_obj
def doctor(call: CommonOptions, repairs: bool, full: bool) -> int:
    """Check an installation and say what to do.

    Checks the database, clock, invariants, workers, queues and stuck runs. Changes nothing without
    --repair. The exit code is 0 if nothing is bad, 3 if the database cannot be used, otherwise 1.
    """
    known = connect.project_of(call)
    bad = known.bad_schedules.values() if known is not None else ()
    declared = [Finding("bad", "rota.toml", error.message, error.advice) for error in bad]
    place = connect.place_of(call)
    project.must_exist(place.url)
    done = asyncio.run(store_doctor.repair(place.url, place.settings)) if repairs else []
    report = asyncio.run(store_doctor.examine(place.url, place.settings, full=full))
    findings = [
        finding._replace(says=exit_codes.hide(finding.says, place.url))
        for finding in (*done, *report.findings, *declared)
    ]
    if call.json:
        level = max((finding.level for finding in findings), key=["ok", "warn", "bad"].index)
        lines = [finding._asdict() for finding in findings]
        render.document({"database": report.place, "level": level, "findings": lines})
    else:
        for finding in findings:
            _line(finding.level, finding.what, finding.says, finding.hint)
        _sum([finding.level for finding in findings])
    if report.code is not None:
        return exit_codes.EXITS[report.code]
    is_bad = any(finding.level == "bad" for finding in findings)
    return exit_codes.FAILED if is_bad else exit_codes.OK


def _line(level: str, what: str, says: str, hint: str | None) -> None:
    mark = render.coloured(level) + " " * (5 - len(level))
    render.say(f"{mark} {what:<11} {render.clean(says)}", hang=18)
    if hint:
        render.say(f"{'':<17} → {render.clean(hint)}", hang=20)


def _sum(levels: list[Any]) -> None:
    bad, warn = levels.count("bad"), levels.count("warn")
    click.echo()
    if bad or warn:
        click.echo(f"{bad} bad, {render.count(warn, 'warning')}")
    else:
        click.echo("all is well")
