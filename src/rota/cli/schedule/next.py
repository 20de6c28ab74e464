"""`rota next`: when something would fire, before anything is made. Needs no database."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from rota.cli import render
from rota.cli.base import BaseCommand, CommonOptions
from rota.cli.schedule.options import zone_options
from rota.client.schedule_view import Occurrence
from rota.core.time.instants import instant, iso_if_known
from rota.schedules.preview import Preview, look_ahead, utc, wall


@click.command("next", cls=BaseCommand)
@click.argument("words", nargs=-1, required=True, metavar="WHEN...")
@zone_options
@click.option(
    "--count", type=click.IntRange(1, 1000), default=5, show_default=True,
    help="How many occurrences.",
)  # fmt: skip
@click.option("--from", "start", metavar="TIME", help="Begin at this time instead of now.")
@click.pass_obj
def next_(
    call: CommonOptions,
    /,
    words: tuple[str, ...],
    timezone: str | None,
    gap: str | None,
    repeat: str | None,
    count: int,
    start: str | None,
) -> None:
    """Preview the occurrences of WHEN, local and UTC.

    WHEN is cron in quotes ("30 2 * * *"), an interval (5m), a time (2027-03-28T09:00) or words
    (every friday at 5pm); several quoted ones are one schedule. When the clock changes, a note says
    what happens. TIME is wall time in the zone, unless it has an offset.
    """
    found = look_ahead(
        words, zone=timezone, start=start, count=count, gap=gap or "auto", repeat=repeat or "auto"
    )
    if call.json:
        render.document(_document(found))
        return
    other = [form for form in found.forms if form not in (*words, found.text)]
    kept = f"  [{'; '.join(other)}]" if other else ""
    click.echo(f"{render.clean(found.text)}{kept}")
    click.echo()
    occurrences(found.occurrences, found.zone, found.now)
    for remark in found.remarks:
        render.say(f"Clock change: {remark.text}.")


def occurrences(
    found: Sequence[Occurrence],
    zone: str,
    now: int,
    *,
    names: bool = False,
    empty: str = "no upcoming occurrences",
) -> None:
    """A table of future occurrences; columns that would be empty are omitted."""
    moved = any(one.runs_at != one.due_at for one in found)
    rows = []
    for one in found:
        due_at, runs_at = instant(one.due_at), instant(one.runs_at)
        rows.append({
            "schedule": one.schedule if names else "", "when": wall(due_at, zone),
            "utc": utc(due_at), "in": render.ago(due_at, now),
            "runs": wall(runs_at, zone) if moved else "", "note": "; ".join(one.notes),
        })  # fmt: skip
    render.table(rows, empty, optional=["schedule", "runs", "note"])


def occurrence_document(one: Occurrence, zone: str) -> dict[str, Any]:
    """An occurrence for machines."""
    due_at = instant(one.due_at)
    return {
        "due_at": iso_if_known(due_at),
        "runs_at": iso_if_known(instant(one.runs_at)),
        "wall": wall(due_at, zone),
        "notes": one.notes,
    }


def _document(found: Preview) -> dict[str, Any]:
    return {
        "text": found.text, "forms": found.forms, "timezone": found.zone,
        "occurrences": [occurrence_document(one, found.zone) for one in found.occurrences],
        "remarks": [
            {"at": iso_if_known(one.at), "kind": one.kind, "text": one.text}
            for one in found.remarks
        ],
    }  # fmt: skip
