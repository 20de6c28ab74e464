"""Reads that are refused for good: a page that is gone, a file that vanished or is too big. The
handler may treat them in code, or a policy leaves them out; effects cannot be caught."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from rota import Rota
from rota.automations import Context, Prepared
from rota.errors import BadInput, NotSent, PayloadTooBig, ReadFailed, Rejected
from rota.testing import virtual
from rota.tools import FileRead, Tool, tool
from tests.automations.kit import (
    QUIET,
    Line,
    begun,
    event_statuses,
    last,
    open_run_state,
    raising,
    sound,
)

GONE = [Rejected("404"), PayloadTooBig("too big"), FileNotFoundError("no such file")]


def reading(error: Exception) -> Tool:
    @tool(safety="read", name="page")
    async def page() -> str:
        raise error

    return page


def uses(app: Line, page: Tool, *, catches: type[Exception] | None = None) -> list[str]:
    """From now on its `prepare` reads the page for every event; what it caught."""
    caught: list[str] = []

    async def prepare(ctx: Context, state: Any) -> Prepared:
        events = await ctx.peek("work", limit=1)
        if events and events[0].id.startswith("bad"):
            if catches is None:
                await ctx.call(page)
            else:
                try:
                    await ctx.call(page)
                except catches as error:
                    caught.append(f"{type(error).__name__} {error}")
        return Prepared(events, [event.id for event in events])

    app.line.handlers["worker"].functions["prepare"] = prepare
    return caught


@pytest.mark.parametrize("error", GONE, ids=lambda one: type(one).__name__)
async def test_a_handler_can_treat_a_failed_read_in_code(
    database_url: str, error: Exception
) -> None:
    app = Line()
    async with begun(app, database_url) as world:
        caught = uses(app, reading(error), catches=ReadFailed)
        await app.feed("bad")
        await world.settle()
        assert caught == [f"ReadFailed page: {error}"]
        assert await event_statuses(app) == {"bad": "consumed"}
        await sound(app)


async def test_a_handler_in_a_thread_can_treat_a_failed_read_in_code(database_url: str) -> None:
    app = Line()
    async with begun(app, database_url) as world:
        caught: list[str] = []
        page = reading(Rejected("404"))

        def prepare(ctx: Context, state: Any) -> Prepared:
            events = ctx.peek("work", limit=1)
            try:
                ctx.call(page)
            except ReadFailed as error:
                caught.append(str(error.facts["tool"]))
            return Prepared(events)

        app.line.handlers["worker"].functions["prepare"] = prepare
        await app.feed("e1")
        await world.settle()
        assert "page" in caught
        assert await event_statuses(app) == {"e1": "consumed"}


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (NotSent("refused"), "sleeping:transient"),
        (BadInput("a bug"), "waiting:logic"),
        (AttributeError("a bug of the tool"), "waiting:internal"),
    ],
    ids=lambda one: type(one).__name__ if isinstance(one, Exception) else "",
)
async def test_what_is_not_a_refused_read_cannot_be_caught(
    database_url: str, error: Exception, state: str
) -> None:
    app = Line()
    async with begun(app, database_url) as world:
        caught = uses(app, reading(error), catches=Exception)
        await app.feed("bad")
        await world.settle()
        assert caught == []
        assert await open_run_state(app) == state


async def test_a_refused_change_stops_its_consumer(database_url: str) -> None:
    app = Line()
    async with begun(app, database_url) as world:
        app.outside.before = raising(Rejected("422: no such account"))
        await app.feed("e1")
        await world.settle()
        assert await open_run_state(app) == "waiting:logic"
        sentence = (await app.automations.show("line")).sentence
        assert sentence == "The counterpart refused a change: 422: no such account"


async def test_a_failed_read_that_nobody_treats_stops_the_line_and_says_so(
    database_url: str,
) -> None:
    app = Line()
    async with begun(app, database_url) as world:
        uses(app, reading(Rejected("example.com answered 404")))
        await app.feed("bad", "good")
        await world.advance("1h")
        assert await open_run_state(app) == "waiting:logic"
        said = (await app.automations.show("line")).said
        assert said.sentence == "A read failed: page: example.com answered 404"
        assert said.actions == ("try-again", "skip", "deploy")
        await sound(app)


@pytest.mark.parametrize("level", ["tool", "handler", "automation"])
async def test_a_policy_leaves_out_the_item_whose_read_failed(
    database_url: str, level: str
) -> None:
    page = reading(Rejected("404"))
    skip: dict[str, Any] = {"failed_reads": "skip"}
    page = page.options(**skip) if level == "tool" else page
    app = Rota("sqlite://:memory:", **QUIET)
    line = app.automation("line", timezone="UTC", **(skip if level == "automation" else {}))
    work = line.topic("work", external=True)

    async def prepare(ctx: Context, state: Any) -> Prepared:
        events = await ctx.peek(work, limit=1)
        if events and events[0].id == "bad":
            await ctx.call(page)
        return Prepared(events)

    options = skip if level == "handler" else {}
    line.consumer("worker", subscribes=[work], prepare=prepare, **options)
    async with virtual(app, url=database_url) as world:
        for each in ("bad", "good"):
            await app.automations.publish("line", "work", each)
        await world.settle()
        assert await event_statuses(app) == {"bad": "skipped", "good": "consumed"}
        assert await open_run_state(app) == "sleeping:event"
        runs = await app.automations.activity("line")
        failed = next(one for one in runs if one.status == "failed")
        assert failed.run.remark == "skipped work/bad"
        await sound(app)


async def test_a_producer_leaves_out_a_check_whose_file_is_gone_and_keeps_its_state(
    database_url: str, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("hello")
    app = Rota("sqlite://:memory:", **QUIET)
    watch = app.automation("watch", timezone="UTC")
    news = watch.topic("news")
    file = FileRead(str(tmp_path), bytes_max=10)
    states: list[Any] = []

    @watch.producer(every="1h", publishes=[news], failed_reads="skip")
    async def poll(ctx: Context, state: Any) -> int:
        states.append(state)
        await ctx.call(file, path="a.txt")
        return (state or 0) + 1

    @watch.consumer(subscribes=[news])
    class Take:
        async def prepare(self, ctx: Context, state: Any) -> Prepared:
            return Prepared(await ctx.peek(news))

    async with virtual(app, url=database_url) as world:
        await world.settle()
        (tmp_path / "a.txt").unlink()
        await world.advance("1h")
        assert await last(app, 1, "watch") == ["executing failed:logic"]
        assert await open_run_state(app, "watch") == "sleeping:idle"
        (tmp_path / "a.txt").write_text("more than ten bytes")
        await world.advance("1h")
        (tmp_path / "a.txt").write_text("hello")
        await world.advance("1h")
        assert states == [None, 1, 1, 1]
        assert await last(app, 1, "watch") == ["committed committed"]
        runs = await app.automations.activity("watch", limit=3)
        assert runs[1].run.remark == "this check was skipped"
        await sound(app)


async def test_a_read_that_does_not_end_is_cancelled_after_tool_s(database_url: str) -> None:
    app = Line(tool_s=60)

    @tool(safety="read", name="page")
    async def page() -> None:
        await asyncio.Event().wait()

    async with begun(app, database_url) as world:
        uses(app, page)
        await app.feed("bad")
        await world.settle()
        await world.advance("59s")
        assert await open_run_state(app) == "running"
        await world.advance("1s")
        assert await open_run_state(app) == "sleeping:timeout"
        assert "it did not end within 60 s" in (await app.automations.show("line")).sentence
        await sound(app)
