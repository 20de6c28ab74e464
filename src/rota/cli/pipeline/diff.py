"""`rota pipeline diff`: the answers of two runs, item by item."""

from __future__ import annotations

import json

import click
import msgspec

from rota.cli import complete, connect, render
from rota.cli.base import BaseCommand, CommonOptions
from rota.cli.pipeline.runner import client_of, never_ran
from rota.pipelines.definition.locate import locate
from rota.pipelines.run.run_diff import ItemDiff, compare

DIFFERENT = 1
WIDTH = 60
SIGNS = {"changed": "~", "added": "+", "removed": "-"}


@click.command("diff", cls=BaseCommand)
@complete.PATH
@click.argument("first")
@click.argument("second")
@click.option("--key", metavar="FIELD", help="Match items by this field; default: all fields.")
@click.pass_obj
def diff(call: CommonOptions, path: str, first: str, second: str, key: str | None) -> int:
    """Compare the answers of two runs item by item.

    FIRST and SECOND are ids of runs, as `rota pipeline history` lists them. Cost and time do not
    count. The exit code is 0 if all answers are the same, and 1 if some differ.
    """
    place = locate(path)
    client = client_of(call, place)
    if client is None:
        raise never_ran(place)
    found = connect.run(client, lambda opened: compare(opened, first, second, key=key))
    if call.json:
        render.document(msgspec.to_builtins(found))
    else:
        for each in found.items:
            click.echo(_line(each))
        click.echo(
            f"{found.same} same, {found.changed} changed, {found.added} only in {second}, "
            f"{found.removed} only in {first}",
            err=True,
        )
    return 0 if found.is_same else DIFFERENT


def _line(each: ItemDiff) -> str:
    sides = [
        render.short(json.dumps(side, ensure_ascii=False), WIDTH)
        for side in (each.before, each.after)
        if side is not None
    ]
    return f"{SIGNS[each.change]} {render.short(render.clean(each.key), WIDTH)}: " + " → ".join(
        map(render.clean, sides)
    )
