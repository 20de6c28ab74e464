"""A `mutate` that can ask for one change only makes it."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pytest

from rota.automations import Context, Prepared
from rota.automations.call_sites import use_after
from tests.automations.kit import Line, begun, event_statuses
from tests.automations.kit.mutations import Mutate, Sender, line_of, mutates


class OneChange:
    """Forms of mutate that can ask for one change only."""

    def __init__(self, app: Line) -> None:
        self.app = app

    async def by_branch(self, ctx: Context, prepared: Prepared) -> None:
        if prepared.data:
            await ctx.call(self.app.outside, items=1)
        else:
            await ctx.call(self.app.outside, items=2)

    async def returned(self, ctx: Context, prepared: Prepared) -> Any:
        if prepared.data:
            return await ctx.call(self.app.outside, items=1)
        return await ctx.call(self.app.outside, items=2)

    async def first_of_a_loop(self, ctx: Context, prepared: Prepared) -> None:
        for item in (1, 2):
            if item == 1:
                await ctx.call(self.app.outside, items=item)
                break

    async def with_words_after_it(self, ctx: Context, prepared: Prepared) -> None:
        try:
            await ctx.call(self.app.outside, items=1)
            ctx.log("never executed")
        finally:
            ctx.log("over at", ctx.now)

    async def by_a_helper(self, ctx: Context, prepared: Prepared) -> None:
        for item in (1, 2):
            if item == 1:
                await self.help(ctx, item)
                return

    async def help(self, ctx: Context, item: int) -> None:
        async with asyncio.timeout(30):
            await ctx.call(self.app.outside, items=item)

    async def in_a_task(self, ctx: Context, prepared: Prepared) -> None:
        await asyncio.create_task(ctx.call(self.app.outside, items=1))

    async def beside_a_task_that_logs(self, ctx: Context, prepared: Prepared) -> None:
        async def watch() -> None:
            while True:
                await asyncio.sleep(3600)
                ctx.log("still at work")

        task = asyncio.create_task(watch())
        await asyncio.sleep(0)
        try:
            await ctx.call(self.app.outside, items=1)
        finally:
            task.cancel()

    async def with_a_note_after_it(self, ctx: Context, prepared: Prepared) -> None:
        sender = Sender(ctx, self.app)
        try:
            await sender.send(1)
        finally:
            sender.note("over")

    async def in_a_task_of_its_own(self, ctx: Context, prepared: Prepared) -> None:
        await asyncio.gather(asyncio.sleep(0), self.help(ctx, 1))

    def in_a_thread(self, ctx: Context, prepared: Prepared) -> None:
        ctx.call(self.app.outside, items=1)


SINGLE = [
    OneChange.by_branch, OneChange.returned, OneChange.first_of_a_loop,
    OneChange.with_words_after_it, OneChange.by_a_helper, OneChange.in_a_task,
    OneChange.in_a_thread, OneChange.beside_a_task_that_logs, OneChange.with_a_note_after_it,
    OneChange.in_a_task_of_its_own,
]  # fmt: skip


@pytest.mark.parametrize("form", SINGLE, ids=lambda form: form.__name__)
async def test_a_mutate_that_can_ask_for_one_change_only_makes_it(
    database_url: str, form: Mutate
) -> None:
    app = Line()
    async with begun(app, database_url) as world:
        mutates(app, form.__get__(OneChange(app)))
        await app.feed("e1")
        await world.settle()
        assert [params for _, params in app.outside.effects] == [{"items": 1}]
        assert app.applied[0] == ("applied", "done")
        assert await event_statuses(app) == {"e1": "consumed"}


def test_what_may_be_executed_after_a_call_is_read_from_the_code() -> None:
    """Jumps are followed, so code before the call counts only if a loop leads back to it."""
    lines: list[int | None] = []

    class Recorder:
        def call(self) -> bool:
            frame = inspect.currentframe()
            assert frame is not None
            assert frame.f_back is not None
            found = use_after(frame.f_back, self)
            lines.append(None if found is None else found.line)
            return True

    def before(ctx: Recorder) -> None:
        str(ctx)
        ctx.call()

    def passed_on(ctx: Recorder) -> None:
        ctx.call()
        str(ctx)

    def while_loop(ctx: Recorder) -> None:
        while ctx.call():
            return

    def looping(ctx: Recorder) -> None:
        count = 0
        while count < 1:
            count += 1
            ctx.call()

    for function in (before, passed_on, while_loop, looping):
        function(Recorder())
    expected = [None, line_of(passed_on, "str(ctx)"), None, line_of(looping, "ctx.call")]
    assert lines == expected
