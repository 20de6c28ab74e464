"""Items from Excel, Parquet, SQLite and PDF files, and results in files of rows."""

from __future__ import annotations

import datetime
import json
import sqlite3
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import openpyxl
import pyarrow
import pyarrow.parquet
import pytest

from rota.errors import BadInput, MissingExtra
from rota.pipelines.definition.model import Input
from rota.pipelines.run import row_files
from rota.pipelines.run.inputs import source_items
from rota.pipelines.run.row_files import has_rows, write_rows
from tests.ai.kit.model_server import Model
from tests.pipelines.kit.live_app import echoes, world

FILES = """
name: Files
input: {{from: {source}}}
map: {{prompt: "Say {{{{{name}}}}}"}}
reduce: {{type: csv}}
"""


async def taken(folder: Path, **source: Any) -> list[dict[str, Any]]:
    section = msgspec.convert({"from": source}, Input).source
    assert section is not None
    assert not isinstance(section, list)
    return [item async for item in source_items(section, folder)]


def workbook(path: Path, rows: Sequence[Sequence[Any]], sheet: str = "Bugs") -> None:
    book = openpyxl.Workbook()
    assert book.active is not None
    book.active.title = sheet
    for row in rows:
        book.active.append(list(row))
    book.save(path)


def pdf(path: Path, text: str) -> None:
    """A PDF of one page, written by hand: a catalogue, a page, a font, and its text."""
    stream = f"BT /F1 12 Tf 72 720 Td ({text}) Tj ET".encode()
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>", b"<</Type/Pages/Kids[3 0 R]/Count 1/MediaBox[0 0 9 9]>>",
        b"<</Type/Page/Parent 2 0 R/Contents 4 0 R/Resources<</Font<</F1 5 0 R>>>>>>",
        b"<</Length %d>>stream\n%b\nendstream" % (len(stream), stream),
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
    ]  # fmt: skip
    out, offsets = b"%PDF-1.4\n", []
    for number, each in enumerate(objects, start=1):
        offsets.append(len(out))
        out += b"%d 0 obj\n%b\nendobj\n" % (number, each)
    table = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    path.write_bytes(
        out + b"xref\n0 6\n0000000000 65535 f \n" + table
        + b"trailer<</Size 6/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF" % len(out)
    )  # fmt: skip


async def test_rows_of_a_sheet_keep_their_types(tmp_path: Path) -> None:
    day = datetime.datetime(2026, 1, 2, 3, 4)  # noqa: DTZ001 - Excel knows no zones
    rows: list[list[Any]] = [
        ["id", "title", "on", None],
        [1, "tea", day],
        [],
        [2.5, None, None],
        [None, "jam"],
    ]
    workbook(tmp_path / "a.xlsx", rows)
    expected = [
        {"id": 1, "title": "tea", "on": "2026-01-02T03:04:00"},
        {"id": 2.5, "title": None, "on": None},
        {"id": None, "title": "jam", "on": None},
    ]
    assert await taken(tmp_path, type="xlsx", path="a.xlsx") == expected
    assert await taken(tmp_path, type="xlsx", path="a.xlsx", sheet="Bugs") == expected
    with pytest.raises(BadInput, match="has no sheet 'Tea'") as caught:
        await taken(tmp_path, type="xlsx", path="a.xlsx", sheet="Tea")
    assert "Bugs" in caught.value.advice


async def test_a_file_of_another_format_is_refused_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("id;title\n")
    for source in (
        {"type": "xlsx"}, {"type": "parquet"}, {"type": "sqlite", "query": "select * from t"}
    ):  # fmt: skip
        with pytest.raises(BadInput, match=r"^a"):
            await taken(tmp_path, path="a", **source)
        with pytest.raises(BadInput, match="no cannot be read: No such file"):
            await taken(tmp_path, path="no", **source)


async def test_rows_of_parquet_and_of_a_query(tmp_path: Path) -> None:
    rows = [{"a": 1, "b": Decimal("1.50"), "c": ["x"]}, {"a": 2, "b": None, "c": None}]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "a.parquet")
    assert await taken(tmp_path, type="parquet", path="a.parquet") == [
        {"a": 1, "b": "1.50", "c": ["x"]}, {"a": 2, "b": None, "c": None},
    ]  # fmt: skip
    with sqlite3.connect(tmp_path / "a.db") as connection:
        connection.execute("create table t (n, w)")
        connection.executemany("insert into t values (?, ?)", [(1, "a"), (2, "b")])
    connection.close()
    query = "select n, w as word from t order by n desc"
    assert await taken(tmp_path, type="sqlite", path="a.db", query=query) == [
        {"n": 2, "word": "b"}, {"n": 1, "word": "a"},
    ]  # fmt: skip
    with pytest.raises(BadInput, match="the query failed: attempt to write a readonly database"):
        await taken(tmp_path, type="sqlite", path="a.db", query="delete from t")


