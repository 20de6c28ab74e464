"""Query plans: with many rows, the hot queries read an index and only as much as they need."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from rota.store import queries
from rota.store.database import Database, Tx
from rota.store.postgres import PostgresTx
from rota.store.sqlite import SqliteTx
from tests.builders import NOW, SPACE, opened, sql

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


class Case(NamedTuple):
    """A query, what it is asked with, and the indexes one of which must serve it."""

    query: str
    indexes: tuple[str, ...]
    parameters: dict[str, Any] = {}  # noqa: RUF012
    item: tuple[Any, ...] = ()


PLACE: dict[str, Any] = {"namespace": SPACE, "queue": "default", "names": ["work"], "limit": 10}
LEASE = {"worker_id": "w1", "lease_until": NOW, "now": NOW}
PRIMARY = ("runs_pkey", "sqlite_autoindex_runs_1")
CHAIN = (*PRIMARY, "runs_chain")

CASES = [
    Case("claim_runs", ("runs_ready",), PLACE | LEASE),
    Case("pick_unkeyed", ("runs_ready",), PLACE | {"per_key": 1}),
    Case("pick_keyed", ("runs_limit_keys",), PLACE | {"key_running_max": 2}),
    Case("count_running", ("runs_running",), {"namespace": SPACE, "queue": "default"}),
    Case("wake_due", ("runs_timer",), {"namespace": SPACE, "now": NOW, "limit": 10}),
    Case("next_due", ("runs_timer",), {"namespace": SPACE}),
    Case(
        "lapsed_runs", ("runs_running",),
        {"namespace": SPACE, "now": NOW, "gone": ["w1"], "held": ["x"], "limit": 10},
    ),
    Case("claim_listed", PRIMARY, {"ids": ["pending000001"], **LEASE}),
    Case("renew_leases", PRIMARY, {"lease_until": NOW}, ("running000001", 1)),
    Case("complete_runs", PRIMARY, {"now": NOW}, ("running000001", 1, None)),
    Case("poke_runs", CHAIN, {"roots": ["sleeping000001"], "now": NOW}),
    Case("ended_chains", CHAIN, {"roots": ["completed000001"]}),
    Case("family_of", ("runs_children",), {"roots": ["running000001"]}),
    Case("chain_of", CHAIN, {"root_id": "running000001"}),
    Case("get_run", PRIMARY, {"namespace": SPACE, "id": "running000001"}),
    Case("find_started", ("runs_external",), {}, (SPACE, "work", "pending-x1")),
    Case("prunable_chains", PRIMARY,
        {"namespace": SPACE, "before_id": "zzz", "before_at": 1 << 62, "limit": 10}),
]  # fmt: skip


async def _fill(db: Database) -> None:
    counts = {"completed": HISTORY, "failed": 1000} | dict.fromkeys(
        ("pending", "sleeping", "running", "waiting"), LIVE
    )
    for status, count in counts.items():
        text = FILL.format(status=status, count=count, space=SPACE, now=NOW)
        if db.dialect.name == "postgres":
            text = re.sub(r"substr\('000000' \|\| i, -6\)", "right('000000' || i, 6)", text)
        await sql(db, text)
    await sql(db, "analyze runs")


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgres", marks=pytest.mark.pg)])
def full_url(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """A database with many rows, made once."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path_factory.mktemp('plans') / 'rota.db'}"
    else:
        base = request.getfixturevalue("postgres_url")
        url = f"{base}{'&' if '?' in base else '?'}schema=t_{secrets.token_hex(6)}"
    asyncio.run(_prepare(url))
    yield url
    if request.param == "postgres":
        asyncio.run(_drop(url))


async def _prepare(url: str) -> None:
    async with opened(url) as db:
        await _fill(db)


async def _drop(url: str) -> None:
    async with opened(url, migrated=False) as db:
        await sql(db, f"drop schema {url.rpartition('schema=')[2]} cascade")


async def _plan(tx: Tx, case: Case) -> str:
    query = queries.compiled(tx.dialect.name)[case.query]
    values = [case.parameters[name] for name in query.parameters]
    if isinstance(tx, SqliteTx):
        from rota.store.sqlite import _json, _plain

        shared = [_plain(value) for value in values]
        given = [_json([case.item]), *shared] if case.item else shared
        rows = tx._cursor.execute(f"explain query plan {query.text}", given).fetchall()
        return "\n".join(str(row[3]) for row in rows)
    assert isinstance(tx, PostgresTx)
    arrays = [[value] for value in case.item]
    found = await tx._run(f"explain {query.text}", [*arrays, *values], alone=False)
    return "\n".join(row[0] for row in found)


# A read of the whole table: what must never happen.
SCANS = re.compile(r"Seq Scan on runs|SCAN (?:runs|next|busy|later|parent|root|child)(?! USING)\b")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.query)
async def test_the_query_reads_an_index_and_never_the_whole_table(
    full_url: str, case: Case
) -> None:
    async with opened(full_url, migrated=False) as db:
        plan = await db.read(_plan, case)
    assert any(index in plan for index in case.indexes), plan
    assert not SCANS.search(plan), plan


async def test_a_claim_sorts_nothing(full_url: str) -> None:
    """The index has the order of the line, so that a long line costs no more than a short one."""
    claim = next(case for case in CASES if case.query == "claim_runs")
    async with opened(full_url, migrated=False) as db:
        plan = await db.read(_plan, claim)
    assert "USE TEMP B-TREE" not in plan
    assert not re.search(r"\bSort\b", plan), plan
