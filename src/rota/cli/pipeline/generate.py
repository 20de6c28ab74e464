"""`rota pipeline generate`: the items that an AI makes, to be looked at before a run."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import click
import msgspec

from rota.ai.base import Reply, release
from rota.ai.registry import invoker_of
from rota.cli import complete, render
from rota.cli.base import BaseCommand, CommonOptions
from rota.cli.pipeline.options import AI
from rota.cli.pipeline.progress import money
from rota.errors import BadInput
from rota.pipelines.definition.fields import fields_of
from rota.pipelines.definition.locate import locate, open_pipeline
from rota.pipelines.definition.model import Generate
from rota.pipelines.definition.parameters import read_given
from rota.pipelines.run.generated_items import generate_question, read_items_reply
from rota.pipelines.snapshot import Overrides, Snapshot, take


@click.command("generate", cls=BaseCommand)
@complete.PATH
@click.option("-p", "--param", "params", multiple=True, metavar="NAME=VALUE", help="A parameter.")
@click.option("--model", metavar="MODEL", help="This model: provider:model.")
@AI
@click.pass_obj
def generate(
    call: CommonOptions, path: str, params: tuple[str, ...], model: str | None, ai: Path | None
) -> None:
    """Generate the items of a pipeline and print them.

    For pipelines with `input.generate`. It makes one model call. Review and edit the items, then
    pass them to `rota pipeline run PATH --items FILE`. Each item is a line of JSON; with --json
    they are one list. Nothing is stored.
    """
    loaded = open_pipeline(locate(path))
    part = loaded.pipeline.input.generate if loaded.pipeline.input else None
    if part is None:
        raise BadInput(
            f"{loaded.pipeline_id} does not generate its items",
            hint=f"`rota pipeline show {path}` shows where they come from.",
        )
    snapshot = take(loaded, parameters=read_given(params), overrides=Overrides(model=model))
    items, reply = asyncio.run(_made(snapshot, part, ai))
    if call.json:
        render.document(items)
        return
    for item in items:
        click.echo(msgspec.json.encode(item).decode())
    cost = "no price is known" if reply.cost_usd is None else money(reply.cost_usd)
    tokens = reply.tokens_in + reply.tokens_out
    click.echo(f"{render.count(len(items), 'item')}, {tokens} tokens, {cost}", err=True)


async def _made(
    snapshot: Snapshot, part: Generate, ai: Path | None
) -> tuple[list[dict[str, Any]], Reply]:
    invoker = invoker_of(ai)
    question = generate_question(snapshot, part)
    try:
        reply = await invoker.ask(question.request())
    finally:
        await release(invoker)
    return read_items_reply(reply.text, fields_of(part.schema)), reply
