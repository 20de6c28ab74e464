"""CSV: read as people and programs write it, and written so that it reads back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.errors import BadInput
from rota.pipelines.run.tables import columns_of, read_csv, write_csv


def rows(text: str, **options: Any) -> list[dict[str, Any]]:
    return list(read_csv(text.splitlines(keepends=True), name="t.csv", **options))


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ("a,b\n1,2\n", [{"a": "1", "b": "2"}]),
        ("\ufeffa,b\n1,2\n", [{"a": "1", "b": "2"}]),
        (" a , b \n 1 ,2\n", [{"a": " 1 ", "b": "2"}]),
        ("a\r\n1\r\n2\r\n", [{"a": "1"}, {"a": "2"}]),
        ("a\r1\r2\r", [{"a": "1"}, {"a": "2"}]),
        ("\n\na,b\n\n1,2\n   \n\n3,4\n\n", [{"a": "1", "b": "2"}, {"a": "3", "b": "4"}]),
        ('a,b\n"x, y","say ""hi"""\n', [{"a": "x, y", "b": 'say "hi"'}]),
        ('a,b\n"one\ntwo",2\n', [{"a": "one\ntwo", "b": "2"}]),
        ("a,b\nit's 5\" long,2\n", [{"a": "it's 5\" long", "b": "2"}]),
        ("a,b,c\n1\n", [{"a": "1", "b": "", "c": ""}]),
        ("a,b\n1,2,,\n", [{"a": "1", "b": "2"}]),
        ("a,b\n,\n", [{"a": "", "b": ""}]),
        ("a,,b\n1,2,3\n", [{"a": "1", "col1": "2", "b": "3"}]),
        ("a,b\n007,1.10\n", [{"a": "007", "b": "1.10"}]),
        ("a\n", []),
        ("", []),
    ],
)
def test_a_table_is_read(text: str, items: list[dict[str, str]]) -> None:
    assert rows(text) == items


@pytest.mark.parametrize(
    ("text", "item"),
    [
        ("a;b\n1;2,5\n", {"a": "1", "b": "2,5"}),
        ("\ufeff\na\tb\n1\t2\n", {"a": "1", "b": "2"}),
        ('"a,x";b\n1;2\n', {"a,x": "1", "b": "2"}),
        ("a|b\n1|2\n", {"a": "1", "b": "2"}),
        ("a\n1;2\n", {"a": "1;2"}),
    ],
)
def test_the_first_line_shows_the_delimiter(text: str, item: dict[str, str]) -> None:
    assert rows(text) == [item]


def test_a_first_line_with_two_possible_delimiters_asks_for_one() -> None:
    with pytest.raises(BadInput, match="separated by ',' or ';'") as caught:
        rows("id;name, first\n1;tea\n")
    assert "delimiter: " in caught.value.advice
    assert rows("id;name, first\n1;tea\n", delimiter=";") == [{"id": "1", "name, first": "tea"}]


def test_delimiters_and_tables_without_a_header() -> None:
    assert rows("a;b\n1;2,5\n", delimiter=";") == [{"a": "1", "b": "2,5"}]
    assert rows("a\tb\n1\t2\n", delimiter="\t") == [{"a": "1", "b": "2"}]
    assert rows("1,2\n", has_headers=False) == [{"col0": "1", "col1": "2"}]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a,a\n1,2\n", "t.csv:1: the column a is there twice"),
        ('a,b\n1,2\n"x,3\n4,5\n', "t.csv:3: this row opens a quote that is never closed"),
        (
            'a,b\n"x"y,3\n',
            't.csv:2: text follows a closing quote; write a quote within quotes as ""',
        ),
        ("a,b\n1,2\n1,2,3\n", "t.csv:3: 3 cells, but there are 2 columns"),
    ],
)
def test_what_would_lose_a_cell_is_an_error(text: str, said: str) -> None:
    with pytest.raises(BadInput) as caught:
        rows(text)
    assert str(caught.value) == said


def test_columns_may_have_types() -> None:
    types = {"n": "integer", "x": "number", "b": "boolean", "j": "json", "s": "string"}
    text = 'n,x,b,j,s\n5,2.50,Yes,"{""k"": [1]}",007\n,,,,\n'
    assert rows(text, types=types) == [
        {"n": 5, "x": 2.5, "b": True, "j": {"k": [1]}, "s": "007"},
        {"n": None, "x": None, "b": None, "j": None, "s": ""},
    ]


@pytest.mark.parametrize(
    ("kind", "cell", "said"),
    [
        ("integer", "5.5", "'5.5' is not a whole number"),
        ("number", "five", "'five' is not a number"),
        ("boolean", "maybe", "'maybe' is neither true nor false"),
        ("json", "{", "'{' is not JSON: Input data was truncated"),
        ("json", "NaN", "'NaN' is not JSON"),
        ("json", "1e400", "'1e400' is not JSON: Number out of range"),
    ],
)
def test_a_cell_of_another_type_is_reported_with_its_line(kind: str, cell: str, said: str) -> None:
    with pytest.raises(BadInput) as caught:
        rows(f"a,b\nx,1\ny,{cell}\n", types={"b": kind}) if kind != "json" else rows(
            f"a,b\ny,{cell}\n", types={"b": kind}
        )
    assert f": b: {said}" in str(caught.value)


def test_a_type_for_no_column_is_reported() -> None:
    with pytest.raises(BadInput, match="types names z, which is not a column"):
        rows("a\n1\n", types={"z": "integer"})


def test_columns_alone_can_be_read() -> None:
    assert columns_of(["\n", "a, b\n", '"x\n'], name="t") == ["a", "b"]


def test_a_very_long_cell_is_read_whole() -> None:
    assert rows("a\n" + "x" * 500_000 + "\n")[0]["a"] == "x" * 500_000


_CELLS = st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\r\0"))


@settings(deadline=None)
@given(st.lists(st.lists(_CELLS, min_size=2, max_size=2)), st.sampled_from([",", ";", "\t", "|"]))
def test_what_is_written_reads_back(cells: list[list[str]], delimiter: str) -> None:
    text = "".join(write_csv(["a", "b"], cells, delimiter))
    # A row of two empty cells is a row; lines end as they were written.
    lines = text.split("\n")
    back = read_csv((f"{line}\n" for line in lines[:-1]), name="t", delimiter=delimiter)
    assert [[item["a"], item["b"]] for item in back] == cells


@settings(deadline=None)
@given(st.lists(_CELLS))
def test_a_single_column_reads_back(cells: list[str]) -> None:
    text = "".join(write_csv(["a"], [[cell] for cell in cells]))
    back = [item["a"] for item in read_csv((f"{x}\n" for x in text.split("\n")[:-1]), name="t")]
    # A line of nothing but spaces is taken for blank; everything else comes back.
    assert back == [cell for cell in cells if not cell.isspace() or "\n" in cell]
