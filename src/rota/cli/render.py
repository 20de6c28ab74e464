"""How things look: JSON for machines, tables for people, colour only on a terminal.

Nothing that was stored (names, errors, results) reaches a terminal with control characters.
"""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click
import msgspec

from rota.core.time.instants import MINUTE, SECOND, iso, moment, span

if TYPE_CHECKING:
    from rota.core.runs.model import Queue, Run, StoredStep, WorkerRecord

COLOURS = {
    "completed": "green",
    "scheduled": "green",
    "ok": "green",
    "online": "green",
    "running": "cyan",
    "sleeping": "blue",
    "failed": "red",
    "crashed": "red",
    "bad": "red",
    "silent": "red",
    "gone": "red",
    "waiting": "yellow",
    "warn": "yellow",
    "paused": "yellow",
    "skipped": "yellow",
    "cancelled": "magenta",
    "partial": "yellow",
    # Automations, their runs, inputs and changes.
    "idle": "green",
    "needs": "red",
    "stopped": "yellow",
    "active": "cyan",
    "committed": "green",
    "done": "green",
    "applied": "green",
    "proposed": "yellow",
    "in_flight": "cyan",
    "needs_reconcile": "yellow",
    "indeterminate": "red",
    # Pipelines.
    "broken": "red",
    "error": "red",
    "disabled": "yellow",
}

COLOURED = ("status", "heartbeat")
PROSE = (
    "error",
    "result",
    "limits",
    "queues",
    "note",
    "means",
    "now",
    "title",
    "does",
    "asks for",
    "gives",
)  # columns that may be broken into lines
PROSE_WIDTH = 20
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # all but tabs and ends of lines

# -- documents ---------------------------------------------------------------------------------


def document(value: Any) -> None:
    """One JSON document on stdout."""
    click.echo(json.dumps(value, ensure_ascii=False, indent=2))


def result(text: str | None) -> None:
    """A stored result as JSON: as it is for a pipe, spread out for a person."""
    body = text or "null"
    if sys.stdout.isatty():
        body = msgspec.json.format(body, indent=2)
    click.echo(body)


def whole(text: str) -> None:
    """A text as it is, to the last byte; on a terminal without what could move a cursor."""
    if sys.stdout.isatty():
        text = _CONTROL.sub(lambda found: repr(found.group())[1:-1], text)
    # Left alone, click would take what looks like colour out of a pipe.
    click.echo(text, nl=not text.endswith("\n"), color=True)


def at(instant_us: int | None) -> str | None:
    """An instant in a document."""
    return None if instant_us is None else iso(instant_us)


def parsed(text: str | None) -> Any:
    """Stored JSON inside a document."""
    return None if text is None else json.loads(text)


def record(row: Run | StoredStep | WorkerRecord | Queue) -> dict[str, Any]:
    """A row as it looks in a document: instants as ISO 8601, stored JSON as JSON."""
    fields = {}
    for name in row.__struct_fields__:
        value = getattr(row, name)
        if name.endswith(("_at", "_until")):
            value = at(value)
        elif name in ("input", "output", "error", "tags", "options", "queues"):
            value = parsed(value)
        fields[name] = value
    return fields


# -- words -------------------------------------------------------------------------------------


def clean(text: str) -> str:
    """One line without anything that could move a cursor."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def short(text: str | None, width: int) -> str:
    """At most `width` characters of one line."""
    line = clean(text or "")
    return line if len(line) <= width else line[: width - 1] + "…"


def clock(instant_us: int | None) -> str:
    """An instant in this machine's zone."""
    if instant_us is None:
        return "-"
    return moment(instant_us).astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")


def ago(instant_us: int | None, now: int) -> str:
    """How long since, or until, an instant."""
    if instant_us is None:
        return "-"
    age = now - instant_us
    if abs(age) < SECOND:
        return "now"
    return f"{_whole(age)} ago" if age > 0 else f"in {_whole(-age)}"


def _whole(duration_us: int) -> str:
    return span(duration_us // SECOND * SECOND)


def took(begin_us: int | None, end_us: int | None) -> str:
    """How long something took, with the precision that matters."""
    if begin_us is None or end_us is None:
        return "-"
    duration = round(max(0, end_us - begin_us), -3)
    return f"{duration / SECOND:.1f}s" if SECOND <= duration < MINUTE else span(duration)


def count(number: int, noun: str) -> str:
    """`1 run`, `2 runs`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


# -- tables ------------------------------------------------------------------------------------


def heading(text: str) -> None:
    """The title of a part of a page."""
    click.echo()
    click.secho(text, bold=True)


def colour_of(text: str) -> str | None:
    """The colour of a status, whatever reason follows it."""
    return COLOURS.get(text.partition(":")[0].partition(" ")[0].lower())


def coloured(text: str) -> str:
    """A status in its colour; click drops it where stdout is no terminal."""
    colour = colour_of(text)
    return click.style(text, fg=colour) if colour else text


def table(heads: Sequence[str], rows: Sequence[Sequence[object]], empty: str) -> None:
    """Rows under heads; `empty` when there are none."""
    if not rows:
        click.echo(empty)
        return
    cells = [[clean(str(cell)) for cell in row] for row in rows]
    if sys.stdout.isatty() and importlib.util.find_spec("rich"):
        _rich(heads, cells)
    else:
        _plain(heads, cells)


def _plain(heads: Sequence[str], rows: list[list[str]]) -> None:
    lines = [[head.upper() for head in heads], *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
    for line in lines:
        padded = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        click.echo("  ".join(padded).rstrip())


def _rich(heads: Sequence[str], rows: list[list[str]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    needed = 0
    for number, head in enumerate(heads):
        prose = head in PROSE
        grid.add_column(head.upper(), no_wrap=not prose, overflow="fold")
        longest = max(len(head), *(len(row[number]) for row in rows))
        needed += 2 + (min(longest, PROSE_WIDTH) if prose else longest)
    for row in rows:
        colours = [colour_of(c) if h in COLOURED else None for h, c in zip(heads, row, strict=True)]
        cells = [Text(cell, style=colour or "") for cell, colour in zip(row, colours, strict=True)]
        grid.add_row(*cells)
    # Where it is too narrow the terminal breaks the lines: a cut id or status is of no use.
    console = Console()
    console.width = max(console.width, needed)
    console.print(grid, crop=False)
