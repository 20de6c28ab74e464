"""A dry run shows the change that a recorded event would lead to, and changes nothing."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from rota import Rota
from rota.automations import Change, Context, DryRun, Event, Prepared, Topic
from rota.errors import BadInput, UnknownAutomation
from rota.testing import virtual
from rota.tools import tool
from tests.automations.kit import QUIET, Outside, event_statuses, sql

TABLES = {
    "sqlite": "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'",
    "postgresql": "SELECT table_name FROM information_schema.tables "
    "WHERE table_schema = current_schema()",
}


class Order(msgspec.Struct):
    """The payload of an order."""

    customer: str
    cups: int = 1


class Shop(Rota):
    """A consumer of one function, `orders`, and a class with phases, `mail`."""

    def __init__(self, **options: Any) -> None:
        super().__init__("sqlite://:memory:", **QUIET, **options)
        self.outside = Outside()
        self.reads: list[str] = []

        @self.consumer("orders")
        async def ship(event: Event[Order]) -> Change | None:
            if event.payload.cups == 0:
                return None
            if event.payload.cups < 0:
                raise ValueError(f"nobody drinks so few, says {event.payload.customer}")
            return self.outside.change(to=event.payload.customer)

        @tool(safety="read")
        async def weather(city: str) -> str:
            self.reads.append(city)
            return "rain"

        self.mail = self.automation("mail", approval=True)
        letters = self.mail.topic("letters", dict[str, Any], external=True)

        @self.mail.consumer("answer", subscribes=[letters])
        class Answer:
            async def prepare(self, ctx: Context, state: Any) -> Prepared | None:
                [one] = await ctx.peek(letters)
                if one.payload.get("weather"):
                    return Prepared([one], await ctx.call(weather, city="Ulm"), "Weather")
                return Prepared([one], state, "Answer") if one.payload else None

            def mutate(self, ctx: Context, prepared: Prepared) -> Any:
                payload = prepared.events[0].payload
                sent = shop.outside.change(to=prepared.data, api_key=payload.get("api_key"))
                return [sent, shop.outside.change()] if payload.get("twice") else sent

            async def next(self, ctx: Context, prepared: Prepared, mutation: Any) -> str:
                return "was here"

        shop = self

    async def of(self, topic: str, *ids: str, **options: Any) -> list[DryRun]:
        """Dry runs, after which no table differs."""
        name = "mail" if topic == "letters" else topic
        before, sent = await dump(self), list(self.outside.effects)
        found = await self.automations.dry_run(name, topic, ids, **options)
        assert await dump(self) == before
        assert self.outside.effects == sent
        return found


async def dump(app: Rota) -> dict[str, list[str]]:
    """All rows of all tables."""
    names = [row[0] for row in await sql(app, TABLES[app.url.split(":")[0]])]
    assert len(names) > 10
    return {name: sorted(map(repr, await sql(app, f"SELECT * FROM {name}"))) for name in names}


async def test_a_used_event_shows_the_call_that_it_would_lead_to(database_url: str) -> None:
    app = Shop()
    async with virtual(app, url=database_url) as world:
        await app.automations.publish("orders", "orders", "a", {"customer": "ann"})
        await world.settle()
        assert await event_statuses(app, "orders") == {"a": "consumed"}
        await app.automations.pause("orders")
        await app.automations.publish("orders", "orders", "b", {"customer": "bob", "cups": 0})
        await app.automations.publish("orders", "orders", "c", {"customer": "eve", "cups": -1})
        assert await app.of("orders", "a", "b", "c") == [
            DryRun("ship", "orders", "a", "change", app.outside.name, {"to": "ann"}),
            DryRun("ship", "orders", "b", "nothing", reason="mutate returned None"),
            DryRun("ship", "orders", "c", "error",
                   reason="ValueError: nobody drinks so few, says eve"),
        ]  # fmt: skip


async def test_an_event_that_no_longer_fits_its_type_is_an_error(database_url: str) -> None:
    app = Shop()
    async with virtual(app, url=database_url) as world:
        await app.automations.publish("orders", "orders", "a", {"customer": "ann"})
        await world.settle()
        declared = app.automations.declared["orders"]
        declared.topics["orders"] = Topic("orders", dict[str, int])
        [found] = await app.of("orders", "a")
        assert (found.outcome, found.tool) == ("error", None)
        assert "event a of topic orders does not fit its type" in str(found.reason)


async def test_phases_get_the_state_of_now_and_refuse_two_changes(database_url: str) -> None:
    app = Shop()
    async with virtual(app, url=database_url) as world:
        await app.automations.publish("mail", "letters", "first", {"text": "hi"})
        await world.settle()
        [change] = await app.automations.outputs("mail")
        await app.automations.approve("mail")
        await world.settle()
        assert len(app.outside.effects) == 1
        await app.automations.pause("mail")
        await app.automations.publish("mail", "letters", "empty", {})
        await app.automations.publish("mail", "letters", "two", {"twice": True})
        first, empty, two = await app.of("letters", "first", "empty", "two")
        params = {"to": "was here", "api_key": None}
        assert first == DryRun(
            "answer", "letters", "first", "change", change.tool, params, "Answer", approval=True
        )
        assert empty == DryRun(
            "answer", "letters", "empty", "nothing", reason="prepare took no event"
        )
        assert two.outcome == "error"
        assert "mutate of answer returned a list" in str(two.reason)


async def test_tools_are_read_only_if_asked_for(database_url: str) -> None:
    app = Shop()
    async with virtual(app, url=database_url):
        await app.automations.pause("mail")
        await app.automations.publish("mail", "letters", "w", {"weather": True})
        [refused] = await app.of("letters", "w")
        assert refused.outcome == "error"
        assert "a dry run does not call weather, which reads" in str(refused.reason)
        assert app.reads == []
        [read] = await app.of("letters", "w", with_reads=True)
        assert (read.outcome, read.params["to"], app.reads) == ("change", "rain", ["Ulm"])


async def test_errors_and_titles_hide_the_secrets_of_the_event(database_url: str) -> None:
    app = Shop(secret_fields=["customer"])
    async with virtual(app, url=database_url):
        await app.automations.pause("orders")
        await app.automations.publish("orders", "orders", "c", {"customer": "eve-3", "cups": -1})
        [found] = await app.of("orders", "c")
        assert found.reason == "ValueError: nobody drinks so few, says [redacted]"


async def test_only_pending_events_can_be_taken_beside_the_one_shown(database_url: str) -> None:
    app = Shop()

    wanted = ["old", "new", "none"]

    async def prepare(_: Any, ctx: Context, state: Any) -> dict[str, Any]:
        return {"reservations": [{"topic": "letters", "ids": wanted}]}

    async with virtual(app, url=database_url) as world:
        await app.automations.publish("mail", "letters", "old", {"text": "hi"})
        await world.settle()
        await app.automations.approve("mail")
        await world.settle()
        await app.automations.pause("mail")
        for one in ("new", "beside"):
            await app.automations.publish("mail", "letters", one, {"text": "hi"})
        app.mail.handlers["answer"].functions["prepare"] = prepare
        [found] = await app.of("letters", "new")
        assert "only pending events can be reserved: letters/old is consumed" in str(found.reason)
        wanted[:] = ["new", "beside"]
        [found] = await app.of("letters", "new")
        assert found.outcome == "change"


async def test_what_is_not_there_is_refused(database_url: str) -> None:
    app = Shop()
    async with virtual(app, url=database_url):
        with pytest.raises(BadInput, match="no event orders/none"):
            await app.of("orders", "none")
        with pytest.raises(BadInput, match="no consumer of automation orders takes topic 'other'"):
            await app.automations.dry_run("orders", "other", ["a"])
        with pytest.raises(UnknownAutomation):
            await app.automations.dry_run("nothing", "orders", ["a"])
