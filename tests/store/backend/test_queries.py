"""The rules of the query files: each prepares, is called, is passed what it asks for, is shared."""

from __future__ import annotations

import ast
import re
from functools import cache
from importlib.resources import files

import apsw

from rota.store import invariants
from rota.store.backend import queries
from rota.store.backend.database import Database, Tx
from rota.store.backend.dialect import POSTGRES, SQLITE
from rota.store.backend.postgres import PostgresTx
from rota.store.backend.sqlite_threads import SqliteTx
from rota.store.notifications import overdue
from rota.store.runs import lists
from tests.kit.tables import for_each
from tests.tidy.tree import Module, modules

FOLDER = files("rota.store") / "sql"
NAMES = sorted(set(queries.texts("sqlite")) | set(queries.texts("postgres")))
# Only one database is asked, so there is no override: the other has nothing of the kind.
ONE_SIDED = {
    "server_clock",
    "server_identity",
    "table_grants",
    "role_state",
    "default_grants",
    "session_settings",
    "notify",
    "complete_and_claim",
    "complete_and_claim_after",
    "claim_runs",
    "claim_runs_after",
    "ready_runs",
    "take_runs",
    "note_prepared",
    "begin_call",
    "end_call",
    "close_handler_runs",
    "peek_topics",
}


def _file(name: str) -> dict[str, str]:
    return queries.parse((FOLDER / name).read_text())


@cache
def _shared() -> dict[str, str]:
    found: dict[str, str] = {}
    for path in queries.shared_files(FOLDER):
        blocks = queries.parse(path.read_text())
        assert not set(blocks) & set(found), f"{path.name} repeats a name"
        found |= blocks
    return found


async def test_every_query_prepares(db: Database) -> None:
    async def prepare(tx: Tx) -> list[str]:
        failed = []
        prepared = queries.compiled(tx.dialect.name, tx.schema)
        # Parts of queries are prepared with the queries that hold them.
        parts = _included() - set(_calls())
        for name in queries.texts(tx.dialect.name).keys() - parts:
            forms = [prepared[name], prepared[queries.served_query(name, "code")]]
            for text in {text for form in forms for text in (form.text, form.single)}:
                try:
                    if isinstance(tx, SqliteTx):
                        tx._cursor.execute(f"explain {text}", [None] * _slots(text)).fetchall()
                    else:
                        assert isinstance(tx, PostgresTx)
                        await tx.connection.prepare(text)
                except Exception as error:
                    failed.append(f"{name}: {error}")
        return failed

    assert await db.read(prepare) == []


def _slots(text: str) -> int:
    return max((int(number) for number in re.findall(r"\?(\d+)", text)), default=0)


def _query_of(call: ast.Call) -> str | None:
    """The query that a call of `tx.rows` or `tx.many` names."""
    is_query = isinstance(call.func, ast.Attribute) and call.func.attr in ("rows", "many", "change")
    name = call.args[0] if is_query and call.args else None
    if isinstance(name, ast.Call) and ast.unparse(name.func) in ("request.query", "served_query"):
        name = name.args[0]
    is_text = isinstance(name, ast.Constant) and isinstance(name.value, str)
    return str(name.value) if is_text and isinstance(name, ast.Constant) else None


@cache
def _calls() -> dict[str, list[tuple[Module, ast.Call]]]:
    """Every call in src with a first text argument that names a query, by that name."""
    found: dict[str, list[tuple[Module, ast.Call]]] = {}
    for module in modules():
        if not module.path.startswith("src/"):
            continue
        for node in module.nodes:
            if isinstance(node, ast.Call) and (name := _query_of(node)):
                found.setdefault(name, []).append((module, node))
    return found


@cache
def _included() -> set[str]:
    """The queries that other queries hold as `{query name}`."""
    texts = [*_shared().values(), *_file("sqlite.sql").values(), *_file("postgres.sql").values()]
    return {name for text in texts for name in re.findall(r"\{query (\w+)\}", text)}


