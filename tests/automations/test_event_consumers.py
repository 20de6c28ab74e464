"""Consumers of one function: an event comes in, a change or None goes out."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from rota import Rota
from rota.automations import Change, Event, Fix, HandlerFailure
from rota.errors import BadAutomation, Rejected, UsageError
from rota.testing import virtual
from rota.tools import Safety
from tests.automations.kit import (
    QUIET,
    Outside,
    bury,
    dying_at,
    event_statuses,
    open_run_state,
    raising,
    sound,
)


class Order(msgspec.Struct):
    """The payload of an order."""

    customer: str
    cups: int = 1


class Shop(Rota):
    """An app with one consumer, `orders`."""

    def __init__(self, safety: Safety = Safety.RECONCILABLE, **options: Any) -> None:
        super().__init__("sqlite://:memory:", **QUIET)
        self.outside = Outside(safety)

        @self.consumer("orders", **options)
        async def ship(event: Event[Order]) -> Change | None:
            if event.payload.cups == 0:
                return None
            if event.payload.cups < 0:
                raise ValueError("nobody drinks so few")
            return self.outside.change(to=event.payload.customer)

        self.ship = ship

    async def feed(self, *ids: str, cups: int = 1) -> None:
        for one in ids:
            await self.automations.publish("orders", "orders", one, {"customer": one, "cups": cups})

    @property
    def sent(self) -> list[str]:
        """The customers that got something, in order."""
        return [params["to"] for _, params in self.outside.effects]


async def test_each_event_becomes_one_change_in_the_order_of_publication(database_url: str) -> None:
    app = Shop()
    async with virtual(app, url=database_url) as world:
        await app.feed("a", "b", "c")
        await world.settle()
        assert app.sent == ["a", "b", "c"]
        assert set((await event_statuses(app, "orders")).values()) == {"consumed"}
        await sound(app)


async def test_none_uses_the_event_without_a_change(database_url: str) -> None:
    app = Shop()
    async with virtual(app, url=database_url) as world:
        await app.feed("a", cups=0)
        await app.feed("b")
        await world.settle()
        assert app.sent == ["b"]
        assert await event_statuses(app, "orders") == {"a": "consumed", "b": "consumed"}


async def test_an_event_that_does_not_fit_its_type_is_refused_at_the_publication(
    database_url: str,
) -> None:
    app = Shop()
    async with virtual(app, url=database_url):
        with pytest.raises(UsageError, match="customer"):
            await app.automations.publish("orders", "orders", "a", {"cups": 1})


async def test_a_stored_event_that_does_not_fit_a_newer_type_can_be_skipped(
    database_url: str,
) -> None:
    old = Rota("sqlite://:memory:", **QUIET)

    @old.consumer("orders")
    def wait(event: Event[Any]) -> Change | None: ...

    async with virtual(old, url=database_url):
        await old.automations.pause("orders")
        await old.automations.publish("orders", "orders", "a", {"cups": 1})
    app = Shop()
    async with virtual(app, url=database_url) as world:
        await app.automations.resume("orders")
        await world.settle()
        assert await open_run_state(app, "orders") == "waiting:logic"
        [failed] = [one for one in await app.automations.activity("orders") if one.run.error_kind]
        [touched] = await app.automations.touched(failed.run.run_id)
        assert (touched.message_id, touched.act) == ("a", "refused")
        await app.automations.resolve("orders", "skip")
        await app.feed("b")
        await world.settle()
        assert app.sent == ["b"]
        assert await event_statuses(app, "orders") == {"a": "skipped", "b": "consumed"}


@pytest.mark.parametrize("point", ["before-call", "after-call"])
async def test_a_worker_that_dies_around_the_call_makes_the_change_once(
    database_url: str, point: str
) -> None:
    app = Shop()
    async with virtual(app, url=database_url) as world:
        await world.settle()
        with dying_at(point):
            await app.feed("a", "b")
            await world.settle()
        assert await bury(app) == 1
        await world.advance("1m")
        assert app.sent == ["a", "b"]
        await sound(app)


async def test_approval_shows_the_exact_change_and_waits(database_url: str) -> None:
    app = Shop(approval=True)
    async with virtual(app, url=database_url) as world:
        await app.feed("a")
        await world.settle()
        shown = await app.automations.show("orders")
        assert shown.mutation is not None
        assert shown.mutation.params == '{"to":"a"}'
        assert app.sent == []
        await app.automations.approve("orders", expected=shown.mutation.id)
        await world.settle()
        assert app.sent == ["a"]


async def test_a_bad_event_goes_to_the_dead_letters_and_the_next_one_comes(
    database_url: str,
) -> None:
    app = Shop(skip_after=2, dead_letter="letters")
    async with virtual(app, url=database_url) as world:
        await app.feed("bad", cups=-1)
        await app.feed("good")
        await world.advance("1h")
        assert app.sent == ["good"]
        found = {one.topic: one.status for one in await app.automations.events("orders")}
        assert found["letters"] == "pending"
        app.outside.before = raising(Rejected("no"), times=2)
        await app.feed("refused", "last")
        await world.advance("1h")
        assert app.sent == ["good", "last"]


async def test_the_fix_hook_gets_the_function_and_replaces_it(database_url: str) -> None:
    failures: list[HandlerFailure] = []

    async def fix(failure: HandlerFailure) -> Fix:
        failures.append(failure)
        text = failure.source["mutate"].replace('raise ValueError("nobody drinks so few")', "pass")
        return Fix({"mutate": text}, "sends them all the same")

    app = Shop(fix=fix)
    async with virtual(app, url=database_url) as world:
        await app.feed("a", cups=-1)
        await world.settle()
        assert [one.phase for one in failures] == ["mutating"]
        assert app.sent == ["a"]


async def test_a_consumer_of_an_automation_may_be_one_function(database_url: str) -> None:
    app = Rota("sqlite://:memory:", **QUIET)
    outside = Outside()
    line = app.automation("line")
    first, second = line.topic("first", external=True), line.topic("second", external=True)

    @line.consumer(subscribes=[first, second])
    def take(event: Event[Any]) -> Change:
        return outside.change(id=event.id, topic=event.topic)

    async with virtual(app, url=database_url) as world:
        for topic, name in (("second", "1"), ("first", "2"), ("second", "3")):
            await app.automations.publish("line", topic, name)
        await world.settle()
        assert [params["id"] for _, params in outside.effects] == ["1", "2", "3"]


async def two_arguments(event: Event[Any], other: int) -> Change | None: ...


async def no_argument() -> Change | None: ...


async def a_list(event: Event[Any]) -> list[Change]:
    return []


@pytest.mark.parametrize(
    ("function", "problem"),
    [(two_arguments, "takes one event"), (no_argument, "takes one event"), (a_list, "one change")],
)
def test_a_deploy_refuses_a_function_of_another_shape(function: Any, problem: str) -> None:
    app = Rota(**QUIET)
    app.consumer("orders")(function)
    with pytest.raises(BadAutomation, match=problem):
        app.automations.declared["orders"].version(now=0)


def test_a_type_that_cannot_be_resolved_is_refused_at_once() -> None:
    class Local(msgspec.Struct):
        name: str

    async def ship(event: Event[Local]) -> Change | None: ...

    with pytest.raises(UsageError, match="'Local' is not defined"):
        Rota(**QUIET).consumer("orders")(ship)


def test_the_function_stays_a_function() -> None:
    app = Shop()
    assert app.ship.__name__ == "ship"


# -- publish_many ----------------------------------------------------------------------------------


async def test_many_events_are_published_in_few_transactions(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = Shop()
    async with virtual(app, url=database_url) as world:
        await app.automations.pause("orders")
        writes = []
        publish = app.automations._publish

        async def counting(name: str, fresh: Any) -> Any:
            writes.append(len(fresh))
            return await publish(name, fresh)

        monkeypatch.setattr(app.automations, "_publish", counting)
        many = [(f"o-{number}", {"customer": str(number)}) for number in range(2500)]
        assert await app.automations.publish_many("orders", "orders", many) == 2500
        assert writes == [1000, 1000, 500]
        assert await app.automations.publish_many("orders", "orders", many) == 0
        await app.automations.resume("orders")
        await world.settle()
        assert app.sent == [str(number) for number in range(2500)]


async def test_a_batch_with_a_bad_payload_publishes_nothing(database_url: str) -> None:
    app = Shop()
    async with virtual(app, url=database_url):
        many: list[Any] = [(f"o-{number}", {"customer": "a"}) for number in range(1500)]
        wrong: list[Any] = [("x", {"cups": 1}), "x", ("x",), (1, {})]
        for bad in wrong:
            with pytest.raises(UsageError):
                await app.automations.publish_many("orders", "orders", [*many, bad])
        assert await event_statuses(app, "orders") == {}


async def test_the_last_of_several_with_one_id_counts(database_url: str) -> None:
    app = Shop()
    async with virtual(app, url=database_url) as world:
        twice = [("o", {"customer": "first"}), ("o", {"customer": "last"})]
        await app.automations.pause("orders")
        await app.automations.publish_many("orders", "orders", twice)
        await app.automations.resume("orders")
        await world.settle()
        assert app.sent == ["last"]
