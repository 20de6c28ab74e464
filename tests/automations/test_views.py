"""The views of people: what came in and what happened to it, status and sentence, activity."""

from __future__ import annotations

from typing import Any

import pytest

from rota import Rota
from rota.automations import Change, Context, Prepared
from rota.errors import BadInput, OutcomeUnknown, UnknownInput, WrongState
from rota.testing import virtual
from tests.automations.kit import (
    QUIET,
    UNSURE,
    Line,
    begun,
    event_statuses,
    plain,
    raising,
    sound,
    started,
)


class Stages(Rota):
    """Mails are read by `poll`, sorted by `sort` and filed by `file`, one by one."""

    def __init__(self) -> None:
        super().__init__(**QUIET)
        self.mails = ["a", "b"]
        self.merge = False
        auto = plain(self, "line")
        self.mail, self.sorted_ = auto.topic("mail"), auto.topic("sorted")
        from tests.automations.kit import Outside

        self.outside = Outside()

        @auto.producer(every="1h", publishes=[self.mail])
        async def poll(ctx: Context, state: Any) -> None:
            for one in self.mails:
                came_in = ctx.input("gmail", "mail", one, f"Mail {one}")
                ctx.publish(self.mail, one, {"n": one}, input=came_in)

        async def emit(ctx: Context, prepared: Prepared, mutation: Any) -> None:
            if prepared.events:
                name = "+".join(one.id for one in prepared.events)
                ctx.publish(self.sorted_, name, name)

        async def change(ctx: Context, prepared: Prepared) -> Change:
            return self.outside.change(what=[one.id for one in prepared.events])

        auto.consumer(
            "sort", subscribes=[self.mail], publishes=[self.sorted_], prepare=self._take(self.mail),
            next=emit,
        )  # fmt: skip
        auto.consumer(
            "file", subscribes=[self.sorted_], prepare=self._take(self.sorted_), mutate=change
        )

    def _take(self, topic: Any) -> Any:
        async def prepare(ctx: Context, state: Any) -> Prepared:
            events = await ctx.peek(topic)
            return Prepared(events if self.merge else events[:1], title="File mail")

        return prepare


async def test_an_input_is_followed_through_all_stages_to_its_output(database_url: str) -> None:
    app = Stages()
    async with virtual(app, url=database_url) as world:
        await world.settle()
        seen = await app.automations.inputs("line")
        assert [(one.input.title, one.status) for one in seen] == [
            ("Mail b", "done"),
            ("Mail a", "done"),
        ]
        one, led_to = await app.automations.outcome("line", seen[0].input.id)
        assert one.event_count == 2
        assert [(row.tool, row.status, row.params) for row in led_to] == [
            ("outside", "applied", '{"what":["b"]}')
        ]
        back = await app.automations.inputs_of(led_to[0].id)
        assert [row.title for row in back] == ["Mail b"]
        await sound(app)


async def test_an_output_of_several_inputs_names_them_all(database_url: str) -> None:
    app = Stages()
    app.merge = True
    async with virtual(app, url=database_url) as world:
        await world.settle()
        [output] = await app.automations.outputs("line")
        found = await app.automations.inputs_of(output.id)
        assert sorted(row.title for row in found) == ["Mail a", "Mail b"]


async def test_an_input_is_pending_until_all_its_events_are_done(database_url: str) -> None:
    app = Line()
    app.take = 0
    async with begun(app, database_url, "e1") as world:
        [one] = await app.automations.inputs("line")
        assert (one.input.source, one.input.type, one.status) == ("external", "work", "pending")
        assert [x.input.id for x in await app.automations.pending("line")] == [one.input.id]
        assert await app.automations.stale("line") == []
        await world.advance("8d")
        assert len(await app.automations.stale("line")) == 1


async def test_an_input_without_events_is_not_done(database_url: str) -> None:
    app = Rota(**QUIET)
    auto = plain(app, "line")
    out = auto.topic("out")

    async def poll(ctx: Context, state: Any) -> None:
        ctx.input("gmail", "mail", "7", "Hello")

    async def idle(ctx: Context, state: Any) -> None: ...

    auto.producer(every="1h", publishes=[out])(poll)
    auto.consumer("sink", subscribes=[out], prepare=idle)
    async with virtual(app, url=database_url) as world:
        await world.advance("2h")
        [one] = await app.automations.inputs("line")
        assert (one.status, one.event_count) == ("pending", 0)


async def test_the_title_of_an_input_is_refreshed(database_url: str) -> None:
    app = Line()
    app.take = 0
    async with begun(app, database_url):
        for n in (1, 2):
            await app.automations.publish("line", "work", "e1", n, title=f"Title {n}")
        [one] = await app.automations.inputs("line")
        assert one.input.title == "Title 2"


async def test_skipping_an_input_skips_what_it_leads_to(database_url: str) -> None:
    app = Line()
    app.take = 0
    async with begun(app, database_url, "e1", "e2"):
        first = (await app.automations.inputs("line"))[-1].input.id
        assert await app.automations.skip_input("line", first) == 1
        assert await event_statuses(app) == {"e1": "skipped", "e2": "pending"}
        states = [one.status for one in await app.automations.inputs("line")]
        assert states == ["pending", "skipped"]
        with pytest.raises(BadInput):
            await app.automations.skip_input("line", first)
        await sound(app)


