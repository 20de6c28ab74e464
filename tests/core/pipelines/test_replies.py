"""JSON out of replies, as models write them."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.core.pipelines.replies import NoJson, extract, only_value, read_value
from tests.kit.sampling import examples

WANT = {"a": 1, "b": "x"}


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1, "b": "x"}',
        '\n  {"a": 1, "b": "x"}\n',
        'Sure! Here it is:\n```json\n{"a": 1, "b": "x"}\n```\nAnything else?',
        '```\n{"a": 1, "b": "x"}\n```',
        '```JSON title\n{"a": 1,\n "b": "x",}\n```',
        '~~~js\n{a: 1, b: "x"}\n~~~',
        'The answer is {"a": 1, "b": "x"}, as you see [1].',
        'First [note], then {"a": 1, "b": "x"}',
        '{"a": 1, "b": "x",}',
        '{"a": 1\n "b": "x"}',
        "{'a': 1, 'b': 'x'}",
        '{a: 1, b: "x"}',
        '{"a": 1, // one\n "b": "x" /* two */}',
        "{\u201ca\u201d: 1, \u201cb\u201d: \u201cx\u201d}",
        '<think>{"a": 9, "b": "y"}</think> {"a": 1, "b": "x"}',
        'draft {"a": 9, "b": "y"}\n```json\n{"a": 1, "b": "x"}\n```',
        '{"a": 1, "b": "x"}, again: {"b": "x", "a": 1}',
        '```python\nprint({1: 2})\n```\n```json\n{"a": 1, "b": "x"}\n```',
        '{"broken": \n\nbut then {"a": 1, "b": "x"}',
    ],
)
def test_json_is_found_in_a_reply(text: str) -> None:
    assert extract(text, lambda value: isinstance(value, dict) and "a" in value) == WANT


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{\'it\': \'it\'s fine\', "q": "say \\"hi\\""}', {"it": "it's fine", "q": 'say "hi"'}),
        ('{"t": "two\nlines", x: True, y: None}', {"t": "two\nlines", "x": True, "y": None}),
        ("{'u': '\\u00e9\\ud83d\\ude00'}", {"u": "é😀"}),
        ("[1, -2.5, 1e3, [], {},]", [1, -2.5, 1000.0, [], {}]),
        ('{"id": 007}', None),
        ('{"a": 1', None),
        ('{"a": "x', None),
        ("[1 2]", None),
        ("[NaN]", None),
        ("no json at all", None),
        ("", None),
        ("[" * 3000, None),
    ],
)
def test_what_is_mended_and_what_is_not(text: str, value: Any) -> None:
    if value is not None:
        assert extract(text) == value
        return
    with pytest.raises(NoJson):
        extract(text)


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "A", "author": {"title": "Dr"}, "title": "The "New" Tea"}',
        '{"title": "The "New" Tea", "author": {"title": "Dr"}}',
        '```json\n{"title": "Tea", "author": {"title": "Dr"}, "text": "cut\n```',
        '{"author": {"title": "Dr"}, "text": "it breaks o',
        '[{"title": "One"}, {"title": "Two"}, {"title": "Thr',
    ],
)
def test_a_part_of_a_broken_value_is_not_the_answer(text: str) -> None:
    with pytest.raises(NoJson):
        extract(text, lambda value: isinstance(value, dict) and "title" in value)


def test_an_answer_behind_a_broken_value_is_found() -> None:
    text = 'Such as {"a": 0, ...}. See [1, and so on]. So: {"a": 1, "b": "x"}'
    assert extract(text, lambda value: isinstance(value, dict) and "a" in value) == WANT


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"id": 1}\n{"id": 2}\n', "it holds 2 JSON values"),
        ('[{"id": 1}, {"id": 2}, {"id"', "cannot be read beyond character"),
        ('[{"id": 1}, {"id\n{"id": 2}', "cannot be read beyond character"),
        ("5", "it holds no JSON"),
        ("null", "it holds no JSON"),
        ("", "it holds no JSON"),
    ],
)
def test_the_output_of_a_program_is_one_list_or_object(text: str, problem: str) -> None:
    with pytest.raises(NoJson, match=problem):
        only_value(text)


def test_a_program_may_log_around_its_json() -> None:
    assert only_value('[info] reading\n[{"id": 1}]\ndone (1 row)\n') == [{"id": 1}]
    assert only_value('{"items": []}') == {"items": []}


def test_the_wrong_sort_of_json_is_distinguished_from_none() -> None:
    with pytest.raises(NoJson, match="not what was asked for"):
        extract("[1, 2]", lambda value: isinstance(value, dict))
    with pytest.raises(NoJson, match="it holds no JSON"):
        extract("hello")


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@settings(max_examples=examples(40))
@given(st.dictionaries(st.text(), _VALUES) | st.lists(_VALUES), st.sampled_from([None, 2]))
def test_json_comes_back_whatever_is_around_it(value: Any, indent: int | None) -> None:
    text = json.dumps(value, indent=indent)
    assert extract(text) == value
    assert extract(f"```json\n{text}\n```") == value
    assert extract(f"Here: {text} Done.", lambda each: each == value) == value


@pytest.mark.parametrize("piece", ["```json\n", "```json\n{'a\n", "{/*", '{"a": "', "[{", "it's {"])
@pytest.mark.timeout(20)
def test_a_long_reply_of_nonsense_takes_no_age(piece: str) -> None:
    with pytest.raises(NoJson):
        extract(piece * (60_000 // len(piece)))


@settings(deadline=None)
@given(st.text(alphabet="{}[]\"':,\\ \n`ax1/*-"))
def test_no_reply_breaks_the_reader(text: str) -> None:
    with contextlib.suppress(NoJson):
        extract(text)


@settings(deadline=None)
@given(st.dictionaries(st.text(alphabet="abc", min_size=1), st.integers() | st.text()))
def test_the_lenient_reader_agrees_with_the_strict_one(value: dict[str, Any]) -> None:
    inner = ",\n".join(f"{json.dumps(key)}: {json.dumps(each)}" for key, each in value.items())
    read, end = read_value(f"{{ // so\n{inner}{',' if value else ''}}}", 0)
    assert read == value
    assert end


@pytest.mark.parametrize("text", ["[1\u0663]", '{"a": 1\U0001d7d7}', "[\u0663]"])
def test_digits_that_are_not_ascii_are_no_json(text: str) -> None:
    with pytest.raises(NoJson):
        extract(text)


@pytest.mark.parametrize(
    "reply",
    [
        'It is {"label": "spam"}. For example for ham it would be {"label": "ham"}.',
        '```json\n{"label": "spam"}\n```\nor\n```json\n{"label": "ham"}\n```',
        'It is {"label": 1}, or {"label": true}.',
    ],
)
def test_two_different_answers_are_none(reply: str) -> None:
    with pytest.raises(NoJson, match="it holds 2 different answers"):
        extract(reply, lambda value: "label" in value)
