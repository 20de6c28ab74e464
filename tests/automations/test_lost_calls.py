"""A read that a handler asks for is made, or the run fails and names it; nothing that a handler
asks for after its phase is done silently."""

from __future__ import annotations

import asyncio
import gc
import warnings
from typing import Any

import pytest

from rota.automations import Context, MutationResult, Prepared
from tests.automations.kit import Faulty, Line, begun, event_statuses, open_run_state, sound

KEPT: list[Context] = []


async def stopped_by(app: Line) -> str:
    """The sentence of an automation that waits for a person."""
    assert await open_run_state(app) == "waiting:logic"
    return (await app.automations.show("line")).sentence


async def test_a_task_that_publishes_after_its_handler_returned_fails_the_run(
    database_url: str,
) -> None:
    app = Line()
    news = app.line.topic("news", external=True)
    app.line.consumer("reader", subscribes=[news], prepare=lambda ctx, state: Prepared())
    published = asyncio.Event()

    def publish(ctx: Context) -> None:
        try:
            ctx.publish(news, "n1", None)
        finally:
            published.set()

    async def following(ctx: Context, prepared: Prepared, mutation: MutationResult) -> None:
        asyncio.get_running_loop().call_soon(publish, KEPT.pop())
        await published.wait()

    async def mutate(ctx: Context, prepared: Prepared) -> None:
        KEPT.append(ctx)

    async with begun(app, database_url) as world:
        app.line.handlers["worker"].functions.update(mutate=mutate, next=following)
        await app.feed("e1")
        await world.settle()
        assert "its phase mutating is over" in await stopped_by(app)
        assert await event_statuses(app) == {"e1": "pending"}
        await sound(app)


async def test_ctx_is_of_no_use_after_its_phase(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The run is committed, so the call is refused, and the log says so."""
    app = Line()

    async def mutate(ctx: Context, prepared: Prepared) -> None:
        KEPT.append(ctx)

    async with begun(app, database_url) as world:
        app.line.handlers["worker"].functions["mutate"] = mutate
        await app.feed("e1")
        await world.settle()
        assert await event_statuses(app) == {"e1": "consumed"}
        with pytest.raises(BaseException, match="is over"):
            KEPT.pop().call(Faulty())
    assert "worker of line may not call a read tool" in caplog.text


@pytest.mark.parametrize("asked", ["peek", "get", "call"])
async def test_a_call_without_await_fails_the_run(database_url: str, asked: str) -> None:
    app = Line()
    calls: dict[str, Any] = {
        "peek": lambda ctx: ctx.peek("work"), "get": lambda ctx: ctx.get("work", ["e1"]),
        "call": lambda ctx: ctx.call(Faulty()),
    }  # fmt: skip

    async def prepare(ctx: Context, state: Any) -> Prepared:
        calls[asked](ctx)
        return Prepared()

    async with begun(app, database_url) as world:
        app.line.handlers["worker"].functions["prepare"] = prepare
        await app.feed("e1")
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # Python's own remark about it would add nothing
            await world.settle()
            gc.collect()
        name = "faulty" if asked == "call" else "work"
        assert f"ctx.{asked}({name}) was never awaited" in await stopped_by(app)
        assert await event_statuses(app) == {"e1": "pending"}
        await sound(app)


async def test_an_error_of_the_handler_is_reported_rather_than_a_missing_await(
    database_url: str,
) -> None:
    app = Line()

    async def prepare(ctx: Context, state: Any) -> Prepared:
        ctx.peek("work")
        raise ValueError("of its own")

    async with begun(app, database_url) as world:
        app.line.handlers["worker"].functions["prepare"] = prepare
        await app.feed("e1")
        await world.settle()
        assert "of its own" in await stopped_by(app)


async def test_a_read_that_is_cancelled_before_its_first_step_leaves_no_coroutine_behind(
    database_url: str,
) -> None:
    app = Line()

    async def prepare(ctx: Context, state: Any) -> Prepared:
        task = asyncio.create_task(ctx.peek("work"))
        task.cancel()
        await asyncio.wait([task])
        return Prepared()

    async with begun(app, database_url) as world:
        app.line.handlers["worker"].functions["prepare"] = prepare
        await app.feed("e1")
        with warnings.catch_warnings(record=True) as said:
            await world.settle()
            gc.collect()
        assert [str(one.message) for one in said] == []
