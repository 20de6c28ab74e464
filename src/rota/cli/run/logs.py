"""`rota run logs`: what the code of a run has logged."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Sequence

import click

from rota.cli import complete, connect, render
from rota.cli.base import BaseCommand, CommonOptions, is_given, limit_option
from rota.client.client import Client
from rota.core.runs.model import LogLine
from rota.core.time.instants import SECOND

FOLLOW_US = SECOND // 2
FOLLOW_LIMIT = 1_000


@click.command("logs", cls=BaseCommand)
@complete.RUN_ID
@click.option("--after", metavar="N", type=click.IntRange(0), default=0, help="After this line.")
@limit_option(200)
@click.option("--follow", is_flag=True, help="Print new lines until the run ends, or Ctrl-C.")
@click.pass_obj
def logs(call: CommonOptions, run_id: str, after: int, limit: int, follow: bool) -> None:
    """Print the log lines of a run's attempt, oldest first.

    With --follow and --json, each line is one JSON object.
    """
    if follow:
        if is_given("limit"):
            raise click.UsageError("--follow prints every line: omit --limit.")
        _follow(call, run_id, after)
        return
    lines = connect.ask(call, lambda client: client.runs.logs(run_id, after=after, limit=limit))
    if call.json:
        render.document([render.record(line) for line in lines])
        return
    _print(lines)
    if not lines:
        click.echo("no log lines" + (f" after {after}" if after else ""))
    render.more(lines, render.NextPage(limit, "--after", lambda line: line.position))


def _follow(call: CommonOptions, run_id: str, after: int) -> None:
    async def follow(client: Client) -> None:
        seen, ends, before = after, 0, ""
        while True:
            run = await client.runs.get(run_id)
            seen, before = (0 if before and run.id != before else seen), run.id
            lines = await client.runs.logs(run.id, after=seen, limit=FOLLOW_LIMIT)
            if call.json:
                for line in lines:
                    click.echo(json.dumps(render.record(line), ensure_ascii=False))
            else:
                _print(lines)
            seen = lines[-1].position if lines else seen
            # The last lines of a run come a moment after its end.
            ends = ends + 1 if run.is_final and not lines else 0
            if ends > 2:
                return
            await client.clock.wait(asyncio.Event(), client.clock.now() + FOLLOW_US)

    with contextlib.suppress(KeyboardInterrupt):
        connect.ask(call, follow)


def _print(lines: Sequence[LogLine]) -> None:
    for line in lines:
        text = f"{line.level.lower():<8}{line.logger}: {line.message}"
        click.echo(f"{render.wall(line.at)}  {render.clean(text)}")
