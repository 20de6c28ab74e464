"""Rows that the database itself refuses: CHECK constraints and unique indexes."""

from __future__ import annotations

import itertools
import re
from typing import Any

import apsw
import asyncpg
import pytest

from rota.core.automations.phases import EventStatus
from rota.core.runs.lifecycle import FINAL, OPEN, Status
from rota.core.runs.model import Run
from rota.store import invariants
from rota.store.backend import queries
from rota.store.backend.database import Database
from tests.kit.builders import NOW, begin, new_run, raw, sound, sql, start

REFUSED = (apsw.ConstraintError, asyncpg.IntegrityConstraintViolationError)

GOOD: dict[str, Any] = {
    "id": "r1", "namespace": "default", "kind": "workflow", "name": "work", "queue": "default",
    "priority": 0, "status": "pending", "available_at": NOW, "root_id": "r1", "attempt": 1,
    "recoveries": 0, "trigger": "manual", "created_at": NOW,
}  # fmt: skip
RUNNING = {"status": "running", "lease_owner": "w1", "lease_until": NOW}


def _insert(table: str, row: dict[str, Any]) -> str:
    values = ["null" if v is None else f"'{v}'" if isinstance(v, str) else str(v)
              for v in row.values()]  # fmt: skip
    return f"insert into {table} ({', '.join(row)}) values ({', '.join(values)})"


async def put(db: Database, **fields: Any) -> None:
    await sql(db, _insert("runs", GOOD | fields))


def _complete(status: str) -> dict[str, Any]:
    """The columns that a row of that status must have."""
    return {
        "status": status,
        "finished_at": NOW if status in FINAL else None,
        **({"lease_owner": "w1", "lease_until": NOW} if status == "running" else {}),
    }


@pytest.mark.parametrize("status", sorted(Status))
async def test_every_status_of_the_table_can_be_stored(db: Database, status: Status) -> None:
    await put(db, **_complete(status))
    assert await sql(db, "select status from runs") == [(status.value,)]


@pytest.mark.parametrize(
    "bad",
    [
        {"status": "asleep"},
        {"status": "PENDING"},
        {"status": ""},
        *({"status": status.value} for status in sorted(FINAL)),
        *({"status": s.value, "finished_at": NOW} for s in sorted(OPEN - {Status.RUNNING})),
        RUNNING | {"finished_at": NOW},
        {"status": "running"},
        {"status": "running", "lease_owner": "w1"},
        {"status": "running", "lease_until": NOW},
        {"lease_owner": "w1", "lease_until": NOW},
        {"status": "completed", "finished_at": NOW, "lease_owner": "w1", "lease_until": NOW},
        {"lease_until": NOW},
        {"available_at": None},
        {"status": "scheduled", "available_at": None},
        {"id": None},
        {"namespace": None},
        {"name": None},
        {"queue": None},
        {"status": None},
        {"root_id": None},
        {"attempt": None},
        {"created_at": None},
        {"schedule_id": "nobody", "due_at": NOW},
    ],
    ids=str,
)
async def test_a_bad_run_is_refused(db: Database, bad: dict[str, Any]) -> None:
    with pytest.raises(REFUSED):
        await put(db, **bad)
    assert await sql(db, "select count(*) from runs") == [(0,)]


