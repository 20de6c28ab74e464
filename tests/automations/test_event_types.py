"""Types of topics, and events that do not fit."""

from __future__ import annotations

from typing import Any

import pytest

from rota import Rota
from rota.automations import Context, Prepared
from rota.client.automations import Automations
from rota.errors import BadInput
from rota.testing import virtual
from tests.automations.kit import (
    QUIET,
    sound,
)


class Typed(Rota):
    """An app with a topic that has a type; `kind` is the one of today."""

    def __init__(self, kind: Any) -> None:
        super().__init__("sqlite://:memory:", **QUIET)
        self.typed = self.automation("typed", timezone="UTC")
        self.orders = self.typed.topic("orders", kind, external=True)
        self.taken: list[str] = []
        self.typed.consumer("reader", subscribes=[self.orders], prepare=self._prepare)

    async def _prepare(self, ctx: Context, state: Any) -> Prepared:
        events = await ctx.peek(self.orders)
        self.taken += [event.id for event in events]
        return Prepared(events)


async def test_a_badly_typed_event_is_refused_where_the_code_is_not_at_hand(
    database_url: str,
) -> None:
    app = Typed(dict[str, list[int]])
    async with virtual(app, url=database_url) as world:
        await world.settle()
        bare = Automations(app)  # what the command line has without a project
        with pytest.raises(BadInput, match=r"Expected `int`, got `str` - at `\$\.a\[1\]`"):
            await bare.publish("typed", "orders", "bad", {"a": [1, "2"]})
        assert await app.automations.events("typed") == []
        await bare.publish("typed", "orders", "good", {"a": [1, 2]})
        await world.settle()
        assert app.taken == ["good"]
        await sound(app)


async def test_an_event_that_fits_no_longer_blocks_visibly_and_is_skipped_by_the_action_shown(
    database_url: str,
) -> None:
    before = Typed(int)
    async with virtual(before, url=database_url) as world:
        await world.settle()
        await before.automations.pause("typed")
        for number, name in enumerate(["old-1", "old-2"]):
            await before.automations.publish("typed", "orders", name, number)
        stopped_at = world.clock.now()
    app = Typed(str)
    async with virtual(app, url=database_url, start=stopped_at) as world:
        await app.automations.publish("typed", "orders", "new", "text")
        await app.automations.skip_event("typed", "orders", "old-1")
        await app.automations.resume("typed")
        await world.settle()
        view = await app.automations.show("typed")
        assert view.sentence == (
            "The code failed: event old-2 of topic orders does not fit its type: "
            "Expected `str`, got `int`"
        )
        assert [one.message_id for one in view.skips] == ["old-2"]
        assert view.open_run is not None
        [failed, *_] = await app.automations.activity("typed", limit=1)
        assert [one.act for one in await app.automations.touched(failed.run.run_id)] == ["refused"]
        await app.automations.resolve("typed", "skip")
        await world.settle()
        assert app.taken == ["new"]
        await sound(app)


async def test_a_new_type_of_a_topic_is_a_new_version(database_url: str) -> None:
    async with virtual(Typed(int), url=database_url) as world:
        stopped_at = world.clock.now()
    app = Typed(str)
    async with virtual(app, url=database_url, start=stopped_at):
        assert (await app.automations.show("typed")).automation.version == 2
        await Automations(app).publish("typed", "orders", "e1", "text")
