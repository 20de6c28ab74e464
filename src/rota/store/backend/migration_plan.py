"""The statements of a migration, and how to execute them beside running work.

On PostgreSQL a table that has rows must not be locked while an index is built or a constraint is
checked. Such statements are split: a brief part inside the transaction of the migration, and a
long part after it, which leaves readers and writers alone. A long part may be repeated.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

# The index is built beside the one it replaces, under this name, and renamed at the end.
NEW_SUFFIX = "_new"
BRIEFLY, NOTHING, THROUGHOUT = "for a moment", "nothing", "until it is done"

_TOKEN = re.compile(r"--[^\n]*|'(?:[^']|'')*'|\$\$.*?\$\$|;|[^;'$-]+|.", re.DOTALL)
_CREATE_TABLE = re.compile(r"create table (?:if not exists )?(\w+)")
_CREATE_INDEX = re.compile(r"create (unique )?index (\w+) on (\w+) (.*)", re.DOTALL)
_DROP_INDEX = re.compile(r"drop index (\w+)")
_ALTER_TABLE = re.compile(r"alter table (\w+) (.*)", re.DOTALL)
_CONSTRAINT = re.compile(r"add constraint (\w+) (check|foreign key)\b")
_CLAUSE = re.compile(r"(add column|drop column|add constraint|drop constraint) (\w+)")
_ROWS = re.compile(r"(update|insert into|delete from) (\w+)")
_OTHER = re.compile(r"(create|drop|alter) (?:or replace )?(function|index|table|trigger) (\w+)")


class PlannedStatement(NamedTuple):
    """One statement: what it does in plain words, and what it locks against writers meanwhile."""

    does: str
    locks: str
    brief: str | None = None  # inside the transaction of the migration
    long: tuple[str, ...] = ()  # after it, each in no transaction
    swap: str | None = None  # in a last transaction


def statements(text: str) -> list[str]:
    """The statements of a script, with the remarks inside of them."""
    found = [""]
    for token in _TOKEN.findall(text):
        if token == ";":
            found.append("")
        elif found[-1] or not (token.isspace() or token.startswith("--")):
            found[-1] += token if found[-1] else token.lstrip()
    return [one.strip() for one in found if one.strip()]


def _without_remarks(text: str) -> str:
    return "".join(token for token in _TOKEN.findall(text) if not token.startswith("--")).strip()


def planned(text: str, *, existing: Iterable[str], concurrent: bool) -> list[PlannedStatement]:
    """The statements of a migration. `existing` are the tables that may have rows; `concurrent`
    says whether the database can build and check beside running work."""
    texts = statements(text if not concurrent else _without_remarks(text))
    tables = set(existing) - {found[1] for one in texts if (found := _CREATE_TABLE.match(one))}
    built = {
        found[2]
        for one in texts
        if concurrent and (found := _CREATE_INDEX.match(one)) and found[3] in tables
    }
    dropped = {found[1]: one for one in texts if (found := _DROP_INDEX.fullmatch(one))}
    # The new index takes the place of the old one when it is built.
    replaced = built & set(dropped)
    skipped = {dropped[name] for name in replaced}
    return [_planned(one, tables, replaced, concurrent) for one in texts if one not in skipped]


def _planned(
    text: str, existing: set[str], replaced: set[str], concurrent: bool
) -> PlannedStatement:
    if (found := _CREATE_INDEX.match(text)) and found[3] in existing:
        return _index(text, found, found[2] in replaced, concurrent)
    if (found := _ALTER_TABLE.match(text)) and found[1] in existing:
        return _alter(text, found, concurrent)
    if found := _CREATE_TABLE.match(text):
        return PlannedStatement(f"create the table {found[1]}", NOTHING, text)
    if found := _CREATE_INDEX.match(text):
        does = f"build the index {found[2]} on the new table {found[3]}"
        return PlannedStatement(does, NOTHING, text)
    if found := _DROP_INDEX.fullmatch(text):
        return PlannedStatement(f"drop the index {found[1]}", f"its table {BRIEFLY}", text)
    if (found := _ROWS.match(text)) and found[2] in existing:
        does = f"change rows of {found[2]} ({found[1].split()[0]})"
        return PlannedStatement(does, f"these rows of {found[2]} {THROUGHOUT}", text)
    if found := _OTHER.match(text):
        does = f"{found[1]} the {found[2]} {found[3]}"
        return PlannedStatement(does, NOTHING if found[2] == "function" else BRIEFLY, text)
    return PlannedStatement(f"run {' '.join(text.split())[:60]}", "unknown", text)


def _index(text: str, found: re.Match[str], replaces: bool, concurrent: bool) -> PlannedStatement:
    unique, name, table, rest = found.groups()
    does = f"build the index {name} on {table}"
    if not concurrent:
        return PlannedStatement(does, f"{table} {THROUGHOUT}", text)
    built = f"{name}{NEW_SUFFIX}"
    # A build that was interrupted leaves an index that is not valid.
    build = (
        f"drop index concurrently if exists {{schema}}.{built}",
        f"create {unique or ''}index concurrently {built} on {{schema}}.{table} {rest}",
    )
    if replaces:
        does = f"{does} again, then drop the old one"
    swap = (
        f"drop index if exists {{schema}}.{name}; alter index {{schema}}.{built} rename to {name}"
    )
    does = f"{does}, while work continues"
    return PlannedStatement(does, f"{table} {BRIEFLY}", None, build, swap)


def _alter(text: str, found: re.Match[str], concurrent: bool) -> PlannedStatement:
    table, clauses = found.groups()
    does = ", ".join(f"{verb} {name}" for verb, name in _CLAUSE.findall(clauses))
    does = f"{does or 'alter'} ({table})"
    checked = [match[0] for match in _CONSTRAINT.findall(clauses)]
    # SQLite rewrites the table to drop a column.
    if not concurrent and (checked or "drop column" in clauses):
        return PlannedStatement(does, f"{table} {THROUGHOUT}", text)
    if not checked:
        return PlannedStatement(does, f"{table} {BRIEFLY}", text)
    brief = f"alter table {table} " + ", ".join(
        f"{clause} not valid" if _CONSTRAINT.match(clause) else clause
        for clause in _clauses(clauses)
    )
    validate = tuple(f"alter table {{schema}}.{table} validate constraint {n}" for n in checked)
    does = f"{does}; check the rows that exist while work continues"
    return PlannedStatement(does, f"{table} {BRIEFLY}", brief, validate)


def _clauses(text: str) -> list[str]:
    """The actions of an `alter table`: at the commas outside of brackets and quotes."""
    found, depth, quoted = [""], 0, False
    for letter in text:
        quoted ^= letter == "'"
        depth += 0 if quoted else (letter == "(") - (letter == ")")
        if letter == "," and not depth and not quoted:
            found.append("")
        else:
            found[-1] += letter
    return [clause.strip() for clause in found]