async def test_what_a_skipped_input_still_leads_to_is_created_skipped(database_url: str) -> None:
    app = Stages()
    app.mails = ["a"]
    async with virtual(app, url=database_url) as world:

        async def skip(ctx: Context, prepared: Prepared, mutation: Any) -> None:
            if prepared.events:
                [one] = await app.automations.inputs("line")
                await app.automations.skip_input("line", one.input.id)
                ctx.publish(app.sorted_, "late")

        app.automations.declared["line"].handlers["sort"].functions["next"] = skip
        await world.settle()
        assert await event_statuses(app) == {"a": "consumed", "late": "skipped"}
        assert app.outside.calls == 0


async def test_the_words_of_a_life(database_url: str) -> None:
    app = Line()

    async def poll(ctx: Context, state: Any) -> None: ...

    app.line.producer(every="5m", publishes=["work"])(poll)
    async with virtual(app, url=database_url) as world:
        said: list[tuple[str, str]] = []

        async def note() -> None:
            view = await app.automations.show("line")
            said.append((view.status, view.sentence))

        await note()
        await started(world, app)
        await world.advance("2m")
        await note()
        app.in_prepare = note
        await app.feed("e1")
        await world.settle()
        app.in_prepare = raising(ValueError("bug"))
        await app.feed("e2")
        await world.settle()
        await note()
        await app.automations.pause("line")
        await note()
        await app.automations.resolve("line")
        await note()
        assert said == [
            ("Running", "Waiting for a worker"),
            ("Idle", "Next check in 3 min"),
            ("Running", "Running now"),
            ("Needs attention", "The code failed: bug"),
            ("Needs attention", "The code failed: bug"),
            ("Stopped", "Paused by you"),
        ]
        view = await app.automations.show("line")
        assert view.schedule == "Checks every 5 minutes"
        assert view.pending == {"work": 1}


async def test_activity_shows_what_each_run_did(database_url: str) -> None:
    app = Line()
    async with begun(app, database_url, "e1"):
        [run] = await app.automations.activity("line", limit=1)
        assert (run.run.handler, run.run.cause, run.run.reserved_count) == ("worker", "event", 1)
        assert (run.run.state_before, run.run.state_after) == ("1", "1")
        touched = await app.automations.touched(run.run.run_id)
        assert [(one.message_id, one.act) for one in touched] == [
            ("e1", "reserved"),
            ("e1", "consumed"),
        ]


async def test_open_runs_are_steered_by_the_verbs_of_automations(database_url: str) -> None:
    app = Line()
    async with begun(app, database_url):
        [run] = await app.runs.list(name="line", status="sleeping")
        for verb in (app.runs.cancel, app.runs.retry):
            with pytest.raises(WrongState, match="a run of the automation line"):
                await verb(run.id)
        assert len(await app.runs.chain(run.id)) == 1


async def test_old_handler_runs_are_pruned_and_what_dedup_needs_stays(database_url: str) -> None:
    app = Line(keep_days=1)
    async with begun(app, database_url, "e1") as world:
        assert len(await app.automations.activity("line")) == 2
        await world.advance("3d")
        await world.beat()
        assert await app.automations.activity("line") == []
        assert await event_statuses(app) == {"e1": "consumed"}
        await app.feed("e1", "e2")
        await world.settle()
        assert app.done == [["e1"], ["e2"]]
        await sound(app)


async def test_an_input_whose_events_were_all_skipped_is_skipped(database_url: str) -> None:
    app = Line()
    async with begun(app, database_url) as world:
        await app.automations.pause("line")
        await app.feed("e1", "e2")
        await app.automations.skip_event("line", "work", "e1")
        await app.automations.resume("line")
        await world.settle()
        found = {one.input.external_id: one.status for one in await app.automations.inputs("line")}
        assert found == {"e1": "skipped", "e2": "done"}


async def test_the_outcome_of_an_unknown_input_points_at_the_list_of_inputs(
    database_url: str,
) -> None:
    app = Line()
    async with begun(app, database_url):
        with pytest.raises(UnknownInput, match="has no input nope") as reported:
            await app.automations.outcome("line", "nope")
        assert "`rota automation inputs line`" in reported.value.advice


async def test_a_run_that_was_in_doubt_and_committed_complains_no_more(database_url: str) -> None:
    app = Line()
    async with begun(app, database_url) as world:
        app.outside.after = raising(OutcomeUnknown("the line broke"))
        app.outside.verdict = UNSURE
        await app.feed("e1")
        await world.settle()
        assert "the line is dead" in str((await app.automations.activity("line"))[0].error)
        app.outside.verdict = None
        await world.advance("1m")
        [run] = await app.automations.activity("line", limit=1)
        assert (run.status, run.error, run.run.error_kind) == ("completed", None, None)
