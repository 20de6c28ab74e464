"""A call that a handler makes is made, or the run fails and names the line: no `ctx.call` without
`await`, no second change in `mutate`."""

from __future__ import annotations

import asyncio
import gc
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from rota.automations import Context, Prepared, context
from tests.automations.kit import Line, begun, event_statuses, last, open_run_state, sound
from tests.automations.kit.mutations import Mutate, Sender, line_of, mutates

KEPT: list[Context] = []


async def stopped_by(app: Line) -> str:
    """The sentence of an automation that waits for a person."""
    assert await open_run_state(app) == "waiting:logic"
    return (await app.automations.show("line")).sentence


class Handlers:
    """Forms of mutate that ask for two changes; `second` marks the line to be named."""

    def __init__(self, app: Line) -> None:
        self.app = app
        self.tasks: list[asyncio.Task[None]] = []

    async def in_a_row(self, ctx: Context, prepared: Prepared) -> None:
        await ctx.call(self.app.outside, items=1)
        await ctx.call(self.app.outside, items=2)  # second

    async def gathered(self, ctx: Context, prepared: Prepared) -> None:
        one = ctx.call(self.app.outside, items=1)
        two = ctx.call(self.app.outside, items=2)  # second
        await asyncio.gather(one, two)

    async def in_a_loop(self, ctx: Context, prepared: Prepared) -> None:
        for item in (1, 2):
            await ctx.call(self.app.outside, items=item)  # second

    async def in_a_comprehension(self, ctx: Context, prepared: Prepared) -> None:
        _ = [await ctx.call(self.app.outside, items=item) for item in (1, 2)]  # second

    async def swallowing(self, ctx: Context, prepared: Prepared) -> None:
        for item in (1, 2):
            try:
                await ctx.call(self.app.outside, items=item)  # second
            except BaseException:
                ctx.log("swallowed")

    async def by_a_helper(self, ctx: Context, prepared: Prepared) -> None:
        await self.help(ctx, 1)
        await self.help(ctx, 2)  # second

    async def help(self, ctx: Context, item: int) -> None:
        await ctx.call(self.app.outside, items=item)

    async def in_two_branches(self, ctx: Context, prepared: Prepared) -> None:
        if prepared.data:
            await ctx.call(self.app.outside, items=1)
        if prepared.events:
            await ctx.call(self.app.outside, items=2)  # second

    async def in_tasks(self, ctx: Context, prepared: Prepared) -> None:
        async def send(item: int) -> None:
            await ctx.call(self.app.outside, items=item)  # second

        await asyncio.gather(send(1), send(2))

    def in_a_thread(self, ctx: Context, prepared: Prepared) -> None:
        ctx.call(self.app.outside, items=1)
        ctx.call(self.app.outside, items=2)  # second

    def in_threads(self, ctx: Context, prepared: Prepared) -> None:
        def send(item: int) -> None:
            ctx.call(self.app.outside, items=item)  # second

        with ThreadPoolExecutor(1) as pool:
            list(pool.map(send, (1, 2)))

    async def by_a_closure(self, ctx: Context, prepared: Prepared) -> None:
        async def send(item: int) -> None:
            await ctx.call(self.app.outside, items=item)

        await send(1)
        await send(2)  # second

    async def by_its_method(self, ctx: Context, prepared: Prepared) -> None:
        send = ctx.call
        await send(self.app.outside, items=1)
        await send(self.app.outside, items=2)  # second

    async def by_a_partial(self, ctx: Context, prepared: Prepared) -> None:
        send = partial(self.help, ctx)
        await send(1)
        await send(2)  # second

    async def by_coroutines(self, ctx: Context, prepared: Prepared) -> None:
        one, two = self.help(ctx, 1), self.help(ctx, 2)
        try:
            await one
            await two  # second
        finally:
            two.close()

    async def by_a_list_of_coroutines(self, ctx: Context, prepared: Prepared) -> None:
        waiting = [self.help(ctx, item) for item in (1, 2)]
        try:
            while waiting:
                await waiting.pop(0)  # second
        finally:
            _ = [one.close() for one in waiting]

    async def by_an_object(self, ctx: Context, prepared: Prepared) -> None:
        sender = Sender(ctx, self.app)
        await sender.send(1)
        await sender.send(2)  # second

    async def by_an_attribute(self, ctx: Context, prepared: Prepared) -> None:
        sender = Sender(ctx, self.app)
        await sender.ctx.call(self.app.outside, items=1)
        await sender.ctx.call(self.app.outside, items=2)  # second

    async def in_a_task_that_is_kept_elsewhere(self, ctx: Context, prepared: Prepared) -> None:
        async def send() -> None:
            await asyncio.sleep(3600)
            await ctx.call(self.app.outside, items=2)  # second

        self.tasks = [asyncio.create_task(send())]
        try:
            await asyncio.sleep(0)
            await ctx.call(self.app.outside, items=1)
        finally:
            self.tasks.pop().cancel()

    async def in_a_task_that_comes_later(self, ctx: Context, prepared: Prepared) -> None:
        async def send() -> None:
            await asyncio.sleep(3600)
            await ctx.call(self.app.outside, items=2)  # second

        task = asyncio.create_task(send())
        try:
            await asyncio.sleep(0)
            await ctx.call(self.app.outside, items=1)
        finally:
            task.cancel()

    async def after_a_task(self, ctx: Context, prepared: Prepared) -> None:
        await asyncio.create_task(self.help(ctx, 1))
        await ctx.call(self.app.outside, items=2)  # second


