"""Declaring and deploying: the whole graph is checked, all problems are reported at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from rota import Rota
from rota.automations import Automation, Change, Context, Prepared
from rota.errors import BadAutomation, UnknownAutomation, UsageError
from rota.testing import virtual
from tests.automations.kit import QUIET, Line, begun, open_run_state, plain, sound, started


async def produce(ctx: Context, state: Any) -> None: ...


async def prepare(ctx: Context, state: Any) -> None: ...


async def emit(ctx: Context, prepared: Any, mutation: Any) -> None: ...


async def change(ctx: Context, prepared: Any) -> None: ...


def problems(auto: Automation) -> list[str]:
    with pytest.raises(BadAutomation) as caught:
        auto.version(now=0)
    found = caught.value.facts["problems"]
    assert isinstance(found, list)
    assert all(one in str(caught.value) for one in found)
    return found


def test_all_problems_are_reported_at_once() -> None:
    auto = plain(Rota(**QUIET), "1bad name")
    auto.topic("lonely")
    auto.topic("twice", external=True)
    auto.producer(every="often", publishes=["nowhere"], name="poll")(produce)
    auto.consumer("a", subscribes=["twice"], publishes=["lonely"], prepare=prepare)
    auto.consumer("b", subscribes=["twice"], prepare=prepare)
    auto.consumer("b", subscribes=[], prepare=prepare)
    found = "\n".join(problems(auto))
    for reported in (
        "automation '1bad name': a name has",
        "handler b is declared twice",
        "producer poll publishes to nowhere, which is not one of its topics",
        "consumer a publishes, but has no `next`",
        "consumer b subscribes to nothing",
        "topic lonely has no reader",
        "topic twice has more than one consumer: a, b",
        "producer poll: ",
    ):
        assert reported in found


def test_a_topic_that_nobody_feeds_is_a_problem_unless_it_is_external() -> None:
    auto = plain(Rota(**QUIET))
    auto.topic("quiet")
    auto.consumer("a", subscribes=["quiet"], prepare=prepare)
    assert problems(auto) == [
        "topic quiet has no producer; say external=True if others publish to it"
    ]


def test_an_automation_without_handlers_is_a_problem() -> None:
    assert problems(plain(Rota(**QUIET))) == ["it has neither a producer nor a consumer"]


def test_a_circle_that_never_drains_is_a_problem() -> None:
    auto = plain(Rota(**QUIET))
    for name in ("x", "y"):
        auto.topic(name, external=name == "x")
    auto.consumer("a", subscribes=["x"], publishes=["y"], prepare=prepare, next=emit)
    auto.consumer("b", subscribes=["y"], publishes=["x"], prepare=prepare, next=emit)
    assert problems(auto) == ["consumers a, b only publish to each other: they would never drain"]


def test_a_circle_that_nothing_feeds_is_a_problem() -> None:
    auto = plain(Rota(**QUIET))
    for name in ("x", "y"):
        auto.topic(name)
    words: dict[str, Any] = {"prepare": prepare, "mutate": change, "next": emit}
    auto.consumer("a", subscribes=["x"], publishes=["y"], **words)
    auto.consumer("b", subscribes=["y"], publishes=["x"], **words)
    assert problems(auto) == ["consumers a, b wait for each other: nothing else feeds them"]


def test_a_retry_topic_beside_a_real_one_is_no_problem() -> None:
    auto = plain(Rota(**QUIET))
    auto.topic("work", external=True)
    auto.topic("again")
    auto.consumer(
        "a", subscribes=["work", "again"], publishes=["again"], prepare=prepare, mutate=change,
        next=emit,
    )  # fmt: skip
    assert auto.version(now=0).name == "plain"


def test_a_consumer_class_without_prepare_is_a_problem() -> None:
    auto = plain(Rota(**QUIET))
    topic = auto.topic("work", external=True)

    @auto.consumer(subscribes=[topic])
    class Hasty:
        async def mutate(self, ctx: Context, prepared: Prepared) -> None: ...

    assert problems(auto) == ["consumer Hasty has no `prepare`"]


def test_a_bad_zone_or_cron_is_a_problem() -> None:
    auto = plain(Rota(**QUIET))
    topic = auto.topic("work")
    auto.producer(cron="61 * * * *", publishes=[topic], name="cron")(produce)
    auto.producer(every="5m", publishes=[topic], name="zone", timezone="Mars/Base")(produce)
    auto.consumer("a", subscribes=[topic], prepare=prepare)
    found = problems(auto)
    assert len(found) == 2
    assert found[0].startswith("producer cron: ")
    assert "Mars/Base" in found[1]


def test_a_producer_has_one_schedule() -> None:
    auto = plain(Rota(**QUIET))
    both: dict[str, Any] = {"every": "5m", "cron": "* * * * *"}
    for words in ({}, both):
        with pytest.raises(UsageError, match=r"either every= or cron="):
            auto.producer(publishes=["x"], **words)


def test_names_are_taken_once() -> None:
    app = Rota(**QUIET)
    app.automation("inbox")
    with pytest.raises(UsageError, match="declared twice"):
        app.automation("inbox")

    @app.workflow(name="flow")
    async def flow() -> None: ...

    with pytest.raises(UsageError, match="declared twice"):
        app.automation("flow")
    with pytest.raises(UsageError, match="registered twice"):
        app.workflow(name="inbox")(prepare)


async def test_what_cannot_be_deployed_leaves_everything_as_it_was(database_url: str) -> None:
    app = Line()
    async with begun(app, database_url) as world:
        app.line.topic("lonely")
        with pytest.raises(BadAutomation):
            await app.automations.deploy("line")
        view = await app.automations.show("line")
        assert view.automation.version == 1
        await app.feed("e1")
        await world.settle()
        assert app.done == [["e1"]]


async def test_one_bad_automation_keeps_no_other_from_running(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = Line()
    plain(app, "broken")
    async with begun(app, database_url, "e1"):
        assert app.done == [["e1"]]
        assert "automation broken cannot be deployed" in caplog.text
        with pytest.raises(UnknownAutomation):
            await app.automations.show("broken")


async def test_a_deploy_of_the_same_code_changes_nothing(database_url: str) -> None:
    app = Line()
    async with begun(app, database_url) as world:
        assert await app.automations.deploy("line") == (1, 1, (), False)
        await world.settle()
        assert app.prepared == []
        assert await open_run_state(app) == "sleeping:event"
        assert len(await app.automations.versions("line")) == 1


async def test_an_unknown_automation_is_named_with_its_nearest(database_url: str) -> None:
    app = Line()
    async with begun(app, database_url):
        with pytest.raises(UnknownAutomation, match="lime") as caught:
            await app.automations.pause("lime")
        assert "line" in caught.value.advice
        with pytest.raises(UnknownAutomation):
            await app.automations.deploy("lime")


async def test_a_worker_with_older_code_leaves_the_automation_to_others(database_url: str) -> None:
    old = Line()
    async with virtual(old, url=database_url) as world:
        await started(world, old)
        new = Line(mutates=False)
        new.url, new.clock = old.url, old.clock
        await new.connect()
        assert (await new.automations.deploy("line")).version == 2
        await old.feed("e1")
        await world.settle()
        assert old.prepared == []
        assert await open_run_state(old) == "pending"
        await new.close()
        await sound(old)


class Mail(msgspec.Struct):
    """A typed payload."""

    sender: str
    size: int = 0


async def test_payloads_are_checked_by_the_type_of_their_topic(database_url: str) -> None:
    app = Rota(**QUIET)
    auto = plain(app)
    mail = auto.topic("mail", Mail, external=True)
    seen: list[Any] = []

    @auto.consumer(subscribes=[mail])
    class Reader:
        async def prepare(self, ctx: Context, state: Any) -> Prepared:
            events = await ctx.peek(mail)
            seen.extend(one.payload for one in events)
            return Prepared(events)

    async with virtual(app, url=database_url) as world:
        await world.settle()
        with pytest.raises(UsageError, match="sender"):
            await app.automations.publish("plain", "mail", "1", {"size": 3})
        await app.automations.publish("plain", "mail", "2", Mail("ann"))
        await world.settle()
        assert seen == [Mail("ann")]


async def test_handlers_share_nothing_but_topics(database_url: str) -> None:
    """A class is made again for every phase; state goes by value."""
    app = Rota(**QUIET)
    auto = plain(app)
    topic = auto.topic("work", external=True)
    seen: list[Any] = []

    @auto.consumer(subscribes=[topic])
    class Leaky:
        memory: list[str]

        async def prepare(self, ctx: Context, state: Any) -> Prepared:
            seen.append((hasattr(self, "memory"), state))
            self.memory = ["mine"]
            payload = {"list": [1]}
            events = await ctx.peek(topic)
            return Prepared(events, payload)

        async def next(self, ctx: Context, prepared: Prepared, mutation: Any) -> Any:
            seen.append(hasattr(self, "memory"))
            prepared.data["list"].append(2)
            return prepared.data

    async with virtual(app, url=database_url) as world:
        await world.settle()
        await app.automations.publish("plain", "work", "1")
        await world.settle()
        assert seen == [(False, None), False, (False, {"list": [1, 2]}), False]


async def test_sync_handlers_run_in_threads_with_the_same_words(database_url: str) -> None:
    app = Line()

    def prepare(ctx: Context, state: Any) -> Prepared:
        events = ctx.peek("work")
        return Prepared(events, [one.id for one in events])

    def mutate(ctx: Context, prepared: Prepared) -> Change:
        return app.outside.change(items=prepared.data)

    def emit(ctx: Context, prepared: Prepared, mutation: Any) -> Any:
        return mutation.status

    app.line.handlers["worker"].functions.update(prepare=prepare, mutate=mutate, next=emit)
    async with begun(app, database_url, "e1"):
        assert [params for _, params in app.outside.effects] == [{"items": ["e1"]}]
        assert (await app.automations.show("line")).handlers[0].state == '"applied"'
        await sound(app)


async def test_a_file_that_was_edited_after_its_import_deploys(
    database_url: str, tmp_path: Path
) -> None:
    """The source on disk is no longer Python; the loaded code is what counts."""
    file = tmp_path / "jobs.py"
    names: dict[str, Any] = {}
    exec(compile("async def poll(ctx, state):\n    return 1\n", str(file), "exec"), names)
    file.write_text("async def poll(ctx, state):\n    return (1\n")
    app = Rota()
    inbox = app.automation("inbox")
    mail = inbox.topic("mail")
    inbox.producer(every="5m", publishes=[mail])(names["poll"])
    inbox.consumer("read", subscribes=[mail], prepare=prepare, mutate=change, next=emit)
    async with virtual(app, url=database_url) as world:
        await world.advance("1m")
        assert (await app.automations.show("inbox")).handlers[0].state == "1"
