"""A person's answer: it is about what was shown, and every action that is shown clears the way."""

from __future__ import annotations

from typing import Any

import pytest

from rota import Transient
from rota.core.runs.stored_errors import read_error
from rota.errors import NeedsLogin, NeedsPermission, OutcomeUnknown, WrongState
from rota.testing import virtual
from rota.tools import Safety
from tests.automations.kit import (
    UNSURE,
    Line,
    begun,
    dying,
    event_statuses,
    open_run_state,
    raising,
    sound,
)


@pytest.mark.parametrize("verb", ["approve", "reject"])
async def test_nobody_answers_for_other_parameters_than_those_shown(
    database_url: str, verb: str
) -> None:
    app = Line(approval=True)
    async with begun(app, database_url, "e1") as world:
        seen = (await app.automations.show("line")).mutation
        assert seen is not None
        await app.automations.publish("line", "work", "e1", {"id": "other"})
        app.in_mutate = raising(ValueError("a bug"))
        await app.automations.approve("line", expected=seen.id)  # a colleague was faster
        await world.settle()
        await app.automations.resolve("line")
        await world.settle()
        other = (await app.automations.show("line")).mutation
        assert other is not None
        assert other.params != seen.params
        with pytest.raises(WrongState, match="nothing was changed") as reported:
            await getattr(app.automations, verb)("line", expected=seen.id)
        assert "rota automation show line" in reported.value.advice
        assert await open_run_state(app) == "waiting:approval"
        assert app.outside.effects == []
        row = await getattr(app.automations, verb)("line", expected=other.id)
        assert row.id == other.id
        await world.settle()
        assert len(app.outside.effects) == (1 if verb == "approve" else 0)
        await sound(app)


async def test_an_answer_may_name_the_run_instead(database_url: str) -> None:
    app = Line(Safety.UNKNOWABLE)
    async with begun(app, database_url) as world:
        app.outside.after = raising(OutcomeUnknown("lost"))
        await app.feed("e1")
        await world.settle()
        view = await app.automations.show("line")
        assert view.open_run is not None
        with pytest.raises(WrongState, match="nothing was changed"):
            await app.automations.resolve("line", "skip", expected="another")
        assert await open_run_state(app) == "waiting:reconciliation"
        await app.automations.resolve("line", "skip", expected=view.open_run.id)
        await world.settle()
        assert await open_run_state(app) == "sleeping:event"
        await sound(app)


# -- skip --------------------------------------------------------------------------------------


async def test_a_failure_in_prepare_is_skipped_with_the_event_that_is_named(
    database_url: str,
) -> None:
    app = Line()
    async with begun(app, database_url) as world:
        app.in_prepare = raising(ValueError("cannot read the first one"))
        await app.feed("e1", "e2")
        await world.settle()
        view = await app.automations.show("line")
        assert view.said.actions == ("try-again", "skip", "deploy")
        assert [(one.topic, one.message_id) for one in view.skips] == [("work", "e1")]
        skipped = await app.automations.resolve("line", "skip")
        assert [one.message_id for one in skipped] == ["e1"]
        await world.settle()
        assert await event_statuses(app) == {"e1": "skipped", "e2": "consumed"}
        await sound(app)


async def test_skip_is_offered_only_where_there_is_something_to_skip(database_url: str) -> None:
    app = Line()
    async with virtual(app, url=database_url) as world:
        app.in_prepare = raising(ValueError("nothing came, and that is too much"), 2)
        await world.settle()
        view = await app.automations.show("line")
        assert (view.said.actions, view.skips) == (("try-again", "deploy"), ())
        with pytest.raises(WrongState, match="no event to skip"):
            await app.automations.resolve("line", "skip")
        assert await open_run_state(app) == "waiting:logic"
        await app.feed("e1")
        assert "skip" in (await app.automations.show("line")).said.actions
        await app.automations.skip_event("line", "work", "e1")
        assert "skip" not in (await app.automations.show("line")).said.actions


async def test_what_a_producer_failed_at_cannot_be_skipped(database_url: str) -> None:
    app = Line()

    async def poll(ctx: Any, state: Any) -> None:
        raise ValueError("bug")

    app.line.producer(every="1h", publishes=[app.work])(poll)
    async with virtual(app, url=database_url) as world:
        await world.settle()
        await app.feed("e1")
        assert (await app.automations.show("line")).said.actions == ("try-again", "deploy")
        with pytest.raises(WrongState, match="no event to skip"):
            await app.automations.resolve("line", "skip")


async def test_after_the_change_skip_is_not_offered(database_url: str) -> None:
    app = Line()
    async with begun(app, database_url) as world:
        app.in_next = raising(ValueError("bug in next"))
        await app.feed("e1", "e2")
        await world.settle()
        assert (await app.automations.show("line")).said.actions == ("try-again", "deploy")


async def test_what_was_skipped_by_name_is_not_replaced_by_another(database_url: str) -> None:
    app = Line()
    async with begun(app, database_url) as world:
        app.in_mutate = raising(ValueError("not this one"))
        await app.feed("e1", "e2")
        await world.settle()
        await app.automations.skip_event("line", "work", "e1")
        view = await app.automations.show("line")
        assert (view.said.actions, view.skips) == (("try-again", "deploy"), ())


