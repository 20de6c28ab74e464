"""`rota pipeline trust`: let a pipeline from elsewhere run its commands and its schedule."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from rota.cli import render
from rota.cli.base import BaseCommand, CommonOptions
from rota.cli.pipeline import location
from rota.pipelines.definition.loader import Loaded
from rota.pipelines.definition.locate import locate, open_pipeline, pipelines_in
from rota.pipelines.trust import Trust, commands_of


@click.command("trust", cls=BaseCommand)
@click.argument("path", required=False)
@click.option("--remove", is_flag=True, help="Withdraw the trust.")
@click.pass_obj
def trust(call: CommonOptions, path: str | None, remove: bool) -> None:
    """Trust a pipeline from elsewhere; list the trusted ones.

    A pipeline.yaml is code: it may name commands and a schedule that runs them. Pipelines in the
    folder of your rota.toml, or without one in the current folder, are your project's own. Others
    run no commands and no schedule until you trust them. The same holds for folders inside it that
    are a git repository of their own, or belong to another user.

    PATH is a pipeline, or a folder of pipelines. Read its files first. The trust ends when a file
    of the folder changes (tables such as .csv excepted). Without PATH the trusted folders are
    listed.
    """
    kept = location.trust_of(call)
    if path is None:
        if remove:
            raise click.UsageError("--remove needs PATH: the folder to withdraw the trust from.")
        _list(call, kept)
        return
    if remove:
        removed = [str(folder) for folder in _folders(path) if kept.remove(folder)]
        _report(call, [{"folder": folder, "trusted": False} for folder in removed])
        return
    _report(call, [_trusted(kept, loaded) for loaded in _loaded(path)])


def _folders(path: str) -> list[Path]:
    """The folders that are meant; one that is gone can still be withdrawn."""
    return [folder.resolve() for folder in pipelines_in(Path(path)) or [Path(path)]]


def _loaded(path: str) -> list[Loaded]:
    return [open_pipeline(folder) for folder in pipelines_in(Path(path)) or [locate(path)]]


def _trusted(kept: Trust, loaded: Loaded) -> dict[str, Any]:
    kept.add(loaded.folder)
    block = loaded.pipeline.schedule
    return {
        "folder": str(loaded.folder.resolve()), "trusted": True,
        "commands": commands_of(loaded.pipeline, is_scheduled=True),
        "schedule": None if block is None else block.cron,
    }  # fmt: skip


def _report(call: CommonOptions, documents: list[dict[str, Any]]) -> None:
    if call.json:
        render.document(documents)
        return
    for document in documents:
        word = "trusted" if document["trusted"] else "no longer trusted:"
        click.echo(render.clean(f"{word} {document['folder']}"))
        for command in document.get("commands", []):
            click.echo(render.clean(f"  runs `{command}`"))
        if document.get("schedule"):
            click.echo(render.clean(f"  on schedule {document['schedule']}"))


def _list(call: CommonOptions, kept: Trust) -> None:
    render.listing(
        call.json, kept.recorded(),
        lambda record: {"folder": str(record.folder), "unchanged": record.is_unchanged},
        lambda record: {
            "folder": record.folder, "note": "" if record.is_unchanged else "changed since",
        },
        "no folder from elsewhere is trusted",
    )  # fmt: skip
