"""Retention of finished work. Unfinished work is kept."""

from __future__ import annotations

from typing import Any

import pytest

from rota.automations import Context, Prepared
from rota.testing import World, virtual
from tests.automations.kit import Line, begun, event_statuses, open_run_state, raising, sound


async def days_later(world: World, days: int) -> None:
    await world.advance(f"{days}d")
    await world.beat()


async def test_used_events_and_their_inputs_go_when_their_days_are_over(database_url: str) -> None:
    app = Line(keep_events_days=10)
    async with begun(app, database_url, "e1") as world:
        await days_later(world, 9)
        assert await event_statuses(app) == {"e1": "consumed"}
        await days_later(world, 2)
        assert await event_statuses(app) == {}
        assert await app.automations.inputs("line") == []
        await sound(app)


async def test_without_days_events_are_kept(database_url: str) -> None:
    app = Line(keep_days=1)
    async with begun(app, database_url, "e1") as world:
        await days_later(world, 400)
        assert await event_statuses(app) == {"e1": "consumed"}
        assert len(await app.automations.inputs("line")) == 1


async def test_an_input_says_that_its_part_of_the_ledger_was_pruned(database_url: str) -> None:
    app = Line(keep_days=1)
    async with begun(app, database_url, "e1") as world:
        [seen] = await app.automations.inputs("line")
        assert not await app.automations.is_pruned(seen.input.id)
        assert len((await app.automations.outcome("line", seen.input.id))[1]) == 1
        await days_later(world, 30)
        assert (await app.automations.outcome("line", seen.input.id))[1] == []
        assert await app.automations.is_pruned(seen.input.id)
        await app.automations.pause("line")
        await app.feed("e2")
        await app.automations.skip_event("line", "work", "e2")
        [newest, _] = await app.automations.inputs("line")
        assert not await app.automations.is_pruned(newest.input.id)  # no run ever had it


async def test_an_event_names_the_run_that_used_it(database_url: str) -> None:
    app = Line(keep_days=1)
    async with begun(app, database_url, "e1") as world:
        [run] = [
            one.run for one in await app.automations.activity("line") if one.run.reserved_count
        ]
        found = await app.automations.events("line")
        assert await app.automations.users_of(found) == {found[0].id: run.run_id}
        await days_later(world, 30)
        assert await app.automations.users_of(found) == {}


async def test_a_message_id_is_new_again_when_its_event_is_gone(database_url: str) -> None:
    app = Line(keep_events_days=1)
    async with begun(app, database_url, "e1") as world:
        await app.feed("e1")
        await world.settle()
        assert app.done == [["e1"]]
        await days_later(world, 2)
        await app.feed("e1")
        await world.settle()
        assert app.done == [["e1"], ["e1"]]


async def test_what_is_pending_stays_however_old_it_is(database_url: str) -> None:
    app = Line(keep_days=1, keep_events_days=1)
    async with begun(app, database_url) as world:
        await app.automations.pause("line")
        await app.feed("e1", "e2")
        await app.automations.skip_event("line", "work", "e2")
        await days_later(world, 30)
        assert await event_statuses(app) == {"e1": "pending"}
        assert [one.input.external_id for one in await app.automations.inputs("line")] == ["e1"]
        await app.automations.resume("line")
        await world.settle()
        assert app.done == [["e1"]]
        await sound(app)


@pytest.mark.parametrize("reason", ["logic", "reconciliation", "approval"])
async def test_what_is_blocked_stays_with_its_run_and_its_change(
    database_url: str, reason: str
) -> None:
    app = Line(approval=reason == "approval", keep_days=1, keep_events_days=1)
    async with begun(app, database_url, *(["e0"] if reason != "approval" else [])) as world:
        if reason == "logic":
            app.in_next = raising(ValueError("a bug"))
        elif reason == "reconciliation":
            app.outside.after = raising(TimeoutError())
            app.outside.look_up = _nobody_knows  # type: ignore[method-assign]
        await app.feed("e1")
        await days_later(world, 60)
        assert await open_run_state(app) == f"waiting:{reason}"
        assert await event_statuses(app) == {"e1": "reserved"}
        [run] = await app.automations.activity("line")
        assert run.run.reserved_count == 1
        assert len(await app.automations.outputs("line")) == 1
        await sound(app)


async def _nobody_knows(params: Any, call: Any) -> Any:
    raise RuntimeError("the counterpart has lost its books")


class Stages(Line):
    """`line` and behind it a second stage, with events from the same inputs."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.second = self.automation("stages", timezone="UTC")
        first = self.second.topic("first", external=True)
        later = self.second.topic("later")

        async def take(ctx: Context, state: Any) -> Prepared:
            return Prepared(await ctx.peek(first))

        async def emit(ctx: Context, prepared: Prepared, mutation: Any) -> None:
            for one in prepared.events:
                ctx.publish(later, one.id)

        async def leave(ctx: Context, state: Any) -> None: ...

        self.second.consumer("a", subscribes=[first], publishes=[later], prepare=take, next=emit)
        self.second.consumer("b", subscribes=[later], prepare=leave)


async def test_an_input_stays_while_one_of_its_events_does(database_url: str) -> None:
    app = Stages(keep_events_days=1)
    async with virtual(app, url=database_url) as world:
        await world.settle()
        await app.automations.publish("stages", "first", "x")
        await days_later(world, 5)
        [event] = await app.automations.events("stages")
        assert (event.topic, event.status) == ("later", "pending")
        [seen] = await app.automations.inputs("stages")
        assert (seen.input.external_id, seen.status) == ("x", "pending")
        await app.automations.skip_event("stages", "later", "x")
        await days_later(world, 5)
        assert await app.automations.inputs("stages") == []
        await sound(app)
