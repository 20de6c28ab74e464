"""`rota run approve|reject|resolve`: a person's answer to an automation that waits for one.

Each names the change or the run that was shown, so that no other change is approved.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import click

from rota.cli import argument_values, complete, connect
from rota.cli.automation.answers import PERSON, RESULT
from rota.cli.automation.page import output_document, report
from rota.cli.base import BaseCommand, CommonOptions
from rota.client.automation_views import AutomationView
from rota.client.automations import Automations
from rota.client.client import Client
from rota.core.automations.model import RESOLUTIONS, LedgerRow, Resolution
from rota.errors import UnknownRun, WrongState


async def _target(client: Client, given: str) -> tuple[str, str]:
    """The automation that this change or run belongs to, and the id that must still wait; or
    WrongState when it is over."""
    root_id, _, number = given.partition("-")  # a change is numbered within its chain of runs
    try:
        run = await client.runs.get(root_id)
    except UnknownRun as error:
        raise UnknownRun(
            error.message,
            hint="`rota automation show NAME` gives the whole command, with the id it needs.",
        ) from error
    if run.kind != "automation":
        raise WrongState(
            f"run {run.id} is one of {run.name}, not of an automation",
            hint=f"Nothing in it waits for an answer; see `rota run show {run.id}`.",
        )
    if number:
        return run.name, f"{run.root_id}-{number}"
    view = await client.automations.show(run.name)
    # Not any run of its chain: a later attempt may ask for something else.
    if view.open_run is None or view.open_run.id != run.id:
        raise WrongState(
            f"run {run.id} of automation {run.name} is over; nothing was changed",
            hint=f"See what it waits for now: `rota automation show {run.name}`.",
        )
    return run.name, (view.blocking_change or run).id


def _decide(
    call: CommonOptions,
    given: str,
    decide: Callable[..., Coroutine[Any, Any, LedgerRow]],
    answer: str,
    **person: str | None,
) -> None:
    """Approve or reject the change that waits."""

    async def work(client: Client) -> tuple[LedgerRow, AutomationView]:
        name, expected = await _target(client, given)
        row = await decide(client.automations, name, expected=expected, **person)
        return row, await client.automations.show(name)

    row, view = connect.ask(call, work)
    change = f"{row.title or 'a change'} ({row.tool} {row.params})"
    text = f"{answer} for {view.automation.name}: {change}"
    report(call, view, text, answer=answer, answered=output_document(row))


@click.command(cls=BaseCommand)
@click.argument("answer_to", metavar="ID", shell_complete=complete.run_ids)
@PERSON
@click.pass_obj
def approve(call: CommonOptions, answer_to: str, by: str | None, note: str | None) -> None:
    """Approve the pending change of an automation run.

    ID is the id of the change or of the run; `rota automation show` prints the whole command.
    Approving covers exactly the parameters shown there. If they have changed since, the command
    approves nothing.
    """
    _decide(call, answer_to, Automations.approve, "approved", by=by, note=note)


@click.command(cls=BaseCommand)
@click.argument("answer_to", metavar="ID", shell_complete=complete.run_ids)
@PERSON
@click.pass_obj
def reject(call: CommonOptions, answer_to: str, by: str | None, note: str | None) -> None:
    """Reject the pending change of an automation run.

    ID is the id of the change or of the run. The automation continues without the change and skips
    the events behind it.
    """
    _decide(call, answer_to, Automations.reject, "rejected", by=by, note=note)


@click.command(cls=BaseCommand)
@click.argument("answer_to", metavar="ID", shell_complete=complete.run_ids)
@click.argument("how", type=click.Choice(RESOLUTIONS), metavar="HOW")
@RESULT
@PERSON
@click.pass_obj
def resolve(
    call: CommonOptions,
    answer_to: str,
    how: Resolution,
    result: str | None,
    by: str | None,
    note: str | None,
) -> None:
    """Resolve what an automation run waits for.

    ID is the id of the run, or of the change with the unknown outcome. `rota automation show` says
    which values of HOW apply.

    try-again: the cause is fixed. Rota looks up an unknown outcome again.

    happened: you checked, and the change was made. The automation continues with its result.

    did-not-happen: you checked, and the change was not made. Rota makes it again.

    skip: continue without it. After a failure Rota skips the events that the run had taken, or the
    event that caused the failure. It leaves an unknown change as it is.
    """

    async def work(client: Client) -> AutomationView:
        name, expected = await _target(client, answer_to)
        await client.automations.resolve(
            name, how, expected=expected, result=argument_values.loose(result), by=by, note=note
        )
        return await client.automations.show(name)

    view = connect.ask(call, work)
    report(call, view, f"{view.automation.name} is resolved: {how}", answer=how)
