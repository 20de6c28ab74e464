"""The page about a schedule, its ledger, and the same as documents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import click

from rota.cli import render
from rota.cli.schedule.next import occurrence_document, occurrences
from rota.client.client import Client
from rota.client.schedule_view import Occurrence, ScheduleView
from rota.core.redaction import shown_text
from rota.core.runs.ids import short_id
from rota.core.runs.lifecycle import Status
from rota.core.runs.model import Run
from rota.core.runs.stored_errors import read_error
from rota.core.schedules.intent import Policies
from rota.core.time.instants import iso_if_known, span
from rota.explain.schedule import Explanation, pause_of, range_of
from rota.explain.why import why
from rota.schedules.overrides import differences_text, policy_words
from rota.schedules.preview import form_of, wall, zone_of

NEXT_COUNT = 5
LAST_COUNT = 5
INPUT_WIDTH = 2000


class LedgerEntry(NamedTuple):
    """One row of the ledger, and the newest attempt of its chain."""

    row: Run
    last: Run


class SchedulePage(NamedTuple):
    """Everything the page about one schedule shows."""

    shown: ScheduleView
    upcoming: Sequence[Occurrence]
    ledger: Sequence[LedgerEntry]
    why: Explanation
    now: int


# -- reading -----------------------------------------------------------------------------------


async def read(client: Client, name: str) -> SchedulePage:
    """Read everything the page shows."""
    shown = await client.schedules.get(name)
    upcoming: Sequence[Occurrence] = []
    if shown.schedule.status == Status.SCHEDULED:
        upcoming = await client.schedules.preview(name, NEXT_COUNT)
    ledger = await entries(client, await client.schedules.history(name, limit=LAST_COUNT))
    return SchedulePage(shown, upcoming, ledger, await why(client, name), client.clock.now())


async def entries(client: Client, rows: Sequence[Run]) -> list[LedgerEntry]:
    """Ledger rows with the newest attempts of their chains."""
    ledger_entries = []
    for row in rows:
        followed = row.attempt > 1 or row.recoveries > 0
        ledger_entries.append(
            LedgerEntry(row, (await client.runs.chain(row.id))[-1] if followed else row)
        )
    return ledger_entries


# -- documents ---------------------------------------------------------------------------------


def document(shown: ScheduleView) -> dict[str, Any]:
    """A schedule for machines."""
    row, intent = shown.schedule, shown.intent
    return {
        "name": row.name, "status": row.status, "note": row.reason,
        "workflow": intent.workflow, "queue": row.queue, "priority": row.priority,
        "input": render.parsed(row.input),
        "when": intent.text, "text": shown.text,
        "forms": [form_of(timing) for timing in intent.spec.timings],
        "timezone": zone_of(intent.spec),
        "start_at": iso_if_known(intent.spec.start_at), "end_at": iso_if_known(intent.spec.end_at),
        "policies": policy_words(intent.policies),
        "fired_count": intent.fired_count,
        "owner": intent.owner, "origin": intent.origin, "ignored_origin": intent.ignored,
        "differences": [difference._asdict() for difference in shown.differences],
        "due_at": iso_if_known(row.due_at),
        "runs_at": iso_if_known(row.available_at) if row.status == Status.SCHEDULED else None,
        "last_due_at": iso_if_known(row.started_at),
        "paused_since": iso_if_known(intent.paused_at or None),
        "paused_until": iso_if_known(row.available_at) if row.status == Status.PAUSED else None,
        "created_at": iso_if_known(row.created_at), "id": row.id,
    }  # fmt: skip


def note(shown: ScheduleView) -> str:
    """Notes about a schedule beside its state."""
    ignored = shown.intent.ignored
    notes = [shown.schedule.reason or ""]
    if ignored is not None:
        notes.append(f"a declaration in {ignored} is ignored: an operator created this schedule")
    if shown.differences:
        fields = ", ".join(difference.field for difference in shown.differences)
        notes.append(f"an operator has changed: {fields}")
    return "; ".join(text for text in notes if text)


def page_document(content: SchedulePage) -> dict[str, Any]:
    """The page for machines."""
    zone = zone_of(content.shown.intent.spec)
    return {
        "schedule": document(content.shown),
        "upcoming": [occurrence_document(occurrence, zone) for occurrence in content.upcoming],
        "ledger": [entry_document(entry) for entry in content.ledger],
        "why": content.why._asdict(),
    }


def entry_document(entry: LedgerEntry) -> dict[str, Any]:
    """A row of the ledger for machines."""
    row, last = entry
    skipped = row.status == Status.SKIPPED
    first_at, last_at, count = range_of(row) if skipped else (row.due_at, row.due_at, 1)
    return {
        "outcome": outcome(row), "reason": row.reason if skipped else None,
        "detail": _detail(row) if skipped else None,
        "due_at": iso_if_known(row.due_at), "from_at": iso_if_known(first_at),
        "to_at": iso_if_known(last_at), "count": count, "trigger": row.trigger,
        "recorded_at": iso_if_known(row.created_at),
        "run_id": None if skipped else last.id, "status": None if skipped else last.label,
        "finished_at": None if skipped else iso_if_known(last.finished_at),
    }  # fmt: skip


def outcome(row: Run) -> str:
    """The outcome of an occurrence, in one word."""
    if row.status == Status.SKIPPED:
        return "merged" if row.reason == "merged" else "skipped"
    return {"schedule": "fired", "backfill": "backfilled"}.get(row.trigger, row.trigger)


# -- pages -------------------------------------------------------------------------------------


def print_page(content: SchedulePage) -> None:
    """The page for people."""
    shown = content.shown
    row = shown.schedule
    name = click.style(render.clean(row.name), bold=True)
    click.echo(f"schedule {name}  {render.coloured(row.status)}")
    render.facts(_lines(shown, content.now))
    if content.upcoming:
        render.heading("next")
        occurrences(content.upcoming, zone_of(shown.intent.spec), content.now)
    if content.ledger:
        render.heading("last")
        ledger(content.ledger, zone_of(shown.intent.spec))
    click.echo()
    render.explanation(content.why.sentence, content.why.hint)


def _lines(shown: ScheduleView, now: int) -> list[tuple[str, object]]:
    row, intent = shown.schedule, shown.intent
    zone = zone_of(intent.spec)
    forms = "; ".join(form_of(timing) for timing in intent.spec.timings)
    rests = row.status == Status.PAUSED
    since, until = (intent.paused_at, row.available_at) if rests else (0, None)
    runs_max = intent.policies.runs_max
    texts = (intent.text, shown.text)
    origin = f", from {intent.origin}" if intent.origin else ""
    return [
        ("means", shown.text),
        ("written", intent.text if forms in texts else f"{intent.text}  [{forms}]"),
        ("workflow", f"{intent.workflow}, queue {row.queue}, priority {row.priority}"),
        ("input", render.short(shown_text(row.input or "none"), INPUT_WIDTH)),
        ("policies", _policies(intent.policies)),
        ("runs", runs_max and f"{intent.fired_count} of {runs_max}"),
        ("note", note(shown)),
        ("since", since and f"{wall(since, zone)} ({render.ago(since, now)})"),
        ("until", until and f"{wall(until, zone)} ({render.ago(until, now)})"),
        ("owner", intent.owner + origin),
        *(("changed", text) for text in differences_text(shown.differences)),
        ("created", f"{wall(row.created_at, zone)} ({render.ago(row.created_at, now)})"),
    ]


def _policies(policies: Policies) -> str:
    words = policy_words(policies)
    if words["missed"] != "all":
        del words["missed_max"]
    if words["grace"] == "30s":  # the default
        del words["grace"]
    parts = [(name.replace("_", " "), value) for name, value in words.items()]
    return "; ".join(f"{name} {value}" for name, value in parts if value is not None)


def ledger(ledger_entries: Sequence[LedgerEntry], zone: str, *, filtered: bool = False) -> None:
    """Occurrences and what became of them."""
    rows = []
    for row, last in ledger_entries:
        ran = last.status != Status.SKIPPED
        rows.append({
            "when": wall(row.created_at if row.due_at is None else row.due_at, zone),
            "outcome": outcome(row), "run": short_id(last.id) if ran else "-",
            "status": last.label if ran else "-",
            "took": render.took(last.started_at, last.finished_at), "note": _note(row, zone),
        })  # fmt: skip
    none = "no occurrence has been recorded yet"
    if filtered:
        none = "no recorded occurrence has these times and this status"
    render.table(rows, none, optional=["note"])


def _detail(row: Run) -> str | None:
    """The note about an occurrence that did not run, beyond its reason."""
    return read_error(row.error)["message"] if row.error else None


def _note(row: Run, zone: str) -> str:
    if row.status == Status.SKIPPED:
        first, _, count = range_of(row)
        pause = pause_of(row)
        why = ": ".join(filter(None, (row.reason, _detail(row))))
        if pause is not None:
            why = f"paused since {wall(pause.paused_at, zone)} ({pause.note})"
        if count == 1:
            return "" if row.reason == "merged" else why
        # The row itself is at the last of them.
        return f"{why}: {count:,} since {wall(first, zone)}"
    late = row.created_at - (row.due_at if row.due_at is not None else row.created_at)
    is_late = row.trigger == "schedule" and late > 30_000_000
    return f"{span(late)} late" if is_late else ""