FORMS = [
    Handlers.in_a_row, Handlers.gathered, Handlers.in_a_loop, Handlers.in_a_comprehension,
    Handlers.swallowing, Handlers.by_a_helper, Handlers.in_two_branches, Handlers.in_tasks,
    Handlers.in_a_thread, Handlers.by_a_closure, Handlers.by_its_method, Handlers.by_a_partial,
    Handlers.by_coroutines, Handlers.by_a_list_of_coroutines, Handlers.by_an_object,
    Handlers.by_an_attribute, Handlers.in_a_task_that_is_kept_elsewhere,
    Handlers.in_a_task_that_comes_later, Handlers.after_a_task,
    Handlers.in_threads,
]  # fmt: skip


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
async def test_a_mutate_that_asks_for_two_changes_makes_none_and_names_the_line(
    database_url: str, form: Mutate
) -> None:
    app = Line()
    async with begun(app, database_url) as world:
        mutates(app, form.__get__(Handlers(app)))
        await app.feed("e1")
        await world.settle()
        said = await stopped_by(app)
        assert f"test_lost_calls.py, line {line_of(form, '# second')}" in said
        assert "change" in said
        assert app.outside.effects == []
        assert await last(app, 1) == ["mutating failed:logic"]
        assert await event_statuses(app) == {"e1": "pending"}
        await sound(app)


async def test_a_kill_after_the_first_call_hides_no_second_one(database_url: str) -> None:
    """The second task would ask much later. The run is refused before the first call, so a worker
    that dies in between cannot make the second one vanish."""
    app = Line()

    async def send(ctx: Context, item: int) -> None:
        await asyncio.sleep(0 if item == 1 else 3600)
        await ctx.call(app.outside, items=item)

    async def mutate(ctx: Context, prepared: Prepared) -> None:
        await asyncio.gather(*(send(ctx, item) for item in (1, 2)))

    async with begun(app, database_url) as world:
        mutates(app, mutate)
        await app.feed("e1")
        await world.settle()
        assert f"line {line_of(send, 'ctx.call')}" in await stopped_by(app)
        assert app.outside.calls == 0
        assert await event_statuses(app) == {"e1": "pending"}
        await sound(app)


