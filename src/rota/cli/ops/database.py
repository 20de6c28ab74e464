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
        planned = [
            {
                "migration": one.migration.title,
                "statements": [{"does": each.does, "locks": each.locks} for each in one.statements],
            }
            for one in plan
        ]
        render.document({"database": where, "plan": planned})
        return
    if not plan:
        click.echo(f"{where}: up to date")
        return
    click.echo(f"{where}: {render.count(len(plan), 'migration')} to apply")
    for one in plan:
        click.echo(f"\n{one.migration.title}")
        for each in one.statements:
            click.echo(f"  {each.does}\n    locks {each.locks}")
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
    declared = [Finding("bad", "rota.toml", one.message, one.advice) for one in bad]
    place = connect.place_of(call)
    project.must_exist(place.url)
    done = asyncio.run(store_doctor.repair(place.url, place.settings)) if repairs else []
    report = asyncio.run(store_doctor.examine(place.url, place.settings, full=full))
    found = [*done, *report.findings, *declared]
    findings = [one._replace(says=exit_codes.hide(one.says, place.url)) for one in found]
    if call.json:
        level = max((one.level for one in findings), key=["ok", "warn", "bad"].index)
        lines = [one._asdict() for one in findings]
        render.document({"database": report.place, "level": level, "findings": lines})
    else:
        for one in findings:
            _line(one.level, one.what, one.says, one.hint)
        _sum([one.level for one in findings])
    if report.code is not None:
        return exit_codes.EXITS[report.code]
    return exit_codes.FAILED if any(one.level == "bad" for one in findings) else exit_codes.OK


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
