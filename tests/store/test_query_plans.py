"""Query plans: with many rows, the hot queries read an index and only as much as they need.

On PostgreSQL the generic plan is looked at, which is the one that runs. SQLite plans by rules of
thumb until an operator has it analysed, and must do the right thing both before and after.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import pytest

from rota.store.backend import queries
from rota.store.backend.database import Database, Tx
from rota.store.backend.postgres import PostgresTx
from rota.store.backend.sqlite_threads import SqliteTx
from tests.kit.builders import NOW, SPACE, opened, sql
from tests.kit.plans import all_plans

HISTORY = 12_000  # runs that are over
LIVE = 300  # of each: pending, sleeping, running, waiting

FILL = """
insert into runs (id, namespace, kind, name, queue, priority, status, reason, available_at, root_id,
    attempt, recoveries, trigger, external_id, limit_key, lease_owner, lease_until, created_at,
    started_at, finished_at)
with recursive n (i) as (select 1 union all select i + 1 from n where i < {count})
select '{status}' || substr('000000' || i, -6), '{space}', 'workflow', 'work', 'default', i % 3,
    '{status}', null, {now} - {count} + i, '{status}' || substr('000000' || i, -6), 1, 0,
    'manual', '{status}-x' || i, case when i % 2 = 0 then 'k' || (i % 40) end,
    case when '{status}' = 'running' then 'w' || (i % 7) end,
    case when '{status}' = 'running' then {now} - 50 + i end, {now}, {now},
    case when '{status}' in ('completed', 'failed') then {now} end
from n
"""
SCHEDULES = 2000
BUSY = 60  # schedules with a long history
ENDED = 150  # runs of each that are over; one more is open and one waits for its turn
SCHEDULED = """
insert into runs (id, namespace, kind, name, queue, priority, status, available_at, due_at, spec,
    root_id, parent_id, attempt, recoveries, trigger, created_at)
with recursive n (i) as (select 1 union all select i + 1 from n where i < {count})
select 's' || i, '{space}', 'schedule', 'name' || i, 'default', 0,
    case when i % 9 = 0 then 'paused' else 'scheduled' end, {now} + i, {now} + i, '{{}}', 's' || i,
    case when i % 40 = 0 then 'program' end, 1, 0, 'manual', {now}
from n
"""
FIRED = """
insert into runs (id, namespace, kind, name, queue, priority, status, reason, available_at, due_at,
    schedule_id, root_id, attempt, recoveries, trigger, created_at, finished_at)
with recursive n (i) as (select 0 union all select i + 1 from n where i < {ended} + 1),
    s (k) as (select 1 union all select k + 1 from s where k < {busy})
select 'f' || k || '-' || i, '{space}', 'workflow', 'work', 'default', 0,
    case when i < {ended} then 'completed' when i = {ended} then 'pending' else 'sleeping' end,
    case when i > {ended} then 'turn' end, case when i <= {ended} then {now} end,
    {now} - 1000000 + i, 's' || k, 'f' || k || '-' || i, 1, 0, 'schedule', {now},
    case when i < {ended} then {now} end
