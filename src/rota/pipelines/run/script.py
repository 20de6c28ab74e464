"""Script nodes: a command over the items. Its output goes through a file."""

from __future__ import annotations

import asyncio
import functools
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import IO

import msgspec

from rota.core.pipelines.replies import NoJson, only_value
from rota.errors import BadInput
from rota.net.subprocesses import environment
from rota.pipelines.definition.nodes import ScriptNode
from rota.pipelines.run.inputs import Item, parse, run_command, stream
from rota.pipelines.run.stages import RESULT
from rota.pipelines.run.tables import write_csv

SHELLS = {
    "default": ["/bin/sh", "-c"],
    "bash": ["bash", "-c"],
    "powershell": ["pwsh", "-NoProfile", "-Command"],
}


async def script_items(
    node: ScriptNode, folder: Path, items: AsyncIterator[Item]
) -> AsyncIterator[Item]:
    """The output of a script: items it prints, one with its text, or those that went in."""
    with (
        tempfile.TemporaryFile() as given,
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
    ):
        kept = [item async for item in items] if node.output == "passthrough" else None
        await _fill(given, node.input, items if kept is None else stream(kept))
        given.seek(0)
        start = functools.partial(asyncio.create_subprocess_exec, *_argv(node))
        await run_command(start, node, folder, stdin=given, out=out, err=err)
        out.seek(0)
        async for item in stream(kept if kept is not None else _read(node, out)):
            yield item


async def _fill(file: IO[bytes], form: str, items: AsyncIterator[Item]) -> None:
    rows = [item async for item in items] if form != "none" else []
    if form == "json":
        file.write(msgspec.json.encode(rows))
    elif form == "csv":
        columns = list(dict.fromkeys(name for row in rows for name in row))
        lines = write_csv(columns, ([row.get(name) for name in columns] for row in rows))
        file.writelines(line.encode() for line in lines)


def _argv(node: ScriptNode) -> list[str]:
    shell = SHELLS[node.shell]
    path = environment(node.pass_env, node.env).get("PATH")
    if shutil.which(shell[0], path=path) is None:
        raise BadInput(
            f"`{node.run}` cannot run: its shell {shell[0]} is not installed",
            hint=f"Install {shell[0]}, or take another shell: default or bash.",
        )
    if not node.args:
        return [*shell, node.run]
    if node.shell == "powershell":
        return [*shell, node.run, *node.args]
    return [*shell, f'{node.run} "$@"', "sh", *node.args]


def _read(node: ScriptNode, out: IO[bytes]) -> Iterator[Item]:
    name = f"`{node.run}`"
    if node.output == "csv":
        yield from parse(out, "csv", name=name)
    elif node.output == "text":
        yield {RESULT: out.read().decode("utf-8", "replace")}
    else:
        yield from _json_items(out.read().decode("utf-8", "replace"), name)


def _json_items(text: str, name: str) -> Iterator[Item]:
    """JSON as programs print it: a list, an object with a list under items, or one object."""
    try:
        value = only_value(text)
    except NoJson as error:
        raise BadInput(
            f"{name} did not print one JSON list or object: {error}",
            hint="Print all items as one list: [{…}, {…}].",
        ) from error
    if isinstance(value, dict):
        value = value["items"] if isinstance(value.get("items"), list) else [value]
    for number, each in enumerate(value, start=1):
        if not isinstance(each, dict):
            raise BadInput(f"{name}, item {number}: an item must be an object")
        yield each
