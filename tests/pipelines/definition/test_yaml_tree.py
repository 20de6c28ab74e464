"""Reading YAML: values of version 1.2, places, and mistakes that people make."""

from __future__ import annotations

import pytest

from rota.pipelines.definition.problems import FilePosition
from rota.pipelines.definition.yaml_tree import NODES_MAX, read_yaml


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("no", "no"), ("on", "on"), ("Yes", "Yes"), ("off", "off"), ("true", True),
        ("FALSE", False), ("~", None), ("", None), ("null", None), ("12:30", "12:30"),
        ("2026-01-01", "2026-01-01"), ("007", "007"), ("0", 0), ("-5", -5), ("1_000", "1_000"),
        ("1.5", 1.5), (".5", 0.5), ("1e3", 1000.0), ("1e999", "1e999"), (".nan", ".nan"),
        ("0x1F", 31), ("0o17", 15), ("'5'", "5"), ("!!str 5", "5"), ("=", "="), ("NO", "NO"),
    ],
)  # fmt: skip
def test_plain_values_are_read_the_new_way(written: str, value: object) -> None:
    document = read_yaml(f"a: {written}\n", "f")
    assert document.problems == []
    assert document.value == {"a": value}
    assert type(document.value["a"]) is type(value)


def test_keys_are_text_whatever_they_look_like() -> None:
    assert read_yaml("on: 1\n2: b\nnull: c\n", "f").value == {"on": 1, "2": "b", "null": "c"}


def test_every_key_and_value_has_its_place() -> None:
    document = read_yaml("map:\n  output: [a, b]\n", "f")
    assert document.key_position(("map", "output")) == FilePosition(2, 3)
    assert document.position(("map", "output", 1)) == FilePosition(2, 15)


def test_anchors_and_merges_work() -> None:
    text = "base: &b {model: m, parallel: 2}\nmap:\n  <<: *b\n  parallel: 3\n"
    assert read_yaml(text, "f").value["map"] == {"model": "m", "parallel": 3}


MISTAKES = {
    "a key twice": (
        "a: 1\nb: 2\na: 3\n",
        'f:3:1: error: "a" is here twice; the first is in line 1',
    ),
    "a tab": (
        "a:\n\tb: 1\n", "f:2:1: error: there is a tab in the indentation; YAML takes spaces only",
    ),
    "a colon in text": (
        "a: b: c\n",
        ("f:1:5: error: this is not YAML: mapping values are not allowed in this context; "
        'a text that holds ": " needs quotes around it'),
    ),
    "an open quote": (
        "a: 'b\nc: 1\n",
        "f:1:4: error: this is not YAML: this quote or bracket is never closed",
    ),
    "a placeholder without quotes": (
        "a: {{title}}\n",
        "f:1:5: error: a key must be a word; quote {{placeholders}} that begin a value",
    ),
    "an at sign": (
        "a: @x\n",
        "f:1:4: error: this is not YAML: text cannot begin with @; put quotes around it",
    ),
    "two documents": (
        "a: 1\n---\nb: 1\n",
        'f:3:1: error: a second document begins here; remove the "---" before it',
    ),
    "a foreign tag": (
        "a: !include b\n",
        "f:1:4: error: the tag !include is not known here; remove it",
    ),
    "an anchor in itself": ("a: &a [*a]\n", "f:1:4: error: this anchor contains itself"),
    "an unknown anchor": ("a: *b\n", "f:1:4: error: this is not YAML: found undefined alias"),
    "an empty file": ("# nothing\n", "f:1:1: error: the file is empty"),
    "a control character": (
        "a: \x01\n",
        "f:1:4: error: a control character is not allowed here; remove it",
    ),
    "deep nesting": ("[" * 50_000, "f:1:61: error: values are nested deeper than 60"),
}  # fmt: skip


@pytest.mark.parametrize("what", MISTAKES)
def test_a_mistake_is_reported_with_its_place(what: str) -> None:
    text, said = MISTAKES[what]
    assert [str(problem) for problem in read_yaml(text, "f").problems] == [said]


def test_bytes_that_are_not_utf8_are_reported_with_their_line() -> None:
    [problem] = read_yaml(b"a: 1\nb: \xff\n", "f").problems
    assert str(problem) == "f:2:1: error: this is not UTF-8; save the file as UTF-8"


def test_a_byte_order_mark_and_windows_lines_do_no_harm() -> None:
    assert read_yaml(b"\xef\xbb\xbfa: 1\r\nb: 2\r\n", "f").value == {"a": 1, "b": 2}


def test_a_bomb_of_anchors_is_refused() -> None:
    lines = ["a: &a [x, x, x, x, x, x, x, x, x, x]"]
    for before, name in zip("abcdefgh", "bcdefghi", strict=True):
        lines.append(f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]")
    problems = read_yaml("\n".join(lines), "f").problems
    assert "too many values" in problems[0].message


def bomb(base: str, line: str) -> str:
    """Each level repeats the one before ten times."""
    lines = [f"a0: &a0 {base}"]
    for level in range(1, 9):
        lines.append(line.format(level=level, many=", ".join([f"*a{level - 1}"] * 10)))
    return "\n".join(lines)


@pytest.mark.parametrize(
    "text",
    [
        bomb("{}", "a{level}: &a{level} {{<<: [{many}]}}"),
        bomb("{k: v}", "a{level}: &a{level} {{k{level}: {{<<: [{many}]}}}}"),
        f"a: &a {'x' * 1_000_000}\nb: [{', '.join(['*a'] * 100)}]\n",
        "a0: &a0 {k: v}\n" + "".join(f"a{n}: &a{n} {{<<: *a{n - 1}}}\n" for n in range(1, 3000)),
    ],
    ids=["merges", "merges in values", "one long text", "a chain of merges"],
)
def test_a_small_file_that_expands_to_a_huge_value_is_refused_within_bounds(text: str) -> None:
    document = read_yaml(text, "f")
    assert ["too many values" in problem.message for problem in document.problems] == [True]
    assert len(document.positions) <= NODES_MAX
