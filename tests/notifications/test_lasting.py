"""Notifications about troubles that last, about skipped items and about changes: what a person
reads, and when."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rota import Rota
from rota.automations import Context, DeadLetter, Prepared
from rota.core.notifications.model import Notification, NotificationKind
from rota.core.time.instants import HOUR, MINUTE
from rota.errors import NotSent, OutcomeUnknown
from rota.testing import virtual
from rota.tools import Safety
from tests.automations.kit import QUIET, Line, begun, event_statuses, raising, sound, sql
from tests.notifications.kit import keep

ALWAYS = 1_000_000
DOWN = NotSent("connection refused")
LOST = OutcomeUnknown("the answer never came")


@pytest.mark.parametrize(("after", "expected"), [(None, 15), ("2h", 120)])
async def test_an_outage_is_sent_once_after_the_time_of_the_rule_and_so_is_its_end(
    database_url: str, after: str | None, expected: int
) -> None:
    app = Line(Safety.UNKNOWABLE)
    kept = keep(app, **({} if after is None else {"outage_after": after}))
    async with begun(app, database_url) as world:
        began = world.clock.now()
        app.outside.before = raising(DOWN, ALWAYS)
        await app.feed("e1")
        await world.advance(f"{expected - 1}m")
        assert kept == []
        await world.advance("2m")
        [one] = kept
        assert (one.kind, one.source, one.name) == ("outage", "automation", "line")
        since = one.details.since or 0
        assert one.at == since + expected * MINUTE
        assert abs(since - began) < MINUTE
        assert one.text == (
            "automation line has been waiting for outside since 2030-01-01 00:00 UTC: NotSent: "
            "connection refused"
        )
        await world.advance("2h")
        assert len(kept) == 1
        app.outside.before = None
        await world.advance("1h")
        assert kept.kinds == ["outage", "recovered"]
        await sound(app)


@pytest.mark.parametrize("safety", [Safety.IDEMPOTENT, Safety.RECONCILABLE])
async def test_an_outage_during_a_change_is_sent_too(database_url: str, safety: Safety) -> None:
    app = Line(safety)
    kept = keep(app)
    async with begun(app, database_url) as world:
        app.outside.before = raising(LOST, ALWAYS)
        app.outside.look_up = _unreachable  # type: ignore[method-assign]
        await app.feed("e1")
        await world.advance("3h")
        assert kept.kinds == ["outage"]
        assert "has been waiting for outside since 2030-01-01 00:00 UTC" in kept[0].text


async def _unreachable(params: Any, call: Any) -> Any:
    raise ConnectionResetError("reset")


async def test_short_outages_are_not_sent(database_url: str) -> None:
    app = Line(Safety.UNKNOWABLE)
    kept = keep(app)
    async with begun(app, database_url) as world:
        app.outside.before = raising(DOWN, 3)
        await app.feed("e1")
        await world.advance("2h")
        assert await event_statuses(app) == {"e1": "consumed"}
        assert kept == []


async def test_each_approval_is_a_message_of_its_own_with_its_parameters_and_commands(
    database_url: str,
) -> None:
    app = Line(approval=True)
    app.notify("ops", command="cat")
    kept = keep(app, "approval_wanted")
    async with begun(app, database_url) as world:
        for number in range(6):
            await app.feed(f"e{number}")
            await world.settle()
            await app.automations.approve("line")
            await world.advance("15s")
        assert kept.kinds == ["approval_wanted"] * 6
        messages = [
            json.loads(run.input or "")["message"]
            for run in await app.runs.list(limit=100)
            if run.name == "rota.notification"
            and '"ops"' in (run.input or "")
            and '"approval_wanted"' in (run.input or "")
        ]
        assert len(messages) == 6
        assert all(len(one["entries"]) == 1 for one in messages)
        change = kept[0].details.change
        assert change is not None
        assert kept[0].text == (
            'automation line waits for your approval: Work (outside with {"items":[{"id":"e0"}]}) '
            f"`rota run approve {change.id}` `rota run reject {change.id}`"
        )
        assert "Handler" not in kept[0].text


async def test_parameters_in_a_message_are_one_bounded_line_without_secrets(
    database_url: str,
) -> None:
    app = Line(approval=True)
    kept = keep(app, "approval_wanted")
    async with begun(app, database_url) as world:
        await app.automations.publish("line", "work", "e1", {"id": "x\u2028\n" * 5000})
        await world.settle()
        change = kept[0].details.change
        assert change is not None
        assert len(change.params) <= 400
        assert "\n" not in kept[0].text
        assert "\u2028" not in kept[0].text


async def test_an_approval_that_is_shown_again_is_sent_once(database_url: str) -> None:
    app = Line(approval=True)
    kept = keep(app, "approval_wanted")
    async with begun(app, database_url, "e1") as world:
        await app.automations.pause("line")
        await app.automations.resume("line")
        await world.advance("1h")
        await app.feed("e2")
        await world.advance("1h")
        assert len(kept) == 1


async def test_unknown_outcomes_of_one_automation_are_sent_one_by_one(database_url: str) -> None:
    app = Line(Safety.UNKNOWABLE)
    app.notify("ops", command="true")
    async with begun(app, database_url) as world:
        for number in range(3):
            app.outside.after = raising(LOST)
            await app.feed(f"e{number}")
            await world.settle()
            await app.automations.resolve("line", "happened")
            await world.settle()
        runs = [one for one in await app.runs.list(limit=100) if one.name == "rota.notification"]
        found = [json.loads(one.input or "")["message"]["entries"][0]["last"] for one in runs]
        asked = [one for one in found if one["kind"] == "unknown_outcome"]
        assert len(asked) == 3
        assert asked[0]["details"]["error"] == (
            "outside: only an operator can find out whether it happened"
        )


async def test_a_wait_for_a_person_is_repeated_once_after_hours(database_url: str) -> None:
    app = Line(approval=True)
    kept = keep(app)
    async with begun(app, database_url, "e1") as world:
        await world.advance("3h")
        assert kept.kinds == ["approval_wanted"]
        await world.advance("20h")
        assert kept.kinds == ["approval_wanted", "waiting"]
        reminder = kept[1]
        assert reminder.at == (reminder.details.since or 0) + 4 * HOUR
        assert f"`rota run approve {reminder.run_id}`" in reminder.text
        await app.automations.approve("line")
        await world.settle()
        assert await event_statuses(app) == {"e1": "consumed"}


def shop(url: str = "sqlite://:memory:") -> Rota:
    """An automation that cannot handle one of its orders."""
    app = Rota(url, **QUIET)
    orders = app.automation("shop", timezone="UTC")
    new = orders.topic("orders", external=True)
    letters = orders.topic("letters", DeadLetter)

    async def prepare(ctx: Context, state: Any) -> Prepared:
        events = await ctx.peek(new, limit=1)
        for event in events:
            if event.id == "bad" and not getattr(app, "is_fixed", False):
                raise ValueError("no such order")
        return Prepared(events)

    orders.consumer("ship", subscribes=[new], prepare=prepare, skip_after=3, dead_letter=letters)
    return app


async def test_a_skipped_item_is_sent_with_the_command_that_returns_it(database_url: str) -> None:
    app = shop()
    kept = keep(app)
    async with virtual(app, url=database_url) as world:
        await world.settle()
        await app.automations.publish("shop", "orders", "bad", {})
        await app.automations.publish("shop", "orders", "good", {})
        await world.advance("1h")
        assert kept.kinds == ["skipped"]
        one = kept[0]
        [letter] = one.details.dead_letters
        topic, _, letter_id = letter.partition("/")
        assert one.text == (
            "automation shop skipped orders/bad after 3 failures: ValueError: no such order "
            f"`rota automation requeue shop {topic} {letter_id}`"
        )
        app.is_fixed = True  # type: ignore[attr-defined]
        assert await app.automations.requeue("shop", topic, letter_id)
        await world.settle()
        found = {one.message_id: one.status for one in await app.automations.events("shop")}
        assert found["bad"] == "consumed"
        await sound(app)


async def test_a_dead_letter_is_requeued_by_the_id_of_its_event_too(database_url: str) -> None:
    app = shop()
    async with virtual(app, url=database_url) as world:
        await world.settle()
        await app.automations.publish("shop", "orders", "bad", {})
        await world.advance("1h")
        app.is_fixed = True  # type: ignore[attr-defined]
        assert await app.automations.requeue("shop", "letters", "bad")
        await world.settle()
        found = {one.message_id: one.status for one in await app.automations.events("shop")}
        assert found["bad"] == "consumed"


async def test_work_without_a_worker_that_has_its_code_is_sent(database_url: str) -> None:
    app = Line()
    kept = keep(app, "stranded")
    async with begun(app, database_url) as world:
        await sql(app, "update automations set digest = 'of another deploy'")
        await app.feed("e1")
        await world.advance("14m")
        assert kept == []
        await world.advance("3m")
        [one] = kept
        assert one.kind is NotificationKind.STRANDED
        assert "no worker has its code" in one.text


def test_a_link_leads_to_the_page_of_the_work_if_its_address_is_known() -> None:
    from rota.core.notifications.rules import alone
    from rota.notifications.delivery import _payload

    one = Notification(
        id="1", kind=NotificationKind.FAILED, source="automation", name="a b/c", run_id="r", at=1
    )
    assert json.loads(_payload(alone(one), ""))["link"] is None
    sent = json.loads(_payload(alone(one), "https://rota.example.org/"))
    assert sent["link"] == "https://rota.example.org/automations/a%20b%2Fc"
    assert sent["text"].endswith(f" {sent['link']}")


async def test_two_rules_get_an_outage_each_after_its_own_time(database_url: str) -> None:
    app = Line(Safety.UNKNOWABLE)
    found: dict[str, list[str]] = {"soon": [], "late": []}

    @app.on_notification("outage", outage_after="5m")
    async def soon(one: Notification) -> None:
        found["soon"].append(str(one.kind))

    @app.on_notification("outage", outage_after="1h")
    async def late(one: Notification) -> None:
        found["late"].append(str(one.kind))

    async with begun(app, database_url) as world:
        app.outside.before = raising(DOWN, ALWAYS)
        await app.feed("e1")
        await world.advance("30m")
        assert found == {"soon": ["outage"], "late": []}
        await world.advance("1h")
        assert found == {"soon": ["outage"], "late": ["outage"]}
