"""Reducing without an AI: five forms, nothing cut off; and what an AI reduce is shown."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.pipelines.outcome import ItemOutcome, ItemStatus
from rota.pipelines.run.reduce import (
    joined,
    part_instruction,
    parts_of,
    reduced,
    shown,
)
from rota.pipelines.run.results import counts
from rota.pipelines.run.tables import read_csv

LONG = "x" * 500


def result(item: dict[str, Any], *, error: str | None = None, **reply: Any) -> ItemOutcome:
    status: ItemStatus = "completed" if error is None else "failed"
    return ItemOutcome(position=0, item=item, status=status, error=error, **reply)


RESULTS = [
    result({"title": "a|b", "n": 1}, output={"level": "high", "tags": ["p", "q"]}),
    result({"title": "two\nlines", "more": True}, output={"level": LONG}),
    result({"title": "c"}, error="timed out"),
]
TEXTS = [result({"q": 1}, text="First."), result({"q": 2}, text="Second.")]


def made(kind: str, results: list[ItemOutcome]) -> str:
    return "".join(reduced(kind, lambda: results))


def test_json_holds_everything() -> None:
    assert json.loads(made("json", RESULTS)) == [
        {
            "input": {"title": "a|b", "n": 1},
            "output": {"level": "high", "tags": ["p", "q"]},
            "success": True,
        },
        {
            "input": {"title": "two\nlines", "more": True},
            "output": {"level": LONG},
            "success": True,
        },
        {"input": {"title": "c"}, "output": None, "success": False, "error": "timed out"},
    ]


def test_a_csv_result_can_be_the_input_of_the_same_pipeline() -> None:
    again = [
        result({"id": "1", "out_n": "5", "out_success": "true"}, output={"n": 6, "success": 0})
    ]
    text = made("csv", again)
    assert text.splitlines()[0] == (
        "id,out_n,out_success,out_out_n,out_out_success,out_out_out_success,out_error"
    )
    [row] = read_csv(text.splitlines(keepends=True), name="t")
    assert (row["out_n"], row["out_out_n"]) == ("5", "6")


def test_csv_has_all_columns_of_all_items_and_cuts_nothing() -> None:
    text = made("csv", RESULTS)
    assert text.splitlines()[0] == "title,n,more,out_level,out_tags,out_success,out_error"
    rows = list(read_csv(text.splitlines(keepends=True), name="t"))
    assert rows[0]["out_tags"] == '["p", "q"]'
    assert rows[1]["title"] == "two\nlines"
    assert rows[1]["out_level"] == LONG
    assert rows[2] == {
        "title": "c", "n": "", "more": "", "out_level": "", "out_tags": "",
        "out_success": "false", "out_error": "timed out",
    }  # fmt: skip


def test_a_table_escapes_what_would_break_it() -> None:
    lines = made("table", RESULTS).splitlines()
    assert lines[:3] == [
        "| title | n | more | → level | → tags | status |",
        "| --- | --- | --- | --- | --- | --- |",
        '| a\\|b | 1 |  | high | ["p", "q"] | ok |',
    ]
    assert lines[3] == f"| two<br>lines |  | true | {LONG} |  | ok |"
    assert lines[4] == "| c |  |  |  |  | failed: timed out |"


def test_a_list_has_a_section_for_each_item() -> None:
    assert made("list", [RESULTS[0], RESULTS[2], TEXTS[0]]) == (
        "### Item 1\n\n- **title**: a|b\n- **n**: 1\n\nOutput:\n\n- level: high\n"
        '- tags: ["p", "q"]\n\n'
        "### Item 2\n\n- **title**: c\n\nFailed: timed out\n\n"
        "### Item 3\n\n- **q**: 1\n\nFirst.\n\n"
        "---\n3 items: 2 succeeded, 1 failed\n"
    )


def test_text_joins_replies_and_leaves_a_single_one_alone() -> None:
    assert made("text", TEXTS[:1]) == "First."
    assert made("text", [TEXTS[0], RESULTS[2]]) == "First."
    assert made("text", [TEXTS[0], RESULTS[2], TEXTS[1]]) == (
        "--- Item 1 ---\nFirst.\n\n--- Item 3 ---\nSecond.\n"
    )


@pytest.mark.parametrize("kind", ["list", "table", "json", "csv", "text"])
def test_replies_in_text_mode_are_in_every_form(kind: str) -> None:
    text = made(kind, TEXTS)
    assert "First." in text
    assert "Second." in text


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("json", "[]\n"), ("csv", "out_success,out_error\n"), ("text", ""),
        ("table", "| status |\n| --- |\n"),
        ("list", "---\n0 items: 0 succeeded, 0 failed\n"),
    ],
)  # fmt: skip
def test_no_results_are_a_result_too(kind: str, text: str) -> None:
    assert made(kind, []) == text


@pytest.mark.parametrize("kind", ["list", "table", "json", "csv", "text"])
def test_a_reduce_takes_results_one_by_one(kind: str) -> None:
    live = 0
    most = 0

    def many() -> Any:
        nonlocal live, most
        for number in range(300):
            live += 1
            most = max(most, live)
            yield result({"n": number}, text="t")

    for _ in reduced(kind, many):
        live = 0
    # Only the pass that looks for columns runs ahead; it keeps nothing.
    assert most <= (301 if kind in ("csv", "table") else 3)


def test_an_ai_reduce_is_shown_successes_and_failures_only_when_asked() -> None:
    pieces = list(shown(lambda: RESULTS[:1] + RESULTS[2:]))
    assert joined(pieces) == '[{"level": "high", "tags": ["p", "q"]}]'
    both = list(shown(lambda: RESULTS[:1] + RESULTS[2:], failures=True))
    assert json.loads(joined(both))[1] == {"input": {"title": "c"}, "error": "timed out"}
    assert counts(2, 1) == {"COUNT": 3, "SUCCESS_COUNT": 2, "FAILURE_COUNT": 1}


@settings(deadline=None)
@given(st.lists(st.text(max_size=40), min_size=1), st.integers(20, 100))
def test_parts_of_an_ai_reduce_fit_or_are_as_few_as_can_be(pieces: list[str], most: int) -> None:
    parts = parts_of(pieces, most)
    whole = [piece for part in parts for piece in pieces[part.begin : part.end]]
    assert whole == pieces
    for begin, end in parts:
        assert end - begin <= 2 or len(joined(pieces[begin:end])) <= most


def test_a_part_knows_that_it_is_one() -> None:
    assert part_instruction(2, 5).startswith("\n\n[Part 2 of 5] These are not all")
