"""`rota automation dry-run`: what the consumers of the project's code would do with an event."""

from __future__ import annotations

import sys
from typing import Any

import click
import msgspec

from rota import project
from rota.automations.dry_run import DryRun
from rota.cli import complete, connect, exit_codes, render
from rota.cli.automation import page
from rota.cli.base import BaseCommand, CommonOptions
from rota.core.redaction import shown
from rota.errors import UsageError


@click.command("dry-run", cls=BaseCommand)
@complete.AUTOMATION
@click.argument("topic")
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@click.option("--with-reads", is_flag=True, help="Call the tools that `prepare` reads with.")
@click.pass_obj
def dry_run(
    call: CommonOptions, name: str, topic: str, ids: tuple[str, ...], with_reads: bool
) -> None:
    """Show which change recorded events would lead to.

    The project's code is imported; it need not be deployed. Each consumer of TOPIC gets each event
    alone, also one that was used, with the state that the consumer has now. `prepare` and `mutate`
    are called. Nothing is reserved, written or sent, and a tool that reads is refused without
    --with-reads.

    The exit code is 1 if a consumer fails on an event.
    """
    app = connect.project_app(call)
    if app is None:
        raise UsageError(
            "there is no project with an app here", hint="Run it in the folder of rota.toml."
        )
    project.must_exist(app.url)
    app.migrates = False
    found = connect.run(
        app, lambda _: app.automations.dry_run(name, topic, ids, with_reads=with_reads)
    )
    if call.json:
        render.document([_document(one) for one in found])
    else:
        for one in found:
            _print(one)
    if any(one.outcome == "error" for one in found):
        sys.exit(exit_codes.FAILED)


def _document(one: DryRun) -> dict[str, Any]:
    return one._asdict() | {"params": shown(one.params)}


def _print(one: DryRun) -> None:
    what = f"{one.topic}/{one.event}: {one.consumer} would"
    if one.outcome == "error":
        render.say(f"{what} fail: {one.reason}")
    elif one.outcome == "nothing":
        render.say(f"{what} call nothing: {one.reason}")
    else:
        asks = " after an approval" if one.approval else ""
        render.say(f"{what} call {one.tool}{asks}")
        render.facts([("title", one.title)])
        page.print_json("parameters", msgspec.json.encode(one.params).decode())