async def test_a_bad_file_of_a_folder_is_a_failed_item(database_url: str, tmp_path: Path) -> None:
    text = FILES.format(source='{type: glob, pattern: "docs/*", content: true}', name="content")
    async with world(database_url, tmp_path, Model(answer=echoes)) as it:
        folder = it.pipeline(text)
        (folder / "docs").mkdir()
        (folder / "docs" / "a.txt").write_text("tea")
        (folder / "docs" / "b.bin").write_bytes(b"\xff\xfe\x00")
        pdf(folder / "docs" / "c.pdf", "jam")
        (folder / "docs" / "d.pdf").write_bytes(b"%PDF-1.4 nonsense")
        (folder / "docs" / "e.txt").write_text("  ")
        ref = await it.app.pipelines.start(folder)
        result = await it.stopped(ref.id)
        assert (result.outcome, result.processed, result.failed) == ("partial", 2, 3)
        assert it.prompts == ["Say tea", "Say jam"]
        found = {e.item["name"]: e async for e in it.app.pipelines.items(ref.id)}
        assert "docs/b.bin: not utf-8 near line 1. Save the file as UTF-8" in str(
            found["b.bin"].error
        )
        assert "docs/d.pdf cannot be read as a PDF file" in str(found["d.pdf"].error)
        assert "{{content}} is empty" in str(found["e.txt"].error)
        assert all("$error" not in each.item for each in found.values())


@pytest.mark.parametrize("batch", [1, 2])
async def test_rows_without_content_are_not_items(tmp_path: Path, batch: int) -> None:
    text = f"""
name: Rows
input: {{from: {{type: csv, path: a.csv}}}}
map: {{prompt: "Judge {{{{{"ITEMS" if batch > 1 else "title"}}}}}", batchSize: {batch}}}
reduce: {{type: csv}}
"""
    async with world(f"sqlite:///{tmp_path}/r.db", tmp_path, Model(answer=echoes)) as it:
        folder = it.pipeline(text)
        (folder / "a.csv").write_text("id,title\n1,tea\n,\n , \n\n")
        result = await it.run(text)
        assert (result.total, it.model.usage.calls) == (1, 1)


async def test_an_item_that_fills_no_placeholder_is_not_asked_about(tmp_path: Path) -> None:
    text = FILES.format(source="{type: csv, path: a.csv}", name="title")
    async with world(f"sqlite:///{tmp_path}/r.db", tmp_path, Model(answer=echoes)) as it:
        folder = it.pipeline(text)
        (folder / "a.csv").write_text("id,title\n1,tea\n2,\n")
        result = await it.run(text)
        assert (result.processed, result.failed, result.calls) == (1, 1, 1)
        assert "{{title}} is empty, so the model is not asked" in result.errors[0].message


ROWS = [["=1+1", 1, True, None, {"a": 1}], ["\x0btea", 2.5, False, "x", None]]
HEAD = ["text", "number", "flag", "maybe", "nested"]


def test_what_is_written_can_be_read_again(tmp_path: Path) -> None:
    for suffix in row_files.FORMS:
        write_rows(tmp_path / f"out{suffix}", HEAD, lambda: ROWS)
    sheet = openpyxl.load_workbook(tmp_path / "out.xlsx").worksheets[0]
    assert [[cell.value for cell in row] for row in sheet.iter_rows()] == [
        HEAD, ["=1+1", 1, True, None, '{"a": 1}'], ["\ufffdtea", 2.5, False, "x", None],
    ]  # fmt: skip
    assert sheet["A2"].data_type == "s"
    table = pyarrow.parquet.read_table(tmp_path / "out.parquet").to_pylist()
    assert table[1] == {
        "text": "\x0btea", "number": 2.5, "flag": False, "maybe": "x", "nested": None
    }  # fmt: skip
    lines = (tmp_path / "out.jsonl").read_text().splitlines()
    assert [list(json.loads(line).values()) for line in lines] == ROWS
    with sqlite3.connect(tmp_path / "out.sqlite") as connection:
        assert connection.execute("select text, nested from results").fetchall() == [
            ("=1+1", '{"a": 1}'), ("\x0btea", None),
        ]  # fmt: skip
    connection.close()


def test_a_text_that_excel_would_cut_off_is_refused_and_the_old_file_stays(tmp_path: Path) -> None:
    path = tmp_path / "out.xlsx"
    write_rows(path, ["a"], lambda: [["tea"]])
    before = path.read_bytes()
    with pytest.raises(BadInput, match=r"row 2 has a text of 32,768 characters"):
        write_rows(path, ["a"], lambda: [["x" * 32_768]])
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["out.xlsx"]


def test_a_format_that_is_not_written_and_a_library_that_is_missing_are_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert not has_rows(Path("out.md"))
    with pytest.raises(BadInput, match=r"does not write \.ods files"):
        has_rows(Path("out.ods"))
    monkeypatch.setitem(__import__("sys").modules, "openpyxl", None)
    with pytest.raises(MissingExtra, match="needs the package openpyxl") as caught:
        has_rows(Path("out.xlsx"))
    assert caught.value.advice == "pip install 'rota[files]'"
