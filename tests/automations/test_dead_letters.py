"""`skip_after`: one bad item does not stop the line, and what is skipped goes to a dead-letter
topic, from which it can be requeued."""

from __future__ import annotations

from typing import Any

import pytest

from rota import Rota
from rota.automations import Automation, Change, Context, DeadLetter, Prepared, Topic
from rota.automations.executor import AutomationExecutor
from rota.errors import BadAutomation, NeedsLogin, NotSent, WrongState
from rota.explain.automation import explain_automation
from rota.store.automations import requeue
from rota.testing import World, virtual
from rota.tools import Safety
from tests.automations.kit import QUIET, Outside, dying, open_run_state, sound, sql, statuses


class Letters(Rota):
    """An automation with a consumer that fails on events that begin with "bad", and skips them."""

    def __init__(self, *, dead_letter: str | None = "letters", **options: Any) -> None:
        super().__init__("sqlite://:memory:", **QUIET)
        self.outside = Outside(Safety.UNKNOWABLE)
        self.error: Exception = ValueError("cannot read this one")
        self.bad = "bad"
        self.tries: list[str] = []
        self.line: Automation = self.automation("line", timezone="UTC")
        self.work: Topic = self.line.topic("work", external=True)
        if dead_letter:
            self.line.topic("letters")
            options["dead_letter"] = dead_letter
        phases: dict[str, Any] = {"prepare": self._prepare, "mutate": self._mutate}
        self.line.consumer("worker", subscribes=[self.work], **phases, **options)

    async def _prepare(self, ctx: Context, state: Any) -> Prepared:
        events = await ctx.peek(self.work, limit=1)
        return Prepared(events, [event.id for event in events])

    async def _mutate(self, ctx: Context, prepared: Prepared) -> Change:
        [name] = prepared.data
        self.tries.append(name)
        if name.startswith(self.bad):
            raise self.error
        return self.outside.change(id=name)

    async def feed(self, *ids: str) -> None:
        for one in ids:
            await self.automations.publish("line", "work", one, {"id": one})

    async def events_of(self, topic: str) -> dict[str, str]:
        found = await self.automations.events("line", topic=topic)
        return {one.message_id: one.status for one in found}

    async def letters(self) -> list[Any]:
        found = await self.automations.events("line", topic="letters", status="pending")
        return [self.line.topics["letters"].decode(one.payload, one.message_id) for one in found]


async def test_one_bad_item_is_left_out_after_so_many_failures_and_the_line_goes_on(
    database_url: str,
) -> None:
    app = Letters(skip_after=3)
    app.line.topics["letters"] = Topic("letters", DeadLetter)
    async with virtual(app, url=database_url) as world:
        await app.feed("bad", "good")
        await world.settle()
        assert app.tries == ["bad"]
        assert (await app.automations.show("line")).sentence.startswith("Trying again in")
        await world.advance("1m")
        assert app.tries == ["bad", "bad", "bad", "good"]
        assert await app.events_of("work") == {"bad": "skipped", "good": "consumed"}
        [letter] = await app.letters()
        assert (letter.topic, letter.id, letter.payload) == ("work", "bad", {"id": "bad"})
        assert letter.error == {
            "type": "ValueError",
            "message": "cannot read this one",
            "kind": "logic",
        }
        assert (letter.handler, letter.failures) == ("worker", 3)
        failed = next(
            one for one in await app.automations.activity("line") if one.status == "failed"
        )
        assert letter.run_id == failed.run.run_id
        assert failed.run.remark == "skipped work/bad, dead letter in topic letters"
        await sound(app)


async def test_without_skip_after_the_line_stops(database_url: str) -> None:
    app = Letters()
    async with virtual(app, url=database_url) as world:
        await app.feed("bad", "good")
        await world.advance("1h")
        assert await open_run_state(app) == "waiting:logic"
        assert await app.events_of("work") == {"bad": "pending", "good": "pending"}


