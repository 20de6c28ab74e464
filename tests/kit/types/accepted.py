"""Correct uses, with the types they have. Never run: `mypy --strict` reads it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, assert_type

from rota import (
    Client,
    RetryPolicy,
    Rota,
    RunHandle,
    Start,
    StartOptions,
    blocking,
    in_workflow,
    run_step,
    step,
    this_run,
    this_step,
)
from rota.automations import Change, Context, Event, Prepared
from rota.blocking import BlockingClient, BlockingRun, block_on
from rota.core.runs.model import Run
from rota.pipelines.outcome import PipelineResult
from rota.tools import tool

app = Rota("sqlite:///rota.db", slots=5, keep_days=3, namespace="red")


@app.step(retries=3, timeout="5s", name="download")
async def download(url: str) -> bytes:
    return url.encode()


@step(retries=3, heartbeat="5s", timeout="1m")
async def shipped(url: str, times: int = 1) -> bytes:
    this_step().progress(1, of=2, note="half")
    return url.encode() * times


@step
def counted(url: str) -> int:
    return len(url)


@app.workflow
async def in_one_run(url: str) -> None:
    assert_type(await shipped(url, times=2), bytes)
    assert_type(counted(url), int)
    assert_type(await run_step("shipped", shipped.function, url, times=2), bytes)
    assert_type(await run_step("length", len, url), int)
    assert_type(await run_step("shipped", shipped.function, url, 2, retries=3), bytes)
    assert_type(await run_step("counted", counted.function, url, timeout="5s"), int)
    assert_type(this_step().idempotency_key, str)
    assert_type(this_step().deadline, datetime | None)
    assert_type(in_workflow(), bool)
    assert_type(dict(this_run().tags), dict[str, str])


@app.workflow
def in_a_sync_run(url: str) -> None:
    assert_type(blocking.run_step("shipped", shipped.function, url, times=2), bytes)
    assert_type(blocking.run_step("counted", counted.function, url, retries=3), int)


@app.workflow
async def fetch(url: str, timeout: int = 30, *, key: str = "none") -> str:
    assert_type(await download(url), bytes)
    return url


@app.schedule("5m", name="often", timezone="UTC", overlap="skip", input={"n": 1}, jitter="10s")
@app.workflow(retries=RetryPolicy(attempts=3), timeout="1h", queue="slow", priority=2, version="2")
async def count(n: int) -> list[int]:
    child = await fetch.options(queue="slow").start("u", timeout=5)
    assert_type(child, RunHandle[str])
    assert_type(await child.result(), str)
    assert_type(await fetch("u", 5), str)
    return [n]


@app.workflow
def plain(n: int) -> dict[str, int]:
    assert_type(block_on(fetch.aio("u")), str)
    return {"n": n}


async def from_async_code() -> None:
    run = await fetch.start("u", timeout=5, key="mine")
    assert_type(run, RunHandle[str])
    assert_type(await run.result(timeout="5s"), str)
    assert_type(await app.start(fetch, "u", timeout=5), RunHandle[str])
    assert_type(await app.options(external_id="o-7").start(fetch, "u"), RunHandle[str])
    assert_type(await count.options(at=datetime.now(UTC), retries=1).start(3), RunHandle[list[int]])
    assert_type(await (await plain.start(3)).result(), dict[str, int])
    assert_type(await plain.aio(3), dict[str, int])
    assert_type(plain(3), dict[str, int])
    assert_type(await app.start("fetch", "u", queue="an argument"), RunHandle[Any])
    assert_type(app.runs.handle("an id"), RunHandle[Any])
    assert_type(app.runs.handle("an id", fetch), RunHandle[str])
    assert_type(await app.runs.retry("an id"), RunHandle[Any])
    assert_type(await app.pipelines.start("daily"), RunHandle[PipelineResult])


async def many() -> None:
    items = [Start(("u",), {"timeout": 5}, external_id="o-7", key="k"), ("v",)]
    assert_type(await fetch.start_many(items), list[RunHandle[str]])
    assert_type(await fetch.options(tags={"a": "b"}).start_many([("u",)]), list[RunHandle[str]])
    assert_type(await app.start_many(plain, [(1,)]), list[RunHandle[dict[str, int]]])
    assert_type(await app.options(delay="1h").start_many("plain", [(1,)]), list[RunHandle[Any]])


def from_sync_code(client: BlockingClient) -> None:
    assert_type(client.start(fetch, "u", timeout=5), BlockingRun[str])
    assert_type(client.options(priority=3).start(plain, 4).result(), dict[str, int])
    assert_type(client.start("fetch", "u"), BlockingRun[Any])
    assert_type([run.result() for run in client.start_many(plain, [(1,)])], list[dict[str, int]])


async def other_calls(client: Client) -> None:
    options: StartOptions = {"queue": "slow", "on_conflict": "reject"}
    assert_type(await client.options(**options).start(fetch, "u"), RunHandle[str])
    assert_type(await client.runs.list(status="failed", limit=5), list[Run])
    await client.schedules.create("s", count, "5m", timezone="UTC", input={"n": 1}, overlap="skip")
    await client.schedules.update("s", when="6m", end=None, max_runs=3)
    app.queue("slow", worker_concurrency=1, concurrency=2, concurrency_per_key=1, rate=(10, "1m"))
    app.automation("mail", approval=True, queue="slow", timezone="UTC")


@tool(safety="idempotent")
async def send(text: str) -> int:
    return len(text)


async def take(ctx: Context, state: Any) -> Prepared:
    return Prepared()


async def one_change(ctx: Context, prepared: Prepared) -> Change:
    return send.change(text="a")


def one_or_none(ctx: Context, prepared: Prepared) -> Change | None:
    return send.change(text="a") if prepared.events else None


def consumers() -> None:
    mail = app.automation("letters")
    topic = mail.topic("mail", external=True)
    mail.consumer("one", subscribes=[topic], prepare=take, mutate=one_change)
    mail.consumer("two", subscribes=[topic], prepare=take, mutate=one_or_none)


@app.consumer("orders", approval=True, skip_after=3)
async def ship(event: Event[str]) -> Change | None:
    assert_type(event.payload, str)
    return send.change(text=event.payload)


@app.consumer("refunds")
def refund(event: Event[int]) -> Change:
    return send.change(text=str(event.payload))
