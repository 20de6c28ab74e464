"""Whatever a file holds, it is read or refused with places; nothing else happens."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.errors import BadPipeline
from rota.pipelines.definition.loader import problems_of, read_text
from tests.kit.sampling import examples
from tests.pipelines.kit import GOOD, NOW
from tests.pipelines.kit.documents import (
    FULL,
    LATER,
    QUEUES,
    WHOLE,
)

WORDS = [
    "", "~", "5", "-1", "2.5", "true", "no", "[]", "{}", "[1, [2]]", "{a: {b: 1}}", "'x'", "csv",
    "ai", "map", "name", "from", "&a", "*a", "<<: *a", "{{title}}", "? x", "- ", ": ", "\t",
    "!!int 3", "|", ">-", "#", "@", "null: null", "type: filter", "\u2028", "nodes", "input",
    "prompt", "2026-01-01",
]  # fmt: skip


@settings(max_examples=examples(300))
@given(
    st.sampled_from([GOOD, WHOLE, FULL, LATER, QUEUES]),
    st.lists(st.tuples(st.integers(0, 400), st.sampled_from(WORDS)), min_size=1, max_size=4),
)
def test_a_pipeline_with_words_exchanged(text: str, changes: list[tuple[int, str]]) -> None:
    tokens = text.replace("\n", " \n ").replace("  ", " \0 ").split(" ")
    for position, word in changes:
        tokens[position % len(tokens)] = word
    check(" ".join(tokens).replace(" \0 ", "  ").replace(" \n ", "\n"))


@settings(deadline=None)
@given(st.binary(max_size=60) | st.text(alphabet="{}[]:-? &*!|>'\"%@`#,\n\tax1~", max_size=60))
def test_any_bytes(text: bytes | str) -> None:
    check(text)


def check(text: bytes | str) -> None:
    file = Path("nowhere") / "pipeline.yaml"
    lines = len(text.splitlines()) + 1
    try:
        read_text(text, file, now=NOW, host_zone="UTC")
    except BadPipeline as error:
        problems = problems_of(error)
        assert problems
        for problem in problems:
            assert 1 <= problem.position.line <= lines + 1
            assert problem.position.column >= 1
            assert problem.message.strip()


@pytest.mark.parametrize("value", ["5", "x", "[1]", "{a: 1}", "~", "true", "{type: map}"])
@pytest.mark.parametrize(
    "key",
    [
        "name",
        "schedule",
        "parameters",
        "settings",
        "input",
        "filter",
        "map",
        "reduce",
        "job",
        "nodes",
    ],
)
def test_every_key_with_every_sort_of_value(key: str, value: str) -> None:
    check(f"{GOOD}\n".replace(f"{key}:", "x:") + f"{key}: {value}\n")
