"""`rota automation inputs|outputs|events|activity|versions`: what came in, what became of it."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import click

from rota.cli import complete, connect, render
from rota.cli.automation import page
from rota.cli.base import BEFORE, BaseCommand, CommonOptions, limit_option
from rota.client.client import Client
from rota.core.automations.model import AnswerRow, InputRow, LedgerRow, SeenInput, StoredEvent
from rota.core.automations.phases import EventStatus, Mutation
from rota.core.redaction import shown_text
from rota.core.runs.ids import short_id
from rota.core.time.instants import iso_if_known
from rota.errors import BadInput, UnknownRun

CELL_WIDTH = 60
PRUNED = "runs that used its events were pruned (keep_days), and the changes they made with them"


# -- inputs ------------------------------------------------------------------------------------


@click.command(cls=BaseCommand)
@complete.AUTOMATION
@click.argument("input_id", required=False, metavar="[ID]")
@click.option("--pending", is_flag=True, help="Only unfinished inputs, oldest first.")
@click.option("--stale", is_flag=True, help="Only inputs unfinished after `stale_days`.")
@limit_option()
@BEFORE
@click.pass_obj
def inputs(
    call: CommonOptions,
    name: str,
    input_id: str | None,
    pending: bool,
    stale: bool,
    limit: int,
    before: str,
) -> None:
    """Show inputs and how far each got, newest first.

    With ID: one input, and every change it led to.
    """
    if input_id is not None:
        _refuse_filters(pending or stale or before)
        _show_input(call, *connect.ask(call, lambda client: _outcome(client, name, input_id)))
        return
    if before and (pending or stale):
        raise BadInput("--pending and --stale have no further pages", hint="Raise --limit.")

    async def query(client: Client) -> Sequence[SeenInput]:
        if stale:
            return await client.automations.stale(name, limit=limit)
        if pending:
            return await client.automations.pending(name, limit=limit)
        return await client.automations.inputs(name, before=before, limit=limit)

    seen_inputs, now = connect.ask_with_time(call, query)
    is_page = not (pending or stale)
    by_id = render.NextPage[SeenInput](limit, "--before", lambda seen: seen.input.id)
    render.listing(
        call.json, seen_inputs, input_document,
        lambda seen: {
            "id": seen.input.id, "status": seen.status,
            "title": render.short(seen.input.title, CELL_WIDTH),
            "from": f"{seen.input.source}/{seen.input.type}",
            "done": f"{seen.event_count - seen.unfinished_count}/{seen.event_count}",
            "came in": render.ago(seen.input.created_at, now),
        },
        "no inputs yet" if is_page else "nothing waits",
        page=by_id if is_page else render.NextPage(limit),
    )  # fmt: skip


def _refuse_filters(given: object) -> None:
    if given:
        raise BadInput(
            "an ID selects one row, so filters do not apply", hint="Omit the ID or the filters."
        )


async def _outcome(
    client: Client, name: str, input_id: str
) -> tuple[SeenInput, Sequence[LedgerRow], bool]:
    seen, led_to = await client.automations.outcome(name, input_id)
    return seen, led_to, await client.automations.is_pruned(input_id)


def _show_input(
    call: CommonOptions, seen: SeenInput, led_to: Sequence[LedgerRow], is_pruned: bool
) -> None:
    """One input; with `is_pruned` more may have happened than is kept."""
    if call.json:
        facts = {"outputs": [page.output_document(row) for row in led_to]}
        render.document(input_document(seen) | facts | {"ledger_pruned": is_pruned})
        return
    row = seen.input
    click.echo(f"input {row.id}  {render.clean(row.title)}  {render.coloured(seen.status)}")
    render.facts([
        ("from", f"{row.source}, {row.type} {row.external_id}"),
        ("came in", render.clock(row.created_at)),
        ("skipped", row.skipped_at and render.clock(row.skipped_at)),
        ("events", _progress(seen)),
    ])  # fmt: skip
    render.heading("what it led to")
    if is_pruned:
        render.say(f"  {PRUNED}", hang=2)
    elif not led_to:
        click.echo("  no change to anything outside" + ("" if seen.status == "done" else " so far"))
    for number, output in enumerate(led_to):
        click.echo() if number else None
        page.print_change(output)


def _progress(seen: SeenInput) -> str:
    """How far an input got."""
    events = render.count(seen.event_count, "event")
    skipped = f", {seen.skipped_count} skipped" if seen.skipped_count else ""
    if seen.unfinished_count:
        return f"{seen.unfinished_count} of {events} not done{skipped}"
    return f"{events}{skipped}" if skipped else f"{seen.event_count}, all done"


def input_document(seen: SeenInput) -> dict[str, Any]:
    """An input for machines."""
    row = seen.input
    return {
        "id": row.id, "status": seen.status, "title": row.title, "source": row.source,
        "type": row.type, "external_id": row.external_id, "event_count": seen.event_count,
        "unfinished_count": seen.unfinished_count, "skipped_count": seen.skipped_count,
        "created_at": iso_if_known(row.created_at),
        "skipped_at": iso_if_known(row.skipped_at),
    }  # fmt: skip


# -- outputs -----------------------------------------------------------------------------------


@click.command(cls=BaseCommand)
@complete.AUTOMATION
@click.argument("output_id", required=False, metavar="[ID]")
@click.option(
    "--status", type=click.Choice([one.value for one in Mutation]),
    help="Only changes in this status.",
)  # fmt: skip
@limit_option()
@BEFORE
@click.pass_obj
def outputs(
    call: CommonOptions,
    name: str,
    output_id: str | None,
    status: str | None,
    limit: int,
    before: str,
) -> None:
    """Show changes made to the outside, newest first.

    With ID: one change, its exact parameters and result, and the inputs that led to it. The ID is
    also the key that the tool gives to its counterpart.
    """
    if output_id is not None:
        _refuse_filters(status or before)
        _show_output(call, *connect.ask(call, lambda client: _output(client, name, output_id)))
        return

    changes, now = connect.ask_with_time(
        call,
        lambda client: client.automations.outputs(
            name, status=status or "", before=before, limit=limit
        ),
    )
    render.listing(
        call.json, changes, page.output_document,
        lambda row: {
            "id": page.short_change(row.id), "status": page.settled(row), "handler": row.handler,
            "tool": row.tool,
            "title": render.short(row.title or shown_text(row.params), CELL_WIDTH),
            "when": render.ago(row.updated_at, now),
        },
        "no change" + (f" is {status}" if status else " was made yet"),
        page=render.NextPage(limit, "--before", lambda row: row.id),
    )  # fmt: skip


async def _output(
    client: Client, name: str, output_id: str
) -> tuple[LedgerRow, Sequence[InputRow], Sequence[AnswerRow]]:
    """One change. Its id sorts just before itself with a `z` at the end."""
    root, dash, number = output_id.partition("-")  # a change is numbered within its chain of runs
    if dash:
        with contextlib.suppress(UnknownRun):
            root = (await client.runs.get(root)).root_id
    wanted = f"{root}{dash}{number}"
    rows = await client.automations.outputs(name, before=f"{wanted}z", limit=1)
    if not rows or not rows[0].id.startswith(wanted):
        raise BadInput(
            f"automation {name} has made no change {output_id!r}",
            hint=f"See `rota automation outputs {name}`.",
        )
    sources = await client.automations.inputs_of(rows[0].id)
    return rows[0], sources, await client.automations.answers(name, change_id=rows[0].id)


def _show_output(
    call: CommonOptions, row: LedgerRow, sources: Sequence[InputRow], answers: Sequence[AnswerRow]
) -> None:
    if call.json:
        fields = ("id", "title", "source", "type", "external_id")
        inputs = [{name: getattr(source, name) for name in fields} for source in sources]
        answered = [page.answer_document(answer) for answer in answers]
        render.document(page.output_document(row) | {"inputs": inputs, "answers": answered})
        return
    click.echo(f"change {row.id}  {render.coloured(row.status)}")
    page.print_change(row)
    if answers:
        render.heading("answers")
        page.print_answers(answers)
    render.heading("because of")
    for source in sources:
        click.echo(f"  {source.id}  {render.clean(source.title)}")
    if not sources:
        click.echo("  no input that is still known")


# -- events ------------------------------------------------------------------------------------


@click.command(cls=BaseCommand)
@complete.AUTOMATION
@click.option("--topic", default="", help="Only events of this topic.")
@click.option(
    "--status", type=click.Choice([one.value for one in EventStatus]),
    help="Only events in this status.",
)  # fmt: skip
@limit_option()
@BEFORE
@click.pass_obj
def events(
    call: CommonOptions, name: str, topic: str, status: str | None, limit: int, before: str
) -> None:
    """Show the events of an automation's topics, newest first."""

    async def query(client: Client) -> tuple[Sequence[StoredEvent], dict[str, str]]:
        rows = await client.automations.events(
            name, topic=topic, status=status or "", before=before, limit=limit
        )
        return rows, await client.automations.users_of(rows)

    (rows, users), now = connect.ask_with_time(call, query)
    render.listing(
        call.json, rows, lambda row: event_document(row, users.get(row.id)),
        lambda row: {
            "topic": row.topic, "id": row.message_id, "status": row.status,
            "published": render.ago(row.created_at, now),
            "taken by run": short_id(row.reserved_by or users.get(row.id, "-")),
            "payload": _payloads(row),
        },
        "no events" + (" fit these filters" if topic or status else " yet"),
        page=render.NextPage(limit, "--before", lambda row: row.id),
    )  # fmt: skip


