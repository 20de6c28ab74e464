"""The page about an automation: its state, what blocks it, and the commands that resolve it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import click
import msgspec

from rota.cli import render
from rota.cli.base import CommonOptions
from rota.client.automation_views import AutomationView
from rota.client.client import Client
from rota.client.notifications import RecordedNotification
from rota.core.automations.graph import AutomationGraph, HandlerNode
from rota.core.automations.model import AnswerRow, CodeState, LedgerRow, SeenRun
from rota.core.automations.planner import DeployedHandler
from rota.core.automations.text import deed
from rota.core.plurals import some
from rota.core.runs.ids import short_id
from rota.core.runs.stored_errors import read_error
from rota.core.time.instants import SECOND, iso_if_known

LATEST_COUNT = 5
PATIENCE_S = 10
STALE_MAX = 1000  # inputs that are counted
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
    automations = client.automations
    view = await automations.show(name)
    versions = await automations.versions(name, limit=1)
    graph = msgspec.json.decode(versions[0].graph, type=AutomationGraph) if versions else None
    error = view.error if view.said.actions else None
    latest = await automations.activity(name, limit=LATEST_COUNT)
    deployed_at = versions[0].created_at if versions else None
    stale_count = len(await automations.stale(name, limit=STALE_MAX))
    answers = await automations.answers(name, limit=LATEST_COUNT)
    waits = view.open_run if view.said.actions else None
    notification = None if waits is None else await client.notifications.latest(waits)
    return AutomationPage(
        view, graph, deployed_at, error, latest, stale_count, answers, notification,
        client.clock.now(),
    )  # fmt: skip


# -- what can be done --------------------------------------------------------------------------


def actions(view: AutomationView) -> list[dict[str, str]]:
    """The actions that a person can take: the exact commands, and what each means."""
    waits = view.blocking_change or view.open_run
    names = {
        "name": view.automation.name, "waits": waits.id if waits else "",
        "skips": some([f"{event.topic}/{event.message_id}" for event in view.skips]),
        "version": view.automation.version,
        "known": max((worker.version or 0 for worker in view.code.others), default=0),
    }  # fmt: skip
    doubt = view.open_run is not None and view.open_run.reason == "reconciliation"
    choices = []
    for action in view.said.actions:
        command, means = ACTIONS.get(action, ("rota automation show {name}", action))
        means = IN_DOUBT.get(action, means) if doubt else means
        texts = {"command": command.format(**names), "means": means.format(**names)}
        choices.append({"action": action, **texts})
    return choices


# -- documents ---------------------------------------------------------------------------------


def code_document(code: CodeState) -> dict[str, Any]:
    """Who has the deployed code, and what was refused."""
    refused = code.refused
    return {
        "live_worker_count": code.live, "serving_worker_count": code.serving,
        "other_workers": [worker._asdict() for worker in code.others],
        "refused": refused and {
            "problems": list(refused.problems), "host": refused.host,
            "refused_at": iso_if_known(refused.refused_at),
        },
    }  # fmt: skip


def document(view: AutomationView) -> dict[str, Any]:
    """An automation for machines."""
    row, open_run, change = view.automation, view.open_run, view.blocking_change
    return {
        "name": row.name, "status": view.status, "sentence": view.sentence,
        "setting": row.status, "version": row.version, "queue": row.queue,
        "schedule": view.schedule,
        "next_at": view.next_at and view.next_at.isoformat(),
        "code": code_document(view.code),
        "pending": view.pending, "failure_count": row.failures, "fix_count": row.fixes,
        "run": open_run
        and {"id": open_run.id, "status": open_run.label, "attempt": open_run.attempt},
        "change": change and output_document(change),
        "skips": [{"topic": event.topic, "id": event.message_id} for event in view.skips],
        "actions": actions(view),
        "created_at": iso_if_known(row.created_at), "updated_at": iso_if_known(row.updated_at),
    }  # fmt: skip


def page_document(content: AutomationPage) -> dict[str, Any]:
    """The page for machines."""
    return document(content.view) | {
        "deployed_at": iso_if_known(content.deployed_at),
        "error": render.parsed(content.error),
        "stale_input_count": content.stale_count,
        "handlers": [
            handler_document(handler, _node(content, handler)) for handler in content.view.handlers
        ],
        "latest": [handler_run_document(seen) for seen in content.latest],
        "answers": [answer_document(answer) for answer in content.answers],
        "notification": notification_document(content.notification),
    }


def notification_document(recorded: RecordedNotification | None) -> dict[str, Any] | None:
    """The notification about what blocks an automation, for machines."""
    if recorded is None:
        return None
    notification = recorded.notification
    return {
        "id": notification.id, "kind": notification.kind, "at": iso_if_known(notification.at),
        "rules": recorded.rules,
    }  # fmt: skip


def handler_document(handler: DeployedHandler, node: HandlerNode | None) -> dict[str, Any]:
    """A handler for machines."""
    return {
        "name": handler.name, "kind": handler.kind, "schedule": handler.written,
        "subscribes": list(node.subscribes) if node else [],
        "publishes": list(node.publishes) if node else [],
        "asks_approval": bool(node and node.approval),
        "next_run_at": iso_if_known(handler.next_run_at),
        "queued_at": iso_if_known(handler.queued_at), "wake_at": iso_if_known(handler.wake_at),
        "last_run_at": iso_if_known(handler.last_run_at),
        "has_reason_to_look": handler.is_dirty, "state": render.parsed(handler.state),
    }  # fmt: skip


def handler_run_document(seen: SeenRun) -> dict[str, Any]:
    """A handler run for machines."""
    run = seen.run
    return {
        "id": run.run_id, "handler": run.handler, "kind": run.kind, "status": seen.shown,
        "phase": run.phase, "cause": run.cause, "version": run.version, "attempt": seen.attempt,
        "reserved_count": run.reserved_count, "published_count": run.published_count,
        "sentence": deed(run, seen.change), "remark": run.remark,
        "error": render.parsed(seen.error), "logs": render.parsed(run.logs) or [],
        "answers": [answer_document(answer) for answer in seen.answers],
        "started_at": iso_if_known(run.started_at), "finished_at": iso_if_known(run.finished_at),
    }  # fmt: skip


def answer_document(row: AnswerRow) -> dict[str, Any]:
    """An answer of a person for machines."""
    return {
        "answer": row.act, "by": row.person, "note": row.note, "at": iso_if_known(row.at),
        "change_id": row.mutation_id, "run_id": row.run_id, "input_id": row.input_id,
    }  # fmt: skip


def print_answers(answers: Sequence[AnswerRow]) -> None:
    """Answers of people: what, who, why and when."""
    for row in answers:
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


def print_page(content: AutomationPage) -> None:
    """The page for people: first what is the matter and how to clear it, then the rest."""
    view = content.view
    name = click.style(render.clean(view.automation.name), bold=True)
    click.echo(f"automation {name}  {render.coloured(view.status)}")
    render.say(f"  {render.clean(_unclaimed(content) or view.sentence + '.')}", hang=2)
    if content.notification is not None:
        recorded = content.notification
        kind, at = recorded.notification.kind, render.clock(recorded.notification.at)
        render.say(f"  Notification {kind} of {at} {render.clean(recorded.receivers)}.", hang=2)
    change = view.blocking_change
    if change is not None:
        render.heading("the change")
        print_change(change)
        if content.error is not None:
            click.echo(f"  {'now':<12}{render.clean(read_error(content.error)['message'])}")
    else:
        render.error("the error", content.error)
    print_actions(view)
    _facts(content)
    render.heading("handlers")
    _handlers(content)
    render.heading("latest runs")
    handler_runs_table(content.latest, content.now)
    if content.answers:
        render.heading("latest answers")
        print_answers(content.answers)


def print_actions(view: AutomationView) -> None:
    """Print the exact commands that resolve what blocks the automation."""
    choices = actions(view)
    if not choices:
        return
    render.heading("what you can do")
    for action in choices:  # the command on a line of its own: it is there to be copied
        click.echo(f"  {action['command']}")
        render.say(f"      {action['means']}", hang=6)


def print_change(row: LedgerRow) -> None:
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
    print_json("parameters", row.params)
    if row.result is not None:
        print_json("result", row.result)


def short_change(change_id: str) -> str:
    """The id of a change for tables: the short id of its chain of runs, and its number there."""
    root_id, dash, number = change_id.partition("-")
    return f"{short_id(root_id)}{dash}{number}"


def settled(row: LedgerRow) -> str:
    """The status of a change, and how that was settled when not by the call itself."""
    how = SETTLED.get(row.resolved_by or "")
    return f"{row.status} ({how})" if how else row.status


def print_json(name: str, text: str) -> None:
    """Stored JSON, whole: the approver sees the whole change."""
    lines = json.dumps(render.parsed(text), ensure_ascii=False, indent=2).splitlines()
    click.echo(f"  {name:<12}{render.clean(lines[0])}")
    for line in lines[1:]:
        click.echo(f"  {'':<12}{render.clean(line)}")


def _facts(content: AutomationPage) -> None:
    row, view = content.view.automation, content.view
    pending = ", ".join(f"{topic} {n}" for topic, n in sorted(view.pending.items()))
    more = " or more" if content.stale_count == STALE_MAX else ""
    stale = f"{content.stale_count}{more} stale: `rota automation inputs {row.name} --stale`"
    render.heading("about it")
    render.facts([
        ("schedule", view.schedule),
        ("version", f"{row.version}, since {render.clock(content.deployed_at)}"),
        ("paused", _paused(view)),
        ("queue", row.queue if row.queue != "default" else None),
        ("run", view.open_run and f"{view.open_run.id} ({view.open_run.label})"),
        ("pending", pending or "no events"),
        ("inputs", stale if content.stale_count else None),
    ])  # fmt: skip


def _paused(view: AutomationView) -> str | None:
    """A pause that something more urgent hides."""
    if view.automation.status == "active" or view.status == "Stopped":
        return None
    return f"yes: it pauses after this, until `rota automation resume {view.automation.name}`"


def _unclaimed(content: AutomationPage) -> str | None:
    """For how long no worker has taken it up; a moment is nothing to worry about."""
    open_run = content.view.open_run
    if open_run is None or open_run.status != "pending" or open_run.available_at is None:
        return None
    if content.now - open_run.available_at < PATIENCE_S * SECOND:
        return None
    since = render.ago(open_run.available_at, content.now).removesuffix(" ago")
    return f"No worker has claimed it for {since}: is `rota up` running, with this code?"


def _node(content: AutomationPage, handler: DeployedHandler) -> HandlerNode | None:
    nodes = content.graph.handlers if content.graph else ()
    return next((node for node in nodes if node.name == handler.name), None)


def _handlers(content: AutomationPage) -> None:
    rows = []
    for handler in content.view.handlers:
        node = _node(content, handler)
        rows.append({
            "name": handler.name, "kind": handler.kind, "runs on": _reads(handler, node),
            "publishes": ", ".join(node.publishes) if node else "",
            "next": _due(handler, content.now),
            "last": render.ago(handler.last_run_at, content.now),
        })  # fmt: skip
    render.table(rows, "no handlers")


def _reads(handler: DeployedHandler, node: HandlerNode | None) -> str:
    if handler.kind == "producer":
        return handler.written or ""
    events = f"events of {', '.join(node.subscribes)}" if node else "events"
    return f"{events}, asks first" if node and node.approval else events


def _due(handler: DeployedHandler, now: int) -> str:
    at = handler.queued_at or handler.next_run_at or handler.wake_at
    if handler.is_dirty or (at is not None and at <= now):
        return "due"
    return render.ago(at, now) if at is not None else "on an event"


def handler_runs_table(seen_runs: Sequence[SeenRun], now: int) -> None:
    """Handler runs as a table."""
    rows = [
        {
            "run": short_id(seen.run.run_id), "handler": seen.run.handler, "status": seen.shown,
            "cause": seen.run.cause, "started": render.ago(seen.run.started_at, now),
            "took": render.took(seen.run.started_at, seen.run.finished_at), "note": _note(seen),
        }
        for seen in seen_runs
    ]  # fmt: skip
    render.table(rows, "nothing has run yet")


def _note(seen: SeenRun) -> str:
    notes = [deed(seen.run, seen.change)]
    if seen.error:
        notes.append(read_error(seen.error)["message"])
    notes += [answer.words for answer in seen.answers]
    return render.short("; ".join([*notes, seen.run.remark or ""]).rstrip("; "), CELL_WIDTH * 2)


def report(call: CommonOptions, view: AutomationView, words: str, **facts: Any) -> None:
    """Print the effect of a command, and the state of the automation afterwards."""
    if call.json:
        render.document(document(view) | facts)
        return
    render.say(render.clean(words))
    sentence = render.clean(view.sentence)
    state = "" if sentence.startswith(view.status) else f"{render.coloured(view.status)}: "
    render.say(f"→ {state}{sentence}.", hang=2)
    if view.status == "Needs attention":
        print_actions(view)