async def test_a_second_change_that_nobody_can_foresee_fails_the_run(database_url: str) -> None:
    """A timer calls `ctx` while the first change is made. That counts; a person is notified."""
    app = Line()
    made = asyncio.Event()

    async def mutate(ctx: Context, prepared: Prepared) -> None:
        def later() -> None:
            try:
                ctx.call(app.outside, items=2)
            finally:
                made.set()

        async def meanwhile() -> None:
            asyncio.get_running_loop().call_soon(later)
            await made.wait()

        app.outside.before = meanwhile
        await ctx.call(app.outside, items=1)

    async with begun(app, database_url) as world:
        mutates(app, mutate)
        await app.feed("e1")
        await world.settle()
        assert f"line {line_of(mutate, 'items=2')}" in await stopped_by(app)
        assert [params for _, params in app.outside.effects] == [{"items": 1}]
        assert await last(app, 1) == ["mutated failed:logic"]
        assert await event_statuses(app) == {"e1": "reserved"}
        assert app.reported == []
        await sound(app)
        await app.automations.resolve("line", "try-again")
        await world.settle()
        assert [one.status for one in app.reported] == ["applied"]
        assert app.outside.calls == 1
        assert await event_statuses(app) == {"e1": "consumed"}
        await sound(app)


@pytest.mark.parametrize("first", ["with a change before it", "without"])
async def test_a_timer_that_asks_for_a_change_while_next_runs_fails_the_run(
    database_url: str, first: str
) -> None:
    """The phase is over for every caller of `ctx`. The run is not: an operator is notified."""
    app = Line()
    asked = asyncio.Event()

    async def mutate(ctx: Context, prepared: Prepared) -> None:
        KEPT.append(ctx)
        if first != "without":
            await ctx.call(app.outside, items=1)

    def later() -> None:
        try:
            KEPT.pop().call(app.outside, items=2)
        finally:
            asked.set()

    async def after(ctx: Context, prepared: Prepared, mutation: Any) -> None:
        asyncio.get_running_loop().call_soon(later)
        await asked.wait()

    async with begun(app, database_url) as world:
        mutates(app, mutate)
        app.line.handlers["worker"].functions["next"] = after
        await app.feed("e1")
        await world.settle()
        said = await stopped_by(app)
        assert "may not" in said
        assert "its phase mutating is over" in said
        done = first != "without"
        assert [params for _, params in app.outside.effects] == [{"items": 1}] * done
        assert await event_statuses(app) == {"e1": "reserved" if done else "pending"}
        await sound(app)


async def test_a_task_that_would_make_the_change_after_mutate_has_returned_fails_the_run(
    database_url: str,
) -> None:
    app = Line()
    tasks: list[asyncio.Task[Any]] = []

    async def send(ctx: Context) -> None:
        await asyncio.sleep(3600)
        await ctx.call(app.outside, items=1)

    async def mutate(ctx: Context, prepared: Prepared) -> None:
        tasks.append(asyncio.create_task(send(ctx)))

    async with begun(app, database_url) as world:
        mutates(app, mutate)
        await app.feed("e1")
        await world.settle()
        said = await stopped_by(app)
        assert f"line {line_of(send, 'ctx.call')}" in said
        assert await event_statuses(app) == {"e1": "pending"}
        tasks[0].cancel()


async def test_a_producer_that_leaves_a_publish_to_a_task_fails(database_url: str) -> None:
    app = Line()
    tasks: list[asyncio.Task[Any]] = []
    news = app.line.topic("news")
    app.line.consumer("reader", subscribes=[news], prepare=lambda ctx, state: Prepared())

    async def send(ctx: Context) -> None:
        await asyncio.sleep(3600)
        ctx.publish(news, "n1", None)

    async def poll(ctx: Context, state: Any) -> None:
        tasks.append(asyncio.create_task(send(ctx)))

    app.line.producer(every="1h", publishes=[news])(poll)
    async with begun(app, database_url):
        assert f"line {line_of(send, 'ctx.publish')}" in await stopped_by(app)
        tasks[0].cancel()


