"""Rows in the files of other programs: Excel, Parquet, SQLite, JSON lines; and the text of PDF.

The libraries are those made for each format, and come with `rota[files]`. A file is read as a
stream of rows, and written beside its place and then moved there.
"""

from __future__ import annotations

import contextlib
import datetime
import decimal
import math
import os
import re
import sqlite3
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from rota.core.pipelines.templates import text_of
from rota.errors import BadInput, MissingExtra
from rota.pipelines.run.tables import columns_of_header

# The limits of Excel.
CELL_CHARS_MAX, SHEET_ROWS_MAX = 32_767, 1_048_576
_NOT_IN_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f]")
TABLE = "results"
BATCH_ROWS = 5_000
Item = dict[str, Any]
Rows = Callable[[], Iterable[Sequence[Any]]]


def library(name: str, what: str) -> Any:
    """A library of the extra `files`; MissingExtra says how to install it."""
    try:
        return import_module(name)
    except ImportError as missing:
        package = name.partition(".")[0]
        raise MissingExtra(
            f"{what} needs the package {package}", hint="pip install 'rota[files]'"
        ) from missing


# -- read --------------------------------------------------------------------------------------


def read_xlsx(path: Path, name: str, sheet: str | None = None) -> Iterator[Item]:
    """The rows of a sheet, by default the first; its first row names the columns."""
    openpyxl = library("openpyxl", f"the Excel file {name}")
    try:
        book = openpyxl.load_workbook(path, read_only=True, data_only=True)
    except Exception as error:
        raise BadInput(
            f"{name} cannot be read as an Excel workbook: {error}",
            hint="Save it as .xlsx; an old .xls, or a CSV file of that name, is not one.",
        ) from error
    with contextlib.closing(book):
        if sheet is not None and sheet not in book.sheetnames:
            raise BadInput(
                f"{name} has no sheet {sheet!r}", hint=f"It has: {', '.join(book.sheetnames)}."
            )
        rows = (book.worksheets[0] if sheet is None else book[sheet]).iter_rows(values_only=True)
        columns: list[str] | None = None
        for number, row in enumerate(rows, start=1):
            if columns is None:
                if any(cell is not None for cell in row):
                    columns = columns_of_header(_trimmed(row), name)
                continue
            if any(cell is not None for cell in row[len(columns) :]):
                raise BadInput(
                    f"{name}, row {number}: a cell is outside of the {len(columns)} columns",
                    hint="Give the column a name in the first row, or empty the cell.",
                )
            cells = [*row, *[None] * (len(columns) - len(row))]
            yield {
                column: _plain(cell, f"{name}, row {number}, {column}")
                for column, cell in zip(columns, cells, strict=False)
            }


def _trimmed(row: Sequence[Any]) -> list[str]:
    """The cells of a header as texts, without empty ones at the end."""
    cells = ["" if cell is None else str(cell) for cell in row]
    while cells and not cells[-1].strip():
        cells.pop()
    return cells


def read_parquet(path: Path, name: str) -> Iterator[Item]:
    """The rows of a Parquet file."""
    parquet = library("pyarrow.parquet", f"the Parquet file {name}")
    try:
        file = parquet.ParquetFile(path)
    except Exception as error:
        raise BadInput(f"{name} cannot be read as a Parquet file: {error}") from error
    with file:
        number = 0
        for batch in file.iter_batches(batch_size=BATCH_ROWS):
            for row in batch.to_pylist():
                number += 1
                yield {
                    column: _plain(value, f"{name}, row {number}, {column}")
                    for column, value in row.items()
                }


def read_sqlite(path: Path, name: str, query: str) -> Iterator[Item]:
    """The rows of a query. The database is opened for reading only."""
    address = f"file:{urllib.parse.quote(str(path.resolve()))}?mode=ro"
    try:
        with contextlib.closing(sqlite3.connect(address, uri=True)) as connection:
            cursor = connection.execute(query)
            columns = columns_of_header([each[0] for each in cursor.description or ()], name)
            for number, row in enumerate(cursor, start=1):
                yield {
                    column: _plain(value, f"{name}, row {number}, {column}")
                    for column, value in zip(columns, row, strict=True)
                }
    except sqlite3.Error as error:
        raise BadInput(
            f"{name}: the query failed: {error}",
            hint="Try it with the program sqlite3; the database is opened for reading only.",
        ) from error


def pdf_text(path: Path, name: str) -> str:
    """The text of a PDF file, page by page. A scan without text is refused."""
    pypdf = library("pypdf", f"the PDF file {name}")
    try:
        pages = [page.extract_text() for page in pypdf.PdfReader(path).pages]
    except Exception as error:
        raise BadInput(f"{name} cannot be read as a PDF file: {error}") from error
    text = "\n\n".join(pages)
    if not text.strip():
        raise BadInput(
            f"{name} holds no text", hint="A scan has to go through text recognition first."
        )
    return text


def _plain(value: Any, where: str) -> Any:
    """A value as JSON has it: dates as ISO texts, decimals as texts, NaN as null."""
    match value:
        case None | str() | bool() | int():
            return value
        case float():
            return value if math.isfinite(value) else None
        case datetime.date() | datetime.time():
            return value.isoformat()
        case decimal.Decimal() | datetime.timedelta():
            return str(value)
        case Mapping():
            return {str(key): _plain(each, where) for key, each in value.items()}
        case list() | tuple():
            return [_plain(each, where) for each in value]
    raise BadInput(
        f"{where}: a value of type {type(value).__name__} cannot be part of a prompt",
        hint="Omit the column, or make it a text.",
    )


