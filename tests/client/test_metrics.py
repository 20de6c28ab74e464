"""The numbers of `rota metrics`, against stores with known content, on both databases."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rota.client import metrics
from rota.client.automation_views import AutomationView
from rota.client.client import Client
from rota.core.automations.model import DeployedAutomation
from rota.core.automations.text import say, word_of
from rota.core.prometheus_text import text
from rota.core.runs.lifecycle import OPEN
from rota.core.runs.model import Run
from rota.core.schedules.intent import QUARANTINED_REASON, RUNS_DONE
from rota.core.time.instants import DAY, HOUR, MINUTE, SECOND
from rota.pipelines import usage
from rota.pipelines.outcome import PipelineResult
from rota.settings import Settings
from rota.store.runs import workers
from rota.testing import VirtualClock
from tests.automations.kit import Line, begun
from tests.kit.builders import NOW, SPACE, begin, fresh_id, new_run, settle, sql, start, worker_row
from tests.kit.prometheus_parser import Family, parse
from tests.pipelines.kit.offline_folder import offline_world


@asynccontextmanager
async def status_at(url: str, now: int = NOW, **settings: Any) -> AsyncIterator[Client]:
    """A client for whom time stops."""
    clock = VirtualClock(now)
    async with Client(url, settings=Settings(**settings), clock=clock, migrate=True) as client:
        yield client


async def read(client: Client) -> dict[str, Family]:
    """The metrics, as a strict reader understands them."""
    return parse(text(await metrics.collect(client)))


def created(now: int, **fields: Any) -> Any:
    """A run that was created at an instant, as its id says."""
    return new_run(id=fresh_id(now), available_at=now, **fields)


async def test_an_empty_store_is_reported_in_zeros(database_url: str) -> None:
    async with status_at(database_url) as client:
        found = await read(client)
    window = found.pop("rota_runs_ended_window_seconds")
    assert window.at() == 3600
    assert found.pop("rota_build_info").at(namespace=SPACE) == 1
    numbers = {value for family in found.values() for value in family.samples.values()}
    assert numbers == {0}
    assert found["rota_runs_open"].at(kind="workflow", status="pending") == 0
    assert found["rota_workers"].at(state="alive") == 0
    assert found["rota_automations"].at(word="Needs attention") == 0
    assert found["rota_schedules"].at(status="quarantined") == 0
    assert all(family.help.endswith(".") for family in found.values())


async def test_open_runs_are_counted_exactly_however_they_rest(database_url: str) -> None:
    async with status_at(database_url) as client:
        db = client.connection.database
        for kind, name in (("workflow", "work"), ("pipeline", "pipeline:x")):
            for verb, fields in (
                ("suspend", {"wake_at": NOW + HOUR, "reason": "sleep"}),
                ("suspend", {"reason": "signal"}),
                ("suspend", {"reason": "signal"}),
                ("ask", {"reason": "auth"}),
                ("complete", {}),
            ):
                held = await begin(db, kind=kind, name=name)
                assert await settle(db, held, verb, **fields)
            await begin(db, kind=kind, name=name)
        await start(db, new_run(), new_run(queue="mail"))
        await start(db, new_run(namespace="other"))
        found = await read(client)
    runs = found["rota_runs_open"]
    for kind, pending in (("workflow", 2), ("pipeline", 0), ("automation", 0)):
        each = 0 if kind == "automation" else 1
        assert runs.at(kind=kind, status="pending") == pending
        assert runs.at(kind=kind, status="running") == each
        assert runs.at(kind=kind, status="sleeping") == 3 * each
        assert runs.at(kind=kind, status="waiting") == each
    assert found["rota_waiting_for_person"].at(kind="pipeline", why="auth") == 1
    assert {dict(key)["namespace"] for key in runs.samples} == {SPACE}


async def test_queues_show_how_long_their_oldest_run_waits(database_url: str) -> None:
    odd = 'a "b"\\c\nd'
    async with status_at(database_url) as client:
        await start(
            client.connection.database,
            new_run(available_at=NOW - 90 * SECOND),
            new_run(available_at=NOW - 5 * SECOND, kind="pipeline"),
            new_run(queue=odd),
            now=NOW,
        )
        found = await read(client)
    assert found["rota_queue_pending_runs"].at(queue="default") == 2
    assert found["rota_queue_oldest_pending_seconds"].at(queue="default") == 90
    assert found["rota_queue_pending_runs"].at(queue=odd) == 1
    assert found["rota_queue_oldest_pending_seconds"].at(queue=odd) == 0


async def test_lapsed_leases_and_absent_workers_are_reported(database_url: str) -> None:
    async with status_at(database_url) as client:
        await begin(client.connection.database)
        await begin(client.connection.database)
        rows = [worker_row("a"), worker_row("b", heartbeat_at=NOW - DAY), worker_row("c")]
        for row in rows:
            await client.connection.database.write(workers.register, row)
        await client.connection.database.write(workers.stop, ["c"], now=NOW)
        found = await read(client)
        assert found["rota_runs_lapsed"].at() == 0
        await sql(
            client.connection.database,
            f"update runs set lease_until = {NOW - 1} where id = (select min(id) from runs)"
            " returning id",
        )
        found = await read(client)
    assert found["rota_runs_lapsed"].at() == 1
    assert found["rota_workers"].at(state="alive") == 1
    assert found["rota_workers"].at(state="silent") == 1
    assert found["rota_worker_slots"].at() == 10


async def _end(client: Client, at: int, verb: str = "complete", **fields: Any) -> None:
    fresh = created(at, **fields)
    held = await begin(client.connection.database, now=at, **msgspec.structs.asdict(fresh))
    assert await settle(client.connection.database, held, verb, now=at)


async def test_ended_runs_are_counted_over_the_last_hour(database_url: str) -> None:
    async with status_at(database_url) as client:
        await _end(client, NOW - 2 * HOUR)
        await _end(client, NOW - 59 * MINUTE)
        await _end(client, NOW - MINUTE)
        await _end(client, NOW - MINUTE, "fail")
        await start(client.connection.database, created(NOW - MINUTE))
        found = await read(client)
    assert found["rota_runs_ended"].at(kind="workflow", status="completed") == 2
    assert found["rota_runs_ended"].at(kind="workflow", status="failed") == 1
    assert len(found["rota_runs_ended"].samples) == 2
    assert found["rota_runs_ended_window_seconds"].at() == 3600


async def test_where_more_were_created_the_window_is_reported_to_be_shorter(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "NEWEST_MAX", 3)
    async with status_at(database_url) as client:
        for minutes in (30, 20, 10):
            await _end(client, NOW - minutes * MINUTE)
        await start(client.connection.database, created(NOW, namespace="other"))
        found = await read(client)
    assert found["rota_runs_ended"].at(status="completed") == 2, "others' runs are read as well"
    assert found["rota_runs_ended_window_seconds"].at() == 20 * 60


async def test_schedules_by_how_they_stand_and_the_latest_of_those_overdue(
    database_url: str,
) -> None:
    async with status_at(database_url) as client:
        for name in ("late", "later", "soon", "rests", "over", "odd"):
            await client.schedules.create(name, "work", "1h")
        for name, change in {
            "late": f"available_at = {NOW - 10 * SECOND}",
            "later": f"available_at = {NOW - 70 * SECOND}",
            "rests": "status = 'paused', reason = 'holidays', available_at = 1",
            "over": f"status = 'paused', reason = '{RUNS_DONE}'",
            "odd": f"status = 'paused', reason = '{QUARANTINED_REASON}unreadable'",
        }.items():
            await sql(
                client.connection.database,
                f"update runs set {change} where name = '{name}' returning id",
            )
        found = await read(client)
    by_status = {dict(key)["status"]: n for key, n in found["rota_schedules"].samples.items()}
    assert by_status == {"scheduled": 3, "paused": 1, "ended": 1, "quarantined": 1}
    assert found["rota_schedules_overdue"].at() == 2
    assert found["rota_schedules_overdue_seconds_max"].at() == 70


async def _words(app: Line) -> tuple[list[AutomationView], Family]:
    return await app.automations.list(archived=True), (await read(app))["rota_automations"]


async def test_automations_are_counted_by_their_word(database_url: str) -> None:
    app = Line()
    async with begun(app, database_url, "e1") as world:
        [view], words = await _words(app)
        assert (view.status, words.at(word="Idle")) == ("Idle", 1)
        await app.automations.pause("line")
        await world.settle()
        [view], words = await _words(app)
        assert (view.status, words.at(word="Stopped")) == ("Stopped", 1)
        assert sum(words.samples.values()) == 1


async def test_an_automation_that_waits_for_a_person_is_reported_twice(database_url: str) -> None:
    app = Line(approval=True)
    async with begun(app, database_url, "e1"):
        [view], words = await _words(app)
        waiting = (await read(app))["rota_waiting_for_person"]
    assert view.status == "Needs attention"
    assert words.at(word="Needs attention") == 1
    assert waiting.at(kind="automation", why="approval") == 1


def _open_run(status: str, reason: str | None) -> Run:
    blank = dict.fromkeys(Run.__struct_fields__)
    return Run(**blank | {"status": status, "reason": reason, "id": "r"})  # type: ignore[arg-type]


def test_the_word_alone_is_the_word_of_the_sentence() -> None:
    reasons = (None, "idle", "event", "reconciliation", "transient", "timeout", "auth", "logic")
    open_runs: list[Run | None] = [_open_run(s, r) for s, r in itertools.product(OPEN, reasons)]
    for status, open_run in itertools.product(("active", "paused", "archived"), [*open_runs, None]):
        automation = DeployedAutomation(SPACE, "a", status, "default", 1, "d", 0, 0, NOW, NOW)
        said = say(automation, open_run, [], error=None, mutation=None, now=NOW)
        state = (open_run.status, open_run.reason) if open_run is not None else (None, None)
        word = word_of(status, *state)
        assert word == said.word, (status, open_run)


async def test_pipelines_are_summed_by_schedule_over_a_day(
    database_url: str, tmp_path: Path
) -> None:
    async with offline_world(database_url, tmp_path) as place:
        await place.add("sums", 'cron: "0 * * * *"', titles=("one", "two", "three"))
        await place.add("nightly", 'cron: "0 0 * * *"', titles=("four",))
        await place.world.advance("2h")
        place.broken.add("two")
        await place.world.advance("1h")
        place.broken.add("sums")
        await place.world.advance("1h")
        assert [end.partition(":")[0] for end in await place.ends("sums")][-1] == "failed"
        found = await read(place.app)
        executions, items = found["rota_pipeline_executions"], found["rota_pipeline_items"]
        assert executions.at(schedule="sums-1", outcome="completed") == 2
        assert executions.at(schedule="sums-1", outcome="partial") == 1
        assert executions.at(schedule="sums-1", outcome="failed") == 1
        assert executions.at(schedule="nightly-1") is None
        assert items.at(schedule="sums-1", outcome="processed") == 8
        spent = await usage.of_schedule(place.app, "sums-1")
        assert found["rota_pipeline_calls"].at(schedule="sums-1") == spent.calls > 0
        tokens = found["rota_pipeline_tokens"]
        assert tokens.at(direction="in") == spent.tokens_in > 0
        assert tokens.at(direction="out") == spent.tokens_out > 0
        dollars = found["rota_pipeline_cost_dollars"].at(schedule="sums-1")
        assert dollars == pytest.approx(spent.cost_usd)
        assert "last 24 hours" in executions.help
        place.broken.clear()
        await place.world.advance("22h")
        found = await read(place.app)
        executions = found["rota_pipeline_executions"]
        assert executions.at(schedule="sums-1", outcome="completed") == 23
        assert executions.at(schedule="sums-1", outcome="partial") == 1
        assert executions.at(schedule="sums-1", outcome="failed") == 1
        assert executions.at(schedule="nightly-1", outcome="completed") == 1


async def test_an_execution_by_hand_counts_and_one_at_work_is_open(
    database_url: str, tmp_path: Path
) -> None:
    async with offline_world(database_url, tmp_path) as place:
        await place.add("sums", 'cron: "0 0 1 1 *"')
        place.answers.clear()  # the model does not answer
        await place.app.schedules.trigger("sums-1")
        await place.world.settle()
        found = await read(place.app)
        assert found["rota_pipeline_executions"].at(schedule="sums-1", outcome="open") == 1
        assert found["rota_pipeline_calls"].at(schedule="sums-1") == 0
        place.answers.set()
        await place.world.settle()
        found = await read(place.app)
        assert found["rota_pipeline_executions"].at(schedule="sums-1", outcome="completed") == 1
        assert found["rota_pipeline_calls"].at(schedule="sums-1") == 1


def test_what_is_counted_of_a_result_is_in_a_result() -> None:
    seen = metrics._Result.__struct_fields__
    assert set(seen) <= set(PipelineResult.__struct_fields__)
