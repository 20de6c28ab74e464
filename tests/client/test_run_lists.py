"""Lists of runs: every filter against a plain look at all runs, cursors, and bounded searches."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from rota.client.client import Client
from rota.core.runs.filters import checked_filter
from rota.core.runs.model import Run
from rota.core.time.instants import moment
from rota.errors import BadInput, StaleCursor, UnknownSchedule
from rota.store.runs import lists
from rota.testing import VirtualClock
from tests.kit.builders import NOW, sql

SCHEDULE = "0" * 32
MINUTE_US = 60_000_000
STATUSES = (
    "pending", "running", "sleeping", "waiting", "completed", "completed", "failed", "crashed",
    "cancelled", "skipped",
)  # fmt: skip
ENDED = {"completed", "failed", "crashed", "cancelled", "skipped"}


def client_of(url: str) -> Client:
    return Client(url, clock=VirtualClock(NOW), migrate=True)


async def fill(client: Client, count: int = 400) -> None:
    """Runs of every kind, a minute apart, in two namespaces, and a schedule."""
    chance = random.Random(7)
    await client.schedules.create("hourly", "work", "1h")
    [(schedule_id,)] = await sql(client.connection.database, "select id from runs")
    rows = []
    for n in range(count):
        at = NOW - (count - n) * MINUTE_US
        status = chance.choice(STATUSES)
        fails = status in ("failed", "crashed", "waiting")
        error = chance.choice(["ValueError", "TimeoutError"])
        rows.append(
            {
                "id": f"{at // 1000:012x}7{n:019x}",
                "namespace": chance.choice(["default"] * 4 + ["other"]),
                "kind": chance.choice(["workflow", "workflow", "pipeline"]),
                "name": chance.choice(["a", "a", "a", "b"]),
                "queue": chance.choice(["default", "slow"]),
                "status": status,
                "available_at": None if status == "sleeping" and n % 2 else at,
                "schedule_id": schedule_id if n % 5 == 0 else None,
                "due_at": at if n % 5 == 0 else None,
                "external_id": f"x{n}" if n % 3 == 0 else None,
                "tags": chance.choice([None, '{"to":"me"}', '{"to":"you","a\\"b":"1"}']),
                "lease": at if status == "running" else None,
                "owner": "w1" if status == "running" else None,
                "error": f'{{"type": "{error}", "message": "x"}}' if fails else None,
                "finished_at": at if status in ENDED else None,
                "created_at": at,
            }
        )  # fmt: skip
    for row in rows:
        values = ", ".join("null" if v is None else f"'{v}'" if isinstance(v, str) else str(v)
            for v in row.values())  # fmt: skip
        await sql(
            client.connection.database,
            "insert into runs (id, namespace, kind, name, queue, status, available_at, schedule_id,"
            " due_at, external_id, tags, lease_until, lease_owner, error, finished_at, created_at,"
            " root_id, attempt, recoveries, trigger, priority)"
            f" values ({values}, '{row['id']}', 1, 0, 'manual', 0)",
        )


async def walked(client: Client, limit: int, **filters: Any) -> list[Run]:
    """All pages of a list, one after the other."""
    found: list[Run] = []
    after = None
    while True:
        page = await client.runs.page(after=after, limit=limit, **filters)
        found += page.runs
        if page.next is None:
            return found
        after = page.next


FITS: list[tuple[dict[str, Any], Callable[[Run], bool]]] = [
    ({}, lambda run: True),
    ({"name": "b"}, lambda run: run.name == "b"),
    ({"name": "b", "kind": "pipeline"}, lambda run: (run.name, run.kind) == ("b", "pipeline")),
    ({"queue": "slow"}, lambda run: run.queue == "slow"),
    ({"kind": "pipeline"}, lambda run: run.kind == "pipeline"),
    ({"tag": "to=you"}, lambda run: '"to":"you"' in (run.tags or "")),
    ({"tag": 'a"b'}, lambda run: "you" in (run.tags or "")),
    ({"tag": "to=m"}, lambda run: False),
    ({"external_id": "x9"}, lambda run: run.external_id == "x9"),
    ({"search": "B"}, lambda run: run.name == "b"),
    ({"search": "%"}, lambda run: False),
    ({"search": "_"}, lambda run: False),
    ({"search": "!"}, lambda run: False),
    ({"search": "x1"}, lambda run: (run.external_id or "").startswith("x1")),
    ({"search": "0000000c", "queue": "slow"}, lambda run: run.id.endswith("0000000c")
        and run.queue == "slow"),
    ({"search": "00000C"}, lambda run: False),
    ({"search": "b", "kind": "pipeline"}, lambda run: (run.name, run.kind) == ("b", "pipeline")),
    ({"error": "ValueError"}, lambda run: '"ValueError"' in (run.error or "")),
    ({"error": "Value"}, lambda run: False),
    ({"schedule": "hourly"}, lambda run: run.schedule_id is not None),
    ({"schedule": "hourly", "status": "failed"}, lambda run: bool(run.schedule_id)
        and run.status == "failed"),
    ({"status": "waiting", "error": "TimeoutError"}, lambda run: run.status == "waiting"
        and "Timeout" in (run.error or "")),
    ({"status": "pending", "error": "TimeoutError"}, lambda run: False),
    ({"since": moment(NOW - 90 * MINUTE_US), "until": moment(NOW - 30 * MINUTE_US), "name": "a"},
        lambda run: run.name == "a"
        and NOW - 90 * MINUTE_US <= run.created_at < NOW - 30 * MINUTE_US),
]  # fmt: skip


async def test_every_filter_finds_what_a_look_at_all_runs_finds(database_url: str) -> None:
    async with client_of(database_url) as client:
        await fill(client)
        everything = await client.runs.list(limit=1000)
        assert len(everything) > 250
        assert everything == sorted(everything, key=lambda run: run.id, reverse=True)
        by_status = [
            ({"status": status, "queue": "slow"}, _state_of(status)) for status in set(STATUSES)
        ]
        for filters, fits in [*FITS, *by_status]:
            wanted = [run.id for run in everything if fits(run)]
            for limit in (7, 1000):
                found = [run.id for run in await walked(client, limit, **filters)]
                assert found == wanted, filters
            assert [run.id for run in await client.runs.list(limit=1000, **filters)] == wanted


def _state_of(status: str) -> Callable[[Run], bool]:
    return lambda run: run.status == status and run.queue == "slow"


async def test_a_bounded_search_says_how_far_it_looked_and_goes_on_there(
    database_url: str,
) -> None:
    async with client_of(database_url) as client:
        await fill(client, 120)
        for filters in (
            {"name": "b"},
            {"status": "failed"},
            {"status": "sleeping"},
            {"error": "ValueError"},
            {"schedule": "hourly"},
        ):
            wanted = checked_filter(**filters)  # type: ignore[arg-type]
            whole = [run.id for run in await client.runs.list(limit=1000, **filters)]  # type: ignore[arg-type]
            hourly = await client.schedules.get("hourly")
            schedule_id = hourly.schedule.id if wanted.schedule else ""
            found: list[str] = []
            before: str | None = "~"
            looks = 0
            while before is not None:
                part = await client.connection.database.read(
                    lists.page,
                    wanted,
                    namespace="default",
                    before=before,
                    limit=5,
                    window=5,
                    schedule_id=schedule_id,
                )
                assert part.looked_back_to is None or len(part.runs) < 5
                found += [run.id for run in part.runs]
                before = part.next_id
                looks += 1
            assert found == whole
            assert looks >= 3


async def test_a_search_finds_ids_and_external_ids_however_old_on_its_first_page(
    database_url: str,
) -> None:
    async with client_of(database_url) as client:
        await fill(client, 120)
        everything = await client.runs.list(limit=1000)
        old = min(everything, key=lambda run: run.id)
        named = [run for run in everything if (run.external_id or "").startswith("x1")]
        found = await client.runs.page(search=old.id[:20].upper(), limit=1)
        assert old.id in [run.id for run in found.by_id]
        found = await client.runs.page(search="x1", limit=1)
        assert [run.id for run in found.by_id] == [run.id for run in named][:20]
        assert found.next is not None
        assert not (await client.runs.page(search="x1", limit=1, after=found.next)).by_id
        done = await client.runs.page(search="x1", status="completed")
        assert [run.id for run in done.by_id] == [
            run.id for run in named if run.status == "completed"
        ]
        assert not (await client.runs.page(status="completed")).by_id
        assert not (await client.runs.page(search="y1")).by_id


async def test_runs_of_pipelines_are_found_by_name_behind_many_newer_workflow_runs(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "WINDOW", 10)
    async with client_of(database_url) as client:
        await fill(client, 60)
        pipelines = [run.id for run in await client.runs.list(kind="pipeline", limit=1000)]
        for _ in range(30):
            await client.start("work")
        found = await client.runs.page(kind="pipeline", limit=3)
        assert [run.id for run in found.runs] == pipelines[:3]
        assert [run.id for run in await walked(client, 3, kind="pipeline")] == pipelines


async def test_a_cursor_holds_while_runs_are_added_and_fits_its_filters_only(
    database_url: str,
) -> None:
    async with client_of(database_url) as client:
        for _ in range(5):
            await client.start("work")
        first = await client.runs.page(limit=2)
        await client.start("work")
        assert first.next is not None
        rest = await client.runs.page(limit=10, after=first.next)
        assert len(rest.runs) == 3
        assert (rest.next, rest.looked_back_to) == (None, None)
        with pytest.raises(StaleCursor):
            await client.runs.page(after=first.next, name="work")
        for bad in ("", "x", "\0", first.next + "0", "é" * 9, 7):
            with pytest.raises(BadInput, match="cursor"):
                await client.runs.page(after=bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["a\0b", "\ud800", "x" * 5000, 7, 2**70], ids=repr)
async def test_a_filter_that_no_database_holds_is_bad_input(database_url: str, text: Any) -> None:
    async with client_of(database_url) as client:
        names = ("name", "status", "queue", "kind", "tag", "schedule", "external_id", "error")
        for name in (*names, "root_id", "search", "since", "until"):
            with pytest.raises(BadInput):
                await client.runs.page(**{name: text})
        for limit in (0, -1, 1001, 2**64):
            with pytest.raises(BadInput, match="limit"):
                await client.runs.page(limit=limit)
        with pytest.raises(BadInput, match="time zone"):
            await client.runs.page(since=datetime(2026, 1, 1))  # noqa: DTZ001
        with pytest.raises(BadInput, match="too far"):
            await client.runs.page(until=datetime(9999, 1, 1, tzinfo=UTC))
        with pytest.raises(UnknownSchedule):
            await client.runs.page(schedule="nobody")
        with pytest.raises(BadInput, match="there is no status 'scheduled'"):
            await client.runs.page(status="scheduled")
