"""The file of phrases and their readings."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from rota.core.time.instants import micros
from rota.core.time.phrases import Reading

FILE = Path(__file__).parent.parent / "phrases.txt"


class Line(NamedTuple):
    """One line of the file: a phrase and what becomes of it."""

    phrase: str
    reading: Reading  # empty when the phrase is refused
    refusal: str
    offered: list[str]


def lines() -> list[Line]:
    """All lines of the file."""
    texts = FILE.read_text(encoding="utf-8").splitlines()
    return [_line(text) for text in texts if text and not text.startswith("#")]


def _line(text: str) -> Line:
    phrase, arrow, meaning = text.partition(" => ")
    assert arrow, text
    if not meaning.startswith("refused "):
        return Line(phrase, tuple(_timing(each) for each in meaning.split(" ; ")), "", [])
    refusal, _, offered = meaning.removeprefix("refused ").partition(":")
    return Line(phrase, (), refusal, [each.strip() for each in offered.split("|") if each.strip()])


def _timing(text: str) -> str | int:
    return micros(text.removeprefix("every ")) if text.startswith("every ") else text
