"""`rota token …` and `rota audit`: who may use the surfaces, and what they did."""

from __future__ import annotations

import click

from rota.cli import connect, render
from rota.cli.base import BaseCommand, CommandGroup, CommonOptions, limit_option
from rota.client.answers import user_name
from rota.client.client import Client
from rota.client.tokens import NewToken
from rota.core.access.model import ApiToken, Role
from rota.core.time.instants import iso


@click.group(cls=CommandGroup)
def token() -> None:
    """Create, list and revoke API tokens."""


@token.command("create")
@click.argument("name")
@click.option(
    "--role", type=click.Choice([role.value for role in Role]), default=Role.READ.value,
    show_default=True, help="Role of the holder.",
)  # fmt: skip
@click.option("--expires-in", metavar="DURATION", help="Lifetime: 90d, 12h. [never]")
@click.pass_obj
def create(call: CommonOptions, name: str, role: str, expires_in: str | None) -> None:
    """Create a token and print it once.

    Only a digest is stored: a lost token cannot be shown again.
    """

    async def make(client: Client) -> NewToken:
        made = await client.tokens.create(name, role=role, expires_in=expires_in)
        await _record(client, "token.create", name, role=role)
        return made

    made = connect.ask(call, make)
    if call.json:
        render.document(render.record(made.token) | {"token": made.text})
        return
    click.echo(made.text)
    render.say(
        f"Keep it: it is not shown again. Role {role} in namespace {made.token.namespace}, "
        + (f"until {iso(made.token.expires_at)}." if made.token.expires_at else "never expires."),
        err=True,
    )


async def _record(client: Client, verb: str, target: str, **detail: str) -> None:
    await client.audit.record(f"{user_name()} (command line)", verb, target, detail=detail)


@token.command("list")
@click.pass_obj
def list_tokens(call: CommonOptions) -> None:
    """List tokens, without their secrets."""
    rows, now = connect.ask_with_time(call, lambda client: client.tokens.list())
    render.listing(
        call.json, rows, render.record,
        lambda row: {
            "name": row.name, "role": row.role,
            "status": (row.problem(now) or "valid").rpartition(" ")[2],
            "created": render.ago(row.created_at, now), "used": render.ago(row.last_used_at, now),
            "expires": render.ago(row.expires_at, now), "id": row.id,
        },
        "no tokens; create one with `rota token create NAME`",
    )  # fmt: skip


@token.command("revoke")
@click.argument("name")
@click.pass_obj
def revoke(call: CommonOptions, name: str) -> None:
    """Revoke a token and the logins made with it.

    NAME is its name or its id.
    """

    async def end(client: Client) -> ApiToken:
        ended = await client.tokens.revoke(name)
        await _record(client, "token.revoke", ended.name)
        return ended

    ended = connect.ask(call, end)
    render.report(call.json, render.record(ended), f"token {render.clean(ended.name)} is revoked")


@click.command("audit", cls=BaseCommand)
@limit_option(50)
@click.option("--before", metavar="ID", help="Older than this entry: the next page.")
@click.pass_obj
def audit(call: CommonOptions, limit: int, before: str | None) -> None:
    """List who did what by API, dashboard, MCP and `rota token`."""
    rows, now = connect.ask_with_time(
        call, lambda client: client.audit.list(limit=limit, before=before)
    )
    render.listing(
        call.json, rows, render.record,
        lambda row: {
            "when": render.ago(row.at, now), "who": row.who, "verb": row.verb,
            "target": row.target,
        },
        "no entries yet", page=render.NextPage(limit, "--before", lambda row: row.id),
    )  # fmt: skip