@pytest.mark.parametrize("moment", ["in_prepare", "in_mutate"])
async def test_an_event_that_kills_workers_can_be_skipped(database_url: str, moment: str) -> None:
    app = Line(recoveries_max=2)
    async with begun(app, database_url) as world:
        setattr(app, moment, dying(app, times=9))
        await app.feed("e1", "e2")
        await world.settle()
        view = await app.automations.show("line")
        assert await open_run_state(app) == "waiting:crashes"
        assert [one.message_id for one in view.skips] == ["e1"]
        assert "skip" in view.said.actions
        setattr(app, moment, None)
        await app.automations.resolve("line", "skip")
        await world.settle()
        assert await event_statuses(app) == {"e1": "skipped", "e2": "consumed"}
        await sound(app)


async def test_only_what_is_offered_is_taken_for_an_answer(database_url: str) -> None:
    app = Line(failures_max=0)
    async with begun(app, database_url) as world:
        app.in_prepare = raising(Transient("down"))
        await app.feed("e1")
        await world.settle()
        assert (await app.automations.show("line")).said.actions == ("try-again", "skip")
        with pytest.raises(WrongState, match="it has no side effect with an unknown outcome"):
            await app.automations.resolve("line", "did-not-happen")


# -- what is said ------------------------------------------------------------------------------


async def test_what_the_tool_said_stays_visible_while_nobody_knows(database_url: str) -> None:
    app = Line(reconcile_max=2)
    async with begun(app, database_url) as world:
        app.outside.after = raising(OutcomeUnknown("the line broke after DATA"))
        app.outside.verdict = UNSURE
        await app.feed("e1")
        await world.settle()
        for status in ("needs_reconcile", "indeterminate"):
            [row] = await app.automations.outputs("line")
            assert row.status == status
            assert read_error(row.error)["message"] == "the line broke after DATA"
            [run] = await app.automations.activity("line", limit=1)
            assert "the line is dead" in read_error(run.error)["message"]
            await world.advance("1h")


async def test_a_change_that_only_a_person_can_settle_keeps_the_words_of_its_tool(
    database_url: str,
) -> None:
    app = Line(Safety.UNKNOWABLE)
    async with begun(app, database_url) as world:
        app.outside.after = raising(OutcomeUnknown("the line broke after DATA"))
        await app.feed("e1")
        await world.settle()
        [row] = await app.automations.outputs("line")
        assert row.status == "indeterminate"
        assert read_error(row.error)["message"] == "the line broke after DATA"


async def test_a_change_whose_worker_died_says_so(database_url: str) -> None:
    app = Line(Safety.UNKNOWABLE)
    async with begun(app, database_url) as world:
        app.outside.after = dying(app)
        await app.feed("e1")
        await world.settle()
        [row] = await app.automations.outputs("line")
        assert row.status == "indeterminate"
        assert "its worker stopped during the call" in read_error(row.error)["message"]


async def test_an_open_run_that_no_worker_has_taken_waits_for_one(database_url: str) -> None:
    app = Line()
    seen: list[str] = []
    async with begun(app, database_url) as world:

        async def look() -> None:
            seen.append((await app.automations.show("line")).sentence)

        app.in_prepare = look
        await app.feed("e1")
        seen.append((await app.automations.show("line")).sentence)
        await world.settle()
    assert seen[:2] == ["Waiting for a worker", "Running now"]


async def test_a_crash_that_may_not_be_recovered_shows_a_reason_and_what_clears_it(
    database_url: str,
) -> None:
    app = Line(recoveries_max=0)
    async with begun(app, database_url) as world:
        app.in_mutate = dying(app)
        await app.feed("e1")
        await world.settle()
        view = await app.automations.show("line")
        assert (view.status, view.said.actions) == (
            "Needs attention", ("try-again", "skip"),
        )  # fmt: skip
        assert view.sentence.startswith("It crashed its worker too often")
        assert await open_run_state(app) == "waiting:crashes"
        await sound(app)
        await app.automations.resolve("line")
        await world.settle()
        assert await event_statuses(app) == {"e1": "consumed"}
        await sound(app)


async def test_run_now_that_is_refused_says_where_to_look(database_url: str) -> None:
    app = Line()
    async with begun(app, database_url) as world:
        app.in_prepare = raising(ValueError("bug"))
        await app.feed("e1")
        await world.settle()
        with pytest.raises(WrongState) as reported:
            await app.automations.run_now("line")
        assert "`rota automation show line`" in reported.value.advice


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (
            NeedsLogin("token expired", service="Gmail", account="ann@example.com"),
            "renew credentials for Gmail (account ann@example.com): token expired",
        ),
        (NeedsLogin("token expired", service="Gmail", account=None), "for Gmail: token expired"),
        (NeedsLogin("token expired"), "renew credentials: token expired"),
        (NeedsPermission("no", service="Drive"), "grant a permission for Drive: no"),
    ],
)
async def test_the_sentence_names_service_and_account(
    database_url: str, error: Exception, sentence: str
) -> None:
    app = Line()
    app.outside.before = raising(error)
    async with begun(app, database_url, "e1"):
        assert sentence in (await app.automations.show("line")).sentence
