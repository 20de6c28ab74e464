"""All that differs between the two databases in SQL text, on one page.

Queries are written once with these tokens:
  :name                       a parameter
  name {in things}            membership in a list parameter
  {from items: a int, b text} the rows of a set-based statement, seen as `item.a`, `item.b`
  {, items: a int, b text}    the same, joined to other tables
  {query name}                another query's text, put in here (by queries.py)
  {skip_locked} {lock} {share}  row locks, where the database has rows to lock
  {int} {text} {key} {strict} types and table options in migrations; {clustered} for a table that is
                              read by its primary key alone, and stored in it where that is possible
  {postgres}                  before a line of a migration that only PostgreSQL needs
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

_ITEMS = re.compile(r"\{(from|,) items: ([^}]*)\}")
_IN = re.compile(r"\{in (\w+)\}")
_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]+)\b")


class Compiled(NamedTuple):
    """A query ready for one database: text, item columns, then parameters, in order.

    `single` is the same for exactly one item, where the database is faster without arrays.
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

    def render(self, text: str) -> str:
        """Plain tokens replaced; used for migrations as they are."""
        for token, value in self.tokens.items():
            text = text.replace("{" + token + "}", value)
        return text


def _columns(declaration: str) -> list[tuple[str, str]]:
    pairs = (part.split() for part in declaration.split(","))
    return [(name, kind) for name, kind in pairs]


def _compile_sqlite(text: str) -> Compiled:
    """Set-based statements take all items as one JSON array: one statement, one release of the
    interpreter lock, where a prepared statement per item costs twice the time."""
    found = _ITEMS.search(text)
    columns = tuple(name for name, _ in _columns(found.group(2))) if found else ()
    picks = ", ".join(f"value ->> {index} as {name}" for index, name in enumerate(columns))
    # jsonb: the plain form would parse each element again for every column.
    items = f"(select {picks} from jsonb_each(?1)) as item"
    text = _ITEMS.sub(lambda match: f"{match.group(1)} {items}", SQLITE.render(text))
    text = _IN.sub(r"in (select value from json_each(:\1))", text)
    return _placed(text, columns, "?", 2 if columns else 1)


def _placed(text: str, columns: tuple[str, ...], mark: str, first: int) -> Compiled:
    parameters = tuple(dict.fromkeys(_PARAMETER.findall(text)))
    place = {name: f"{mark}{index}" for index, name in enumerate(parameters, first)}
    text = _PARAMETER.sub(lambda match: place[match.group(1)], text)
    return Compiled(text, columns, parameters, text)


def _compile_postgres(text: str) -> Compiled:
    """Set-based statements take one array per column, or plain values for a single item."""
    found = _ITEMS.search(text)
    columns = _columns(found.group(2)) if found else []
    names = tuple(name for name, _ in columns)
    types = [(f"${index}", _TYPES[kind]) for index, (_, kind) in enumerate(columns, 1)]
    arrays = ", ".join(f"{mark}::{kind}[]" for mark, kind in types)
    values = ", ".join(f"{mark}::{kind}" for mark, kind in types)
    text = _IN.sub(r"= any(:\1)", POSTGRES.render(text))

    def over(rows: str) -> Compiled:
        item = f"{rows} as item({', '.join(names)})"
        with_items = _ITEMS.sub(lambda match: f"{match.group(1)} {item}", text)
        return _placed(with_items, names, "$", len(columns) + 1)

    return over(f"unnest({arrays})")._replace(single=over(f"(values ({values}))").text)


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
        "postgres": "-- ",
    },
    compile=_compile_sqlite,
    fuses=False,
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
        "postgres": "",
    },
    compile=_compile_postgres,
    fuses=True,
)
