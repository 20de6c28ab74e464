"""`rota automation publish|publish-many`: events from outside."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from rota.cli import argument_values, complete, connect
from rota.cli.automation import page
from rota.cli.base import BaseCommand, CommonOptions
from rota.client.automation_views import AutomationView
from rota.client.client import Client
from rota.core.automations.model import StoredEvent
from rota.core.automations.phases import EventStatus
from rota.core.plurals import counted
from rota.errors import BadInput


@click.command("publish", cls=BaseCommand)
@complete.AUTOMATION
@click.argument("topic")
@click.argument("event_id", metavar="ID")
@click.argument("payload", required=False, metavar="[PAYLOAD]")
@click.option("--title", help="Name for people, in the list of inputs.")
@click.pass_obj
def publish(
    call: CommonOptions,
    name: str,
    topic: str,
    event_id: str,
    payload: str | None,
    title: str | None,
) -> None:
    """Publish event ID to a topic with external=True.

    PAYLOAD is JSON, or a string; @file and - (stdin) hold JSON. It is checked against the topic's
    type as it was deployed. The same ID is the same event: it corrects one that no run has taken.
    Rota keeps a payload for an event that a run has reserved, and uses it only if the run releases
    the event. An event that was consumed or skipped stays unchanged.
    """
    body = _payload(payload)

    async def work(client: Client) -> tuple[bool, StoredEvent | None, AutomationView]:
        new = await client.automations.publish(name, topic, event_id, body, title=title)
        event = None if new else await client.automations.event(name, topic, event_id)
        return new, event, await client.automations.show(name)

    app = connect.project_app(call)
    new, stored, view = connect.ask(call, work) if app is None else connect.run(app, work)
    event = {"id": event_id, "topic": topic}
    kept = stored is not None and stored.correction is not None
    text = f"event {event_id} of topic {topic} {_effect_of_publish(stored)}"
    page.report(call, view, text, event=event, published=new, kept=kept)


@click.command("publish-many", cls=BaseCommand)
@complete.AUTOMATION
@click.argument("topic")
@click.argument("file", metavar="FILE")
@click.pass_obj
def publish_many(call: CommonOptions, name: str, topic: str, file: str) -> None:
    """Publish the events in a file of JSON lines.

    FILE has one event a line, {"id": "m-1", "payload": …}; - is stdin. Publish the same file again
    after a failure: an event that is there already is not published twice.
    """
    events = _events_in(file)

    async def work(client: Client) -> tuple[int, AutomationView]:
        count = await client.automations.publish_many(name, topic, events)
        return count, await client.automations.show(name)

    app = connect.project_app(call)
    count, view = connect.ask(call, work) if app is None else connect.run(app, work)
    text = f"{count} of {counted(len(events), 'event')} of topic {topic} are new or have changed"
    page.report(call, view, text, topic=topic, published=count)


def _events_in(file: str) -> list[tuple[str, Any]]:
    """The events of a file of JSON lines, or BadInput with the line that is wrong."""
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{file} cannot be read: {error}", hint="Nothing was published.") from error
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            event = argument_values.from_json(line)
        except (ValueError, RecursionError) as error:
            raise _bad_line(file, number, str(error)) from error
        if not isinstance(event, dict) or not isinstance(event.get("id"), str):
            raise _bad_line(file, number, 'it is not {"id": "m-1", "payload": …}')
        found.append((event["id"], event.get("payload")))
    return found


def _bad_line(file: str, number: int, why: str) -> BadInput:
    where = "stdin" if file == "-" else file
    return BadInput(f"line {number} of {where}: {why}", hint="Nothing was published.")


def _effect_of_publish(event: StoredEvent | None) -> str:
    """The effect of publishing; `event` is one that was there before."""
    if event is None:
        return "was published"
    if event.status == EventStatus.PENDING:
        return "has this payload already; nothing changed"
    if event.status != EventStatus.RESERVED:
        return f"was {event.status} already; nothing changed"
    holder = f"is reserved by run {event.reserved_by}"
    if event.correction is None:
        return f"{holder} with this payload; nothing changed"
    return f"{holder}; the new payload is kept, and used only if that run releases the event"


def _payload(text: str | None) -> Any:
    if text is None or (text != "-" and not text.startswith("@")):
        return argument_values.loose(text)
    try:
        body = sys.stdin.read() if text == "-" else Path(text[1:]).read_text(encoding="utf-8")
        return argument_values.from_json(body)
    except (OSError, ValueError, RecursionError) as error:
        where = "stdin" if text == "-" else text[1:]
        raise BadInput(
            f"{where} cannot be read as JSON: {error}", hint="Nothing was published."
        ) from error
