"""Help of every command: an imperative verb and its object, short, within 80 columns."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from rota.cli.main import cli
from tests.tidy.prose import HELP_MAX

COLUMNS = 80
VERBS = {
    "Approve", "Archive", "Cancel", "Change", "Check", "Compare", "Copy", "Create",
    "Delete", "Deploy", "Explain", "Generate", "Keep", "Let", "List", "Move", "Open",
    "Pause", "Preview", "Print", "Publish", "Reject", "Requeue", "Resolve", "Restore",
    "Resume", "Retry", "Revoke", "Run", "Send", "Serve", "Show", "Skip", "Start", "Trust",
    "Wait", "Write",
}  # fmt: skip


def _walk(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        for name, child in command.commands.items():
            yield from _walk(child, f"{path} {name}")


COMMANDS = dict(_walk(cli, "rota"))


def _complaints(path: str, command: click.Command) -> Iterator[str]:
    """Everything that is wrong with one page of help."""
    first = " ".join((command.help or "").strip().split("\n\n")[0].split())
    if first.split(" ")[0].rstrip(",") not in VERBS:
        yield f"{path}: begin with an imperative verb: {first!r}"
    if len(first) > HELP_MAX:
        yield f"{path}: {len(first)} characters, at most {HELP_MAX}: {first!r}"
    for option in command.params:
        text = option.help or "" if isinstance(option, click.Option) else ""
        if len(text) > HELP_MAX:
            yield f"{path} {option.name}: {len(text)} characters, at most {HELP_MAX}: {text!r}"
    context = click.Context(command, info_name=path, terminal_width=COLUMNS)
    for line in command.get_help(context).splitlines():
        if len(line) > COLUMNS:
            yield f"{path}: {len(line)} columns: {line!r}"
        if line.endswith("...") and not line.startswith("Usage"):
            yield f"{path}: cut: {line!r}"


@pytest.mark.parametrize("path", COMMANDS)
def test_help_is_short_and_imperative(path: str) -> None:
    assert not list(_complaints(path, COMMANDS[path]))


@pytest.mark.parametrize(
    "text",
    [
        "Runs whatever there is.",
        "Run a worker for a project, and go through all of its queues again and again.",
    ],
)
def test_a_planted_text_is_found(text: str) -> None:
    option = click.Option(
        ["--all"], help="Read everything that is stored, " + "which takes long." * 3
    )
    assert len(list(_complaints("x", click.Command("x", help="Show it.", params=[option])))) == 1
    assert list(_complaints("x", click.Command("x", help=text)))


def test_the_alias_of_the_pipeline_schedules_is_the_same_group() -> None:
    assert COMMANDS["rota pipeline schedule"] is COMMANDS["rota scheduler"]