async def test_ctx_is_of_no_use_after_its_phase(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A timer is not seen in advance. Its call is refused, and the log says so."""
    app = Line()

    async def mutate(ctx: Context, prepared: Prepared) -> None:
        KEPT.append(ctx)

    async with begun(app, database_url) as world:
        mutates(app, mutate)
        await app.feed("e1")
        await world.settle()
        assert await event_statuses(app) == {"e1": "consumed"}
        with pytest.raises(BaseException, match="is over"):
            KEPT.pop().call(app.outside, items=1)
        assert app.outside.calls == 0
    assert "worker of line may not call a tool that changes something" in caplog.text


async def test_a_call_without_await_sends_nothing_and_fails_the_run(database_url: str) -> None:
    app = Line()

    async def mutate(ctx: Context, prepared: Prepared) -> None:
        ctx.call(app.outside, items=1)

    async with begun(app, database_url) as world:
        mutates(app, mutate)
        await app.feed("e1")
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # Python's own remark about it would add nothing
            await world.settle()
            gc.collect()
        said = await stopped_by(app)
        assert f"ctx.call in test_lost_calls.py, line {line_of(mutate, 'ctx.call')}" in said
        assert "await" in said
        assert app.outside.calls == 0
        assert await event_statuses(app) == {"e1": "pending"}
        await sound(app)


async def test_a_peek_without_await_fails_the_run_too(database_url: str) -> None:
    app = Line()

    async def prepare(ctx: Context, state: Any) -> Prepared:
        ctx.peek("work")
        return Prepared()

    async with begun(app, database_url) as world:
        app.line.handlers["worker"].functions["prepare"] = prepare
        await app.feed("e1")
        await world.settle()
        assert f"ctx.peek in test_lost_calls.py, line {line_of(prepare, 'ctx.peek')}" in (
            await stopped_by(app)
        )


async def test_an_error_of_the_handler_is_reported_rather_than_a_missing_await(
    database_url: str,
) -> None:
    app = Line()

    async def mutate(ctx: Context, prepared: Prepared) -> None:
        ctx.call(app.outside, items=1)
        raise ValueError("of its own")

    async with begun(app, database_url) as world:
        mutates(app, mutate)
        await app.feed("e1")
        await world.settle()
        assert "of its own" in await stopped_by(app)
        assert app.outside.calls == 0


async def test_a_call_in_a_task_that_mutate_does_not_wait_for_is_seen_to_its_end(
    database_url: str,
) -> None:
    app = Line()
    tasks: list[asyncio.Task[Any]] = []

    async def mutate(ctx: Context, prepared: Prepared) -> None:
        tasks.append(asyncio.create_task(ctx.call(app.outside, items=1)))

    async with begun(app, database_url) as world:
        mutates(app, mutate)
        await app.feed("e1")
        await world.settle()
        assert len(app.outside.effects) == 1
        assert app.applied[0] == ("applied", "done")
        assert await event_statuses(app) == {"e1": "consumed"}
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_handler_that_keeps_no_reference_to_ctx_costs_no_search_through_all_tasks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    searches: list[object] = []
    monkeypatch.setattr(context, "use_elsewhere", lambda ctx, *rest: searches.append(rest))
    app = Line()
    async with begun(app, "sqlite://:memory:", "e1", "e2"):
        assert app.outside.calls == 2
    assert searches == []


async def test_a_call_that_is_cancelled_before_its_first_step_leaves_no_coroutine_behind(
    database_url: str,
) -> None:
    app = Line()
    cancelled: list[asyncio.Task[Any]] = []

    async def mutate(ctx: Context, prepared: Prepared) -> None:
        loop = asyncio.get_running_loop()

        def watch() -> None:  # the call is made in this iteration, and takes its step in the next
            loop.call_soon(cancel, asyncio.all_tasks())

        def cancel(before: set[asyncio.Task[Any]]) -> None:
            cancelled.extend(one for one in asyncio.all_tasks() - before if one.cancel())

        loop.call_soon(watch)
        await ctx.call(app.outside, items=1)

    async with begun(app, database_url) as world:
        mutates(app, mutate)
        await app.feed("e1")
        with warnings.catch_warnings(record=True) as said:
            await world.settle()
            gc.collect()
        assert len(cancelled) == 1
        assert [str(one.message) for one in said] == []
        assert app.outside.calls == 0