async def test_an_item_is_left_out_without_a_dead_letter_topic_too(database_url: str) -> None:
    app = Letters(skip_after=1, dead_letter=None)
    async with virtual(app, url=database_url) as world:
        await app.feed("bad1", "bad2", "good")
        await world.settle()
        assert await app.events_of("work") == {
            "bad1": "skipped",
            "bad2": "skipped",
            "good": "consumed",
        }
        await sound(app)


class Killers(Letters):
    """The same, but an event that begins with "bad" kills the worker."""

    def __init__(self, phase: str = "mutate", **options: Any) -> None:
        super().__init__(**options)
        self.phase = phase
        self.deaths = 0

    async def _prepare(self, ctx: Context, state: Any) -> Prepared:
        given = await super()._prepare(ctx, state)
        if self.phase == "prepare":
            await self._die_of(given.data)
        return given

    async def _mutate(self, ctx: Context, prepared: Prepared) -> Change:
        await self._die_of(prepared.data)
        return self.outside.change(id=prepared.data[0])

    async def _die_of(self, ids: list[str]) -> None:
        if ids and ids[0].startswith(self.bad):
            self.deaths += 1
            await dying(self)()


@pytest.mark.parametrize("phase", ["prepare", "mutate"])
@pytest.mark.parametrize(("skip_after", "deaths"), [(1, 3), (3, 3), (4, 4), (50, 5)])
async def test_an_item_that_kills_its_worker_is_left_out_too(
    database_url: str, phase: str, skip_after: int, deaths: int
) -> None:
    """Only a death while it was executed alone is its own: two before it say nothing. After
    `recoveries_max` (5) it is over in any case."""
    app = Killers(phase, skip_after=skip_after)
    app.line.topics["letters"] = Topic("letters", DeadLetter)
    async with virtual(app, url=database_url) as world:
        await app.feed("bad", "good")
        await world.advance("1h")
        assert app.deaths == deaths
        assert await app.events_of("work") == {"bad": "skipped", "good": "consumed"}
        [letter] = await app.letters()
        assert (letter.id, letter.failures) == ("bad", deaths)
        assert letter.error == {
            "type": "Host",
            "message": f"its worker died {deaths} times while it ran",
            "kind": "crashes",
        }
        crashed = [one for one in await app.automations.activity("line") if one.status == "crashed"]
        assert letter.run_id == crashed[0].run.run_id
        remarks = [one.run.remark for one in await app.automations.activity("line")]
        assert "skipped work/bad, dead letter in topic letters" in remarks
        assert {"id": "bad"} not in [given for _, given in app.outside.effects]
        await sound(app)
        app.bad = "nothing is bad"
        [name] = await app.events_of("letters")
        await app.automations.requeue("line", "letters", name)
        await world.settle()
        assert await app.events_of("work") == {"bad": "consumed", "good": "consumed"}


class Picky(Killers):
    """Takes the bad event first, though it is not the oldest."""

    async def _prepare(self, ctx: Context, state: Any) -> Prepared:
        events = sorted(await ctx.peek(self.work), key=lambda event: not event.id.startswith("bad"))
        return Prepared(events[:1], [event.id for event in events[:1]])


