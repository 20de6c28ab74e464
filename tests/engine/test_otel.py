"""Traces with the real SDK: one trace from the start to the last step, also days later."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased
from opentelemetry.trace import SpanKind, StatusCode

import rota
from rota import Rota, RunIdFilter
from rota.ai import invoker_of
from rota.ai.base import Request
from rota.client.client import Client
from rota.core import trace_spans
from rota.core.time.instants import DAY, HOUR, MINUTE
from rota.engine import otel
from tests.automations.kit import Line, begun
from tests.engine.kit import eventually, live, timer_set
from tests.workflows.kit import result

# No polls: a test moves the clock by days.
QUIET: dict[str, Any] = {"poll_s": 900_000, "heartbeat_s": 900_000, "lease_s": 3_000_000}


@pytest.fixture
def exporter() -> Iterator[InMemorySpanExporter]:
    """The spans exported while this process was traced."""
    found = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(found))
    otel.install(provider)
    try:
        yield found
    finally:
        trace_spans.install(None)


def named(exporter: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    return [span for span in exporter.get_finished_spans() if span.name == name]


def outcomes(exporter: InMemorySpanExporter, name: str) -> list[object]:
    return [attributes(span).get("rota.outcome") for span in named(exporter, name)]


def attributes(span: ReadableSpan) -> dict[str, object]:
    return dict(span.attributes or {})


async def test_start_run_steps_and_children_are_one_trace_across_days(
    database_url: str, exporter: InMemorySpanExporter
) -> None:
    app = Rota(**QUIET)
    seen: list[str] = []

    @app.step
    async def charge(n: int) -> int:
        seen.append(f"{trace.get_current_span().get_span_context().trace_id:032x}")
        return n

    @app.workflow
    async def child() -> None: ...

    @app.workflow
    async def order() -> None:
        await charge(1)
        await rota.sleep("3d")
        await charge(2)
        await child()

    async with live(app, database_url) as clock:
        run = await app.start(order)
        await eventually(lambda: outcomes(exporter, "run order") == ["suspend"])
        await timer_set(clock, "3d")
        clock.move_to(clock.now() + 3 * DAY)
        await result(run)
        await eventually(lambda: "complete" in outcomes(exporter, "run order"))
    [start] = named(exporter, "start order")
    runs = named(exporter, "run order")
    assert start.kind is SpanKind.PRODUCER
    assert attributes(start)["rota.run.id"] == run.id
    for span in runs:
        assert span.kind is SpanKind.CONSUMER
        assert [link.context.span_id for link in span.links] == [start.context.span_id]
        assert attributes(span)["rota.run.id"] == run.id
    assert outcomes(exporter, "run order")[0] == "suspend"
    steps = named(exporter, "step charge")
    assert [attributes(span)["rota.step.key"] for span in steps] == ["charge#0", "charge#1"]
    parents = [span.parent.span_id for span in steps if span.parent]
    assert parents[0] != parents[1], "days lie between them"
    assert {*parents} <= {span.context.span_id for span in runs}
    [of_child] = named(exporter, "run child")
    [begun_child] = named(exporter, "start child")
    assert of_child.parent is not None
    assert of_child.parent.span_id == begun_child.context.span_id
    everything = {span.context.trace_id for span in exporter.get_finished_spans()}
    assert len(everything) == 1
    assert seen == [f"{everything.pop():032x}"] * 2, "spans of user code go below the step"


async def test_all_claims_of_a_scheduled_run_share_the_trace_of_its_chain(
    database_url: str, exporter: InMemorySpanExporter
) -> None:
    app = Rota(**QUIET)

    @app.workflow(retries=1)
    async def report() -> None:
        raise ValueError("no paper")

    async with live(app, database_url) as clock:
        await app.schedules.create("daily", "report", "0 * * * *", timezone="UTC")
        await timer_set(clock, "1h")
        clock.move_to(clock.now() + HOUR)
        await eventually(lambda: bool(named(exporter, "run report")))
        await asyncio.sleep(0.05)  # its retry is stored
        clock.move_to(clock.now() + 10 * MINUTE)
        await eventually(lambda: len(named(exporter, "run report")) == 2)
    runs = named(exporter, "run report")
    roots = {str(attributes(span)["rota.root.id"]) for span in runs}
    assert {f"{span.context.trace_id:032x}" for span in runs} == roots
    assert len(roots) == 1
    assert [span.links for span in runs] == [(), ()]
    assert {span.status.status_code for span in runs} == {StatusCode.ERROR}
    assert attributes(runs[0])["error.type"] == "logic"
    assert "rota.due" in attributes(runs[0])


async def test_a_start_belongs_to_the_trace_of_its_caller(
    database_url: str, exporter: InMemorySpanExporter
) -> None:
    async with Client(database_url, migrate=True) as app:
        tracer = otel.OtelTracer()
        assert tracer.traceparent() is None
        with trace_spans._tracer.span("request", "internal", {}):  # type: ignore[union-attr]
            await app.start("later")
            await app.start_many("later", [rota.Start(), rota.Start()])
    [request] = named(exporter, "request")
    one, many = named(exporter, "start later")
    assert {one.parent.span_id, many.parent.span_id} == {request.context.span_id}  # type: ignore[union-attr]
    assert attributes(many)["rota.count"] == 2


async def test_a_tool_call_has_the_id_and_the_outcome_of_its_change(
    database_url: str, exporter: InMemorySpanExporter
) -> None:
    async with begun(Line(), database_url, "e1"):
        pass
    changes = [
        span for span in exporter.get_finished_spans() if "rota.mutation.id" in attributes(span)
    ]
    [change] = changes
    assert change.kind is SpanKind.CLIENT
    above = parent_of(exporter, change)
    assert (above.name, above.kind) == ("run line", SpanKind.CONSUMER)
    assert attributes(change)["rota.mutation.outcome"] == "applied"
    assert attributes(change)["rota.mutation.safety"]


def parent_of(exporter: InMemorySpanExporter, span: ReadableSpan) -> ReadableSpan:
    """The span above one, of the same trace."""
    assert span.parent is not None
    found = {one.context.span_id: one for one in exporter.get_finished_spans()}
    above = found[span.parent.span_id]
    assert above.context.trace_id == span.context.trace_id
    return above


PIPELINE = """
name: areas
input: {items: [{title: Invoice}, {title: Printer}]}
map: {prompt: "Which area has {{title}}?"}
reduce: {type: list}
"""


async def test_calls_of_models_belong_to_the_run_and_its_start(
    database_url: str, tmp_path: Path, exporter: InMemorySpanExporter
) -> None:
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)
    app = Rota(**QUIET)
    app.pipelines.use({"model": "offline:m"})
    async with live(app, database_url):
        await result(await app.pipelines.start(tmp_path))
        await eventually(lambda: bool(outcomes(exporter, f"run pipeline:{tmp_path.name}")))
    calls = named(exporter, "chat m")
    assert len(calls) == 2
    for call in calls:
        run = parent_of(exporter, call)
        assert run.name == f"run pipeline:{tmp_path.name}"


async def test_a_call_of_a_model_has_its_tokens_and_no_prompt(
    exporter: InMemorySpanExporter,
) -> None:
    ai = invoker_of({"prices": {"offline:m": [1.0, 2.0]}}, env={})
    reply = await ai.ask(Request("offline:m", "a secret question"))
    [span] = named(exporter, "chat m")
    seen = attributes(span)
    assert seen["gen_ai.provider.name"] == "offline"
    assert seen["gen_ai.usage.input_tokens"] == reply.tokens_in
    assert seen["rota.cost_usd"] == reply.cost_usd
    assert "secret" not in str(span.to_json())


async def test_the_sampler_of_the_program_decides(database_url: str) -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(sampler=ParentBased(ALWAYS_OFF))
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    app = Rota(**QUIET)

    @app.workflow
    async def work() -> None: ...

    app.trace(provider)
    try:
        async with live(app, database_url) as clock:
            await result(await app.start(work))
            await app.schedules.create("s", "work", "0 * * * *", timezone="UTC")
            await timer_set(clock, "1h")
            clock.move_to(clock.now() + HOUR)

            async def fired() -> bool:
                return len(await app.runs.list(status="completed")) == 2

            await eventually(fired)
    finally:
        trace_spans.install(None)
    assert exporter.get_finished_spans() == ()


async def test_log_records_have_the_id_of_the_trace(
    database_url: str, exporter: InMemorySpanExporter, caplog: pytest.LogCaptureFixture
) -> None:
    app = Rota()
    caplog.handler.addFilter(kept := RunIdFilter())

    @app.workflow
    async def work() -> None:
        logging.getLogger("shop").warning("here")

    async with live(app, database_url):
        await result(await app.start(work))
    caplog.handler.removeFilter(kept)
    [record] = [one for one in caplog.records if one.getMessage() == "here"]
    [start] = named(exporter, "start work")
    assert record.trace_id == f"{start.context.trace_id:032x}"  # type: ignore[attr-defined]


def test_a_stored_header_that_makes_no_sense_is_ignored() -> None:
    for text in ("", "00-x", "00-zz-zz-zz", f"00-{0:032x}-{0:016x}-01"):
        assert otel._read(text) is None


async def test_off_nothing_is_stored_and_no_package_is_loaded(database_url: str) -> None:
    async with Client(database_url, migrate=True) as app:
        run = await app.start("later")
        assert (await app.runs.get(run.id)).options is None
    code = "import rota, sys; sys.exit('opentelemetry' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


MISSING = """
import asyncio, sys
sys.modules["opentelemetry"] = None
from rota import Rota
asyncio.run(Rota("sqlite:///:memory:", traces=True).connect())
"""


def test_without_the_package_the_message_says_what_to_install() -> None:
    done = subprocess.run([sys.executable, "-c", MISSING], capture_output=True, text=True)
    assert "traces need the package opentelemetry-api" in done.stderr
    assert "pip install 'rota[otel]'" in done.stderr
