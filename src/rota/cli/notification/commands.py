"""`rota notification …`: what was recorded, and whether a rule's channel works."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import click

from rota.cli import connect, render
from rota.cli.base import BEFORE, CommandGroup, CommonOptions, limit_option
from rota.client.notifications import RecordedNotification
from rota.core.notifications.model import KINDS, one_line
from rota.core.runs.ids import short_id
from rota.core.time.instants import iso


@click.group(cls=CommandGroup)
def notification() -> None:
    """List notifications and test their rules."""


@notification.command("list")
@click.option("--kind", "kinds", multiple=True, type=click.Choice(KINDS), help="Only this kind.")
@limit_option(50)
@BEFORE
@click.pass_obj
def list_notifications(call: CommonOptions, kinds: Sequence[Any], limit: int, before: str) -> None:
    """List recorded notifications, newest first."""
    rows, now = connect.ask_with_time(
        call, lambda client: client.notifications.list(kinds=kinds, limit=limit, before_id=before)
    )
    render.listing(
        call.json, rows, _document,
        lambda row: {
            "when": render.ago(row.notification.at, now), "kind": row.notification.kind,
            "about": row.notification.title, "run": short_id(row.notification.run_id),
            "rules": _sent(row), "error": one_line(row.notification.error or "", 60),
        },
        "no notification was recorded; rules are in [notifications.NAME]",
        page=render.NextPage(limit, "--before", lambda row: row.notification.id),
    )  # fmt: skip


def _sent(row: RecordedNotification) -> str:
    return "not dispatched yet" if row.rules is None else ", ".join(row.rules) or "none"


def _document(row: RecordedNotification) -> dict[str, Any]:
    about = row.notification
    return {
        "id": about.id, "at": iso(about.at), "kind": str(about.kind), "source": about.source,
        "name": about.name, "schedule": about.schedule, "queue": about.queue, "tags": about.tags,
        "run": about.run_id, "text": about.text, "reason": about.reason, "error": about.error,
        "rules": row.rules,
    }  # fmt: skip


@notification.command("test")
@click.argument("rule")
@click.pass_obj
def test_rule(call: CommonOptions, rule: str) -> None:
    """Send a test message through a rule of the project."""
    project = connect.project_of(call)
    if project is None:
        raise click.UsageError(
            "no project is known: rules are declared in rota.toml or in code. Give --project."
        )
    app = connect.app_of(call, project)
    message_id = asyncio.run(app.notifications.test(rule))
    text = f"{rule} took the test message {message_id}"
    render.report(call.json, {"rule": rule, "message": message_id}, text)