async def test_times_are_numbers(db: Database) -> None:
    with pytest.raises((*REFUSED, asyncpg.DataError)):
        await put(db, created_at="yesterday")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({}, {"id": "r1"}),
        ({"external_id": "o-7"}, {"id": "r2", "external_id": "o-7"}),
        ({"external_id": "o-7", **_complete("completed")}, {"id": "r2", "external_id": "o-7"}),
        ({"retry_of": "x"}, {"id": "r2", "retry_of": "x"}),
        ({"schedule_id": "r0", "due_at": NOW}, {"id": "r2", "schedule_id": "r0", "due_at": NOW}),
        *(
            ({"serial_key": "s", **_complete(status)}, {"id": "r2", "serial_key": "s"})
            for status in sorted(OPEN)
        ),
    ],
    ids=str,
)
async def test_a_second_of_its_kind_is_refused(
    db: Database, first: dict[str, Any], second: dict[str, Any]
) -> None:
    await put(db, id="r0", name="schedule", **_complete("scheduled"))
    await put(db, **first)
    with pytest.raises(REFUSED):
        await put(db, **second)
    assert await sql(db, "select count(*) from runs") == [(2,)]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"external_id": "o-7"}, {"external_id": "o-7", "name": "other"}),
        ({"external_id": "o-7"}, {"external_id": "o-7", "namespace": "theirs"}),
        ({}, {}),
        ({"serial_key": "s", **_complete("failed")}, {"serial_key": "s"}),
        ({"serial_key": "s"}, {"serial_key": "s", "namespace": "theirs"}),
        ({"schedule_id": "r0", "due_at": NOW}, {"schedule_id": "r0", "due_at": NOW + 1}),
    ],
    ids=str,
)
async def test_what_only_looks_alike_is_accepted(
    db: Database, first: dict[str, Any], second: dict[str, Any]
) -> None:
    await put(db, id="r0", name="schedule", **_complete("scheduled"))
    await put(db, **first)
    await put(db, **second | {"id": "r2"})


STEP = {
    "root_id": "r1", "key": "a", "position": 1, "kind": "step", "status": "completed",
    "attempt": 1, "run_attempt": 1, "started_at": NOW, "finished_at": NOW,
}  # fmt: skip
WORKER = {
    "id": "w1", "namespace": "default", "host": "h", "pid": 1, "pid_started": "", "queues": "[]",
    "names": "[]",
    "seats": 1, "status": "online", "version": "1", "started_at": NOW, "heartbeat_at": NOW,
}  # fmt: skip


@pytest.mark.parametrize(
    ("table", "row"),
    [
        ("steps", STEP | {"status": "running"}),
        ("steps", STEP | {"finished_at": None}),
        ("steps", STEP | {"status": "waiting"}),
        ("steps", STEP | {"key": None}),
        ("payloads", {"run_id": "nobody", "part": "input", "body": "1"}),
        ("payloads", {"run_id": "r1", "part": "thought", "body": "1"}),
        ("payloads", {"run_id": "r1", "part": "input", "body": None}),
        ("signals", {"id": "s", "root_id": "nobody", "name": "go", "created_at": NOW}),
        ("workers", WORKER | {"status": "asleep"}),
    ],
    ids=str,
)
async def test_a_bad_row_of_the_other_tables_is_refused(
    db: Database, table: str, row: dict[str, Any]
) -> None:
    await put(db)
    with pytest.raises(REFUSED):
        await sql(db, _insert(table, row))
    assert await sql(db, f"select count(*) from {table}") == [(0,)]


async def test_a_step_or_a_payload_is_there_once(db: Database) -> None:
    await put(db)
    payload = {"run_id": "r1", "part": "input", "body": "1"}
    for table, row in (("steps", STEP), ("payloads", payload)):
        await sql(db, _insert(table, row))
        with pytest.raises(REFUSED):
            await sql(db, _insert(table, row))


EQUALS = r"status\s*=\s*'\w+'"


def _lists(text: str) -> list[frozenset[str]]:
    """Every list of statuses in a text: `status in (…)`, or equalities joined by `or`."""
    text = re.sub(r"[()]", " ", text.replace("runs.", ""))
    chains = re.findall(rf"{EQUALS}(?:\s+or\s+{EQUALS})+", text, re.IGNORECASE)
    chains += re.findall(r"status\s+in\s+'\w+'(?:\s*,\s*'\w+')*", text, re.IGNORECASE)
    return [frozenset(re.findall(r"'(\w+)'", chain)) for chain in chains]