from n, s
"""


class Case(NamedTuple):
    """A query, what it is asked with, and the indexes one of which must serve it."""

    query: str
    indexes: tuple[str, ...]
    parameters: dict[str, Any] = {}  # noqa: RUF012
    item: tuple[Any, ...] = ()


PLACE: dict[str, Any] = {"namespace": SPACE, "queue": "default", "names": ["work"], "limit": 10,
    "version": "v1"}  # fmt: skip
BEAT = {"id": "w1", "status": "online", "now": NOW, "queues": ["default"], "names": ["work"],
    "version": "v1", "held_threads": None, "workflow_blocks": None}  # fmt: skip
LEASE = {"worker_id": "w1", "lease_until": NOW, "now": NOW}
PRIMARY = ("runs_pkey", "sqlite_autoindex_runs_1")
CHAIN = (*PRIMARY, "runs_attempts")

CASES = [
    Case("claim_runs", ("runs_ready",), PLACE | LEASE),
    Case("ready_runs", ("runs_ready",), PLACE | LEASE),
    Case("pick_unkeyed", ("runs_ready",), PLACE | {"per_key": 1}),
    Case("pick_keyed", ("runs_limit_keys",), PLACE | {"share": 2}),
    Case("refused_runs", ("runs_refused",), {"namespace": SPACE, "limit": 10}),
    Case("count_pinned", ("runs_pinned",), {"namespace": SPACE}),
    Case("stop_workers", ("runs_running",), {"ids": ["w1"], "now": NOW}),
    Case("count_running", ("runs_running",), {"namespace": SPACE, "queue": "default"}),
    Case("wake_due", ("runs_timer",), {"namespace": SPACE, "now": NOW, "limit": 10}),
    Case("next_due", ("runs_timer",), {"namespace": SPACE}),
    Case(
        "lapsed_runs", ("runs_running",),
        {"namespace": SPACE, "now": NOW, "gone": ["w1"], "held": ["x"], "limit": 10},
    ),
    Case("claim_listed", PRIMARY, {"ids": ["pending000001"], **LEASE}),
    Case("pick_alone", ("runs_alone",), PLACE | {"per_key": 0}),
    Case("beat", ("runs_alone",), BEAT | {"code_id": None}),
    Case("beat_by_code", ("runs_alone",), BEAT | {"code_id": "code"}),
    Case("claim_runs_by_code", ("runs_ready",), PLACE | LEASE | {"code_id": "code"}),
    Case("ready_runs_by_code", ("runs_ready",), PLACE | LEASE | {"code_id": "code"}),
    Case("renew_leases", PRIMARY, {"lease_until": NOW}, ("running000001", 1, "w1")),
    Case("complete_runs", PRIMARY, LEASE, ("running000001", 1, None)),
    Case("latest_notification", ("notifications_open",), {"subject": "a", "run_id": "a"}),
    Case("poke_runs", CHAIN, {"roots": ["sleeping000001"], "now": NOW}),
    Case("ended_chains", CHAIN, {"roots": ["completed000001"]}),
    Case("chains_below", ("runs_children",), {"parents": ["running000001"]}),
    Case("open_of_chains", CHAIN, {"roots": ["running000001"]}),
    Case("wake_to_end", CHAIN, {"roots": ["sleeping000001"], "now": NOW}),
    Case("request_ends", CHAIN, {"roots": ["sleeping000001"], "request": "{}", "now": NOW}),
    Case("without_cleanup", CHAIN, {"roots": ["sleeping000001"]}),
    Case("statuses_of_chains", CHAIN, {"roots": ["sleeping000001"]}),
    Case("chain_of", CHAIN, {"root_id": "running000001"}),
    Case("get_run", PRIMARY, {"namespace": SPACE, "id": "running000001"}),
    Case("find_started", ("runs_external",), {}, (SPACE, "work", "pending-x1")),
    Case("retention_window", PRIMARY, {"namespace": SPACE, "after_id": "", "before_id": "zzz",
        "before_at": 1 << 62, "before_root_id": "", "limit": 10}),
    Case("prunable_chains", PRIMARY,
        {"ids": ["completed000001"], "before_id": "zzz", "before_at": 1 << 62,
        "before_root_id": ""}),
    Case("delete_chains", CHAIN, {"roots": ["completed000001"]}),
]  # fmt: skip

SPOT: dict[str, Any] = {"namespace": SPACE, "now": NOW, "limit": 10, "until": NOW, "name": "name1"}
ANY_NAME = {"search": "", "status": ""}
ONE = {"id": "s1", "limit": 1, "now": NOW}
RANGE = {"from_at": 0, "to_at": NOW, "due_at": NOW, "at": NOW, "limit": 10, "id": "s1"}
PAGE = {"before_at": NOW, "before_id": ""}
NEW = ("new", "s1", "workflow", "work", NOW, NOW, None, NOW + 1, NOW + 1)
ADDED = ("new", "s1", "workflow", "work", "pending", None, NOW, NOW, "schedule", None, None, None)
OPEN = ("runs_schedule_open",)
RESTING = ("runs_resting",)
STUCK = {"namespace": SPACE, "kinds": ["workflow", "pipeline"], "reason": "turn"}

CASES += [
    Case("due_schedules", ("runs_timer",), SPOT),
    Case("next_schedule", ("runs_timer",), SPOT),
    Case("due_pauses", ("runs_timer",), SPOT),
    Case("next_pause", ("runs_timer",), SPOT),
    Case("soonest_schedules", ("runs_timer",), SPOT),
    Case("overdue_schedules", ("runs_timer",), SPOT | {"at": 0, "id": ""}),
    Case("fired_between", ("runs_occurrence",), RANGE),
    Case("next_not_begun", ("runs_occurrence",), {}, ("s1", 0)),
    Case("get_schedule", ("runs_templates",), SPOT),
    Case("list_schedules", ("runs_templates",), SPOT | {"after": "name2"} | ANY_NAME),
    Case("count_listed_schedules", ("runs_templates",), SPOT | ANY_NAME),
    Case("schedules_of", ("runs_children",), {"origins": ["program"], "namespace": SPACE}),
    Case("open_of_schedules", OPEN, {"ids": ["s1", "s2"]}),
    Case("open_roots_of", OPEN, {"ids": ["s1", "s2"]}),
    Case("with_queued", OPEN, {"ids": ["s1", "s2"]}),
    Case("next_of_backfill", OPEN, ONE),
    Case("free_waiting", OPEN, ONE | {"reasons": ["turn", "backfill"]}),
    Case("free_orphans", RESTING, STUCK | {"now": NOW}),
    Case("stuck_queued", RESTING, STUCK),
    Case("release_queued", OPEN, {"now": NOW}, ("s1",)),
    Case("failures_in_a_row", ("runs_occurrence",), {"limit": 3}, ("s1", 0)),
    Case("ledger_due", ("runs_occurrence",), RANGE | PAGE),
    Case("ledger_by_hand", ("runs_occurrence",), RANGE | PAGE),
    Case("outcome_counts", ("runs_occurrence",), RANGE),
    Case("collapsed_between", ("runs_occurrence",), RANGE),
    Case("last_outcome_ids", ("runs_occurrence",), {"last": 20}, ("s1",)),
    Case("outcomes_by_id", PRIMARY, {"ids": ["completed000001"]}),
    Case("children_of", ("runs_children",), {"parent_id": "p", "after": "", "limit": 10}),
    Case("last_attempts", CHAIN, {"roots": ["completed000001"]}),
    Case("ledger_range", ("runs_occurrence",), RANGE),
    Case("fire_plain", PRIMARY, {"now": NOW}, NEW),
    Case("advance_plain", PRIMARY, {}, NEW),
    Case("fire_runs", PRIMARY, {"now": NOW}, ADDED),
    Case("advance_schedules", PRIMARY, {"was": "scheduled"},
        ("s1", NOW, "paused", None, None, None, None, None)),
]  # fmt: skip

HISTORY_OF = ("runs_occurrence",)
CASES += [
    Case("lock_templates", PRIMARY, {"ids": ["s1"]}),
    Case("ends_since", HISTORY_OF, {"id": "s1", "since": NOW}),
]
# The doctor without --full reads a bounded number of rows.
CASES += [
    Case("broken_turn", ("runs_resting",), {}),
    Case("broken_backfill", ("runs_resting",), {}),
    Case("broken_open_chain", ("runs_ready",), {}),
    Case("broken_serial", ("runs_serial",), {}),
]
CASES += [
    Case("open_runs", ("runs_serial",), {"namespace": SPACE, "serial_keys": ["automation:a"]}),
    Case(
        "handlers_of",
        ("handlers_pkey", "sqlite_autoindex_handlers_1"),
        {"namespace": SPACE, "automations": ["a"]},
    ),
    Case("mutations_of_chains", ("mutations_by_chain",), {"root_ids": ["a"]}),
    Case("current_rows_of", PRIMARY, {"ids": ["s1", "s2"]}),
    Case("open_executions", OPEN, {"ids": ["s1", "s2"]}),
    Case("occurrences_since", HISTORY_OF, {"id": "s1", "since": NOW}),
    Case("started_by_hand", HISTORY_OF, {"ids": ["s1", "s2"], "since": NOW}),
    Case("latest_executions", HISTORY_OF, {"id": "s1", "limit": 10}),
    Case("attempts_of", CHAIN, {"roots": ["completed000001"]}),
]
CASES += [
    Case("count_open", ("runs_resting",), {"namespace": SPACE, "now": NOW}),
    Case("count_newest", PRIMARY, {"namespace": SPACE, "since_id": "sleeping", "limit": 10}),
    Case("count_schedules", ("runs_templates",), {"namespace": SPACE, "now": NOW}),
    Case("count_automations", ("runs_serial",), {"namespace": SPACE, "key_prefix": "automation:"}),
    Case("recent_executions", HISTORY_OF, {"namespace": SPACE, "since": NOW, "limit": 10}),
]
LISTED: dict[str, Any] = {
    "namespace": SPACE, "before": "~", "first": "", "limit": 10, "window": 100, "name": "",
    "status": "", "queue": "", "kind": "", "schedule_id": "", "external_id": "", "root_id": "",
    "tag": "", "error": "", "search": "", "name_like": "%%", "id_part": "", "id_beyond": "~",
    "beyond": "~",
}  # fmt: skip
FAILED = LISTED | {"status": "failed"}
OF_NAME = LISTED | {"name": "work"}
OF_SCHEDULE = LISTED | {"schedule_id": "s1"}
CASES += [
    Case("ids_newest", PRIMARY, LISTED),
    Case("end_of_newest", PRIMARY, LISTED),
    Case("ids_unsuccessful", ("runs_unsuccessful",), FAILED),
    Case("end_of_unsuccessful", ("runs_unsuccessful",), FAILED),
    Case("ids_of_schedule", HISTORY_OF, OF_SCHEDULE),
    Case("size_of_schedule", HISTORY_OF, OF_SCHEDULE),
    Case("ids_of_name", ("runs_by_name",), OF_NAME),
    Case("end_of_name", ("runs_by_name",), OF_NAME),
    Case("ids_called", ("runs_external",), LISTED | {"external_id": "pending-x1"}),
    Case("ids_beginning", ("runs_external",), LISTED | {"search": "pending-x1"}),
    Case("runs_called", ("runs_external",), LISTED | {"external_id": "pending-x1"}),
    Case("names_of_kinds", ("runs_by_name",), LISTED),
    Case("names_with_external_ids", ("runs_external",), LISTED),
    Case("ids_of_chain", CHAIN, LISTED | {"root_id": "running000001"}),
    Case("ids_pending", ("runs_ready",), LISTED),
    Case("size_pending", ("runs_ready",), LISTED),
    Case("ids_running", ("runs_running",), LISTED),
    Case("size_running", ("runs_running",), LISTED),
    Case("ids_sleeping", ("runs_timer",), LISTED),
    Case("size_sleeping", ("runs_timer",), LISTED),
    Case("ids_waiting", ("runs_resting",), LISTED),
    Case("size_waiting", ("runs_resting",), LISTED),
    Case("runs_by_id", PRIMARY, {"ids": ["running000001"]}),
]


async def _fill(db: Database) -> None:
    counts = {"completed": HISTORY, "failed": 1000} | dict.fromkeys(
        ("pending", "sleeping", "running", "waiting"), LIVE
    )
    for status, count in counts.items():
        text = FILL.format(status=status, count=count, space=SPACE, now=NOW)
        if db.dialect.name == "postgres":
            text = re.sub(r"substr\('000000' \|\| i, -6\)", "right('000000' || i, 6)", text)
        await sql(db, text)
    await sql(db, SCHEDULED.format(count=SCHEDULES, space=SPACE, now=NOW))
    await sql(db, FIRED.format(ended=ENDED, busy=BUSY, space=SPACE, now=NOW))


# PostgreSQL keeps the first plan of a statement, and the first worker plans while tables are empty.
KINDS = (
    "sqlite",
    "sqlite, analysed",
    pytest.param("postgres", marks=pytest.mark.pg),
    pytest.param("postgres, empty", marks=pytest.mark.pg),
)


@pytest.fixture(scope="module", params=KINDS)
def full_url(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """A database with many rows, made once."""
    kind, _, state = request.param.partition(", ")
    if kind != "postgres":
        url = f"sqlite:///{tmp_path_factory.mktemp('plans') / 'rota.db'}"
    else:
        base = request.getfixturevalue("postgres_url")
        url = f"{base}{'&' if '?' in base else '?'}schema=t_{secrets.token_hex(6)}"
    asyncio.run(_prepare(url, filled=state != "empty", analysed=request.param != "sqlite"))
    yield url
    if kind == "postgres":
        asyncio.run(_drop(url))


async def _prepare(url: str, *, filled: bool, analysed: bool) -> None:
    async with opened(url) as db:
        if filled:
            await _fill(db)
        if filled and analysed:
            await sql(db, "analyze runs")


async def _drop(url: str) -> None:
    async with opened(url, migrated=False) as db:
        await sql(db, f"drop schema {url.rpartition('schema=')[2]} cascade")


def _asks(dialect: str, case: Case) -> bool:
    """Whether this database has the query, which may be a form of another."""
    return case.query.removesuffix("_by_code") in queries.texts(dialect)


async def _plan(tx: Tx, case: Case) -> str:
    query = queries.compiled(tx.dialect.name, tx.schema)[case.query]
    if isinstance(tx, SqliteTx):
        from rota.store.backend.sqlite_threads import _json, _plain

        shared = _plain([case.parameters[name] for name in query.parameters])
        given = [_json([case.item]), *shared] if case.item else shared
        rows = tx._cursor.execute(f"explain query plan {query.text}", given).fetchall()
        return "\n".join(str(row[3]) for row in rows)
    assert isinstance(tx, PostgresTx)
    unknown = ", ".join(["null"] * (len(query.columns) + len(query.parameters)))
    await tx.connection.execute(f"prepare asked as {query.text}")
    values = f"({unknown})" if unknown else ""
    found = await tx.connection.fetch(f"explain execute asked{values}")
    await tx.connection.execute("deallocate asked")
    return "\n".join(row[0] for row in found)


# A read of the whole table: what must never happen.
SCANS = re.compile(
    r"Seq Scan on runs|Hash Join|SCAN (?:runs|next|busy|later|parent|root|child)(?! USING)\b"
)


# Rare queries. Their plans are made again once the server has analysed the table.
LATE = ("find_started", "schedules_of")


def test_every_case_names_a_query_of_some_database() -> None:
    unknown = [
        case.query for case in CASES if not (_asks("sqlite", case) or _asks("postgres", case))
    ]
    assert unknown == []


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.query)
async def test_the_query_reads_an_index_and_never_the_whole_table(
    request: pytest.FixtureRequest, full_url: str, case: Case
) -> None:
    if case.query in LATE and "empty" in request.node.callspec.params["full_url"]:
        pytest.skip("it is rare")
    async with opened(full_url, migrated=False) as db:
        if not _asks(db.dialect.name, case):
            pytest.skip("the other database asks it")
        plan = await db.read(_plan, case)
    assert any(index in plan for index in case.indexes), plan
    assert not SCANS.search(plan), plan


# They are for people who ask for everything: `rota doctor --full`, and counts of all stored runs.
# `keep_runs` sorts all stored runs once in each pass, and keeps them few.
WHOLE = {"broken_lease", "broken_finish", "count_by_status", "nth_newest_end"}


@pytest.mark.pg
async def test_no_statement_reads_a_whole_table(full_url: str) -> None:
    async with opened(full_url, migrated=False) as db:
        if db.dialect.name != "postgres":
            pytest.skip("the cases above name what SQLite reads")
        plans = await db.read(all_plans)
    assert {name for name, plan in plans.items() if "Seq Scan" in plan} == WHOLE


async def test_a_claim_sorts_nothing(full_url: str) -> None:
    """The index has the order of the line, so that a long line costs no more than a short one."""
    async with opened(full_url, migrated=False) as db:
        asked = "claim_runs" if db.dialect.fuses else "ready_runs"
        plan = await db.read(_plan, next(case for case in CASES if case.query == asked))
    assert "USE TEMP B-TREE" not in plan
    assert not re.search(r"\bSort\b", plan), plan


async def test_every_open_run_is_counted_from_an_index_of_open_runs(full_url: str) -> None:
    """Else a scrape would read all history to find the few that wait."""
    counts = next(case for case in CASES if case.query == "count_open")
    async with opened(full_url, migrated=False) as db:
        plan = await db.read(_plan, counts)
    for index in ("runs_ready", "runs_running", "runs_timer", "runs_resting"):
        assert index in plan, plan


async def _batch_plans(tx: Tx) -> dict[str, str]:
    """The outermost loop of every statement that takes many items."""
    assert isinstance(tx, SqliteTx)
    plans = {}
    for name in queries.texts("sqlite"):
        query = queries.compiled("sqlite")[name]
        if query.columns:
            given = ("[]", *("" for _ in query.parameters))
            rows = tx.connection.execute(f"explain query plan {query.text}", given)
            plans[name] = next((row[3] for row in rows), "")
    return plans


async def test_a_batch_finds_its_rows_by_more_than_the_namespace(tmp_path: Path) -> None:
    """Else it reads all rows of the namespace and all its items for each of them."""
    async with opened(f"sqlite:///{tmp_path / 'rota.db'}") as db:
        plans = await db.read(_batch_plans)
    assert "commit_handlers" in plans
    assert {name: plan for name, plan in plans.items() if plan.endswith("(namespace=?)")} == {}


BACKFILL = """
insert into runs (id, namespace, kind, name, queue, priority, status, reason, available_at, due_at,
    schedule_id, root_id, attempt, recoveries, trigger, created_at)