# -- write -------------------------------------------------------------------------------------


def write_rows(path: Path, head: Sequence[str], rows: Rows) -> None:
    """Write rows in the form of the file's name; the file is replaced as a whole."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        FORMS[path.suffix.lower()](draft, head, rows)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def _write_xlsx(path: Path, head: Sequence[str], rows: Rows) -> None:
    openpyxl = library("openpyxl", "an Excel file")
    cell_of = import_module("openpyxl.cell").WriteOnlyCell
    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet(TABLE)
    sheet.append([_cell(cell_of, sheet, name, 1) for name in head])
    for number, row in enumerate(rows(), start=2):
        if number > SHEET_ROWS_MAX:
            raise BadInput(
                f"a sheet of Excel has {SHEET_ROWS_MAX:,} rows at most",
                hint="Write .csv, .jsonl, .parquet or .sqlite.",
            )
        sheet.append([_cell(cell_of, sheet, value, number) for value in row])
    book.save(path)


def _cell(cell_of: Any, sheet: Any, value: Any, number: int) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    text = _NOT_IN_XML.sub("\ufffd", text_of(value))
    if len(text) > CELL_CHARS_MAX:
        raise BadInput(
            f"row {number} has a text of {len(text):,} characters; a cell of Excel has at most "
            f"{CELL_CHARS_MAX:,}",
            hint="Write .csv, .jsonl, .parquet or .sqlite.",
        )
    cell = cell_of(sheet, value=text)
    cell.data_type = "s"  # never a formula
    return cell


def _write_parquet(path: Path, head: Sequence[str], rows: Rows) -> None:
    pyarrow = library("pyarrow", "a Parquet file")
    parquet = import_module("pyarrow.parquet")
    kinds: list[set[type]] = [set() for _ in head]
    for row in rows():
        for kind, value in zip(kinds, row, strict=True):
            kind.add(type(value))
    types = [_arrow_type(pyarrow, kind - {type(None)}) for kind in kinds]
    schema = pyarrow.schema(list(zip(head, types, strict=True)))
    with parquet.ParquetWriter(path, schema) as writer:
        for batch in _batches(rows()):
            columns = [
                [_arrow_value(row[at], kind == pyarrow.string()) for row in batch]
                for at, kind in enumerate(types)
            ]
            writer.write_table(pyarrow.table(columns, schema=schema))


def _arrow_type(pyarrow: Any, kinds: set[type]) -> Any:
    if kinds == {bool}:
        return pyarrow.bool_()
    if kinds == {int}:
        return pyarrow.int64()
    return pyarrow.float64() if kinds and kinds <= {int, float} else pyarrow.string()


def _arrow_value(value: Any, is_text: bool) -> Any:
    return text_of(value) if is_text and value is not None else value


def _batches(rows: Iterable[Sequence[Any]]) -> Iterator[list[Sequence[Any]]]:
    batch: list[Sequence[Any]] = []
    for row in rows:
        batch.append(row)
        if len(batch) == BATCH_ROWS:
            yield batch
            batch = []
    if batch:
        yield batch


def _write_sqlite(path: Path, head: Sequence[str], rows: Rows) -> None:
    names = ", ".join('"' + name.replace('"', '""') + '"' for name in head)
    marks = ", ".join("?" for _ in head)
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f'create table "{TABLE}" ({names})')
        connection.executemany(
            f'insert into "{TABLE}" values ({marks})',
            ([_sql_value(value) for value in row] for row in rows()),
        )


def _sql_value(value: Any) -> Any:
    return value if value is None or isinstance(value, int | float) else text_of(value)


def _write_jsonl(path: Path, head: Sequence[str], rows: Rows) -> None:
    with path.open("wb") as file:
        for row in rows():
            file.write(msgspec.json.encode(dict(zip(head, row, strict=True))) + b"\n")


# The forms of rows by the ending of the file's name, and the library that writes each.
FORMS: dict[str, Callable[[Path, Sequence[str], Rows], None]] = {
    ".xlsx": _write_xlsx, ".parquet": _write_parquet, ".sqlite": _write_sqlite,
    ".db": _write_sqlite, ".jsonl": _write_jsonl,
}  # fmt: skip
_LIBRARIES = {".xlsx": "openpyxl", ".parquet": "pyarrow"}
_UNWRITTEN = {".xls", ".xlsm", ".ods", ".feather", ".orc", ".pdf", ".docx"}


def has_rows(path: Path) -> bool:
    """Whether a file of this name holds rows; BadInput for a format that Rota does not write."""
    suffix = path.suffix.lower()
    if suffix in _UNWRITTEN:
        raise BadInput(
            f"{path} cannot be written: Rota does not write {suffix} files",
            hint="Name it .xlsx, .parquet, .sqlite or .jsonl; other names get the text.",
        )
    if suffix in _LIBRARIES:
        library(_LIBRARIES[suffix], str(path))
    return suffix in FORMS
