"""JSON out of what a model replied: fences, prose around it, small mistakes. Pure.

The reader below takes JSON and what models make of it: comments, trailing commas, a comma
forgotten at a line's end, single quotes, bare keys, Python's True and None, raw newlines in text.
It repairs spelling only: text that stops in the middle is not a value, and neither is a part of it.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

PATIENCE = 5  # failed attempts may read a reply this many times over
DEPTH_MAX = 100

_FENCE = re.compile(r"[ \t]*(`{3,}|~{3,})[ \t]*([\w+-]*)")
_THINKING = re.compile(r"<(think|thinking|reasoning)>.*?</\1>", re.S)
_TAGS = ("json", "json5", "jsonc", "javascript", "js")
_BRACKET = re.compile(r"[\[{]")
_EITHER_BRACKET = re.compile(r"[\[{}\]]")
_SPACE = re.compile(r"(?:[ \t\r\n\f\v\ufeff\u00a0]+|//[^\n]*|/\*.{0,1000}?\*/)*", re.S)
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?(?![\w.])")
_BARE_KEY = re.compile(r"[A-Za-z_$][\w$-]*")
_WORDS = {
    "true": True, "false": False, "null": None, "True": True, "False": False, "None": None,
    "undefined": None,
}  # fmt: skip
_QUOTES = {'"': '"', "'": "'", "\u201c": "\u201d", "\u2018": "\u2019"}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}


class NoJson(Exception):
    """The reply holds no usable JSON."""


def extract(text: str, accept: Callable[[Any], bool] = lambda _: True) -> Any:
    """The JSON value of a reply: of those it holds, the likeliest that `accept` takes.

    Two different values that are equally likely do not count.
    """
    seen = False
    for values in _candidates(text):
        accepted: dict[str, Any] = {}
        for value in values:
            seen = True
            if accept(value):
                accepted[json.dumps(value, sort_keys=True)] = value
        if len(accepted) > 1:
            raise NoJson(f"it holds {len(accepted)} different answers")
        if accepted:
            return next(iter(accepted.values()))
    raise NoJson("its JSON is not what was asked for" if seen else "it holds no JSON")


def only_value(text: str) -> Any:
    """The one list or object that a program printed, whatever it logged around it."""
    broken: list[int] = []
    found = list(_values(text, broken))
    if broken:
        raise NoJson(f"its JSON cannot be read beyond character {broken[0] + 1}")
    if len(found) != 1:
        raise NoJson(f"it holds {len(found)} JSON values" if found else "it holds no JSON")
    return found[0]


def _candidates(text: str) -> Iterator[Iterable[Any]]:
    """All values, the likeliest first: the whole, fenced blocks, whatever is in the prose.

    The text within thinking tags is a draft, and comes last.
    """
    whole = text.strip()
    with contextlib.suppress(ValueError, RecursionError):
        yield [_STRICT.decode(whole)]
    said = _THINKING.sub("", text)
    for blocks in _fenced(said):
        yield (value for block in blocks for value in _values(block))
    yield _values(said)
    yield list(_values(text))[-1:]


def _fenced(text: str) -> Iterator[list[str]]:
    """Blocks within fences: those marked as JSON first, then the others."""
    blocks: list[tuple[str, str]] = []
    opened: re.Match[str] | None = None
    body: list[str] = []
    for line in text.splitlines(keepends=True):
        mark = _FENCE.match(line)
        if opened is None:
            opened, body = mark, []
        elif mark is not None and not mark.group(2) and mark.group(1).startswith(opened.group(1)):
            blocks.append((opened.group(2).lower(), "".join(body)))
            opened = None
        else:
            body.append(line)
    for tagged in (True, False):
        yield [inner for tag, inner in blocks if (tag in _TAGS) is tagged]


def _values(text: str, broken: list[int] | None = None) -> Iterator[Any]:
    """Objects and lists that begin somewhere in a text, from left to right, not within another.

    A part of a broken one, such as an object inside of a reply that breaks off, is not the answer.
    `broken` receives the positions that could not be read.
    """
    at = 0
    reader = _Lenient(text)
    patience = PATIENCE * (len(text) + 1000)  # nonsense must not be read over and over
    while patience > 0:
        found = _BRACKET.search(text, at)
        if found is None:
            return
        reader.reached, reader.whole_parts = found.start(), 0
        try:
            value, at = read_value(text, found.start(), reader)
        except (NoJson, RecursionError):
            patience -= 100 + reader.reached - found.start()
            at = found.start() + 1
            if reader.whole_parts:  # brackets of prose have no readable part
                at = _closed_at(text, found.start())
                if broken is not None:
                    broken.append(reader.reached)
        else:
            yield value


def _closed_at(text: str, at: int) -> int:
    """The end of the brackets that open at a position; quotes do not count, they are broken."""
    depth = 0
    for found in _EITHER_BRACKET.finditer(text, at):
        depth += 1 if found.group() in "[{" else -1
        if depth == 0:
            return found.end()
    return len(text)


def read_value(text: str, at: int, reader: _Lenient | None = None) -> tuple[Any, int]:
    """The value that begins at a position, and where it ends; strictly first, then leniently."""
    try:
        return _STRICT.raw_decode(text, at)
    except (ValueError, RecursionError):
        return (reader or _Lenient(text)).value(at, 0)


def _no_constant(name: str) -> Any:
    raise ValueError(name)


def _finite(digits: str) -> float:
    """A number that a float can hold; infinity would be stored as null."""
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"{digits} is too large")
    return number


_STRICT = json.JSONDecoder(parse_constant=_no_constant, parse_float=_finite)


class _Lenient:
    """A reader that forgives spelling."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.reached = 0  # how far it came, even when it failed
        self.whole_parts = 0  # members and elements that it read, even when it failed

    def value(self, at: int, depth: int) -> tuple[Any, int]:
        at = self.reached = self._space(at)
        sign = self._text[at : at + 1]
        if depth > DEPTH_MAX:
            raise NoJson("nested too deep")
        if sign == "{":
            return self._object(at + 1, depth)
        if sign == "[":
            return self._list(at + 1, depth)
        if sign in _QUOTES and sign:
            return self._string(at)
        number = _NUMBER.match(self._text, at)
        if number is not None:
            return self._number(number), number.end()
        word = _BARE_KEY.match(self._text, at)
        if word is not None and word.group() in _WORDS:
            return _WORDS[word.group()], word.end()
        raise NoJson(f"no value at {at}")

    @staticmethod
    def _number(found: re.Match[str]) -> Any:
        try:
            return _STRICT.decode(found.group())
        except ValueError as error:  # more digits than Python reads, or too large for a float
            raise NoJson(f"a number of {len(found.group())} digits") from error

    def _object(self, at: int, depth: int) -> tuple[dict[str, Any], int]:
        found: dict[str, Any] = {}
        while True:
            at = self._space(at)
            if self._text[at : at + 1] == "}":
                return found, at + 1
            key, at = self._key(at)
            at = self._space(at)
            if self._text[at : at + 1] != ":":
                raise NoJson(f"no colon at {at}")
            found[key], at = self.value(at + 1, depth + 1)
            self.whole_parts += 1
            at = self._comma(at, "}")

    def _list(self, at: int, depth: int) -> tuple[list[Any], int]:
        found: list[Any] = []
        while True:
            at = self._space(at)
            if self._text[at : at + 1] == "]":
                return found, at + 1
            value, at = self.value(at, depth + 1)
            found.append(value)
            self.whole_parts += 1
            at = self._comma(at, "]")

    def _key(self, at: int) -> tuple[str, int]:
        if self._text[at : at + 1] in _QUOTES and at < len(self._text):
            return self._string(at)
        word = _BARE_KEY.match(self._text, at)
        if word is None:
            raise NoJson(f"no key at {at}")
        return word.group(), word.end()

    def _comma(self, at: int, close: str) -> int:
        """After a value: a comma, the end, or at least a new line."""
        after = self._space(at)
        sign = self._text[after : after + 1]
        if sign == ",":
            return after + 1
        if sign == close or (sign and "\n" in self._text[at:after]):
            return after
        raise NoJson(f"no comma at {after}")

    def _string(self, at: int) -> tuple[str, int]:
        close = _QUOTES[self._text[at]]
        out: list[str] = []
        at += 1
        while at < len(self._text):
            sign = self._text[at]
            if sign == close and self._ends(at + 1, close):
                return "".join(out), at + 1
            if sign == "\\":
                sign, at = self._escape(at)
            else:
                at += 1
            out.append(sign)
        self.reached = at
        raise NoJson("a text without an end")

    def _ends(self, at: int, close: str) -> bool:
        """Whether a quote closes its text; an apostrophe within single quotes does not."""
        if close != "'":
            return True
        after = self._space(at)
        sign = self._text[after : after + 1]
        return sign in ("", ",", ":", "}", "]") or "\n" in self._text[at:after]

    def _escape(self, at: int) -> tuple[str, int]:
        sign = self._text[at + 1 : at + 2]
        if sign != "u":
            return _ESCAPES.get(sign, sign), at + 2
        found = re.compile(r"(?:\\u[0-9a-fA-F]{4})+").match(self._text, at)
        if found is None:
            raise NoJson("a broken escape")
        return str(json.loads(f'"{found.group()}"')), found.end()

    def _space(self, at: int) -> int:
        found = _SPACE.match(self._text, at)
        return found.end() if found else at
