"""The page about an automation: its state, what blocks it, and the commands that resolve it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import click
import msgspec

from rota.cli import render
from rota.client.automation_views import AutomationView
from rota.client.client import Client
from rota.client.notifications import RecordedNotification
from rota.core.automations.graph import AutomationGraph, HandlerNode
from rota.core.automations.model import AnswerRow, CodeState, EventName, LedgerRow, SeenRun
from rota.core.automations.planner import DeployedHandler
from rota.core.automations.text import deed
from rota.core.runs.ids import short_id
from rota.core.runs.stored_errors import read_error
from rota.core.time.instants import SECOND, iso_if_known

LATEST_COUNT = 5
PATIENCE_S = 10
SKIPS_SHOWN = 3
CELL_WIDTH = 48

# Action → the command, and what it means to the person who types it.
ACTIONS: dict[str, tuple[str, str]] = {
    "approve": ("rota run approve {waits}", "make this change, with exactly these parameters"),
    "reject": ("rota run reject {waits}", "continue without it; its events are skipped"),
    "try-again": ("rota run resolve {waits} try-again", "the cause is fixed: try again"),
    "happened": (
        "rota run resolve {waits} happened",
        "you checked, and it was made: continue (--result JSON sets its result)",
    ),
    "did-not-happen": (
        "rota run resolve {waits} did-not-happen",
        "you checked, and it was not made: make it again",
    ),
    "skip": ("rota run resolve {waits} skip", "continue without {skips}"),
    "deploy": ("rota automation deploy {name}", "after you have corrected the code"),
    "resume": ("rota automation resume {name}", "let it continue"),
    "restart": ("rota up", "restart the workers, with the code of version {version}"),
    "rollback": ("rota automation rollback {name} {known}", "or use the code that they have"),
}
# The meaning of an action that differs while the outcome of a change is unknown.
IN_DOUBT: dict[str, str] = {
    "try-again": "check again whether it happened",
    "skip": "it does not matter: continue without it",
}

# How the outcome of a change was found, if not by the call itself.
SETTLED = {"reconcile": "reconciled", "person": "answered by an operator", "rejected": "rejected"}


class AutomationPage(NamedTuple):
    """Everything the page about one automation shows."""

    view: AutomationView
    graph: AutomationGraph | None
    deployed_at: int | None
    error: str | None  # what the run that blocks it last complained about
    latest: Sequence[SeenRun]
    stale_count: int
    answers: Sequence[AnswerRow]
    notification: RecordedNotification | None  # about what blocks it
    now: int


# -- reading -----------------------------------------------------------------------------------


async def read(client: Client, name: str) -> AutomationPage:
    """Read everything the page shows."""
    ask = client.automations
    view = await ask.show(name)
    versions = await ask.versions(name, limit=1)
    graph = msgspec.json.decode(versions[0].graph, type=AutomationGraph) if versions else None
    error = view.error if view.said.actions else None
    latest = await ask.activity(name, limit=LATEST_COUNT)
    deployed_at = versions[0].created_at if versions else None
    stale_count = len(await ask.stale(name))
    answers = await ask.answers(name, limit=LATEST_COUNT)
    waits = view.open_run if view.said.actions else None
    notification = None if waits is None else await client.notifications.latest(waits)
    return AutomationPage(
        view, graph, deployed_at, error, latest, stale_count, answers, notification,
        client.clock.now(),
    )  # fmt: skip


# -- what can be done --------------------------------------------------------------------------


def actions(view: AutomationView) -> list[dict[str, str]]:
    """The actions that a person can take: the exact commands, and what each means."""
    waits = in_the_way(view) or view.open_run
    names = {
        "name": view.automation.name, "waits": waits.id if waits else "",
        "skips": _listed(view.skips), "version": view.automation.version,
        "known": max((one.version or 0 for one in view.code.others), default=0),
    }  # fmt: skip
    doubt = view.open_run is not None and view.open_run.reason == "reconciliation"
    found = []
    for action in view.said.actions:
        command, means = ACTIONS.get(action, ("rota automation show {name}", action))
        means = IN_DOUBT.get(action, means) if doubt else means
        said = {"command": command.format(**names), "means": means.format(**names)}
        found.append({"action": action, **said})
    return found


def _listed(events: Sequence[EventName]) -> str:
    said = ", ".join(f"{one.topic}/{one.message_id}" for one in events[:SKIPS_SHOWN])
    more = len(events) - SKIPS_SHOWN
    return f"{said} and {more} more" if more > 0 else said


def in_the_way(view: AutomationView) -> LedgerRow | None:
    """The change that waits for approval or is in doubt, if it is what blocks."""
    blocks = view.open_run is not None and view.open_run.reason in (
        "approval",
        "reconciliation",
    )
    return view.mutation if blocks and view.said.actions else None


# -- documents ---------------------------------------------------------------------------------


def code_document(code: CodeState) -> dict[str, Any]:
    """Who has the deployed code, and what was refused."""
    refused = code.refused
    return {
        "live_worker_count": code.live, "serving_worker_count": code.serving,
        "other_workers": [one._asdict() for one in code.others],
        "refused": refused and {
            "problems": list(refused.problems), "host": refused.host,
            "refused_at": iso_if_known(refused.refused_at),
        },
    }  # fmt: skip


def document(view: AutomationView) -> dict[str, Any]:
    """An automation for machines."""
    one, open_run, change = view.automation, view.open_run, in_the_way(view)
    return {
        "name": one.name, "status": view.status, "sentence": view.sentence,
        "setting": one.status, "version": one.version, "queue": one.queue,
        "schedule": view.schedule,
        "next_at": view.next_at and view.next_at.isoformat(),
        "code": code_document(view.code),
        "pending": view.pending, "failure_count": one.failures, "fix_count": one.fixes,
        "run": open_run
        and {"id": open_run.id, "status": open_run.label, "attempt": open_run.attempt},
        "change": change and output_document(change),
        "skips": [{"topic": event.topic, "id": event.message_id} for event in view.skips],
        "actions": actions(view),
        "created_at": iso_if_known(one.created_at), "updated_at": iso_if_known(one.updated_at),
    }  # fmt: skip


def explanation_document(explanation: AutomationPage) -> dict[str, Any]:
    """The page for machines."""
    return document(explanation.view) | {
        "deployed_at": iso_if_known(explanation.deployed_at),
        "error": render.parsed(explanation.error),
        "stale_input_count": explanation.stale_count,
        "handlers": [
            handler_document(one, _node(explanation, one)) for one in explanation.view.handlers
        ],
        "latest": [doing_document(one) for one in explanation.latest],
        "answers": [answer_document(one) for one in explanation.answers],
        "notification": notification_document(explanation.notification),
    }


def notification_document(recorded: RecordedNotification | None) -> dict[str, Any] | None:
    """The notification about what blocks an automation, for machines."""
    if recorded is None:
        return None
    one = recorded.notification
    return {"id": one.id, "kind": one.kind, "at": iso_if_known(one.at), "rules": recorded.rules}


def handler_document(one: DeployedHandler, node: HandlerNode | None) -> dict[str, Any]:
    """A handler for machines."""
    return {
        "name": one.name, "kind": one.kind, "schedule": one.written,
        "subscribes": list(node.subscribes) if node else [],
        "publishes": list(node.publishes) if node else [],
        "asks_approval": bool(node and node.approval),
        "next_run_at": iso_if_known(one.next_run_at), "queued_at": iso_if_known(one.queued_at),
        "wake_at": iso_if_known(one.wake_at), "last_run_at": iso_if_known(one.last_run_at),
        "has_reason_to_look": one.is_dirty, "state": render.parsed(one.state),
    }  # fmt: skip


def doing_document(one: SeenRun) -> dict[str, Any]:
    """A handler run for machines."""
    run = one.run
    return {
        "id": run.run_id, "handler": run.handler, "kind": run.kind, "status": one.shown,
        "phase": run.phase, "cause": run.cause, "version": run.version, "attempt": one.attempt,
        "reserved_count": run.reserved_count, "published_count": run.published_count,
        "sentence": deed(run, one.change), "remark": run.remark, "error": render.parsed(one.error),
        "logs": render.parsed(run.logs) or [],
        "answers": [answer_document(answer) for answer in one.answers],
        "started_at": iso_if_known(run.started_at), "finished_at": iso_if_known(run.finished_at),
    }  # fmt: skip


def answer_document(row: AnswerRow) -> dict[str, Any]:
    """An answer of a person for machines."""
    return {
        "answer": row.act, "by": row.person, "note": row.note, "at": iso_if_known(row.at),
        "change_id": row.mutation_id, "run_id": row.run_id, "input_id": row.input_id,
    }  # fmt: skip


def answer_lines(found: Sequence[AnswerRow]) -> None:
    """Answers of people: what, who, why and when."""
    for row in found:
        click.echo(f"  {render.clock(row.at)}  {render.clean(row.words)}")


def output_document(row: LedgerRow) -> dict[str, Any]:
    """A change to the outside world for machines."""
    return {
        "id": row.id, "run_id": row.run_id, "handler": row.handler, "title": row.title,
        "tool": row.tool, "safety": row.safety, "status": row.status,
        "parameters": render.parsed(row.params), "result": render.parsed(row.result),
        "error": render.parsed(row.error), "resolved_by": row.resolved_by,
        "look_count": row.reconcile_count, "approved_at": iso_if_known(row.approved_at),
        "created_at": iso_if_known(row.created_at), "updated_at": iso_if_known(row.updated_at),
    }  # fmt: skip


# -- pages -------------------------------------------------------------------------------------


def page(explanation: AutomationPage) -> None:
    """The page for people: first what is the matter and how to clear it, then the rest."""
    view = explanation.view
    name = click.style(render.clean(view.automation.name), bold=True)
    click.echo(f"automation {name}  {render.coloured(view.status)}")
    render.say(f"  {render.clean(_unclaimed(explanation) or view.sentence + '.')}", hang=2)
    if explanation.notification is not None:
        recorded = explanation.notification
        kind, at = recorded.notification.kind, render.clock(recorded.notification.at)
        render.say(f"  Notification {kind} of {at} {render.clean(recorded.receivers)}.", hang=2)
    change = in_the_way(view)
    if change is not None:
        render.heading("the change")
        change_lines(change)
        if explanation.error is not None:
            click.echo(f"  {'now':<12}{render.clean(read_error(explanation.error)['message'])}")
    else:
        render.error("the error", explanation.error)
    todo(view)
    _facts(explanation)
    render.heading("handlers")
    _handlers(explanation)
    render.heading("latest runs")
    doings(explanation.latest, explanation.now)
    if explanation.answers:
        render.heading("latest answers")
        answer_lines(explanation.answers)


def todo(view: AutomationView) -> None:
    """Print the exact commands that resolve what blocks the automation."""
    found = actions(view)
    if not found:
        return
    render.heading("what you can do")
    for one in found:  # the command on a line of its own: it is there to be copied
        click.echo(f"  {one['command']}")
        render.say(f"      {one['means']}", hang=6)


def change_lines(row: LedgerRow) -> None:
    """One change, with exactly the parameters it is made with."""
    render.facts([
        ("title", row.title),
        ("tool", f"{row.tool} ({row.safety}), called by {row.handler}"),
        ("status", settled(row)),
        ("said", read_error(row.error)["message"] if row.error else None),
        ("key", row.id),
        ("run", row.run_id),
        ("since", render.clock(row.created_at)),
    ])  # fmt: skip
    spread("parameters", row.params)
    if row.result is not None:
        spread("result", row.result)


def short_change(change_id: str) -> str:
    """The id of a change for tables: the short id of its chain of runs, and its number there."""
    root_id, dash, number = change_id.partition("-")
    return f"{short_id(root_id)}{dash}{number}"


def settled(row: LedgerRow) -> str:
    """The status of a change, and how that was settled when not by the call itself."""
    how = SETTLED.get(row.resolved_by or "")
    return f"{row.status} ({how})" if how else row.status


def spread(name: str, text: str) -> None:
    """Stored JSON, whole: the approver sees the whole change."""
    lines = json.dumps(render.parsed(text), ensure_ascii=False, indent=2).splitlines()
    click.echo(f"  {name:<12}{render.clean(lines[0])}")
    for line in lines[1:]:
        click.echo(f"  {'':<12}{render.clean(line)}")


def _facts(explanation: AutomationPage) -> None:
    one, view = explanation.view.automation, explanation.view
    pending = ", ".join(f"{topic} {n}" for topic, n in sorted(view.pending.items()))
    stale = f"{explanation.stale_count} stale: `rota automation inputs {one.name} --stale`"
    render.heading("about it")
    render.facts([
        ("schedule", view.schedule),
        ("version", f"{one.version}, since {render.clock(explanation.deployed_at)}"),
        ("paused", _paused(view)),
        ("queue", one.queue if one.queue != "default" else None),
        ("run", view.open_run and f"{view.open_run.id} ({view.open_run.label})"),
        ("pending", pending or "no events"),
        ("inputs", stale if explanation.stale_count else None),
    ])  # fmt: skip


def _paused(view: AutomationView) -> str | None:
    """A pause that something more urgent hides."""
    if view.automation.status == "active" or view.status == "Stopped":
        return None
    return f"yes: it pauses after this, until `rota automation resume {view.automation.name}`"


def _unclaimed(explanation: AutomationPage) -> str | None:
    """For how long no worker has taken it up; a moment is nothing to worry about."""
    open_run = explanation.view.open_run
    if open_run is None or open_run.status != "pending" or open_run.available_at is None:
        return None
    if explanation.now - open_run.available_at < PATIENCE_S * SECOND:
        return None
    since = render.ago(open_run.available_at, explanation.now).removesuffix(" ago")
    return f"No worker has claimed it for {since}: is `rota up` running, with this code?"


def _node(explanation: AutomationPage, handler: DeployedHandler) -> HandlerNode | None:
    nodes = explanation.graph.handlers if explanation.graph else ()
    return next((node for node in nodes if node.name == handler.name), None)


def _handlers(explanation: AutomationPage) -> None:
    rows = []
    for handler in explanation.view.handlers:
        node = _node(explanation, handler)
        rows.append({
            "name": handler.name, "kind": handler.kind, "runs on": _reads(handler, node),
            "publishes": ", ".join(node.publishes) if node else "",
            "next": _due(handler, explanation.now),
            "last": render.ago(handler.last_run_at, explanation.now),
        })  # fmt: skip
    render.table(rows, "no handlers")


def _reads(one: DeployedHandler, node: HandlerNode | None) -> str:
    if one.kind == "producer":
        return one.written or ""
    said = f"events of {', '.join(node.subscribes)}" if node else "events"
    return f"{said}, asks first" if node and node.approval else said


def _due(one: DeployedHandler, now: int) -> str:
    at = one.queued_at or one.next_run_at or one.wake_at
    if one.is_dirty or (at is not None and at <= now):
        return "due"
    return render.ago(at, now) if at is not None else "on an event"


def doings(found: Sequence[SeenRun], now: int) -> None:
    """Handler runs as a table."""
    rows = [
        {
            "run": short_id(seen.run.run_id), "handler": seen.run.handler, "status": seen.shown,
            "cause": seen.run.cause, "started": render.ago(seen.run.started_at, now),
            "took": render.took(seen.run.started_at, seen.run.finished_at), "note": _note(seen),
        }
        for seen in found
    ]  # fmt: skip
    render.table(rows, "nothing has run yet")


def _note(one: SeenRun) -> str:
    said = [deed(one.run, one.change)]
    if one.error:
        said.append(read_error(one.error)["message"])
    said += [answer.words for answer in one.answers]
    return render.short("; ".join([*said, one.run.remark or ""]).rstrip("; "), CELL_WIDTH * 2)
