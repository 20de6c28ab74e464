"""`rota next`: when something would fire, before anything is made. Needs no database."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from rota.cli import render
from rota.cli.base import BaseCommand, CommonOptions, option_group
from rota.client.schedule_view import Occurrence
from rota.core.time.instants import instant, iso_if_known, span
from rota.core.time.spec import GAPS, REPEATS
from rota.schedules.preview import Preview, look_ahead, utc, wall

# About the time zone and the changes of its clock.
zone_options = option_group(
    click.option("--timezone", metavar="ZONE",
        help="Time zone: Europe/Berlin. Default: that of this machine."),
    click.option("--gap", type=click.Choice(GAPS),
        help="Run a missing wall time after the gap (next), or skip it."),
    click.option("--repeat", type=click.Choice(REPEATS),
        help="Run a repeated wall time the first, second or both times."),
)  # fmt: skip


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
    preview = look_ahead(
        words, zone=timezone, start=start, count=count, gap=gap or "auto", repeat=repeat or "auto"
    )
    if call.json:
        render.document(_document(preview))
        return
    other = [form for form in preview.forms if form not in (*words, preview.text)]
    kept = f"  [{'; '.join(other)}]" if other else ""
    click.echo(f"{render.clean(preview.text)}{kept}")
    click.echo()
    occurrences(preview.occurrences, preview.zone, preview.now)
    for remark in preview.remarks:
        render.say(f"Clock change: {remark.text}.")


def occurrences(
    upcoming: Sequence[Occurrence],
    zone: str,
    now: int,
    *,
    names: bool = False,
    empty: str = "no upcoming occurrences",
) -> None:
    """A table of future occurrences; columns that would be empty are omitted. Jitter delays a run,
    so the column "in" counts to its start."""
    rows = []
    for occurrence in upcoming:
        due_at, runs_at = instant(occurrence.due_at), instant(occurrence.runs_at)
        rows.append({
            "schedule": occurrence.schedule if names else "", "when": wall(due_at, zone),
            "utc": utc(due_at), "in": render.ago(runs_at, now),
            "jitter": span(runs_at - due_at) if runs_at > due_at else "",
            "note": "; ".join(occurrence.notes),
        })  # fmt: skip
    render.table(rows, empty, optional=["schedule", "jitter", "note"])


def occurrence_document(occurrence: Occurrence, zone: str) -> dict[str, Any]:
    """An occurrence for machines."""
    due_at = instant(occurrence.due_at)
    return {
        "due_at": iso_if_known(due_at),
        "runs_at": iso_if_known(instant(occurrence.runs_at)),
        "wall": wall(due_at, zone),
        "notes": occurrence.notes,
    }


def _document(preview: Preview) -> dict[str, Any]:
    return {
        "text": preview.text, "forms": preview.forms, "timezone": preview.zone,
        "occurrences": [occurrence_document(each, preview.zone) for each in preview.occurrences],
        "remarks": [
            {"at": iso_if_known(remark.at), "kind": remark.kind, "text": remark.text}
            for remark in preview.remarks
        ],
    }  # fmt: skip