@pytest.mark.parametrize("status", [*sorted(Status), "asleep"])
async def test_a_row_is_taken_exactly_if_its_columns_fit_its_status(
    db: Database, status: str
) -> None:
    for number, times in enumerate(itertools.product((None, NOW), repeat=3)):
        for owner in (None, "w1"):
            available_at, lease_until, finished_at = times
            row = {
                "id": f"r{number}{owner}", "status": status, "lease_owner": owner,
                "available_at": available_at, "lease_until": lease_until,
                "finished_at": finished_at,
            }  # fmt: skip
            held = owner is not None
            fits = (
                status in set(Status)
                and (finished_at is not None) == (status in FINAL)
                and held == (lease_until is not None) == (status == Status.RUNNING)
                and (available_at is not None or status not in ("pending", "scheduled"))
            )
            if fits:
                await put(db, **row)
                continue
            with pytest.raises(REFUSED):
                await put(db, **row)


@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
def test_the_lists_in_the_queries_are_those_of_the_table(dialect: str) -> None:
    """Short lists are a query's own business, also those of events; a long one means "over" or
    "open"."""
    over = {FINAL, FINAL - {Status.SKIPPED}}  # an occurrence that did not run has no successor
    for name, text in queries.texts(dialect).items():
        for each in _lists(text):
            assert each <= set(Status) or each <= set(EventStatus), f"{name}: {sorted(each)}"
            assert len(each) < 4 or each in {OPEN, *over}, f"{name}: {sorted(each)}"


# Rows that break one invariant each. A constraint that blocks it is taken down first:
# rows that the database refuses today may have been written by an older schema.
BREAKS: dict[str, list[dict[str, Any]]] = {
    "broken_way_forward": [{"status": "sleeping", "available_at": None, "reason": "sleep"}],
    "broken_chain": [
        {"status": "running", "lease_owner": "w1", "lease_until": NOW},
        {"id": "r2", "retry_of": "r1", **_complete("failed")},
    ],
    "broken_open_chain": [{}, {"id": "r2", "root_id": "r1"}],
    "broken_child_wait": [
        {"status": "sleeping", "reason": "child", "available_at": None},
        {"id": "r2", "root_id": "r2", "parent_id": "r1", **_complete("completed")},
    ],
    "broken_orphan": [_complete("cancelled"), {"id": "r2", "root_id": "r2", "parent_id": "r1"}],
}


@pytest.mark.parametrize("name", sorted(BREAKS))
async def test_an_invariant_finds_what_breaks_it(db: Database, name: str) -> None:
    for row in BREAKS[name]:
        await put(db, **row)
    found = {broken.name: broken for broken in await db.read(invariants.broken)}
    assert set(found) >= {name}
    assert found[name].sentence
    assert "r" in found[name].rows[0]


async def test_a_step_without_a_chain_breaks_an_invariant(db: Database) -> None:
    await sql(db, _insert("steps", STEP))
    assert [broken.name for broken in await db.read(invariants.broken)] == ["broken_step"]


async def test_all_is_well_in_an_ordinary_database(db: Database) -> None:
    await begin(db)
    await start(db, new_run(), new_run(available_at=NOW + 1))
    assert await sound(db)


def test_every_invariant_is_a_query_and_every_such_query_an_invariant() -> None:
    for dialect in ("sqlite", "postgres"):
        named = {name for name in queries.texts(dialect) if name.startswith("broken_")}
        assert named == set(invariants.INVARIANTS)


async def test_the_readable_views_show_times_people_can_read(db: Database) -> None:
    await put(db, **RUNNING, reason="why", due_at=NOW)
    await sql(db, _insert("steps", STEP))
    await sql(db, _insert("workers", WORKER))

    async def look(tx: Any) -> list[Any]:
        return [
            (await raw(tx, "select status, available, due, created from readable_runs"))[0],
            (await raw(tx, "select key, started, finished from readable_steps"))[0],
            (await raw(tx, "select id, heartbeat, stopped from readable_workers"))[0],
        ]

    run, step, worker = [tuple(row) for row in await db.read(look)]
    assert run[0] == "running:why"
    for at in (*run[1:], *step[1:], worker[1]):
        assert str(at).replace(" ", "T").startswith("2023-11-14T22:13:20")
    assert worker[2] is None


def test_every_column_of_a_record_is_read_by_its_own_name() -> None:
    columns = queries._columns("run")
    for field in Run.__struct_fields__:
        assert re.search(rf"\b{field}\b", columns), field
