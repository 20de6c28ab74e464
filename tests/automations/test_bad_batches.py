"""`skip_after` with a consumer that takes several events at once: only the bad one is skipped."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rota import Rota
from rota.automations import Change, Context, Prepared
from rota.testing import virtual
from rota.tools import Safety
from tests.automations.kit import QUIET, Outside, bury, open_run_state, sound


class Batches(Rota):
    """A consumer that takes up to `take` events, and fails on those that begin with "bad"."""

    def __init__(self, phase: str = "mutate", *, least: int = 1, **options: Any) -> None:
        super().__init__("sqlite://:memory:", **QUIET)
        self.outside = Outside(Safety.RECONCILABLE)
        self.phase = phase
        self.least = least
        self.take = 10
        self.dies = False
        self.deaths = 0
        self.line = self.automation("line", timezone="UTC")
        self.work = self.line.topic("work", external=True)
        self.line.topic("letters")
        self.line.consumer(
            "worker", subscribes=[self.work], prepare=self._prepare, mutate=self._mutate,
            dead_letter="letters", **options,
        )  # fmt: skip

    async def _prepare(self, ctx: Context, state: Any) -> Prepared | None:
        events = await ctx.peek(self.work, limit=self.take)
        await self._fail("prepare", [event.id for event in events])
        return Prepared(events) if len(events) >= self.least else None

    async def _mutate(self, ctx: Context, prepared: Prepared) -> Change:
        ids = [event.id for event in prepared.events]
        await self._fail("mutate", ids)
        return self.outside.change(ids=ids)

    async def _fail(self, phase: str, ids: list[str]) -> None:
        if phase != self.phase or not any(one.startswith("bad") for one in ids):
            return
        if self.dies:
            self.deaths += 1
            assert await bury(self) == 1
        raise ValueError("cannot read this one")

    async def feed(self, *ids: str) -> None:
        await self.automations.publish_many("line", "work", [(one, {"id": one}) for one in ids])

    async def statuses(self, topic: str = "work") -> dict[str, str]:
        found = await self.automations.events("line", topic=topic, limit=100)
        return {one.message_id: one.status for one in reversed(found)}

    @property
    def done(self) -> list[str]:
        """The events of all changes, in order."""
        return [one for _, params in self.outside.effects for one in params["ids"]]


@pytest.mark.parametrize("phase", ["prepare", "mutate"])
async def test_only_the_bad_event_of_a_batch_is_skipped(database_url: str, phase: str) -> None:
    app = Batches(phase, skip_after=2)
    async with virtual(app, url=database_url) as world:
        await app.feed("a", "b", "bad", "c")
        await world.advance("1h")
        assert app.done == ["a", "b", "c"]
        assert await app.statuses() == {
            "a": "consumed", "b": "consumed", "bad": "skipped", "c": "consumed",
        }  # fmt: skip
        [letter] = await app.statuses("letters")
        assert letter.startswith("work/bad@")
        runs = await app.automations.activity("line", limit=100)
        remarks = [one.run.remark for one in runs if one.run.remark]
        assert remarks[::-1] == [
            "one of 4 events may be bad, so each of them is taken alone from here",
            "skipped work/bad, dead letter in topic letters",
        ]
        await app.feed("d", "e")
        await world.advance("1h")
        assert app.outside.effects[-1][1] == {"ids": ["d", "e"]}  # batches as before
        await sound(app)


async def test_a_batch_that_kills_its_worker_loses_the_killer_only(database_url: str) -> None:
    app = Batches(skip_after=1)
    app.dies = True
    async with virtual(app, url=database_url) as world:
        await app.feed("a", "bad", "c")
        await world.advance("1h")
        assert app.done == ["a", "c"]
        assert (await app.statuses())["bad"] == "skipped"
        assert app.deaths == 6  # three of the batch, three of the event alone
        await sound(app)


async def test_a_consumer_that_needs_several_events_gets_them_together_again(
    database_url: str,
) -> None:
    """It takes no event alone, so Rota cannot find the bad one: the batch is skipped at last."""
    app = Batches(skip_after=1, least=3)
    async with virtual(app, url=database_url) as world:
        await app.feed("a", "bad", "c")
        await world.advance("1h")
        assert set((await app.statuses()).values()) == {"skipped"}
        await app.feed("d", "e", "f")
        await world.advance("1h")
        assert app.done == ["d", "e", "f"]
        assert await open_run_state(app) == "sleeping:event"
        await sound(app)


async def test_an_event_that_was_put_back_is_taken_alone(database_url: str) -> None:
    app = Batches(skip_after=1)
    async with virtual(app, url=database_url) as world:
        await app.feed("a", "bad")
        await world.advance("1h")
        app.phase = "none"
        await app.feed("z")
        await app.automations.requeue("line", "work", "bad")
        await world.advance("1h")
        assert app.done[-2:] == ["z", "bad"] or app.done[-2:] == ["bad", "z"]
        assert ["bad"] in [params["ids"] for _, params in app.outside.effects]


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    bad=st.lists(st.booleans(), min_size=1, max_size=12),
    take=st.integers(1, 5),
    phase=st.sampled_from(["prepare", "mutate"]),
    skip_after=st.integers(1, 2),
)
def test_whatever_is_bad_all_others_are_used_once_and_in_order(
    bad: list[bool], take: int, phase: str, skip_after: int
) -> None:
    asyncio.run(_only_the_bad_ones(bad, take, Batches(phase, skip_after=skip_after)))


async def _only_the_bad_ones(bad: list[bool], take: int, app: Batches) -> None:
    app.take = take
    names = [f"{'bad' if wrong else 'e'}{number}" for number, wrong in enumerate(bad)]
    async with virtual(app, url="sqlite://:memory:") as world:
        await app.feed(*names)
        await world.advance("3h")
        assert app.done == [name for name in names if name.startswith("e")]
        wanted = {name: "skipped" if name.startswith("bad") else "consumed" for name in names}
        assert await app.statuses() == wanted
        await sound(app)
