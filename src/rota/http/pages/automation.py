"""The page of one automation: what it asks, inputs and their outputs, events, handlers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, cast

import msgspec

from rota.client.automation_views import AutomationView
from rota.core.automations.graph import AutomationGraph
from rota.core.automations.model import LedgerRow, Resolution, SeenInput, SeenRun
from rota.core.automations.planner import due_of
from rota.core.automations.text import deed
from rota.core.runs.stored_errors import error_line, read_error
from rota.errors import BadInput, RotaError
from rota.http.pages.automation_tables import TABLES, table_of, title_of
from rota.http.pages.run import Fact
from rota.http.pages.runs import Chip
from rota.http.pages.status import (
    AUTOMATION_WORDS,
    EVENTS,
    MUTATIONS,
    StatusView,
    named,
    state_of,
)
from rota.http.pages.text import (
    MISSING,
    Stamp,
    ValueField,
    WallClock,
    automation_href,
    clipped,
    counted,
    number,
    stored_value,
)
from rota.http.pages.view import button, clock_of, form_target, link, page
from rota.http.request import Answer, WebRequest

LIVE = "automation run"
FLOWS = 8
ACTIVITY = 8


@dataclass(frozen=True)
class AnswerChoice:
    """One answer that a person can give, and what follows."""

    value: str
    label: str
    when: str
    follows: str


# The meaning of each answer for a change in doubt.
IN_DOUBT = {
    "try-again": AnswerChoice("try-again", "Check again", "I do not know either.",
        "Rota asks the counterpart again. It never makes the change twice."),
    "happened": AnswerChoice("happened", "It happened", "I checked: the change was made.",
        "It is recorded as applied and nothing is called."),
    "did-not-happen": AnswerChoice("did-not-happen", "It did not happen",
        "I checked: the change was not made.", "The event is released and the change is made."),
    "skip": AnswerChoice("skip", "Skip it", "It does not matter, or I settle it by hand.",
        "The event is consumed, nothing is called, the next one follows."),
}  # fmt: skip
# And for a run that stopped.
STOPPED = {
    "try-again": AnswerChoice("try-again", "Try again", "The cause is fixed.",
        "The run starts again where it stopped."),
    "skip": AnswerChoice("skip", "Skip them", "These events do not matter.",
        "They are skipped, and the next ones follow."),
}  # fmt: skip
ANSWERABLE = {"approve", *IN_DOUBT, *STOPPED}


@dataclass(frozen=True)
class AskView:
    """The decision that waits for an operator."""

    heading: str
    shape: str
    text: str
    change_id: str
    expected: str
    since: Stamp | None
    waits_word: str
    params: Sequence[ValueField]
    facts: Sequence[Fact]
    is_approval: bool
    approve_label: str = ""
    answers: Sequence[AnswerChoice] = ()


@dataclass(frozen=True)
class FlowView:
    """One input, its events and its changes."""

    id: str
    title: str
    at: Stamp | None
    source: str
    state: StatusView
    events: str
    changes: Sequence[tuple[StatusView, str]]
    none: str


@dataclass(frozen=True)
class HandlerView:
    """A handler with its last and next run."""

    name: str
    text: str
    last: Stamp | None
    next: Stamp | None
    next_word: str


@dataclass(frozen=True)
class ActivityView:
    """A handler run in one row."""

    at: Stamp | None
    handler: str
    text: str
    run_id: str
    shape: str
    tone: str


async def show(request: WebRequest, problem: RotaError | None = None) -> Answer:
    """The page."""
    client, clock = request.client, clock_of(request)
    name = request.parameters["name"]
    view = await client.automations.show(name)
    tab = request.query.get("tab") or "now"
    href = automation_href(name)
    pending = sum(view.pending.values())
    values: dict[str, Any]
    if tab == "now":
        versions = await client.automations.versions(name, limit=1)
        graph = msgspec.json.decode(versions[0].graph, type=AutomationGraph) if versions else None
        values = {
            "ask": await _ask(request, view, clock),
            "flows": await _flows(request, name, clock),
            "activity": await _activity(request, name, clock),
            "handlers": handlers_of(view, graph, clock),
            "topics": topics_of(view, graph),
        }
    elif tab in TABLES:
        values = {"table": await table_of(request, name, tab, clock)}
    else:
        raise BadInput(f"there is no part {tab!r} of an automation")
    return page(
        request, "automation.html", title=name, place="automations", live=LIVE, problem=problem,
        problem_status=HTTPStatus.CONFLICT, name=name, href=href,
        state=named(AUTOMATION_WORDS, view.status), sentence=f"{view.sentence}.",
        follows=follows_of(view, pending), tab=tab, pending_count=pending,
        is_stopped=view.status == "Stopped", can_run=view.status == "Idle",
        tabs=[
            Chip(title_of(key), link(href, tab="" if key == "now" else key), key == tab,
                count=f"{number(pending)} pending" if key == "events" and pending else "")
            for key in ("now", *TABLES)
        ],
        **values,
    )  # fmt: skip


def follows_of(view: AutomationView, pending: int) -> str:
    """The events that wait behind it."""
    if view.status == "Needs attention":
        wait = "waits" if pending == 1 else "wait"
        count = counted(pending, "event")
        behind = f"; {count} {wait} behind it and none is lost" if pending else ""
        return f"Nothing more is changed until you answer{behind}."
    if pending:
        return f"{counted(pending, 'event')} pending."
    return view.schedule + "."


# -- the decision -------------------------------------------------------------------------------


async def _ask(request: WebRequest, view: AutomationView, clock: WallClock) -> AskView | None:
    change = view.blocking_change
    if view.open_run is None or not {*view.said.actions} & ANSWERABLE:
        return None
    if change is not None:
        inputs = await request.client.automations.inputs_of(change.id)
        because = ", ".join(f"{source.source} “{source.title}”" for source in inputs[:3])
        return ask_of(view, change, because, clock)
    return stopped_of(view, clock)


def ask_of(view: AutomationView, change: LedgerRow, because: str, clock: WallClock) -> AskView:
    """The card for a change that waits for approval, or that has an unknown outcome."""
    open_run = view.open_run
    assert open_run is not None
    params = params_of(change)
    facts = [Fact("Because of", because)] if because else []
    title = change.title or change.tool
    if open_run.reason == "approval":
        facts += [
            Fact("If approved", "the change is made once; the ledger is written before the call"),
            Fact("If rejected", "nothing is called, its events are skipped, the next ones follow"),
        ]
        return AskView(
            "Approve this change?", "s-person",
            f"{change.handler} wants to call {change.tool} once, with exactly these parameters. "
            "Nothing was called yet.",
            change.id, change.id, clock.stamp(change.created_at), "waits", params, facts,
            is_approval=True, approve_label=f"Approve: {clipped(title, 48)}",
        )  # fmt: skip
    looked = "" if not change.reconcile_count else (
        f" {counted(change.reconcile_count, 'reconcile call')} found no certain outcome."
    )  # fmt: skip
    failure = f" {read_error(change.error)['message']}." if change.error else ""
    called = clock.day(change.created_at)
    return AskView(
        f"Did this happen: {clipped(title, 80)}?", "s-unknown",
        f"{called}: Rota called {change.tool} with these parameters.{failure}{looked} "
        "It was not called again.",
        change.id, change.id, clock.stamp(change.updated_at), "unknown for", params,
        [*facts, Fact("Key", f"{change.id} (look for this at the provider)")],
        is_approval=False,
        answers=[IN_DOUBT[action] for action in view.said.actions if action in IN_DOUBT],
    )  # fmt: skip


def stopped_of(view: AutomationView, clock: WallClock) -> AskView | None:
    """The card for a run that stopped and waits for an operator, or will try again."""
    open_run = view.open_run
    assert open_run is not None
    answers = [STOPPED[action] for action in view.said.actions if action in STOPPED]
    if not answers:
        return None
    text = error_line(view.error) if view.error else view.sentence
    facts = []
    if view.skips:
        listed = ", ".join(f"{event.topic}/{event.message_id}" for event in view.skips[:5])
        facts.append(Fact("Events", listed))
    return AskView(
        "It stopped. What now?", "s-warn", text, "", open_run.id, clock.stamp(open_run.created_at),
        "since", (), facts, is_approval=False, answers=answers,
    )  # fmt: skip


_FIRST = ("amount", "total", "to", "recipient", "order", "account", "subject", "path", "url")


def params_of(change: LedgerRow) -> list[ValueField]:
    """Every parameter of the call; those that matter most first, and marked."""
    stored = stored_value(change.params)
    if not stored.fields:
        return [ValueField("value", stored.text or "none")]
    order = {name: at for at, name in enumerate(_FIRST)}
    ranked = sorted(stored.fields, key=lambda field: order.get(field.name, len(order)))
    return [
        ValueField(field.name, field.text, field.fields, "key" if field.name in order else "text")
        for field in ranked
    ]


# -- parts --------------------------------------------------------------------------------------


async def _flows(request: WebRequest, name: str, clock: WallClock) -> list[FlowView]:
    automations = request.client.automations
    flows = []
    for seen in await automations.inputs(name, limit=FLOWS):
        _, led_to = await automations.outcome(name, seen.input.id)
        flows.append(flow_of(seen, led_to, clock))
    return flows


def flow_of(seen: SeenInput, led_to: Sequence[LedgerRow], clock: WallClock) -> FlowView:
    """An input with what it led to."""
    entry = seen.input
    changes = [(named(MUTATIONS, row.status), clipped(row.title or row.tool, 80)) for row in led_to]
    none = "not yet" if seen.status == "pending" else "no change"
    return FlowView(
        entry.id, clipped(entry.title, 80), clock.stamp(entry.created_at),
        f"{entry.source} {entry.type}", named(EVENTS, seen.status),
        counted(seen.event_count, "event"), changes, none,
    )  # fmt: skip


async def _activity(request: WebRequest, name: str, clock: WallClock) -> list[ActivityView]:
    automations = request.client.automations
    runs = [_did(seen, clock) for seen in await automations.activity(name, limit=ACTIVITY)]
    answers = [
        ActivityView(
            clock.stamp(answer.at), "", answer.words, answer.run_id or "", "s-person", "rest"
        )
        for answer in await automations.answers(name, limit=ACTIVITY)
    ]
    both = sorted([*runs, *answers], key=lambda row: row.at.iso if row.at else "", reverse=True)
    return both[:ACTIVITY]


def _did(seen: SeenRun, clock: WallClock) -> ActivityView:
    state = state_of(seen.status, seen.reason)
    shapes = {"ok": "g-check", "bad": "g-x", "warn": "s-warn", "run": "g-dot"}
    text = deed(seen.run, seen.change)
    if seen.error and state.tone == "bad":
        text = error_line(seen.error)
    at = seen.run.finished_at or seen.run.started_at
    return ActivityView(
        clock.stamp(at), seen.run.handler, clipped(text, 120), seen.run.run_id,
        shapes.get(state.tone, "g-dot"), state.tone,
    )  # fmt: skip


def handlers_of(
    view: AutomationView, graph: AutomationGraph | None, clock: WallClock
) -> list[HandlerView]:
    """The handlers in the order of their declaration."""
    nodes = {} if graph is None else {handler.name: handler for handler in graph.handlers}
    rows = []
    for handler in view.handlers:
        node = nodes.get(handler.name)
        reads = f" of {', '.join(node.subscribes)}" if node and node.subscribes else ""
        asks = ", asks for approval" if node and node.approval else ""
        every = f", {handler.written}" if handler.written else ""
        due = due_of(handler)
        at = None if due is None else due.at
        held = view.status in ("Needs attention", "Stopped")
        word = "on events" if due is None else MISSING if held else "now"
        if at is not None and at > clock.now:
            word = ""
        rows.append(HandlerView(
            handler.name, f"{handler.kind}{reads}{every}{asks}", clock.stamp(handler.last_run_at),
            clock.stamp(at), word,
        ))  # fmt: skip
    return rows


def topics_of(view: AutomationView, graph: AutomationGraph | None) -> list[tuple[str, str, int]]:
    """Topics with pending events: the name, the consumer that reads it, the count."""
    return [
        (topic, (graph.consumer_of(topic) or "") if graph else "", count)
        for topic, count in sorted(view.pending.items())
        if count
    ]


# -- forms --------------------------------------------------------------------------------------


@form_target(show)
async def answer(request: WebRequest) -> str:
    """Approve, reject or resolve; `expected` names what the operator has seen."""
    name, form = request.parameters["name"], request.form()
    how, expected = form.get("answer"), form.get("expected")
    automations = request.client.automations
    note = form.get("note").strip() or None
    if not expected:
        raise BadInput("the form does not say what it answers", hint="Load the page again.")
    by = request.identity.name
    href = automation_href(name)
    if how == "approve":
        await automations.approve(name, expected=expected, by=by, note=note)
        return f"{href}?done=approved"
    if how == "reject":
        await automations.reject(name, expected=expected, by=by, note=note)
        return f"{href}?done=rejected"
    await automations.resolve(name, cast(Resolution, how), expected=expected, by=by, note=note)
    return f"{href}?done=answered"


pause = button(show, automation_href, "paused", lambda client, name: client.automations.pause(name))
resume = button(
    show, automation_href, "resumed", lambda client, name: client.automations.resume(name)
)
run_now = button(
    show, automation_href, "queued", lambda client, name: client.automations.run_now(name)
)


@form_target(show)
async def skip(request: WebRequest) -> str:
    """Skip a pending event."""
    name, form = request.parameters["name"], request.form()
    by = request.identity.name
    await request.client.automations.skip_event(
        name, form.get("topic"), form.get("message_id"), by=by
    )
    return f"{automation_href(name)}?tab=events&done=skipped"
