"""The page about one run: who it is, how it went, what to do next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import click
import msgspec

from rota.cli import render
from rota.cli.automation import page as automation_page
from rota.cli.run import next_steps
from rota.client.client import Client
from rota.client.operations import ArchivedChain
from rota.core.automations.model import SeenRun, Touched
from rota.core.automations.text import deed
from rota.core.pipelines.names import pipeline_id_of
from rota.core.redaction import shown_text
from rota.core.runs.end_request import KIND, EndRequest
from rota.core.runs.ids import short_id
from rota.core.runs.lifecycle import CONTINUED
from rota.core.runs.model import Run, StoredStep
from rota.core.runs.progress import described, progress_of
from rota.core.runs.stored_errors import cause_line
from rota.core.time.instants import instant, iso_if_known
from rota.errors import UnknownRun

VALUE_WIDTH = 2000
CELL_WIDTH = 48
EVENTS_MAX = 20
ATTEMPTS_MAX = 20


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

    @property
    def segment(self) -> Sequence[Run]:
        """The attempts of the newest segment, which has the steps."""
        return [run for run in self.attempts if run.segment == self.last.segment]


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
    steps = [] if attempts[-1].kind == "pipeline" else await client.runs.steps(attempts[-1])
    content = RunPage(attempts, steps, client.clock.now())
    if not steps and content.last.is_final:
        archived = await client.operations.archived(attempts[0].root_id)
        if archived is not None:
            return _archived(attempts, archived, content.now)
    return await _with_handler(client, content) if content.last.kind == "automation" else content


def _archived(attempts: Sequence[Run], archived: ArchivedChain, now: int) -> RunPage:
    steps = [] if attempts[-1].kind == "pipeline" else archived.steps
    return RunPage(attempts, steps, now, month=archived.month)


async def _with_handler(client: Client, content: RunPage) -> RunPage:
    """With what the newest attempt did that ran a handler."""
    for run in reversed(content.attempts):
        handler_run = await client.automations.handler_run(run.id)
        if handler_run is not None:
            touched = await client.automations.touched(run.id)
            return content._replace(handler_run=handler_run, touched=touched)
    return content


def document(content: RunPage) -> dict[str, Any]:
    """The page for machines."""
    return _handler_document(content) | {
        "run": render.record(content.last),
        "attempts": [render.record(run) for run in content.attempts],
        "steps": [_step_document(step) for step in content.steps],
        "archived": content.month,
        "hint": _next_step(content),
    }


def _step_document(step: StoredStep) -> dict[str, Any]:
    progress = progress_of(step)
    return render.record(step) | {
        "output": None if progress else render.parsed(step.output),
        "progress": progress and msgspec.to_builtins(progress),
    }


def _next_step(content: RunPage) -> str:
    if content.month is not None:
        return f"Nothing to do: it is in the archive of {content.month}."
    return next_steps.next_step(content.last, content.steps, content.now)


def _handler_document(content: RunPage) -> dict[str, Any]:
    seen = content.handler_run
    if seen is None:
        return {}
    return {
        "handler_run": automation_page.handler_run_document(seen),
        "events": [
            {
                "topic": event.topic,
                "id": event.message_id,
                "act": event.act,
                "at": iso_if_known(event.at),
            }
            for event in content.touched
        ],
        "change": seen.change and automation_page.output_document(seen.change),
    }


def _handler(content: RunPage) -> None:
    """The work of a handler run of an automation: its handler, its events and its change."""
    seen = content.handler_run
    if seen is None:
        return
    render.heading(f"{seen.run.kind} {render.clean(seen.run.handler)}")
    click.echo(f"  {render.clean(deed(seen.run, seen.change))}")
    for touched in content.touched[:EVENTS_MAX]:
        event = render.clean(f"{touched.topic}/{touched.message_id}")
        click.echo(f"  {touched.act:<12}{event}  {render.clock(touched.at)}")
    if len(content.touched) > EVENTS_MAX:
        click.echo(f"  … and {len(content.touched) - EVENTS_MAX} more")
    if seen.run.remark:
        click.echo(f"  {'remark':<12}{render.clean(seen.run.remark)}")
    if seen.change is not None:
        render.heading("the change")
        automation_page.print_change(seen.change)


def print_page(content: RunPage) -> None:
    """The page for people."""
    _head(content)
    _handler(content)
    if len(content.attempts) > 1:
        render.heading("attempts")
        _attempts(content)
    if content.steps:
        render.heading("steps")
        _steps(content)
    if content.last.kind == "pipeline":
        name = render.clean(pipeline_id_of(content.last.name))
        click.echo(f"\nitems: rota pipeline history {name} --run {content.last.root_id}")
    render.error("error", content.last.error)
    click.echo()
    render.say(_next_step(content))


def _head(content: RunPage) -> None:
    run, first = content.last, content.attempts[0]
    click.echo(f"run {short_id(run.id)}  {click.style(render.clean(run.name), bold=True)}  "
        f"{render.coloured(render.clean(run.label))}")  # fmt: skip
    ended = run.finished_at or (content.now if first.started_at else None)
    lines: list[tuple[str, object]] = [
        ("id", run.id),
        ("queue", f"{run.queue}, priority {run.priority}"),
        ("trigger", first.trigger + (f" by run {first.parent_id}" if first.parent_id else "")),
        ("external id", first.external_id),
        ("key", first.limit_key),
        ("tags", first.tags),
        ("continues", _continues(content)),
        ("created", _when(first.created_at, content.now)),
        ("started", first.started_at and render.clock(first.started_at)),
        ("finished", run.finished_at and render.clock(run.finished_at)),
        ("took" if run.is_final else "so far",
            first.started_at and render.took(first.started_at, ended)),
        ("wakes", run.status == "sleeping" and run.available_at
            and _when(run.available_at, content.now)),
        ("worker", run.lease_owner),
        ("ends", _end(content)),
        ("input", render.short(shown_text(run.input or "none"), VALUE_WIDTH)),
        ("output", _output(run)),
    ]  # fmt: skip
    render.facts(lines)


def _end(content: RunPage) -> str | None:
    """That an open run is asked to end, or cleans up."""
    for step in content.steps:
        if step.kind == KIND and not step.is_forgotten and not content.last.is_final:
            request = EndRequest.read(step.output)
            if step.finished_at is None:
                return f"is asked to end: {render.clean(request.reason)}"
            until = _when(request.until(step.finished_at), content.now)
            return f"cleans up, at most until {until}: {render.clean(request.reason)}"
    return None


def _continues(content: RunPage) -> str | None:
    """The run that continued as the newest segment, and how many did so in all."""
    begun_by = content.segment[0].retry_of
    if content.last.segment_id is None or begun_by is None:
        return None
    count = sum(run.reason == CONTINUED for run in content.attempts)
    return f"run {short_id(begun_by)} ({render.count(count, 'continuation')} in all)"


def _output(run: Run) -> str | None:
    if run.output is None:
        return "null" if run.status == "completed" else None
    return render.short(shown_text(run.output), VALUE_WIDTH)


def _when(at: int, now: int) -> str:
    return f"{render.clock(at)} ({render.ago(at, now)})"


def _attempts(content: RunPage) -> None:
    numbered = list(enumerate(content.attempts, start=1))
    if len(numbered) > ATTEMPTS_MAX:
        click.echo(f"  the last {ATTEMPTS_MAX} of {len(numbered):,}")
    follows = {run.retry_of: run.id for run in content.attempts}
    rows = [
        {
            "#": number, "id": short_id(run.id), "status": _ended_as(run, follows),
            "trigger": run.trigger,
            "started": render.wall(run.started_at),
            "took": render.took(run.started_at, run.finished_at), "error": _said(run.error),
        }
        for number, run in numbered[-ATTEMPTS_MAX:]
    ]  # fmt: skip
    render.table(rows, "")


def _ended_as(run: Run, follows: Mapping[str | None, str]) -> str:
    if run.reason == CONTINUED and run.id in follows:
        return f"continued as {short_id(follows[run.id])}"
    return run.label


def _said(error: str | None) -> str:
    return "" if error is None else render.short(cause_line(error), CELL_WIDTH)


def _steps(content: RunPage) -> None:
    began = content.segment[0].started_at
    rows = [
        {
            "step": render.short(step.key, CELL_WIDTH), "status": _status(step, content),
            "tries": step.attempt, "started": f"+{render.took(began, step.started_at)}",
            "took": render.took(step.started_at, step.finished_at or step.wake_at),
            "result": _outcome(step, content.now),
        }
        for step in content.steps
    ]  # fmt: skip
    render.table(rows, "")


def _status(step: StoredStep, content: RunPage) -> str:
    now = content.now
    if step.kind == "step" and step.status == "waiting":
        return "not ended" if content.last.is_final else "running"
    if step.kind == "sleep":  # its end is not recorded: it is over when its time has come
        over = step.wake_at is not None and step.wake_at <= now
        return "completed" if over else f"sleeping, wakes {render.ago(step.wake_at, now)}"
    if step.status == "failed" and step.wake_at:
        return f"failed, again {render.ago(step.wake_at, now)}"
    return step.status


def _outcome(step: StoredStep, now: int) -> str:
    if progress := progress_of(step):
        said = f"{described(progress)}, {render.ago(instant(progress.at), now)}"
        return render.short(said + (f"; {_said(step.error)}" if step.error else ""), CELL_WIDTH)
    if step.error:
        return _said(step.error)
    if step.kind == "child":
        return f"run {short_id(step.child_id or '')}"
    return render.short(shown_text(step.output or ""), CELL_WIDTH)
