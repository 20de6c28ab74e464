"""Output: JSON for machines, text and tables for people, colour only on a terminal.

Control characters of stored text (names, errors, results) never reach a terminal.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Any, Generic, NamedTuple, TypeVar
from unicodedata import east_asian_width

import click
import msgspec

from rota.core.plurals import counted
from rota.core.redaction import shown, shown_text
from rota.core.runs.stored_errors import own_frames, read_error
from rota.core.time.instants import MINUTE, SECOND, iso_if_known, moment, span

T = TypeVar("T")
Row = Mapping[str, object]  # the cells of a table by column
_BY_COLOUR: dict[str, tuple[str, ...]] = {
    "green": (
        "completed", "scheduled", "ok", "online", "idle", "committed", "done", "applied",
    ),
    "cyan": ("running", "active", "in_flight"),
    "blue": ("sleeping",),
    "red": (
        "failed", "crashed", "bad", "silent", "gone", "needs", "indeterminate", "broken", "error",
    ),
    "yellow": (
        "waiting", "warn", "paused", "skipped", "partial", "stopped", "proposed",
        "needs_reconcile", "disabled",
    ),
    "magenta": ("cancelled",),
}  # fmt: skip
COLOURS = {status: colour for colour, statuses in _BY_COLOUR.items() for status in statuses}

COLOURED = ("status", "heartbeat")
GAP = "  "
BELOW = " " * 4
# Columns that may be broken into lines.
PROSE = (
    "error", "result", "limits", "queues", "note", "means", "now", "title", "does", "asks for",
    "gives", "models",
)  # fmt: skip
PROSE_WIDTH = 10
# Columns that may be cut: they are recognised by their beginning.
NAMES = (
    "name", "workflow", "queue", "host", "step", "handler", "tool", "schedule", "pipeline", "item",
    "input", "topic", "from", "publishes", "runs on", "payload", "trigger", "result file", "cause",
)  # fmt: skip
NAME_WIDTH = 8
READABLE = {PROSE: 24, NAMES: 20}  # columns; where they do not fit, prose goes below its row
_QUOTED = re.compile(r"`[^`]*`")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # all but tabs and ends of lines

# -- documents ---------------------------------------------------------------------------------


def document(value: Any) -> None:
    """One JSON document on stdout."""
    click.echo(json.dumps(value, ensure_ascii=False, indent=2))


def report(as_json: bool, value: Any, text: str) -> None:
    """The effect of a command: `value` as a document with --json, otherwise a line of text."""
    if as_json:
        document(value)
    else:
        say(text)


def page(
    as_json: bool, content: T, to_document: Callable[[T], object], print_text: Callable[[T], None]
) -> None:
    """One thing: its document with --json, otherwise its page for people."""
    if as_json:
        document(to_document(content))
    else:
        print_text(content)


def result(text: str | None) -> None:
    """A stored result as JSON: unchanged for a pipe, indented on a terminal."""
    body = shown_text(text or "null")
    if sys.stdout.isatty():
        body = msgspec.json.format(body, indent=2)
    click.echo(body)


def whole(text: str) -> None:
    """A text unchanged, to the last byte; on a terminal without control characters."""
    if sys.stdout.isatty():
        text = _CONTROL.sub(lambda match: repr(match.group())[1:-1], text)
    # By default click would remove escape sequences from a pipe.
    click.echo(text, nl=not text.endswith("\n"), color=True)


def parsed(text: str | None) -> Any:
    """Stored JSON inside a document, without secret fields."""
    return None if text is None else shown(json.loads(text))


def record(row: msgspec.Struct) -> dict[str, Any]:
    """A row in a document: instants as ISO 8601, stored JSON as JSON."""
    fields = {}
    for name in row.__struct_fields__:
        value = getattr(row, name)
        if name == "at" or name.endswith(("_at", "_until")):
            value = iso_if_known(value)
        elif name in ("input", "output", "error", "tags", "options", "queues", "detail"):
            value = parsed(value)
        fields[name] = value
    return fields


# -- text --------------------------------------------------------------------------------------


def clean(text: str) -> str:
    """One line without control characters."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def short(text: str | None, width: int) -> str:
    """One line of at most `width` columns."""
    line = clean(text or "")
    return line if _cells(line) <= width else _beginning(line, width - 1) + "…"


def clock(instant_us: int | None) -> str:
    """An instant in this machine's zone."""
    if instant_us is None:
        return "-"
    return moment(instant_us).astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")


