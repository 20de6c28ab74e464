"""`rota run approve|reject|resolve`: a person's answer to an automation that waits for one.

Each names the run that was looked at, so that nobody agrees to another change than the one shown.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import click

from rota.cli import connect
from rota.cli.automation import tell
from rota.cli.automation_page import output_document
from rota.cli.base import Call, Command
from rota.errors import UnknownRun, WrongState

if TYPE_CHECKING:
    from rota.automation_client import Resolution, Standing
    from rota.client import Client
    from rota.core.automation import LedgerRow

RESOLUTIONS = ("try-again", "did-not-happen", "skip")


async def _blocked(client: Client, run_id: str) -> Standing:
    """The automation whose open run this is, or WrongState."""
    try:
        run = await client.get(run_id)
    except UnknownRun as error:
        raise UnknownRun(
            error.message,
            hint="`rota automation show NAME` gives the whole command, with the id of its run.",
        ) from error
    if run.kind != "automation":
        raise WrongState(
            f"run {run.id} is one of {run.name}, not of an automation",
            hint=f"Nothing in it waits for an answer; see `rota run show {run.id}`.",
        )
    standing = await client.automations.show(run.name)
    # Not any run of its chain: a later attempt may ask for something else.
    if standing.turn is None or standing.turn.id != run.id:
        raise WrongState(
            f"run {run.id} of automation {run.name} is over; nothing was changed",
            hint=f"See what it waits for now: `rota automation show {run.name}`.",
        )
    return standing


def _answer(
    call: Call,
    run_id: str,
    verb: Callable[[Client, str], Awaitable[LedgerRow | None]],
    words: Callable[[str, LedgerRow | None], str],
    **facts: Any,
) -> None:
    async def work(client: Client) -> tuple[LedgerRow | None, Standing]:
        name = (await _blocked(client, run_id)).automation.name
        row = await verb(client, name)
        return row, await client.automations.show(name)

    row, standing = connect.ask(call, work)
    if row is not None:
        facts["answered"] = output_document(row)
    tell(call, standing, words(standing.automation.name, row), **facts)


def _title(row: LedgerRow | None) -> str:
    return "" if row is None else f"{row.title or 'a change'} ({row.tool} {row.params})"


@click.command(cls=Command)
@click.argument("run_id", metavar="ID")
@click.pass_obj
def approve(call: Call, run_id: str) -> None:
    """Agree to the change that an automation's run waits with.

    It is made with exactly the parameters that `rota automation show` gives.
    """
    _answer(
        call, run_id, lambda client, name: client.automations.approve(name),
        lambda name, row: f"approved for {name}: {_title(row)}", answer="approved",
    )  # fmt: skip


@click.command(cls=Command)
@click.argument("run_id", metavar="ID")
@click.pass_obj
def reject(call: Call, run_id: str) -> None:
    """Refuse the change that an automation's run waits with.

    The automation goes on without it; the events behind it are skipped.
    """
    _answer(
        call, run_id, lambda client, name: client.automations.reject(name),
        lambda name, row: f"rejected for {name}: {_title(row)}", answer="rejected",
    )  # fmt: skip


@click.command(cls=Command)
@click.argument("run_id", metavar="ID")
@click.argument("how", type=click.Choice(RESOLUTIONS), metavar="HOW")
@click.pass_obj
def resolve(call: Call, run_id: str, how: Resolution) -> None:
    """Clear what an automation's run waits for.

    HOW is try-again (the cause is gone; a change in doubt is looked up again), did-not-happen
    (you looked: the change in doubt was not made, so it is made again) or skip (go on without it;
    a change in doubt is left as it is). `rota automation show` says which of them apply.
    """

    async def verb(client: Client, name: str) -> None:
        await client.automations.resolve(name, how)

    _answer(call, run_id, verb, lambda name, _: f"{name} is resolved: {how}", answer=how)
