"""Prompt templates: one pass, literal values, an escape. Pure.

`{{name}}` is replaced by the value of a name. Dots lead into nested values, and spaces around it
are allowed. `\\{{name}}` stays as `{{name}}`. A value is never expanded again, so item text with
braces, dollars or backslashes comes out as it went in. Double braces around anything that is not a
name (`{{ "a": 1 }}`) are text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from rota.core.pipelines.filter_rules import look_up
from rota.core.suggest import did_you_mean
from rota.errors import BadInput

# The runner fills them in; upper case, so that no field or parameter takes their place by accident.
RESERVED = ("ITEMS", "RESULTS", "RESULTS_FILE", "COUNT", "SUCCESS_COUNT", "FAILURE_COUNT")

# Matches begin at the first backslash of a row only: the search stays linear in the text.
_PLACEHOLDER = re.compile(r"(?<!\\)(\\*)\{\{[ \t]*(\w(?:[\w .-]*[\w-])?)[ \t]*\}\}")


class MissingVariable(NamedTuple):
    """A name in a template that nothing gives a value to."""

    name: str
    advice: str


class Template:
    """A template, taken apart once and rendered often."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._parts: list[tuple[str, str, int]] = []  # text before, name ("" for none), offset
        done = 0
        for found in _PLACEHOLDER.finditer(text):
            slashes, name = found.group(1), found.group(2)
            before = text[done : found.start()] + "\\" * (len(slashes) // 2)
            done = found.end()
            if len(slashes) % 2:
                literal = text[found.start() + len(slashes) : found.end()]
                self._parts.append((before + literal, "", found.start()))
            else:
                self._parts.append((before, name, found.start() + len(slashes)))
        self._tail = text[done:]

    @property
    def names(self) -> list[str]:
        """The names it asks for, each once, in order."""
        return list(dict.fromkeys(name for _, name, _ in self._parts if name))

    def missing(self, known: Iterable[str]) -> list[MissingVariable]:
        """The names that are not among the known ones; a dotted name needs its first part."""
        names = set(known)
        absent: list[MissingVariable] = []
        for name in self.names:
            if name not in names and name.partition(".")[0] not in names:
                absent.append(MissingVariable(name, _advice(name, names)))
        return absent

    def render(self, values: Mapping[str, Any], *, keeps_missing: bool = False) -> str:
        """The text with every name replaced. A name without a value is an error, or stays."""
        out: list[str] = []
        for before, name, offset in self._parts:
            out.append(before)
            if name:
                out.append(self._value(name, offset, values, keeps_missing))
        out.append(self._tail)
        return "".join(out)

    def _value(self, name: str, offset: int, values: Mapping[str, Any], keeps: bool) -> str:
        found, value = look_up(values, name)
        if found or keeps:
            return text_of(value) if found else f"{{{{{name}}}}}"
        line = self.text.count("\n", 0, offset) + 1
        raise BadInput(
            f"{{{{{name}}}}} in line {line} of the prompt has no value{_advice(name, values)}",
            hint=f"Known here: {', '.join(values) or 'nothing'}. "
            f"To keep the braces as text write \\{{{{{name}}}}}.",
            name=name,
        )


def _advice(name: str, known: Iterable[str]) -> str:
    """The nearest name; a reserved one only if the name is in capitals."""
    return did_you_mean(name, [each for each in known if each not in RESERVED or name.isupper()])


def text_of(value: Any) -> str:
    """A value in a prompt: text unchanged, null as nothing, the rest as JSON."""
    if isinstance(value, str):
        return value
    try:
        return "" if value is None else json.dumps(value, ensure_ascii=False)
    except (RecursionError, ValueError) as error:  # too deep, or a number of thousands of digits
        raise BadInput(f"a value of the prompt cannot be written as JSON: {error}") from error
