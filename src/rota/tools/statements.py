"""SQL of the user: its parameters by name for either database, and its rows as plain JSON."""

from __future__ import annotations

import base64
import functools
import math
import re
from collections.abc import Mapping
from importlib.resources import files
from typing import Any, NamedTuple

import msgspec

from rota.errors import UsageError
from rota.net.secret import mapped

COMMENTS_DEPTH_MAX = 5


def _comment(depth: int) -> str:
    """A comment with comments in it, as PostgreSQL reads it."""
    inner = f"|{_comment(depth - 1)}" if depth else ""
    return rf"/\*(?:[^*/]|\*(?!/)|/(?!\*){inner})*+\*/"


# Parts that may hold a colon that starts no parameter: strings, names, comments, casts, slices. A
# comment in a comment ends at the first end for SQLite.
_TOKEN = re.compile(
    rf"""(?<!\w)[eE]'(?:[^'\\]|\\.|'')*+' | '(?:[^']|'')*+' | "(?:[^"]|"")*+" | `(?:[^`]|``)*+`
    | --[^\n]* | {_comment(COMMENTS_DEPTH_MAX)} | /\*.*?\*/ | \$(?P<tag>\w*)\$.*?\$(?P=tag)\$
    | :: | (?<![\w)\]]):(?P<name>[A-Za-z_]\w*)""",
    re.VERBOSE | re.DOTALL,
)
_WORD = re.compile(rf"{_TOKEN.pattern} | \S", _TOKEN.flags)
_TRIGGER = re.compile(r"create\s+(temp\w*\s+)?trigger\s", re.IGNORECASE)
_TABLE = re.compile(r"[A-Za-z_]\w{0,62}(\.[A-Za-z_]\w{0,62})?")


# Each of these would end the transaction, or is not allowed in one.
_REFUSED = {
    *("begin", "start", "commit", "end", "rollback", "abort", "savepoint", "release"),
    *("attach", "detach", "pragma", "vacuum", "prepare", "set", "reset", "copy"),
}


class Statement(NamedTuple):
    """One statement with parameters such as `:title`."""

    sql: str
    names: tuple[str, ...]
    numbered: str  # the same with $1, $2, as PostgreSQL wants it
    first_word: str

    @property
    def body(self) -> str:
        """`numbered` without the semicolon and the comments at its end."""
        text, ends = self.numbered, 0
        for token in _WORD.finditer(text):
            if not token[0].startswith(("--", "/*")) and token[0] != ";":
                ends = token.end()
        return text[:ends]


def statement(sql: str) -> Statement:
    """Find the parameters of a statement; it cannot control the transaction around it."""
    bare = _TOKEN.sub(_blank, sql).strip().rstrip(";").split()
    if not bare:
        raise UsageError("the SQL of a tool is empty")
    if ";" in " ".join(bare) and not _is_trigger(" ".join(bare)):
        raise UsageError(f"more than one statement in {sql!r}", hint="Pass a list of statements.")
    if bare[0].lower() in _REFUSED:
        raise UsageError(f"{bare[0]} has no place in a tool: it has a transaction of its own")
    names: list[str] = []

    def number(match: re.Match[str]) -> str:
        name = match["name"]
        if name is None:
            return match[0]
        if name not in names:
            names.append(name)
        return f"${names.index(name) + 1}"

    numbered = _TOKEN.sub(number, sql)
    return Statement(sql, tuple(names), numbered, bare[0].lstrip("(").lower())


def _is_trigger(bare: str) -> bool:
    """Whether the text is one trigger of SQLite, with statements between BEGIN and its END."""
    if not _TRIGGER.match(bare):
        return False
    words, depth = re.findall(r"\w+", bare.lower()), 0
    for number, word in enumerate(words):
        depth += (word == "begin" or (word == "case" and depth > 0)) - (word == "end")
        if word == "end" and depth <= 0:
            return number == len(words) - 1
    return False


def _blank(match: re.Match[str]) -> str:
    return " " if match[0].startswith(("--", "/*")) else "x"


def own(name: str, table: str) -> Statement:
    """A statement about the table of keys."""
    if not _TABLE.fullmatch(table):
        raise UsageError(f"{table!r} cannot be the name of a table of keys")
    return statement(_texts()[name].replace("{table}", table))


def bounded(query: Statement, limit: int) -> str:
    """A query of PostgreSQL that fails on a row of more characters."""
    return _texts()["bounded_read"].replace("{limit}", str(limit)).replace("{query}", query.body)


@functools.cache
def _texts() -> dict[str, str]:
    whole = files("rota.tools").joinpath("effects.sql").read_text(encoding="utf-8")
    blocks = (block.partition("\n") for block in whole.split("-- name: ")[1:])
    return {name.strip(): text.strip() for name, _, text in blocks}


def bindable(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values for a driver: lists and objects as JSON text, the rest as it is."""
    return {
        name: msgspec.json.encode(value).decode() if isinstance(value, list | dict) else value
        for name, value in values.items()
    }


def plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row as JSON can hold it: dates in ISO, numerics, ids and what is not a number as text,
    bytes as base64."""
    return {name: _plain(value) for name, value in row.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    try:
        return mapped(msgspec.to_builtins(value, str_keys=True, enc_hook=str), _finite)
    except (TypeError, ValueError):
        return str(value)


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinity."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
