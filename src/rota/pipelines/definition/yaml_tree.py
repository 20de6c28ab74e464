"""YAML text → plain values, with the line and column of every key and value.

Reads YAML the 1.2 way: `no`, `on`, `12:30` and dates are text. Numbers with leading zeros stay
text too, because they are identifiers. Keys are text always. Anchors and `<<` work.
"""

from __future__ import annotations

import math
import re
from typing import Any, NamedTuple

import yaml

from rota.pipelines.definition.problems import FilePosition, Path, Problem

DEPTH_MAX = 60
# Aliases and merges expand a small file into a big value; both bounds count what they expand to.
NODES_MAX = 300_000
CHARS_MAX = 64 * 1024 * 1024
BYTES_MAX = 16 * 1024 * 1024

_PLAIN = "!plain"  # what a scalar without quotes and without a tag is marked with
_STANDARD = "tag:yaml.org,2002:"
_NULLS = {"", "~", "null", "Null", "NULL"}
_BOOLS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INT = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_OTHER_BASE = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*)?)([eE][-+]?[0-9]+)?")


class Document(NamedTuple):
    """The value of a file, and where each of its parts is. An empty path is the whole."""

    value: Any
    positions: dict[Path, FilePosition]
    key_positions: dict[Path, FilePosition]
    problems: list[Problem]

    def position(self, path: Path) -> FilePosition:
        """The position of a value, or of the nearest thing around it."""
        while path not in self.positions and path:
            path = path[:-1]
        return self.positions.get(path, FilePosition(1, 1))

    def key_position(self, path: Path) -> FilePosition:
        """The position of the key of a value; items of a list have none, so their own."""
        return self.key_positions.get(path) or self.position(path)


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Marks plain scalars instead of guessing their type by the rules of YAML 1.1."""

    def resolve(self, kind: type, value: object, implicit: object) -> str:
        if kind is yaml.ScalarNode:
            plain = isinstance(implicit, tuple) and implicit[0]
            return _PLAIN if plain else _STANDARD + "str"
        return _STANDARD + ("seq" if kind is yaml.SequenceNode else "map")


def read_yaml(raw: bytes | str, file: str) -> Document:
    """The document; `problems` has the errors of its YAML, and then `value` may be None."""
    if len(raw) > BYTES_MAX:
        return _broken(
            file, FilePosition(1, 1), "the file is larger than 16 MB; keep items in a CSV file"
        )
    try:
        text = raw.decode("utf-8-sig") if isinstance(raw, bytes) else raw.removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1 if isinstance(raw, bytes) else 1
        return _broken(file, FilePosition(line, 1), "this is not UTF-8; save the file as UTF-8")
    try:
        if (deep := _too_deep(text)) is not None:
            return _broken(file, deep, f"values are nested deeper than {DEPTH_MAX}")
        nodes = list(yaml.compose_all(text, Loader=_Loader))
    except yaml.YAMLError as error:
        return _syntax(file, text, error)
    if not nodes:
        return _broken(file, FilePosition(1, 1), "the file is empty")
    if len(nodes) > 1:
        position = _position(nodes[1])
        return _broken(file, position, 'a second document begins here; remove the "---" before it')
    reading = _Reading(file)
    value = reading.value(nodes[0], ())
    return Document(value, reading.positions, reading.key_positions, reading.problems)


def _too_deep(text: str) -> FilePosition | None:
    """The first position nested too deep: the C parser would crash the interpreter."""
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > DEPTH_MAX:
                mark = event.start_mark
                return FilePosition(mark.line + 1, mark.column + 1) if mark else FilePosition(1, 1)
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
    return None


def _broken(file: str, position: FilePosition, message: str) -> Document:
    return Document(None, {}, {}, [Problem(file, position, message)])


def _syntax(file: str, text: str, error: yaml.YAMLError) -> Document:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    if mark is None:  # a character that YAML does not allow: the error has a position only
        offset = getattr(error, "position", 0)
        before = text[:offset]
        position = FilePosition(before.count("\n") + 1, offset - before.rfind("\n"))
        return _broken(file, position, "a control character is not allowed here; remove it")
    begun = getattr(error, "context_mark", None)
    if begun is not None and "end of stream" in str(getattr(error, "problem", "")):
        mark = begun  # report an open quote where it begins, not at the end of the file
    position = FilePosition(mark.line + 1, mark.column + 1)
    lines = text.splitlines()
    line = lines[mark.line] if mark.line < len(lines) else ""
    if "\t" in line[: len(line) - len(line.lstrip())]:
        tab = FilePosition(position.line, line.index("\t") + 1)
        return _broken(file, tab, "there is a tab in the indentation; YAML takes spaces only")
    return _broken(file, position, f"this is not YAML: {_explained(error, line[mark.column :])}")


def _explained(error: yaml.YAMLError, rest: str) -> str:
    problem = str(getattr(error, "problem", None) or "it cannot be read")
    context = getattr(error, "context", None)
    if "mapping values are not allowed" in problem:
        return f'{problem}; a text that holds ": " needs quotes around it'
    if "cannot start any token" in problem and rest[:1] in ("@", "`", "%"):
        return f"text cannot begin with {rest[0]}; put quotes around it"
    if "end of stream" in problem:
        return "this quote or bracket is never closed"
    if "did not find expected key" in problem or "expected <block end>" in problem:
        return f"{problem}; look at the indentation and the quotes of this line and the one before"
    return f"{context}, {problem}" if context else problem


def _position(node: yaml.Node) -> FilePosition:
    return FilePosition(node.start_mark.line + 1, node.start_mark.column + 1)


class _Reading:
    """One walk over the composed nodes."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.positions: dict[Path, FilePosition] = {}
        self.key_positions: dict[Path, FilePosition] = {}
        self.problems: list[Problem] = []
        self._within: list[int] = []  # ids of the nodes around, to see an anchor inside itself
        self._nodes = 0
        self._chars = 0
        self._full = False  # a bound is passed: the rest is skipped

    def value(self, node: yaml.Node, path: Path) -> Any:
        if not self._enters(node):
            return None
        self.positions[path] = _position(node)
        self._within.append(id(node))
        try:
            return self._content(node, path)
        finally:
            self._within.pop()

    def _enters(self, node: yaml.Node) -> bool:
        """Count a value or a merged mapping; False, with a problem, past a bound."""
        if self._full:
            return False
        self._nodes += 1
        self._chars += len(node.value) if isinstance(node, yaml.ScalarNode) else 0
        if id(node) in self._within:
            self._bad(node, "this anchor contains itself")
            return False
        if len(self._within) >= DEPTH_MAX or self._nodes > NODES_MAX or self._chars > CHARS_MAX:
            self._full = True
            self._bad(node, "too many values, or nested too deep, to be a pipeline")
            return False
        return True

    def _content(self, node: yaml.Node, path: Path) -> Any:
        tag = node.tag
        if isinstance(node, yaml.SequenceNode) and tag == _STANDARD + "seq":
            return [self.value(each, (*path, index)) for index, each in enumerate(node.value)]
        if isinstance(node, yaml.MappingNode) and tag == _STANDARD + "map":
            return self._mapping(node, path)
        if isinstance(node, yaml.ScalarNode) and tag in (_PLAIN, _STANDARD + "str"):
            return plain_value(node.value) if tag == _PLAIN else node.value
        shown = tag.replace(_STANDARD, "!!")
        return self._bad(node, f"the tag {shown} is not known here; remove it")

    def _mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
        plain: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                self._bad(
                    key_node, "a key must be a word; quote {{placeholders}} that begin a value"
                )
                continue
            if key_node.tag == _PLAIN and key_node.value == "<<":
                self._merge(value_node, path, merged)
                continue
            key = str(key_node.value)
            inner = (*path, key)
            if key in plain:
                first = self.key_positions[inner].line
                self._bad(key_node, f'"{key}" is here twice; the first is in line {first}')
                continue
            self.key_positions[inner] = _position(key_node)
            plain[key] = self.value(value_node, inner)
        return merged | plain

    def _merge(self, node: yaml.Node, path: Path, merged: dict[str, Any]) -> None:
        """`<<: *anchor` or a list of them: the first one wins, and all lose to plain keys."""
        many = node.value if isinstance(node, yaml.SequenceNode) else [node]
        for each in many:
            if not isinstance(each, yaml.MappingNode):
                self._bad(node, "<< takes an anchored mapping, or a list of them")
                return
            if not self._enters(each):
                return
            self._within.append(id(each))
            for key, value in self._mapping(each, path).items():
                merged.setdefault(key, value)
            self._within.pop()

    def _bad(self, node: yaml.Node, message: str) -> None:
        self.problems.append(Problem(self.file, _position(node), message))


def plain_value(text: str) -> Any:
    """The meaning of a scalar without quotes."""
    if text in _NULLS:
        return None
    if text in _BOOLS:
        return _BOOLS[text]
    if len(text) > 300:  # a number so long is an identifier
        return text
    if _INT.fullmatch(text):
        return int(text)
    if _OTHER_BASE.fullmatch(text):
        return int(text, 0)
    if _FLOAT.fullmatch(text):
        number = float(text)
        return number if math.isfinite(number) else text
    return text