def _payloads(row: StoredEvent) -> str:
    used = render.short(shown_text(row.payload), CELL_WIDTH)
    if row.correction is None:
        return used
    return f"{used}; not used: {render.short(shown_text(row.correction), CELL_WIDTH)}"


def event_document(row: StoredEvent, user_id: str | None = None) -> dict[str, Any]:
    """An event for machines; `user_id` is the run that used or skipped it."""
    return {
        "id": row.message_id, "topic": row.topic, "status": row.status,
        "payload": render.parsed(row.payload), "correction": render.parsed(row.correction),
        "run_id": row.reserved_by or user_id,
        "published_by_run_id": row.created_by, "attempt": row.attempt, "page_id": row.id,
        "created_at": iso_if_known(row.created_at), "updated_at": iso_if_known(row.updated_at),
    }  # fmt: skip


# -- activity and versions ---------------------------------------------------------------------


@click.command(cls=BaseCommand)
@complete.AUTOMATION
@click.option("--logs", is_flag=True, help="Include what the handlers logged.")
@limit_option()
@BEFORE
@click.pass_obj
def activity(call: CommonOptions, name: str, logs: bool, limit: int, before: str) -> None:
    """Show handler runs, newest first, one line each."""
    seen_runs, now = connect.ask_with_time(
        call, lambda client: client.automations.activity(name, limit=limit, before=before)
    )
    if call.json:
        render.document([page.handler_run_document(seen) for seen in seen_runs])
        return
    page.handler_runs_table(seen_runs, now)
    for seen in seen_runs if logs else ():
        lines = render.parsed(seen.run.logs) or []
        if lines:
            render.heading(f"{seen.run.handler}, run {seen.run.run_id}")
        for line in lines:
            click.echo(f"  {render.clean(line)}")
    render.more(seen_runs, render.NextPage(limit, "--before", lambda seen: seen.run.run_id))


@click.command(cls=BaseCommand)
@complete.AUTOMATION
@limit_option()
@click.pass_obj
def versions(call: CommonOptions, name: str, limit: int) -> None:
    """Show deployed versions and fixes, newest first."""
    rows, now = connect.ask_with_time(
        call, lambda client: client.automations.versions(name, limit=limit)
    )
    render.listing(
        call.json, rows,
        lambda row: {
            "version": row.version, "made_by": row.made_by, "comment": row.comment,
            "digest": row.digest, "created_at": iso_if_known(row.created_at),
            "graph": render.parsed(row.graph), "source": render.parsed(row.source),
        },
        lambda row: {
            "version": row.version, "made by": row.made_by,
            "when": render.ago(row.created_at, now), "note": row.comment or "",
        },
        "no version", page=render.NextPage(limit),
    )  # fmt: skip
