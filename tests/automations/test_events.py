"""Events: publish, peek, reserve, skip. Nothing is lost."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from rota import Rota
from rota.automations import Change, Context, Event, Prepared
from rota.automations.definition import Topic
from rota.client.automations import Automations
from rota.core.time.instants import moment
from rota.errors import BadInput, Transient, WrongState
from rota.testing import virtual
from rota.tools import Call, Safety, Tool
from tests.automations.kit import (
    QUIET,
    Line,
    begun,
    event_statuses,
    last,
    open_run_state,
    payloads,
    plain,
    sound,
    sql,
)


async def test_the_last_write_of_a_message_id_wins_and_its_status_is_kept(
    database_url: str,
) -> None:
    app = Line()
    app.take = 0
    async with begun(app, database_url):
        assert await app.automations.publish("line", "work", "e1", 1)
        assert await app.automations.publish("line", "work", "e1", 2)
        assert not await app.automations.publish("line", "work", "e1", 2)
        assert await payloads(app) == {"e1": "2"}
        assert await event_statuses(app) == {"e1": "pending"}


async def test_a_consumed_event_is_never_rewritten_nor_done_again(database_url: str) -> None:
    app = Line()
    async with begun(app, database_url, "e1") as world:
        assert not await app.automations.publish("line", "work", "e1", "other")
        await world.settle()
        assert await payloads(app) == {"e1": '{"id":"e1"}'}
        assert app.done == [["e1"]]


async def corrections(app: Line) -> list[tuple[str, str, str | None]]:
    """Status, payload and the payload that was published too late, by event."""
    events = await app.automations.events("line", limit=1000)
    return [(event.status, event.payload, event.correction) for event in events]


async def test_publishing_again_never_rewrites_what_a_run_has_reserved(database_url: str) -> None:
    app = Line(approval=True)
    async with begun(app, database_url) as world:
        await app.automations.publish("line", "work", "e1", "old")
        await world.settle()
        assert await open_run_state(app) == "waiting:approval"
        assert not await app.automations.publish("line", "work", "e1", "new")
        assert not await app.automations.publish("line", "work", "e1", "newer")
        await world.settle()
        assert await corrections(app) == [("reserved", '"old"', '"newer"')]
        await app.automations.approve("line")
        await world.settle()
        assert [params["items"] for _, params in app.outside.effects] == [["old"]]
        assert await corrections(app) == [("consumed", '"old"', '"newer"')]
        await sound(app)


async def test_publishing_a_reserved_event_as_it_was_takes_a_correction_back(
    database_url: str,
) -> None:
    app = Line(approval=True)
    async with begun(app, database_url) as world:
        await app.automations.publish("line", "work", "e1", "old")
        await world.settle()
        await app.automations.publish("line", "work", "e1", "new")
        await app.automations.publish("line", "work", "e1", "old")
        assert await corrections(app) == [("reserved", '"old"', None)]


async def test_a_correction_counts_when_the_run_fails_before_its_change(database_url: str) -> None:
    app = Line()
    async with begun(app, database_url) as world:

        async def correct() -> None:
            app.in_mutate = None
            await app.automations.publish("line", "work", "e1", "new")
            raise Transient("not now")

        app.in_mutate = correct
        await app.automations.publish("line", "work", "e1", "old")
        await world.advance("1m")
        assert [params["items"] for _, params in app.outside.effects] == [["new"]]
        assert await corrections(app) == [("consumed", '"new"', None)]


async def test_a_correction_counts_when_a_person_rejects_the_proposed_change(
    database_url: str,
) -> None:
    app = Line(approval=True)
    async with begun(app, database_url) as world:
        await app.automations.publish("line", "work", "e1", "old")
        await world.settle()
        await app.automations.publish("line", "work", "e1", "new")
        await app.automations.reject("line")
        await world.settle()
        assert [one.status for one in app.reported if one.status != "none"] == ["skipped"]
        assert await corrections(app) == [("reserved", '"new"', None)]  # proposed as it is now
        await app.automations.approve("line")
        await world.settle()
        assert [params["items"] for _, params in app.outside.effects] == [["new"]]
        await sound(app)


async def test_an_event_that_changes_while_prepare_looks_is_prepared_again(
    database_url: str,
) -> None:
    app = Line()
    async with begun(app, database_url) as world:

        async def correct() -> None:
            app.in_prepare = None
            await app.automations.publish("line", "work", "e1", "new")

        app.in_prepare = correct
        await app.automations.publish("line", "work", "e1", "old")
        await world.settle()
        assert [params["items"] for _, params in app.outside.effects] == [["new"]]
        assert await corrections(app) == [("consumed", '"new"', None)]
        assert len(app.done) == 2


async def test_events_that_change_all_the_time_are_tried_later(database_url: str) -> None:
    app = Line()
    async with begun(app, database_url) as world:
        numbers = itertools.count()

        async def correct() -> None:
            await app.automations.publish("line", "work", "e1", next(numbers))

        app.in_prepare = correct
        await app.automations.publish("line", "work", "e1", "old")
        await world.settle()
        assert await open_run_state(app) == "sleeping:transient"
        assert (
            "change faster than worker can prepare" in (await app.automations.show("line")).sentence
        )
        app.in_prepare = None
        await world.advance("1m")
        assert len(app.outside.effects) == 1


async def test_a_payload_that_does_not_fit_names_the_path_and_speaks_of_the_topic(
    database_url: str,
) -> None:
    app = Line()
    app.line.topics["work"] = Topic("work", dict[str, int], external=True)
    async with begun(app, database_url):
        for client in (app.automations, Automations(app)):  # with the code, and without it
            with pytest.raises(
                BadInput, match=r"topic work: Expected `int`.*at `\$\.how`"
            ) as reported:
                await client.publish("line", "work", "e1", {"how": "x"})
            assert "the type of the topic" in reported.value.advice
            assert "workflow" not in reported.value.advice


@pytest.mark.parametrize("reservation", [{"topic": "work"}, {"ids": ["e1"]}, "work", {"topic": 1}])
async def test_a_reservation_without_topic_or_ids_is_reported(
    database_url: str, reservation: Any
) -> None:
    app = Line()

    async def prepare(ctx: Context, state: Any) -> Any:
        return {"reservations": [reservation]} if await ctx.peek("work") else None

    app.line.handlers["worker"].functions["prepare"] = prepare
    async with begun(app, database_url, "e1"):
        said = (await app.automations.show("line")).sentence
        assert "The code failed: prepare returned the reservation" in said
        assert said.endswith("which needs a topic and a list of ids")


async def test_publishing_from_outside_needs_an_external_topic(database_url: str) -> None:
    app = Line()
    app.line.topics["work"].external = False
    app.line.producer(every="1d", publishes=["work"], name="poll")(_nothing)
    async with virtual(app, url=database_url) as world:
        await world.settle()
        with pytest.raises(BadInput, match="accepts no events from outside"):
            await app.feed("e1")
        with pytest.raises(BadInput, match="no topic 'wrok'"):
            await app.automations.publish("line", "wrok", "e1")


async def _nothing(ctx: Context, state: Any) -> None: ...


async def test_peek_is_oldest_first_within_its_limit_and_pending_only(database_url: str) -> None:
    app = Line()
    app.take = 0
    seen: list[list[str]] = []
    async with begun(app, database_url, "a", "b", "c") as world:
        await app.automations.skip_event("line", "work", "a")

        async def prepare(ctx: Context, state: Any) -> None:
            seen.append([one.id for one in await ctx.peek("work", limit=1)])
            seen.append([one.id for one in await ctx.peek("work")])
            seen.append([f"{one.id} {one.status}" for one in await ctx.get("work", ["a", "x"])])

        app.line.handlers["worker"].functions["prepare"] = prepare
        await app.feed("d")
        await world.settle()
        assert seen == [["b"], ["b", "c", "d"], ["a skipped"]]


def event(topic: str, message_id: str) -> Event:
    return Event(topic, message_id, None, "pending", moment(0), 1)


@pytest.mark.parametrize(
    ("wanted", "complaint"),
    [
        ([event("work", "nobody")], "work/nobody does not exist"),
        ([event("work", "used")], "work/used is consumed"),
        ([event("work", "fresh"), event("work", "nobody")], "work/nobody does not exist"),
        ([event("elsewhere", "x")], "elsewhere is not one that it subscribes to"),
    ],
    ids=["unknown", "consumed", "one of two", "foreign topic"],
)
async def test_only_pending_events_of_subscribed_topics_can_be_reserved(
    database_url: str, wanted: list[Event], complaint: str
) -> None:
    app = Line()
    async with begun(app, database_url, "used") as world:

        async def prepare(ctx: Context, state: Any) -> Prepared:
            return Prepared(wanted)

        app.line.handlers["worker"].functions["prepare"] = prepare
        await app.feed("fresh")
        await world.settle()
        assert await open_run_state(app) == "waiting:logic"
        assert complaint in (await app.automations.show("line")).sentence
        assert await event_statuses(app) == {"used": "consumed", "fresh": "pending"}
        assert len(app.outside.effects) == 1
        await sound(app)


async def test_an_event_of_another_automation_cannot_be_reserved(database_url: str) -> None:
    app = Line()
    other = plain(app, "other")
    other.topic("work", external=True)
    other.consumer("idle", subscribes=["work"], prepare=_nothing)
    async with begun(app, database_url) as world:
        await app.automations.publish("other", "work", "theirs")

        async def prepare(ctx: Context, state: Any) -> Prepared:
            return Prepared([event("work", "theirs")])

        app.line.handlers["worker"].functions["prepare"] = prepare
        await app.feed("ours")
        await world.settle()
        assert await open_run_state(app) == "waiting:logic"
        assert await event_statuses(app, "other") == {"theirs": "pending"}


class Look(Tool):  # a read tool
    name = "look"
    safety = Safety.READ

    def read(self, params: dict[str, Any]) -> Any:
        return params

    async def perform(self, params: Any, call: Call) -> Any:
        return "seen"


def acts(app: Line) -> dict[str, Any]:
    """One call for each row of the matrix."""
    return {
        "external read": lambda ctx: ctx.call(Look()),
        "external mutation": lambda _: app.outside.change(n=1),
        "peek": lambda ctx: ctx.peek("work"),
        "get": lambda ctx: ctx.get("work", ["e1"]),
        "publish": lambda ctx: ctx.publish("out", "m1", 1),
        "register input": lambda ctx: ctx.input("mail", "message", "7", "Hello"),
        "log": lambda ctx: ctx.log("hello"),
    }


MATRIX = {
    #                      producer prepare mutate next
    "external read":      (True,  True,  False, False),
    "external mutation":  (False, False, True,  False),
    "peek":               (False, True,  False, False),
    "get":                (False, True,  False, False),
    "publish":            (True,  False, False, True),
    "register input":     (True,  False, False, False),
    "log":                (True,  True,  True,  True),
}  # fmt: skip
CASES = [
    (act, phase, allowed)
    for act, row in MATRIX.items()
    for phase, allowed in zip(("run", "prepare", "mutate", "next"), row, strict=True)
]


@pytest.mark.parametrize(("act", "phase", "allowed"), CASES)
async def test_each_phase_may_do_what_the_matrix_says_and_nothing_else(
    database_url: str, act: str, phase: str, allowed: bool
) -> None:
    """A refusal cannot be caught, and counts even when everything is swallowed."""
    app = Line()
    done = acts(app)[act]

    async def attempt(ctx: Context, *args: Any) -> Any:
        try:
            answer = done(ctx)
            if hasattr(answer, "__await__"):
                await answer
        except Exception:
            raise AssertionError("a script could catch it") from None
        except BaseException:
            if not allowed:
                return None  # swallowed
            raise
        return answer if isinstance(answer, Change) else None

    async def prepare(ctx: Context, state: Any) -> Prepared:
        return Prepared(await ctx.peek("work"))

    out = app.line.topic("out")
    app.line.consumer("sink", subscribes=[out], prepare=_nothing)
    worker = app.line.handlers["worker"]
    app.line._handlers[0] = worker._replace(
        node=_publishing(worker.node), functions=worker.functions | {"prepare": prepare}
    )
    functions = app.line.handlers["worker"].functions
    if phase == "run":
        app.line.producer(every="1d", publishes=[out], name="poll")(attempt)
    else:
        functions[phase] = attempt
    async with virtual(app, url=database_url) as world:
        await world.settle()
        if await open_run_state(app) == "sleeping:event":
            await app.feed("e1")
            await world.settle()
        blocked = await open_run_state(app) == "waiting:logic"
        assert blocked is not allowed
        if blocked:
            said = (await app.automations.show("line")).sentence
            assert ("built a change" if act == "external mutation" else "may not") in said
        await sound(app)


def _publishing(node: Any) -> Any:
    import msgspec

    return msgspec.structs.replace(node, publishes=("out",))


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda ctx: ctx.publish("work", "x"), "publishes to out, not work"),
        (lambda ctx: ctx.publish("out", ""), "a message id is text"),
        (lambda ctx: ctx.publish("out", 7), "a message id is text"),
        (lambda ctx: ctx.publish("out", "x" * 501), "a message id is text"),
        (lambda ctx: ctx.publish("out", "x", object()), "cannot be written as JSON"),
        (lambda ctx: ctx.publish("out", "x", "y" * 3_000_000), "the limit is"),
        (lambda ctx: ctx.publish("out", "x", input=object()), "iterable"),
        (lambda ctx: ctx.call("nothing"), "is not a tool"),
    ],
)
async def test_bad_calls_of_a_producer_are_logic_failures_and_publish_nothing(
    database_url: str, call: Any, complaint: str
) -> None:
    app = Rota(**QUIET)
    auto = plain(app, "line")
    out = auto.topic("out")
    auto.topic("work", external=True)

    async def poll(ctx: Context, state: Any) -> None:
        ctx.publish(out, "before")
        call(ctx)

    auto.producer(every="1d", publishes=[out])(poll)
    auto.consumer("sink", subscribes=[out, "work"], prepare=_nothing)
    async with virtual(app, url=database_url) as world:
        await world.settle()
        assert await open_run_state(app) == "waiting:logic"
        assert complaint in (await app.automations.show("line")).sentence
        assert await app.automations.events("line") == []
        await sound(app)


async def test_a_state_that_is_too_big_is_refused_and_nothing_is_lost(database_url: str) -> None:
    app = Line(payload_bytes_max=1024)
    async with begun(app, database_url) as world:

        async def emit(ctx: Context, prepared: Prepared, mutation: Any) -> Any:
            return "x" * 2000

        good = app.line.handlers["worker"].functions["next"]
        app.line.handlers["worker"].functions["next"] = emit
        await app.feed("e1")
        await world.settle()
        assert await last(app, 1) == ["emitting failed:logic"]
        assert "the limit is 1,024" in (await app.automations.show("line")).sentence
        app.line.handlers["worker"].functions["next"] = good
        await app.automations.resolve("line")
        await world.settle()
        assert app.outside.calls == 1
        assert await event_statuses(app) == {"e1": "consumed"}


async def test_one_event_goes_to_several_topics_together(database_url: str) -> None:
    app = Rota(**QUIET)
    auto = plain(app, "line")
    topics = [auto.topic("x"), auto.topic("y")]

    async def poll(ctx: Context, state: Any) -> None:
        ctx.publish(topics, "m1", 5)

    auto.producer(every="1d", publishes=topics)(poll)
    auto.consumer("sink", subscribes=topics, prepare=_nothing)
    async with virtual(app, url=database_url) as world:
        await world.settle()
        found = await app.automations.events("line")
        assert sorted((one.topic, one.message_id) for one in found) == [("x", "m1"), ("y", "m1")]
        assert len(await app.automations.inputs("line")) == 1


async def test_several_events_with_one_id_in_one_run_are_one(database_url: str) -> None:
    app = Rota(**QUIET)
    auto = plain(app, "line")
    out = auto.topic("out")

    async def poll(ctx: Context, state: Any) -> None:
        for n in range(3):
            ctx.publish(out, "same", n)

    auto.producer(every="1d", publishes=[out])(poll)
    auto.consumer("sink", subscribes=[out], prepare=_nothing)
    async with virtual(app, url=database_url) as world:
        await world.settle()
        assert await payloads(app) == {"same": "2"}


async def test_an_event_can_be_skipped_while_it_is_pending(database_url: str) -> None:
    app = Line()
    app.take = 0
    async with begun(app, database_url, "e1"):
        await app.automations.skip_event("line", "work", "e1")
        assert await event_statuses(app) == {"e1": "skipped"}
        with pytest.raises(WrongState, match="is skipped"):
            await app.automations.skip_event("line", "work", "e1")
        with pytest.raises(BadInput, match="no event work/e9"):
            await app.automations.skip_event("line", "work", "e9")


async def test_the_database_itself_refuses_impossible_rows(database_url: str) -> None:
    """Constraints made from the tables, for every writer."""
    app = Line()
    bad = [
        "update events set status = 'reserved'",
        "update events set status = 'gone'",
        "update automations set status = 'error'",
        "update handlers set cleared = marked + 1",
        "update handlers set next_run_at = 1",
        "update handler_runs set phase = 'executing'",
        "update handler_runs set phase = 'thinking'",
        (
            "insert into events (id, namespace, automation, topic, message_id, payload, status,"
            " created_at, updated_at) select 'x', namespace, automation, topic, message_id,"
            " payload, 'pending', 0, 0 from events"
        ),
        "update events set topic = 'nowhere'",
        "update mutations set status = 'maybe'",
        (
            "insert into mutations (id, root_id, run_id, namespace, automation, handler, tool,"
            " safety, params, status, created_at, updated_at) select 'x', root_id, run_id,"
            " namespace, automation, handler, tool, safety, params, 'in_flight', 0, 0"
            " from mutations"
        ),
    ]
    async with begun(app, database_url, "e1"):
        for text in bad:
            with pytest.raises(Exception, match=r"(?i)constraint|unique|foreign"):
                await sql(app, text)
        await sound(app)
