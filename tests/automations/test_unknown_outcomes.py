"""Long outages: an idempotent tool is called again with its key for as long as it takes. Rota obeys
a counterpart that says when to come back.
"""

from __future__ import annotations

from typing import Any

import pytest

from rota.errors import NeedsLogin, NotSent, OutcomeUnknown, Rejected, WrongState
from rota.tools import Safety, Unknown
from tests.automations.kit import Line, begun, event_statuses, open_run_state, raising, sound

LOST = OutcomeUnknown("the answer never came")
ALWAYS = 1_000_000


@pytest.mark.slow
@pytest.mark.parametrize("error", [LOST, NotSent("refused"), TimeoutError("slow")], ids=str)
async def test_an_idempotent_tool_needs_no_person_however_long_the_outage_is(
    database_url: str, error: Exception
) -> None:
    app = Line(Safety.IDEMPOTENT)
    async with begun(app, database_url) as world:
        app.outside.before = raising(LOST)
        await app.feed("e1")
        app.outside.after = raising(error, ALWAYS)
        await world.advance("8h")
        assert await open_run_state(app) == "sleeping:reconciliation"
        view = await app.automations.show("line")
        assert view.status == "Running"
        assert view.sentence.startswith("Calling outside again with the same key in ")
        assert view.said.actions == ("try-again", "happened", "skip")
        assert await event_statuses(app) == {"e1": "reserved"}
        app.outside.before = app.outside.after = None
        await world.advance("10m")
        assert len(app.outside.effects) == 1
        assert await event_statuses(app) == {"e1": "consumed"}
        assert [one.status for one in app.reported] == ["applied"]
        assert len(await app.automations.outputs("line")) == 1
        await sound(app)


async def test_the_pauses_of_an_outage_grow_to_the_longest_one_and_no_further(
    database_url: str,
) -> None:
    app = Line(Safety.IDEMPOTENT)
    async with begun(app, database_url) as world:
        app.outside.after = raising(LOST, ALWAYS)
        await app.feed("e1")
        await world.advance("1h")
        before = app.outside.calls
        await world.advance("1h")
        assert app.outside.calls - before == 6  # every backoff_s_max, which is 10 minutes
        assert len(set(app.outside.keys)) == 1


async def test_nobody_can_say_that_an_idempotent_change_did_not_happen(database_url: str) -> None:
    """The next run would have another key, and the change would be made twice."""
    app = Line(Safety.IDEMPOTENT)
    async with begun(app, database_url) as world:
        app.outside.after = raising(LOST, 3)
        await app.feed("e1")
        await world.settle()
        with pytest.raises(WrongState, match="called again with the same key"):
            await app.automations.resolve("line", "did-not-happen")
        await world.advance("1h")
        assert len(app.outside.effects) == 1
        assert await event_statuses(app) == {"e1": "consumed"}


@pytest.mark.parametrize("error", [Rejected("bad amount"), NeedsLogin("expired")], ids=str)
async def test_a_refusal_that_only_a_person_can_change_is_brought_to_one(
    database_url: str, error: Exception
) -> None:
    """A refusal of the second call says nothing about the first, so the key stays."""
    app = Line(Safety.IDEMPOTENT)
    async with begun(app, database_url) as world:
        app.outside.before = raising(LOST)
        app.outside.after = raising(error, ALWAYS)
        await app.feed("e1")
        await world.advance("1h")
        assert await open_run_state(app) == "waiting:reconciliation"
        said = (await app.automations.show("line")).said
        assert said.actions == ("try-again", "happened", "skip")
        assert str(error) in said.sentence
        with pytest.raises(WrongState, match="called again with the same key"):
            await app.automations.resolve("line", "did-not-happen")
        app.outside.after = None
        await app.automations.resolve("line", "try-again")
        await world.settle()
        assert len(app.outside.effects) == 1
        assert await event_statuses(app) == {"e1": "consumed"}
        await sound(app)


async def test_retry_after_of_an_unknown_outcome_is_obeyed_by_the_next_call(
    database_url: str,
) -> None:
    app = Line(Safety.IDEMPOTENT)
    async with begun(app, database_url) as world:
        app.outside.after = raising(OutcomeUnknown("503", retry_after_s=120), 2)
        await app.feed("e1")
        calls = []
        for pause in ("119s", "1s", "119s", "1s"):
            await world.advance(pause)
            calls.append(app.outside.calls)
        assert calls == [1, 2, 2, 3]
        assert len(app.outside.effects) == 1
        assert await event_statuses(app) == {"e1": "consumed"}


async def test_retry_after_of_an_unknown_outcome_is_obeyed_by_the_first_look(
    database_url: str,
) -> None:
    app = Line()
    app.outside.settle_s = 10.0
    async with begun(app, database_url) as world:
        app.outside.after = raising(OutcomeUnknown("503", retry_after_s=120))
        await app.feed("e1")
        await world.advance("119s")
        assert app.outside.looks == 0
        await world.advance("1s")
        assert (app.outside.looks, app.outside.calls) == (1, 1)
        assert await event_statuses(app) == {"e1": "consumed"}


async def test_a_look_that_says_when_to_come_back_is_obeyed(database_url: str) -> None:
    app = Line()
    app.outside.verdict = Unknown("busy", retry_after_s=300)
    async with begun(app, database_url) as world:
        app.outside.after = raising(LOST)
        await app.feed("e1")
        await world.advance("299s")
        assert app.outside.looks == 1
        app.outside.verdict = None
        await world.advance("1s")
        assert app.outside.looks == 2
        assert await event_statuses(app) == {"e1": "consumed"}


@pytest.mark.parametrize("asked", [float("nan"), float("inf"), -5, "soon", 10**400])
async def test_a_nonsensical_retry_after_does_no_harm(database_url: str, asked: Any) -> None:
    app = Line(Safety.IDEMPOTENT)
    async with begun(app, database_url) as world:
        app.outside.after = raising(OutcomeUnknown("503", retry_after_s=asked))
        await app.feed("e1")
        await world.advance("8d")
        assert len(app.outside.effects) == 1
        assert await event_statuses(app) == {"e1": "consumed"}
        await sound(app)