async def test_a_worker_that_dies_before_the_skip_is_written_skips_no_other_item(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = Picky(skip_after=3)
    leave_out, deaths = AutomationExecutor._leave_out, [dying(app)]

    async def dies_first(*given: Any) -> Any:
        if deaths:
            await deaths.pop()()
        return await leave_out(*given)

    monkeypatch.setattr(AutomationExecutor, "_leave_out", dies_first)
    async with virtual(app, url=database_url) as world:
        await app.feed("good", "bad")
        await world.advance("1h")
        assert (app.deaths, deaths) == (3, [])
        assert await app.events_of("work") == {"bad": "skipped", "good": "consumed"}
        [letter] = await app.letters()
        assert letter["id"] == "bad"
        await sound(app)


async def test_without_skip_after_an_item_that_kills_its_worker_asks_a_person(
    database_url: str,
) -> None:
    app = Killers()
    async with virtual(app, url=database_url) as world:
        await app.feed("bad", "good")
        await world.advance("1h")
        assert await open_run_state(app) == "waiting:crashes"
        assert await app.events_of("work") == {"bad": "reserved", "good": "pending"}


async def test_an_item_whose_change_has_happened_is_not_left_out_for_killing_its_worker(
    database_url: str,
) -> None:
    apps: list[Killers] = []

    async def dies(ctx: Context, prepared: Prepared, mutation: Any) -> None:
        if prepared.data:
            await dying(apps[0])()

    app = Killers(skip_after=1, next=dies)
    apps.append(app)
    app.bad = "nothing is bad"
    async with virtual(app, url=database_url) as world:
        await app.feed("e1")
        await world.advance("1h")
        assert await open_run_state(app) == "waiting:crashes"
        assert await app.events_of("work") == {"e1": "reserved"}
        assert app.outside.calls == 1
        await sound(app)


@pytest.mark.parametrize(
    ("error", "state"),
    [(NotSent("down"), "sleeping:transient"), (NeedsLogin("expired"), "waiting:auth")],
    ids=["outage", "login"],
)
async def test_an_outage_or_a_missing_login_is_not_the_fault_of_the_item(
    database_url: str, error: Exception, state: str
) -> None:
    app = Letters(skip_after=1)
    app.bad = "nothing is bad"

    def refuse() -> None:
        raise error

    async with virtual(app, url=database_url) as world:
        app.outside.before = refuse
        await app.feed("e1", "e2")
        await world.advance("30m")
        assert await open_run_state(app) == state
        assert await app.letters() == []


async def _fails(ctx: Context, prepared: Prepared, mutation: Any) -> None:
    if prepared.data:
        raise ValueError("a bug in next")


async def test_an_item_whose_change_has_happened_is_not_left_out(database_url: str) -> None:
    app = Letters(skip_after=1, next=_fails)
    async with virtual(app, url=database_url) as world:
        await app.feed("e1")
        await world.advance("1h")
        assert await open_run_state(app) == "waiting:logic"
        assert await app.events_of("work") == {"e1": "reserved"}
        await sound(app)


async def test_an_unreadable_payload_is_left_out_after_so_many_failures(database_url: str) -> None:
    app = Letters(skip_after=2)
    async with virtual(app, url=database_url) as world:
        await app.automations.publish("line", "work", "odd", "text")
        app.line.topics["work"] = Topic("work", dict, external=True)
        await app.feed("good")
        await world.advance("1m")
        assert await app.events_of("work") == {"odd": "skipped", "good": "consumed"}
        [letter] = await app.letters()
        assert letter["payload"] == "text"


# -- giving back -------------------------------------------------------------------------------


async def left_out(world: World, app: Letters) -> str:
    await app.feed("bad")
    await world.advance("1m")
    [letter] = await app.events_of("letters")
    return letter


async def test_a_dead_letter_can_be_given_back_and_is_executed_once_more(
    database_url: str,
) -> None:
    app = Letters(skip_after=1)
    async with virtual(app, url=database_url) as world:
        letter = await left_out(world, app)
        assert letter.startswith("work/bad@")
        app.bad = "nothing is bad"
        [back] = await app.automations.requeue("line", "letters", letter)
        assert (back.topic, back.message_id) == ("work", "bad")
        await world.settle()
        assert await app.events_of("work") == {"bad": "consumed"}
        assert await app.events_of("letters") == {letter: "consumed"}
        assert app.outside.effects[0][1] == {"id": "bad"}
        with pytest.raises(WrongState, match="consumed, not skipped"):
            await app.automations.requeue("line", "letters", letter)
        await sound(app)


async def test_an_item_that_is_given_back_and_fails_again_has_a_second_letter(
    database_url: str,
) -> None:
    app = Letters(skip_after=1)
    async with virtual(app, url=database_url) as world:
        first = await left_out(world, app)
        await app.automations.requeue("line", "letters", first)
        await world.advance("1m")
        found = await app.events_of("letters")
        assert sorted(found.values()) == ["consumed", "pending"]
        assert await app.events_of("work") == {"bad": "skipped"}


@pytest.mark.parametrize("at_once", [1000, 2])
async def test_all_dead_letters_of_a_topic_can_be_given_back_at_once(
    database_url: str, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(requeue, "AT_ONCE", at_once)
    app = Letters(skip_after=1)
    async with virtual(app, url=database_url) as world:
        await app.feed(*(f"bad{number}" for number in range(5)))
        await world.advance("1m")
        app.bad = "nothing is bad"
        back = await app.automations.requeue("line", "letters")
        assert len(back) == 5
        await world.settle()
        assert set((await app.events_of("work")).values()) == {"consumed"}
        assert len(app.outside.effects) == 5


async def test_a_skipped_event_can_be_given_back_with_its_input(database_url: str) -> None:
    app = Letters()
    async with virtual(app, url=database_url) as world:
        await app.automations.pause("line")
        await app.feed("e1", "e2")
        [one] = [
            seen for seen in await app.automations.inputs("line") if seen.input.external_id == "e1"
        ]
        await app.automations.skip_input("line", one.input.id)
        await app.automations.requeue("line", "work", "e1")
        await app.feed("e3")  # publishing skips what comes from skipped inputs
        await app.automations.resume("line")
        await world.settle()
        assert set((await app.events_of("work")).values()) == {"consumed"}
        with pytest.raises(WrongState, match="consumed, not skipped"):
            await app.automations.requeue("line", "work", "e1")


async def test_a_dead_letter_whose_event_was_pruned_publishes_it_once_more(
    database_url: str,
) -> None:
    app = Letters(skip_after=1)
    async with virtual(app, url=database_url) as world:
        letter = await left_out(world, app)
        await sql(app, "delete from events where message_id = 'bad'")
        app.bad = "nothing is bad"
        await app.automations.requeue("line", "letters", letter)
        await world.settle()
        assert await app.events_of("work") == {"bad": "consumed"}
        assert app.outside.effects[0][1] == {"id": "bad"}


async def test_the_input_of_a_dead_letter_is_not_done(database_url: str) -> None:
    app = Letters(skip_after=1)
    async with virtual(app, url=database_url) as world:
        await left_out(world, app)
        [waits] = await app.automations.pending("line")
        assert (waits.input.external_id, waits.status) == ("bad", "pending")
        assert (
            "keeps a dead letter in topic letters" in (await explain_automation(app, "line")).clause
        )


async def test_a_consumer_may_read_the_dead_letters_of_another(database_url: str) -> None:
    app = Letters(skip_after=1)
    seen: list[Any] = []

    async def prepare(ctx: Context, state: Any) -> Prepared:
        events = await ctx.peek("letters")
        seen.extend(event.payload["error"]["message"] for event in events)
        return Prepared(events)

    app.line.consumer("undertaker", subscribes=["letters"], prepare=prepare)
    async with virtual(app, url=database_url) as world:
        await app.feed("bad", "good")
        await world.settle()
        assert seen == ["cannot read this one"]
        assert "undertaker committed committed" in await statuses(app)
        assert set((await app.events_of("letters")).values()) == {"consumed"}


def test_a_deploy_says_what_is_wrong_with_a_dead_letter_topic() -> None:
    app = Rota("sqlite://:memory:")
    line = app.automation("line")
    work, odd = line.topic("work", external=True), line.topic("odd", int)
    line.consumer("a", subscribes=[work], prepare=lambda ctx, state: None, dead_letter=odd)
    line.consumer("b", subscribes=[odd], prepare=lambda ctx, state: None, dead_letter="odd")
    line.consumer("c", subscribes=["none"], prepare=lambda ctx, state: None, dead_letter="gone")
    with pytest.raises(BadAutomation) as refused:
        line.version(now=0)
    found = str(refused.value)
    assert "topic odd receives dead letters; declare it with DeadLetter" in found
    assert "consumer b reads its own dead letters from odd" in found
    assert "consumer c has the dead-letter topic gone, which is not one of its topics" in found