with recursive n (i) as (select 0 union all select i + 1 from n where i < {count})
select 'b' || i, '{space}', 'workflow', 'work', 'default', 0,
    case when i = {count} / 2 then 'pending' else 'sleeping' end,
    case when i <> {count} / 2 then 'backfill' end, case when i = {count} / 2 then {now} end,
    {now} - 1000000 + i, 's1', 'b' || i, 1, 0, 'backfill', {now}
from n
"""


async def _steps(tx: Tx, query: str, parameters: dict[str, Any]) -> int:
    """The thousands of steps that SQLite takes for a query."""
    assert isinstance(tx, SqliteTx)
    count = 0

    def step() -> bool:
        nonlocal count
        count += 1
        return False

    tx.connection.set_progress_handler(step, 1000)
    await tx.rows(query, **parameters)
    tx.connection.set_progress_handler(None)
    return count


QUEUED = {"broken_turn": {}, "broken_backfill": {}, "stuck_queued": STUCK | {"reason": "backfill"}}


@pytest.mark.parametrize("query", QUEUED)
@pytest.mark.parametrize("analysed", [False, True])
async def test_a_backfill_is_not_read_again_for_each_of_its_runs(
    tmp_path: Path, query: str, analysed: bool
) -> None:
    async with opened(f"sqlite:///{tmp_path / 'rota.db'}") as db:
        await sql(db, SCHEDULED.format(count=1, space=SPACE, now=NOW))
        await sql(db, BACKFILL.format(count=1000, space=SPACE, now=NOW))
        if analysed:
            await sql(db, "analyze runs")
        assert await db.read(_steps, query, QUEUED[query]) < 200


def _other(value: Any, open_run: int) -> Any:
    """A value of the same kind, another one at every turn."""
    if isinstance(value, list):
        return [_other(one, open_run) for one in value]
    return (
        value + (str(open_run) if isinstance(value, str) else open_run)
        if value is not None
        else None
    )


async def _run_again(tx: Tx) -> set[str]:
    """Run each of the queries with other values; which of them SQLite compiled again."""
    assert isinstance(tx, SqliteTx)
    running, repeated = "", set()

    def compiling(*_: Any) -> int:  # SQLite asks the authorizer when it compiles, not when it runs
        repeated.add(running)
        return apsw.SQLITE_OK

    tx.connection.set_authorizer(compiling)
    for case in (case for case in CASES if _asks("sqlite", case)):
        running = case.query
        for open_run in range(3):
            given = {name: _other(value, open_run) for name, value in case.parameters.items()}
            items = [tuple(_other(value, open_run) for value in case.item)]
            await (
                tx.many(case.query, items, **given) if case.item else tx.rows(case.query, **given)
            )
            if open_run == 0:
                repeated.discard(running)
    tx.connection.set_authorizer(None)
    return repeated


async def test_sqlite_compiles_a_query_once_whatever_it_is_asked_with(tmp_path: Path) -> None:
    async with opened(f"sqlite:///{tmp_path / 'rota.db'}") as db:
        assert await db.write(_run_again) == set()