@for_each(NAMES)
def test_every_query_is_used(name: str) -> None:
    pairs = (one for pair in lists.INDEXES.values() for one in pair)
    tables = {*invariants.INVARIANTS, *pairs, *overdue.STATEMENTS.values()}
    used = name in _calls() or name in _included() or name in tables
    assert used, "no code uses it: remove it"


def test_every_call_names_a_query() -> None:
    assert sorted(set(_calls()) - set(NAMES)) == []


@for_each(NAMES)
def test_every_parameter_is_passed_and_no_other(name: str) -> None:
    wanted = {
        parameter
        for dialect in ("sqlite", "postgres")
        if name in queries.texts(dialect)
        for form in (name, queries.served_query(name, "code"))
        for parameter in queries.compiled(dialect)[form].parameters
    }
    for module, call in _calls().get(name, []):
        given = {word.arg for word in call.keywords if word.arg not in (None, "alone")}
        spread = any(word.arg is None for word in call.keywords)
        where = module.at(call, name)
        assert given <= wanted, f"{where}: passes {given - wanted}, which it does not ask for"
        assert spread or given == wanted, f"{where}: lacks {wanted - given}"


@for_each(sorted(_shared()))
def test_a_shared_text_computes_no_time_and_casts_nothing(name: str) -> None:
    text = re.sub(r"--[^\n]*", "", _shared()[name]).lower()
    assert "::" not in text
    banned = (
        r"\b(cast\s*\(|now\s*\(|current_timestamp|strftime|datetime\s*\(|random\s*\(|julianday)"
    )
    assert not re.search(banned, text), "time, chance and types are arguments"


def test_few_queries_are_reported_twice() -> None:
    sqlite, postgres = _file("sqlite.sql"), _file("postgres.sql")
    twice = (set(sqlite) | set(postgres)) - ONE_SIDED
    assert len(twice) * 10 <= len(NAMES), f"more than one in ten: {sorted(twice)}"
    for name in twice:
        assert name in _shared() or (name in sqlite and name in postgres), f"{name} has one side"


@for_each(sorted(ONE_SIDED))
def test_what_is_one_sided_is_there_on_one_side(name: str) -> None:
    assert (name in _file("sqlite.sql")) != (name in _file("postgres.sql"))


def test_every_query_has_a_name_of_its_own_in_its_file() -> None:
    sides = (FOLDER / "sqlite.sql", FOLDER / "postgres.sql")
    for path in (*queries.shared_files(FOLDER), *sides):
        names = re.findall(r"^-- name: (\w+)", path.read_text(), re.MULTILINE)
        assert len(names) == len(set(names)), path.name


QUERY = "select {lock} a from t {, items: x int, y text} where b {in things} and c = :c and d = :c"


def test_tokens_become_sqlite() -> None:
    made = SQLITE.compile("select a from t where b {in things} and c = :c and e = :c {skip_locked}")
    assert made.parameters == ("things", "c")
    assert made.text.rstrip() == (
        "select a from t where b in (select value from json_each(?1)) and c = ?2 and e = ?2"
    )
    assert SQLITE.compile(QUERY).columns == ("x", "y")


def test_tokens_become_postgres() -> None:
    made = POSTGRES.compile(QUERY)
    assert (made.columns, made.parameters) == (("x", "y"), ("things", "c"))
    assert "for update" in made.text
    assert "unnest($1::bigint[], $2::text[]) as item(x, y)" in made.text
    assert "b = any($3) and c = $4 and d = $4" in made.text


def test_a_cast_or_a_time_is_no_parameter() -> None:
    made = POSTGRES.compile("select a::text, '12:30' from t where b = :b")
    assert made.parameters == ("b",)


def test_migrations_use_plain_tokens() -> None:
    text = "create table t (a {int}, b {key}, c {text}) {strict}"
    assert SQLITE.render(text) == "create table t (a integer, b text, c text) strict"
    assert POSTGRES.render(text) == 'create table t (a bigint, b text collate "C", c text) '


def test_sqlite_is_new_enough_for_two_writers() -> None:
    from rota.store.backend.sqlite import SAFE_SQLITE

    version = tuple(int(part) for part in apsw.sqlite_lib_version().split("."))
    assert version >= SAFE_SQLITE
