"""`rota run approve|reject|resolve`: a person's answer to an automation that waits for one.

Each names the change or the run that was shown, so that no other change is approved.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import click

from rota.cli import complete, connect
from rota.cli.automation.answers import PERSON, RESULT, result_of
from rota.cli.automation.commands import report
from rota.cli.automation.page import in_the_way, output_document
from rota.cli.base import BaseCommand, CommonOptions
from rota.client.automation_views import AutomationView
from rota.client.automations import Automations
from rota.client.client import Client
from rota.core.automations.model import RESOLUTIONS, LedgerRow, Resolution
from rota.errors import UnknownRun, WrongState


class ApprovalTarget(NamedTuple):
    """The subject of an answer: the automation, and the change or run that must still wait."""

    name: str
    expected: str


async def _seen(client: Client, given: str) -> ApprovalTarget:
    """The automation that this change or run belongs to, or WrongState when it is over."""
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
        return ApprovalTarget(run.name, f"{run.root_id}-{number}")
    view = await client.automations.show(run.name)
    # Not any run of its chain: a later attempt may ask for something else.
    if view.open_run is None or view.open_run.id != run.id:
        raise WrongState(
            f"run {run.id} of automation {run.name} is over; nothing was changed",
            hint=f"See what it waits for now: `rota automation show {run.name}`.",
        )
    change = in_the_way(view)
    return ApprovalTarget(run.name, change.id if change else run.id)


def _answer(
    call: CommonOptions,
    given: str,
    verb: Callable[[Automations, ApprovalTarget], Awaitable[LedgerRow | None]],
    words: Callable[[str, LedgerRow | None], str],
    **facts: Any,
) -> None:
    async def work(client: Client) -> tuple[LedgerRow | None, AutomationView]:
        seen = await _seen(client, given)
        row = await verb(client.automations, seen)
        return row, await client.automations.show(seen.name)

    row, view = connect.ask(call, work)
    if row is not None:
        facts["answered"] = output_document(row)
    report(call, view, words(view.automation.name, row), **facts)


def _title(row: LedgerRow | None) -> str:
    return "" if row is None else f"{row.title or 'a change'} ({row.tool} {row.params})"


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
    _answer(
        call, answer_to,
        lambda ask, seen: ask.approve(seen.name, expected=seen.expected, by=by, note=note),
        lambda name, row: f"approved for {name}: {_title(row)}", answer="approved",
    )  # fmt: skip


@click.command(cls=BaseCommand)
@click.argument("answer_to", metavar="ID", shell_complete=complete.run_ids)
@PERSON
@click.pass_obj
def reject(call: CommonOptions, answer_to: str, by: str | None, note: str | None) -> None:
    """Reject the pending change of an automation run.

    ID is the id of the change or of the run. The automation continues without the change and skips
    the events behind it.
    """
    _answer(
        call, answer_to,
        lambda ask, seen: ask.reject(seen.name, expected=seen.expected, by=by, note=note),
        lambda name, row: f"rejected for {name}: {_title(row)}", answer="rejected",
    )  # fmt: skip


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

    async def verb(ask: Automations, seen: ApprovalTarget) -> None:
        await ask.resolve(
            seen.name, how, expected=seen.expected, result=result_of(result), by=by, note=note
        )

    _answer(call, answer_to, verb, lambda name, _: f"{name} is resolved: {how}", answer=how)
