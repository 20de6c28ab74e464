"""All that differs between the two databases in SQL text, on one page.

Queries are written once with these tokens:
  :name                       a parameter
  name {in things}            membership in a list parameter
  {from items: a int, b text} the rows of a set-based statement, seen as `item.a`, `item.b`
  {, items: a int, b text}    the same, joined to other tables
  {served runs}               what a claim may take (by queries.py)
  {fits seen}                 what a list of runs selects by (by queries.py)
  {last attempt runs}         whether no attempt of its chain follows this one (by queries.py)
  {query name}                another query's text, put in here (by queries.py)
  {skip_locked} {lock} {share}  row locks, where the database has rows to lock
  {int} {text} {key} {strict} types and table options in migrations; {clustered} for a table that is
                              read by its primary key alone, and stored in it where that is possible
  {by_month}                  a table whose months are partitions, where there are any
  {postgres}                  before a line of a migration that only PostgreSQL needs
  {seed}                      what a NOTIFY carries beside its topic
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

_ITEMS = re.compile(r"\{(from|,) items: ([^}]*)\}")
# An insert of nothing but items.
_INSERT = re.compile(
    r"(insert into [^)]*\)\s+)select ([^{]*?)\s*\{from items: [^}]*\}(?:\s*where true)?"
)
_ITEM = re.compile(r"\bitem\.(\w+)")
_IN = re.compile(r"\{in (\w+)\}")
_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]+)\b")


class Compiled(NamedTuple):
    """A query ready for one database: text, item columns, then parameters, in order.

    `single` is the same for exactly one item; its columns are in the text as values.
    """

    text: str
    columns: tuple[str, ...]
    parameters: tuple[str, ...]
    single: str


class Dialect(NamedTuple):
    """One database's answers to the tokens."""

    name: str
    tokens: dict[str, str]
    compile: Callable[[str], Compiled]
    fuses: bool  # whether one statement may write several times
    concurrent: bool  # whether indexes can be built while others write

    def render(self, text: str) -> str:
        """Plain tokens replaced; used for migrations as they are."""
        for token, value in self.tokens.items():
            text = text.replace("{" + token + "}", value)
        return text


def _columns(text: str) -> list[tuple[str, str]]:
    """The columns of a query's items, with their types."""
    found = _ITEMS.search(text)
    pairs = (part.split() for part in found.group(2).split(",")) if found else ()
    return [(name, kind) for name, kind in pairs]


def _compile_sqlite(text: str) -> Compiled:
    """Set-based statements take all items as one JSON array: one statement, one release of the
    interpreter lock, where a prepared statement per item costs twice the time."""
    names = tuple(name for name, _ in _columns(text))
    text = _IN.sub(r"in (select value from json_each(:\1))", SQLITE.render(text))
    picks = ", ".join(f"value ->> {index} as {name}" for index, name in enumerate(names))
    # jsonb: the plain form would parse each element again for every column.
    items = f"(select {picks} from jsonb_each(?1)) as item"
    together = _ITEMS.sub(lambda match: f"{match.group(1)} {items}", text)
    single = _single(text, {name: f"?{index}" for index, name in enumerate(names, 1)})
    return _placed(together, names, "?", 2 if names else 1)._replace(
        single=_placed(single, names, "?", len(names) + 1).text
    )


def _single(text: str, values: dict[str, str]) -> str:
    """The query for one item, with values instead of columns. Every value must appear in the text.
    `values (…)` avoids the savepoint that SQLite takes for `insert … select`."""
    if values.keys() == set(_ITEM.findall(text)):
        text = _INSERT.sub(r"\1values (\2)", text)
        return _ITEM.sub(lambda match: values[match.group(1)], _ITEMS.sub("", text))
    row = ", ".join(f"{value} as {name}" for name, value in values.items())
    return _ITEMS.sub(lambda match: f"{match.group(1)} (select {row}) as item", text)


def _placed(text: str, columns: tuple[str, ...], mark: str, first: int) -> Compiled:
    parameters = tuple(dict.fromkeys(_PARAMETER.findall(text)))
    place = {name: f"{mark}{index}" for index, name in enumerate(parameters, first)}
    text = _PARAMETER.sub(lambda match: place[match.group(1)], text)
    return Compiled(text, columns, parameters, text)


def _compile_postgres(text: str) -> Compiled:
    """Set-based statements take one array per column, or plain values for a single item."""
    columns = _columns(text)
    names = tuple(name for name, _ in columns)
    types = [(f"${index}", _TYPES[kind]) for index, (_, kind) in enumerate(columns, 1)]
    arrays = ", ".join(f"{mark}::{kind}[]" for mark, kind in types)
    values = [f"{mark}::{kind}" for mark, kind in types]
    text = _IN.sub(r"= any(:\1)", POSTGRES.render(text))
    items = f"unnest({arrays}) as item({', '.join(names)})"
    together = _ITEMS.sub(lambda match: f"{match.group(1)} {items}", text)
    single = _single(text, dict(zip(names, values, strict=True)))
    return _placed(together, names, "$", len(names) + 1)._replace(
        single=_placed(single, names, "$", len(names) + 1).text
    )


_TYPES = {"int": "bigint", "text": "text"}

SQLITE = Dialect(
    name="sqlite",
    tokens={
        "skip_locked": "",
        "lock": "",
        "share": "",
        "int": "integer",
        "text": "text",
        "key": "text",
        "strict": "strict",
        "clustered": "strict, without rowid",
        "by_month": "strict",
        "postgres": "-- ",
    },
    compile=_compile_sqlite,
    fuses=False,
    concurrent=False,
)
POSTGRES = Dialect(
    name="postgres",
    tokens={
        "skip_locked": "for update skip locked",
        "lock": "for update",
        "share": "for share of runs",
        "int": "bigint",
        "text": "text",
        # Keys compare by bytes: locale-aware comparison is slow and differs between hosts.
        "key": 'text collate "C"',
        "strict": "",
        "clustered": "",
        "by_month": "partition by list (month)",
        # Decides which of many listeners look (core/runs/notified_workers.py).
        "seed": "' ' || (random() * 1000000000)::bigint",
        "postgres": "",
    },
    compile=_compile_postgres,
    fuses=True,
    concurrent=True,
)
