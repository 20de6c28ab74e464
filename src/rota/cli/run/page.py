"""The page about one run: who it is, how it went, what to do next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import click

from rota.cli import render
from rota.cli.automation import page as automation_page
from rota.cli.run import next_steps
from rota.client.client import Client
from rota.client.operations import ArchivedChain
from rota.core.automations.model import SeenRun, Touched
from rota.core.automations.text import deed
from rota.core.pipelines.names import pipeline_id_of
from rota.core.redaction import shown_text
from rota.core.runs.ids import short_id
from rota.core.runs.model import Run, StoredStep
from rota.core.runs.stored_errors import cause_line
from rota.core.time.instants import iso_if_known
from rota.errors import UnknownRun

VALUE_WIDTH = 2000
CELL_WIDTH = 48
EVENTS_MAX = 20


class RunPage(NamedTuple):
    """Everything that is known about a chain."""

    attempts: Sequence[Run]
    steps: Sequence[StoredStep]
    now: int
    handler_run: SeenRun | None = None  # the newest, of an automation
    touched: Sequence[Touched] = ()
    month: str | None = None  # of the archive, if its records were moved there

    @property
    def last(self) -> Run:
        """The newest attempt."""
        return self.attempts[-1]


async def read(client: Client, run_id: str) -> RunPage:
    """Read everything the page shows."""
    try:
        attempts = await client.runs.chain(run_id)
    except UnknownRun:
        archived = await client.operations.archived(run_id)
        if archived is None:
            raise
        return _archived(archived.attempts, archived, client.clock.now())
    # A pipeline has a step for each item: `rota pipeline history` shows them as items.
    steps = [] if attempts[-1].kind == "pipeline" else await client.runs.steps(run_id)
    explanation = RunPage(attempts, steps, client.clock.now())
    if not steps and explanation.last.is_final:
        archived = await client.operations.archived(attempts[0].root_id)
        if archived is not None:
            return _archived(attempts, archived, explanation.now)
    return (
        await _with_handler(client, explanation)
        if explanation.last.kind == "automation"
        else explanation
    )


def _archived(attempts: Sequence[Run], archived: ArchivedChain, now: int) -> RunPage:
    steps = [] if attempts[-1].kind == "pipeline" else archived.steps
    return RunPage(attempts, steps, now, month=archived.month)


async def _with_handler(client: Client, explanation: RunPage) -> RunPage:
    """With what the newest attempt did that ran a handler."""
    for run in reversed(explanation.attempts):
        found = await client.automations.handler_run(run.id)
        if found is not None:
            touched = await client.automations.touched(run.id)
            return explanation._replace(handler_run=found, touched=touched)
    return explanation


def document(explanation: RunPage) -> dict[str, Any]:
    """The page for machines."""
    return _handler_document(explanation) | {
        "run": render.record(explanation.last),
        "attempts": [render.record(run) for run in explanation.attempts],
        "steps": [render.record(step) for step in explanation.steps],
        "archived": explanation.month,
        "hint": _next_step(explanation),
    }


def _next_step(explanation: RunPage) -> str:
    if explanation.month is not None:
        return f"Nothing to do: it is in the archive of {explanation.month}."
    return next_steps.next_step(explanation.last, explanation.steps, explanation.now)


def _handler_document(explanation: RunPage) -> dict[str, Any]:
    found = explanation.handler_run
    if found is None:
        return {}
    return {
        "handler_run": automation_page.doing_document(found),
        "events": [
            {"topic": one.topic, "id": one.message_id, "act": one.act, "at": iso_if_known(one.at)}
            for one in explanation.touched
        ],
        "change": found.change and automation_page.output_document(found.change),
    }


def _handler(explanation: RunPage) -> None:
    """The work of a handler run of an automation: its handler, its events and its change."""
    found = explanation.handler_run
    if found is None:
        return
    render.heading(f"{found.run.kind} {render.clean(found.run.handler)}")
    click.echo(f"  {render.clean(deed(found.run, found.change))}")
    for one in explanation.touched[:EVENTS_MAX]:
        event = render.clean(f"{one.topic}/{one.message_id}")
        click.echo(f"  {one.act:<12}{event}  {render.clock(one.at)}")
    if len(explanation.touched) > EVENTS_MAX:
        click.echo(f"  … and {len(explanation.touched) - EVENTS_MAX} more")
    if found.run.remark:
        click.echo(f"  {'remark':<12}{render.clean(found.run.remark)}")
    if found.change is not None:
        render.heading("the change")
        automation_page.change_lines(found.change)


def page(explanation: RunPage) -> None:
    """The page for people."""
    _head(explanation)
    _handler(explanation)
    if len(explanation.attempts) > 1:
        render.heading("attempts")
        _attempts(explanation)
    if explanation.steps:
        render.heading("steps")
        _steps(explanation)
    if explanation.last.kind == "pipeline":
        name = render.clean(pipeline_id_of(explanation.last.name))
        click.echo(f"\nitems: rota pipeline history {name} --run {explanation.last.root_id}")
    render.error("error", explanation.last.error)
    click.echo()
    render.say(_next_step(explanation))


def _head(explanation: RunPage) -> None:
    run, first = explanation.last, explanation.attempts[0]
    click.echo(f"run {short_id(run.id)}  {click.style(render.clean(run.name), bold=True)}  "
        f"{render.coloured(render.clean(run.label))}")  # fmt: skip
    ended = run.finished_at or (explanation.now if first.started_at else None)
    lines: list[tuple[str, object]] = [
        ("id", run.id),
        ("queue", f"{run.queue}, priority {run.priority}"),
        ("trigger", first.trigger + (f" by run {first.parent_id}" if first.parent_id else "")),
        ("external id", first.external_id),
        ("key", first.limit_key),
        ("tags", first.tags),
        ("created", _when(first.created_at, explanation.now)),
        ("started", first.started_at and render.clock(first.started_at)),
        ("finished", run.finished_at and render.clock(run.finished_at)),
        ("took" if run.is_final else "so far",
            first.started_at and render.took(first.started_at, ended)),
        ("wakes", run.status == "sleeping" and run.available_at
            and _when(run.available_at, explanation.now)),
        ("worker", run.lease_owner),
        ("input", render.short(shown_text(first.input or "none"), VALUE_WIDTH)),
        ("output", _output(run)),
    ]  # fmt: skip
    render.facts(lines)


def _output(run: Run) -> str | None:
    if run.output is None:
        return "null" if run.status == "completed" else None
    return render.short(shown_text(run.output), VALUE_WIDTH)


def _when(at: int, now: int) -> str:
    return f"{render.clock(at)} ({render.ago(at, now)})"


def _attempts(explanation: RunPage) -> None:
    rows = [
        {
            "#": number, "id": short_id(run.id), "status": run.label, "trigger": run.trigger,
            "started": render.wall(run.started_at),
            "took": render.took(run.started_at, run.finished_at), "error": _said(run.error),
        }
        for number, run in enumerate(explanation.attempts, start=1)
    ]  # fmt: skip
    render.table(rows, "")


def _said(error: str | None) -> str:
    return "" if error is None else render.short(cause_line(error), CELL_WIDTH)


def _steps(explanation: RunPage) -> None:
    began = explanation.attempts[0].started_at
    rows = [
        {
            "step": render.short(step.key, CELL_WIDTH), "status": _status(step, explanation.now),
            "tries": step.attempt, "started": f"+{render.took(began, step.started_at)}",
            "took": render.took(step.started_at, step.finished_at or step.wake_at),
            "result": _outcome(step),
        }
        for step in explanation.steps
    ]  # fmt: skip
    render.table(rows, "")


def _status(step: StoredStep, now: int) -> str:
    if step.kind == "sleep":  # its end is not recorded: it is over when its time has come
        over = step.wake_at is not None and step.wake_at <= now
        return "completed" if over else f"sleeping, wakes {render.ago(step.wake_at, now)}"
    if step.status == "failed" and step.wake_at:
        return f"failed, again {render.ago(step.wake_at, now)}"
    return step.status


def _outcome(step: StoredStep) -> str:
    if step.error:
        return _said(step.error)
    if step.kind == "child":
        return f"run {short_id(step.child_id or '')}"
    return render.short(shown_text(step.output or ""), CELL_WIDTH)
