"""Rows of text into items, and items into rows: CSV as people and programs write it.

Reading is a stream. A byte-order mark and blank lines are skipped. Quotes may hold delimiters,
newlines and doubled quotes; missing cells are empty. A row that would lose or mangle a cell is an
error with its line: an open quote, text after a closing quote, more cells than columns.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from rota.core.pipelines.filter_rules import number_of
from rota.core.pipelines.templates import text_of
from rota.errors import BadInput

CELL_CHARS_MAX = 2**31 - 1
DELIMITERS = (",", ";", "\t", "|")
_TRUE = {"true", "yes", "1"}
_FALSE = {"false", "no", "0"}


def read_csv(
    lines: Iterable[str],
    *,
    name: str,
    delimiter: str | None = None,
    has_headers: bool = True,
    types: Mapping[str, str] | None = None,
) -> Iterator[dict[str, Any]]:
    """Items from the lines of a file (with their line ends); `name` is for errors.

    Without a delimiter the first line shows it.
    """
    rows = _rows(_reader(lines, name, delimiter), name)
    columns: list[str] | None = None
    for number, row in rows:
        if columns is None:
            columns = columns_of_header(row, name) if has_headers else _numbered(row)
            _check_types(types or {}, columns, name)
            if has_headers:
                continue
        yield _item(row, columns, types or {}, f"{name}:{number}")


def columns_of(lines: Iterable[str], *, name: str, delimiter: str | None = None) -> list[str]:
    """Only the names of the columns."""
    for _, row in _rows(_reader(lines, name, delimiter), name):
        return columns_of_header(row, name)
    return []


def _reader(lines: Iterable[str], name: str, delimiter: str | None) -> Any:
    csv.field_size_limit(CELL_CHARS_MAX)  # the default refuses cells of more than 128 KB
    source = iter(_without_bom(lines))
    before: list[str] = []
    while delimiter is None:
        line = next(source, None)
        before += [] if line is None else [line]
        if line is None or line.strip():
            delimiter = _delimiter(line or "", name)
    return csv.reader(itertools.chain(before, source), delimiter=delimiter, strict=True)


def _delimiter(line: str, name: str) -> str:
    """The delimiter of a first line; BadInput where more than one is possible."""
    plain = re.sub(r'"[^"]*"?', "", line.strip("\r\n"))
    found = [each for each in DELIMITERS if each in plain]
    if len(found) > 1:
        shown = " or ".join(repr(each) for each in found)
        raise BadInput(
            f"{name}:1: the columns could be separated by {shown}",
            hint=f"Say which: delimiter: {json.dumps(found[0])}.",
        )
    return found[0] if found else ","


def _without_bom(lines: Iterable[str]) -> Iterator[str]:
    first = True
    for line in lines:
        yield line.removeprefix("\ufeff") if first else line
        first = False


def _rows(reader: Any, name: str) -> Iterator[tuple[int, list[str]]]:
    """Rows that are not blank, with the number of the line they begin in."""
    while True:
        begins = reader.line_num + 1
        try:
            row = next(reader, None)
        except csv.Error as error:
            raise BadInput(f"{name}:{begins}: {_explained(str(error))}") from error
        if row is None:
            return
        if row and not (len(row) == 1 and row[0].isspace()):
            yield begins, row


def _explained(message: str) -> str:
    if "unexpected end of data" in message:
        return "this row opens a quote that is never closed"
    if "expected after" in message:
        return 'text follows a closing quote; write a quote within quotes as ""'
    return message


def _numbered(row: Sequence[str]) -> list[str]:
    return [f"col{index}" for index in range(len(row))]


def columns_of_header(row: Sequence[str], name: str) -> list[str]:
    """The names of columns, each of them once."""
    columns = [cell.strip() or f"col{index}" for index, cell in enumerate(row)]
    twice = [column for column, count in Counter(columns).items() if count > 1]
    if twice:
        raise BadInput(
            f"{name}:1: the column {', '.join(twice)} is there twice",
            hint="Give every column a name of its own.",
        )
    return columns


def _check_types(types: Mapping[str, str], columns: list[str], name: str) -> None:
    absent = [column for column in types if column not in columns]
    if absent:
        raise BadInput(
            f"{name}: types names {', '.join(absent)}, which is not a column",
            hint=f"The columns are {', '.join(columns)}.",
        )


def _item(
    row: list[str], columns: list[str], types: Mapping[str, str], where: str
) -> dict[str, Any]:
    if len(row) > len(columns):
        if any(cell.strip() for cell in row[len(columns) :]):
            raise BadInput(
                f"{where}: {len(row)} cells, but there are {len(columns)} columns",
                hint="Put quotes around text that holds the delimiter.",
            )
        row = row[: len(columns)]
    cells = [*row, *[""] * (len(columns) - len(row))]
    item: dict[str, Any] = dict(zip(columns, cells, strict=True))
    for column, kind in types.items():
        item[column] = typed_cell(item[column], kind, f"{where}: {column}")
    return item


def typed_cell(text: str, kind: str, where: str) -> Any:
    """A cell as a value of a declared type; an empty one is null, save as text."""
    if kind == "string":
        return text
    if not text.strip():
        return None
    if kind == "json":
        try:
            return msgspec.json.decode(text)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise BadInput(f"{where}: {text[:100]!r} is not JSON: {error}") from error
    if kind == "boolean":
        word = text.strip().lower()
        if word in _TRUE | _FALSE:
            return word in _TRUE
        raise BadInput(f"{where}: {text!r} is neither true nor false")
    number = number_of(text)
    whole = number is not None and number == int(number)
    if number is None or (kind == "integer" and not whole):
        what = "a whole number" if kind == "integer" else "a number"
        raise BadInput(f"{where}: {text!r} is not {what}")
    return int(number) if whole else float(number)


def write_csv(
    columns: Sequence[str], rows: Iterable[Sequence[Any]], delimiter: str = ","
) -> Iterator[str]:
    """Lines of CSV, whole: nothing is cut off, nested values are JSON."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, delimiter=delimiter, lineterminator="\n")
    for row in itertools.chain([columns], rows):
        cells = [text_of(cell) for cell in row]
        if len(cells) == 1 and not cells[0]:
            yield '""\n'  # a bare empty line would be passed over when it is read again
            continue
        writer.writerow(cells)
        yield buffer.getvalue()
        buffer.seek(0)
        buffer.truncate()
