"""`/metrics`: what this process has counted, beside the state of the store."""

from __future__ import annotations

import asyncio
from importlib.metadata import version
from pathlib import Path
from typing import Any

import httpx2
import pytest

import rota
from rota import Rota
from rota.ai import invoker_of
from rota.ai.base import Request
from rota.client.client import Client
from rota.core import process_metrics
from rota.core.prometheus_text import text
from rota.core.time.instants import HOUR, MINUTE, SECOND
from rota.errors import StoreUnreachable
from rota.http.options import HttpOptions
from rota.http.server import HttpServer
from tests.automations.kit import Line, begun
from tests.engine.kit import StoreTap, eventually, live, timer_set
from tests.http.kit import API, browsing
from tests.http.kit.office import Office
from tests.kit import until
from tests.kit.prometheus_parser import Family, parse, parse_open
from tests.workflows.kit import result

# No polls: the timers are what is measured.
QUIET: dict[str, Any] = {"poll_s": 100_000, "heartbeat_s": 100_000, "lease_s": 300_000}


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers from zero: they are those of the process."""
    for one in process_metrics.PROCESS_METRICS:
        monkeypatch.setattr(one, "_known", {index: set() for index in one._capped_at})
        if isinstance(one, process_metrics.CounterMetric):
            monkeypatch.setattr(one, "_values", {})
        elif isinstance(one, process_metrics.HistogramMetric):
            monkeypatch.setattr(one, "_counts", {})
            monkeypatch.setattr(one, "_sums", {})


async def shown(http: httpx2.AsyncClient) -> dict[str, Family]:
    answer = await http.get("/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return parse(answer.text)


async def test_runs_are_counted_and_timed_by_name(database_url: str) -> None:
    app = Rota(**QUIET)

    @app.workflow
    async def slow() -> None:
        await rota.sleep("90s")

    @app.workflow
    async def bad() -> None:
        raise ValueError("no")

    async with live(app, database_url) as clock:
        run = await app.start(slow)

        async def sleeps() -> bool:
            return (await app.runs.get(run.id)).status == "sleeping"

        await eventually(sleeps)
        await timer_set(clock, "90s")
        for _ in range(2):
            with pytest.raises(rota.RunFailed):
                await result(await app.start(bad))
        clock.move_to(clock.now() + 90 * SECOND)
        await result(run)
        await eventually(
            lambda: process_metrics.RUN_SECONDS.count("default", "workflow", "slow") == 1
        )
        async with browsing(app) as http:
            found = await shown(http)
    ended = found["rota_runs_finished_total"]
    assert (ended.type, ended.at(name="bad", status="failed")) == ("counter", 2)
    assert ended.at(name="slow", status="completed", kind="workflow", namespace="default") == 1
    took = found["rota_run_seconds"]
    assert took.at(name="slow", __name__="rota_run_seconds_sum") == pytest.approx(90, abs=1)
    assert took.at(name="slow", le="60.0") == 0
    assert took.at(name="slow", le="300.0") == 1
    # Claimed twice: when it was started and when it had slept.
    assert found["rota_run_wait_seconds"].at(name="slow", le="+Inf") == 2
    assert found["rota_store_seconds"].at(op="beat", le="+Inf")


async def test_lateness_and_skips_of_schedules_are_counted(database_url: str) -> None:
    app = Rota(**QUIET)

    @app.workflow
    async def work() -> None: ...

    async with live(app, database_url) as clock:
        await app.schedules.create("each", "work", "0 * * * *", timezone="UTC")
        await timer_set(clock, "1h")
        clock.move_to(clock.now() + HOUR)
        await eventually(lambda: late(le="1.0") == 1)
        await timer_set(clock, "1h")
        clock.move_to(clock.now() + 9 * HOUR + 30 * MINUTE)  # no worker ran for hours
        await eventually(lambda: late(le="+Inf") == 2)
        async with browsing(app) as http:
            found = await shown(http)
    assert (late(le="1.0"), late(le="1800.0")) == (1, 2), "half an hour late"
    skipped = found["rota_schedule_skipped_total"]
    assert sum(skipped.samples.values()) == 8
    due = found["rota_schedule_next_due_timestamp_seconds"].at(schedule="each")
    assert due == (clock.now() + 30 * MINUTE) / 1e6
    assert found["rota_schedule_last_fired_timestamp_seconds"].at(schedule="each") == due - 3600


def late(le: str) -> float | None:
    metric = process_metrics.SCHEDULE_LATENESS.metric()
    families = parse(text([metric]))
    return families[metric.name].at(schedule="each", le=le) if families else None


async def test_changes_by_tools_are_counted_with_what_is_known_of_them(database_url: str) -> None:
    async with begun(Line(), database_url, "e1"):
        found = process_metrics.MUTATIONS.metric().samples
    assert {one.labels["outcome"] for one in found} == {"applied"}
    assert process_metrics.RUNS_FINISHED.metric().samples, "a handler run is a run"


async def test_tokens_and_cost_are_counted_by_model() -> None:
    ai = invoker_of({"prices": {"offline:m": [1.0, 2.0]}}, env={})
    reply = await ai.ask(Request("offline:m", "How many teas?"))
    assert process_metrics.AI_TOKENS.value(reply.model, "in") == reply.tokens_in > 0
    assert process_metrics.AI_TOKENS.value(reply.model, "out") == reply.tokens_out
    assert process_metrics.AI_COST.value(reply.model) == pytest.approx(reply.cost_usd)


async def test_requests_are_counted_by_route_not_by_path(database_url: str) -> None:
    async with Client(database_url, migrate=True) as client, browsing(client) as http:
        for name in ("a", "b"):
            assert (await http.get(f"{API}/runs/{name}")).status_code == 404
        await http.get("/nothing/here")
        await http.get("/%ff")
        found = await shown(http)
    requests = found["rota_http_requests_total"]
    assert requests.at(route=f"{API}/runs/{{run_id}}", status="404") == 2
    assert requests.at(route="none", status="404") == 2
    assert found["rota_http_seconds"].at(route=f"{API}/runs/{{run_id}}", le="+Inf") == 2
    assert found["rota_streams"].at() == 0


async def test_a_scrape_that_prefers_openmetrics_gets_it(database_url: str) -> None:
    async with Client(database_url, migrate=True) as client, browsing(client) as http:
        await http.get(f"{API}/runs")
        plain = await shown(http)
        answer = await http.get("/metrics", headers={"accept": "application/openmetrics-text"})
    wanted = "application/openmetrics-text; version=1.0.0; charset=utf-8"
    assert (answer.headers["content-type"], answer.headers["vary"]) == (wanted, "accept")
    found = parse_open(answer.text)
    assert found["rota_http_requests"].type == "counter"
    assert found["rota_http_requests"].at(route=f"{API}/runs", status="200") == 1
    assert found["rota_build"].type == "info"
    assert {name.removesuffix("_total").removesuffix("_info") for name in plain} == found.keys()


async def test_refusals_of_the_database_are_counted(database_url: str) -> None:
    async with Client(database_url, migrate=True) as client:

        async def away(tx: object) -> None:
            raise StoreUnreachable("away")

        with pytest.raises(StoreUnreachable):
            await client.connection.database.read(away)
    assert process_metrics.STORE_ERRORS.value(StoreUnreachable.code) == 1


async def test_many_scrapers_cost_one_look_at_the_store(database_url: str) -> None:
    app = Rota(database_url, migrate=True)
    async with app.connected(), browsing(app) as http:
        tap = StoreTap(app)
        await asyncio.gather(*(http.get("/metrics") for _ in range(5)))
        await http.get("/metrics")
        assert tap.count("count") <= 5
        before = tap.count("count")
        await http.get("/metrics")
        assert tap.count("count") == before


RUN = {"namespace", "kind", "name"}
# The metrics that monitors rely on, with their labels.
PROMISED = {
    "rota_runs_finished_total": RUN | {"status"},
    "rota_run_seconds": RUN,
    "rota_run_wait_seconds": RUN,
    "rota_schedule_lateness_seconds": {"namespace", "schedule"},
    "rota_schedule_skipped_total": {"namespace", "schedule", "reason"},
    "rota_schedule_last_fired_timestamp_seconds": {"namespace", "schedule"},
    "rota_schedule_next_due_timestamp_seconds": {"namespace", "schedule"},
    "rota_mutations_total": {"namespace", "tool", "outcome"},
    "rota_waiting_for_person": {"namespace", "kind", "why"},
    "rota_ai_tokens_total": {"model", "direction"},
    "rota_ai_cost_dollars_total": {"model"},
    "rota_http_requests_total": {"route", "status"},
    "rota_http_seconds": {"route"},
    "rota_streams": set(),
    "rota_store_seconds": {"op"},
    "rota_build_info": {"namespace", "version", "python"},
}


def labels_of(family: Family) -> set[str]:
    return {name for labels in family.samples for name, _ in labels} - {"le", "__name__"}


@pytest.mark.slow
async def test_known_work_has_the_promised_metrics_and_the_right_numbers(
    database_url: str, tmp_path: Path
) -> None:
    office = Office(database_url, tmp_path)
    office.pipelines.use({"model": "offline:m", "prices": {"offline:m": [1000.0, 2000.0]}})

    @office.workflow
    async def tick() -> None: ...

    async with office.connected():
        await office.fill()
        await office.publish("approved", "m-1")
        await office.waiting("approved")
        await office.schedules.create("ticking", "tick", "every 1s")

        async def fired() -> bool:
            return bool(await office.schedules.history("ticking", outcome="completed"))

        await until(fired)
        server = HttpServer(office, HttpOptions(port=0, port_given=True))
        await server.start()
        async with (
            httpx2.AsyncClient(base_url=server.address, timeout=30) as http,
            http.stream("GET", f"{API}/events"),
        ):
            for _ in range(3):
                await http.get(f"{API}/workflows/add")
            found = await shown(http)
        await server.stop()
        usage = await office.pipelines.result(office.run_ids["triage"])
    meant = {
        name: set(one.labels) for one in process_metrics.PROCESS_METRICS for name in [one.name]
    }
    for name, labels in PROMISED.items():
        assert labels == (labels_of(found[name]) if name in found else meant[name]), name
    ends = found["rota_runs_finished_total"]
    counts = {
        ("workflow", "add", "completed"): 2,  # by hand, and the child of `parent`
        ("workflow", "parent", "completed"): 1, ("workflow", "fails", "failed"): 1,
        ("pipeline", "pipeline:triage", "completed"): 1,
    }  # fmt: skip
    for (kind, name, status), count in counts.items():
        assert ends.at(kind=kind, name=name, status=status) == count, name
    for name in ("add", "fails", "pipeline:triage"):
        took = found["rota_run_seconds"].at(name=name, le="+Inf")
        assert took == sum(count for key, count in counts.items() if key[1] == name)
    fired_count = found["rota_schedule_lateness_seconds"].at(schedule="ticking", le="+Inf")
    assert fired_count
    assert fired_count >= (ends.at(name="tick", status="completed") or 0) >= 1
    assert found["rota_mutations_total"].at(tool="bank.transfer", outcome="applied") == 1
    assert found["rota_waiting_for_person"].at(kind="automation", why="approval") == 1
    assert found["rota_ai_tokens_total"].at(direction="in") == usage.tokens_in
    assert found["rota_ai_tokens_total"].at(direction="out") == usage.tokens_out
    assert found["rota_ai_cost_dollars_total"].at() == pytest.approx(usage.cost_usd)
    route = f"{API}/workflows/{{name}}"
    assert found["rota_http_requests_total"].at(route=route, status="200") == 3
    assert found["rota_http_seconds"].at(route=route, le="+Inf") == 3
    assert found["rota_streams"].at() == 1
    assert found["rota_build_info"].at(version=version("rota")) == 1
