"""`rota migrate`, `backup`, `disarm`, `arm` and `doctor`: the database itself."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import click

from rota import project
from rota.cli import connect, exit_codes, render
from rota.cli.base import BaseCommand, CommonOptions
from rota.client import doctor as store_doctor
from rota.client.client import Client
from rota.client.doctor import MigrationPlan
from rota.client.findings import Finding
from rota.client.operations import Disarmed
from rota.core.time.instants import iso_if_known


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
@click.option("--reason", default="by an operator", metavar="TEXT", help="Reason, shown to others.")
@click.pass_obj
def disarm(call: CommonOptions, reason: str) -> None:
    """Keep a database from acting until `rota arm`.

    For a restored copy, before the first worker starts on it. No schedule fires, no run is claimed,
    no notification is sent, nothing is deleted, in any namespace. Running workers notice it at
    their next heartbeat, and finish the runs that they hold.
    """

    async def switch(client: Client) -> tuple[str, Disarmed, int]:
        disarmed = await client.operations.disarm(reason=reason)
        return client.connection.database.place, disarmed, len(await client.workers())

    where, disarmed, on = connect.ask(call, switch, notes=False)
    if call.json:
        since = iso_if_known(disarmed.at)
        render.document({"database": where, "disarmed_at": since, "reason": disarmed.reason})
        return
    why = disarmed.reason  # of the first call: a disarmed database keeps its reason
    render.say(f"{where} is disarmed ({why}): nothing fires, runs or is sent until `rota arm`")
    if on:
        render.say(
            f"{render.count(on, 'worker')} may be running: they notice it at their next heartbeat"
        )


@click.command(cls=BaseCommand)
@click.pass_obj
def arm(call: CommonOptions) -> None:
    """Let a disarmed database act again.

    Workers begin at their next heartbeat. Schedules apply their policy for missed
    occurrences.
    """

    async def switch(client: Client) -> tuple[str, Disarmed | None]:
        return client.connection.database.place, await client.operations.arm()

    where, ended = connect.ask(call, switch, notes=False)
    text = " already" if ended is None else ": workers begin at their next heartbeat"
    facts = {"database": where, "was_disarmed": ended is not None}
    render.report(call.json, facts, f"{where} is armed{text}")


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
    declared = [
        Finding("bad", "rota.toml", error.message.partition("\n")[0], error.advice)
        for error in connect.bad_schedules(call)
    ]
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