def wall(instant_us: int | None) -> str:
    """The same for tables, without the name of the zone."""
    return clock(instant_us)[:19]


def ago(instant_us: int | None, now: int) -> str:
    """How long since, or until, an instant."""
    if instant_us is None:
        return "-"
    age = now - instant_us
    if abs(age) < SECOND:
        return "now"
    return f"{_whole(age)} ago" if age > 0 else f"in {_whole(-age)}"


def due(instant_us: int | None, now: int) -> str:
    """When something comes next; one that is late is due."""
    text = ago(instant_us, now)
    return f"due {text}" if text.endswith("ago") else text


def _whole(duration_us: int) -> str:
    return span(duration_us // SECOND * SECOND)


def took(begin_us: int | None, end_us: int | None) -> str:
    """How long something took, with the precision that matters."""
    if begin_us is None or end_us is None:
        return "-"
    duration = round(max(0, end_us - begin_us), -3)
    return f"{duration / SECOND:.1f}s" if SECOND <= duration < MINUTE else span(duration)


count = counted


# -- pages -------------------------------------------------------------------------------------


def say(text: str, *, hang: int = 0, err: bool = False) -> None:
    """Print a line. A terminal gets it broken between words, later lines indented by `hang`.

    A command in backticks stays whole, because people copy it.
    """
    if (sys.stderr if err else sys.stdout).isatty():
        whole = _QUOTED.sub(lambda match: match.group().replace(" ", "\0"), text)
        lines = textwrap.wrap(
            whole, shutil.get_terminal_size().columns, subsequent_indent=" " * hang,
            break_long_words=False, break_on_hyphens=False,
        )  # fmt: skip
        text = "\n".join(lines).replace("\0", " ")
    click.echo(text, err=err)


def heading(text: str) -> None:
    """The title of a part of a page."""
    click.echo()
    click.secho(text, bold=True)


def facts(pairs: Iterable[tuple[str, object]]) -> None:
    """Names and values, one pair a line. A pair without a value is omitted."""
    for name, value in pairs:
        if value:
            say(f"  {name:<12}{clean(str(value))}", hang=14)


def explanation(sentence: str, hint: str | None) -> None:
    """Why something runs or does not, and what to do about it."""
    say(clean(sentence))
    if hint:
        say(f"→ {clean(hint)}", hang=2)


def error(title: str, stored: str | None) -> None:
    """A part of a page: a stored error with the frames of the user's code."""
    if stored is None:
        return
    detail = read_error(stored)
    trace, notes = detail["trace"].rstrip(), str(detail.get("notes", ""))
    if "`rota run show" in notes:  # the reader is there
        trace = trace.removesuffix(notes).rstrip()
    heading(title)
    say(f"  {clean(detail['type'])}: {clean(detail['message'])}", hang=2)
    for line in own_frames(trace):
        click.echo(f"  {clean(line)}")


def coloured(text: str) -> str:
    """A status in its colour, with any reason behind it; click drops it outside a terminal."""
    colour = COLOURS.get(text.partition(":")[0].partition(" ")[0].lower())
    return click.style(text, fg=colour) if colour else text


# -- tables ------------------------------------------------------------------------------------


def not_found(noun: str, search: str) -> str:
    """The text for a search that finds nothing; empty without a search."""
    return f"no {noun} has {search!r} in its name" if search else ""


class NextPage(NamedTuple, Generic[T]):
    """The option that gives the next page of a list, if this one has `limit` items. Without an
    option the list has no further pages."""

    limit: int
    option: str = ""
    key: Callable[[T], object] = str  # of the last item, as the option takes it
    search: str = ""


def more(items: Sequence[T], page: NextPage[T]) -> None:
    """If the page is full, print the options that give the next one."""
    if len(items) == page.limit and not page.option:
        click.echo("more: a higher --limit", err=True)
    elif len(items) == page.limit:
        given = f"--search {shlex.quote(page.search)} " if page.search else ""
        key = shlex.quote(str(page.key(items[-1])))
        click.echo(f"more: {given}{page.option} {key}", err=True)


def listing(
    as_json: bool,
    items: Sequence[T],
    to_document: Callable[[T], object],
    to_row: Callable[[T], Row],
    empty: str,
    *,
    optional: Sequence[str] = (),
    page: NextPage[T] | None = None,
) -> None:
    """A list: with --json a document of each item, otherwise a table with a row of each."""
    if as_json:
        document([to_document(item) for item in items])
        return
    table([to_row(item) for item in items], empty, optional=optional)
    if page is not None:
        more(items, page)


def table(rows: Sequence[Row], empty: str, *, optional: Sequence[str] = ()) -> None:
    """Rows, each with its cells by column; `empty` when there are none.

    A column that is `optional` is omitted if all its cells are empty. On a terminal the table keeps
    to the width.
    """
    if not rows:
        say(empty)
        return
    columns = {head: [clean(str(row[head])) for row in rows] for head in rows[0]}
    for head in optional:
        if not any(columns[head]):
            del columns[head]
    widths = {head: max(map(_cells, (head, *cells))) for head, cells in columns.items()}
    width = shutil.get_terminal_size().columns
    if sys.stdout.isatty():
        widths = _fitted(widths, width)
    below = [head for head in columns if head not in widths]
    _line([
        click.style(head.upper(), bold=True) + " " * (size - len(head))
        for head, size in widths.items()
    ])  # fmt: skip
    if below:
        click.secho(BELOW + ", ".join(below).upper(), bold=True)
    for cells in zip(*columns.values(), strict=True):
        row = dict(zip(columns, cells, strict=True))
        wrapped = [_wrapped(head, row[head], size) for head, size in widths.items()]
        for line in zip_longest(*wrapped, fillvalue=""):
            _line([
                _shown(head, cell, size)
                for (head, size), cell in zip(widths.items(), line, strict=True)
            ])  # fmt: skip
        for text in filter(None, map(row.__getitem__, below)):
            for piece in _broken(text, width - len(BELOW)):
                click.echo(BELOW + piece)


def _line(cells: Sequence[str]) -> None:
    click.echo(GAP.join(cells).rstrip())


def _fitted(widths: dict[str, int], width: int) -> dict[str, int]:
    """The columns that fit beside each other, and their widths. Prose at the end that cannot be
    read there goes below its row. Ids, statuses and times stay whole; where even that is too wide,
    the terminal breaks the lines."""
    heads = list(widths)
    fitted = _narrowed(widths, width, READABLE)
    while _taken(fitted) > width and len(heads) > 1 and heads[-1] in PROSE:
        heads.pop()
        fitted = _narrowed({head: widths[head] for head in heads}, width, READABLE)
    return _narrowed(fitted, width, {PROSE: PROSE_WIDTH, NAMES: NAME_WIDTH})


def _narrowed(
    widths: dict[str, int], width: int, least: Mapping[tuple[str, ...], int]
) -> dict[str, int]:
    """Widths that fit, if they can: prose is broken into lines first, then names are cut."""
    widths = dict(widths)
    for able, narrowest in least.items():
        columns = [head for head in widths if head in able]
        while _taken(widths) > width:
            widest = max(columns, key=widths.__getitem__, default=None)
            if widest is None or widths[widest] <= max(narrowest, len(widest)):
                break
            widths[widest] -= 1
    return widths


def _taken(widths: Mapping[str, int]) -> int:
    return sum(widths.values()) + len(GAP) * (len(widths) - 1)


def _wrapped(head: str, cell: str, width: int) -> list[str]:
    if _cells(cell) <= width:
        return [cell]
    if head not in PROSE:
        return [short(cell, width)]
    return textwrap.wrap(cell, width) if _cells(cell) == len(cell) else _broken(cell, width)


def _broken(text: str, width: int) -> list[str]:
    """Lines of at most `width` columns; textwrap would count letters instead."""
    lines = [""]
    for word in text.split():
        joined = f"{lines[-1]} {word}".lstrip()
        if _cells(joined) <= width:
            lines[-1] = joined
            continue
        rest = word
        while rest:
            lines.append(_beginning(rest, width))
            rest = rest[len(lines[-1]) :]
    return [line for line in lines if line]


def _beginning(text: str, width: int) -> str:
    """As many letters as `width` columns hold."""
    while _cells(text) > width:
        text = text[:-1]
    return text


def _shown(head: str, cell: str, width: int) -> str:
    return (coloured(cell) if head in COLOURED else cell) + " " * (width - _cells(cell))


def _cells(text: str) -> int:
    """The columns a text takes on a terminal; Chinese and the like take two each."""
    return sum(2 if east_asian_width(char) in "WF" else 1 for char in text)
