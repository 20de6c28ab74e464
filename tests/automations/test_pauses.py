"""Pauses and the archive of automations, on both databases."""

from __future__ import annotations

import pytest

from rota import Transient
from rota.errors import WrongState
from tests.automations.kit import (
    Line,
    begun,
    event_statuses,
    last,
    open_run_state,
    raising,
    sound,
)


async def test_a_paused_automation_begins_nothing_and_resumes_where_it_was(
    database_url: str,
) -> None:
    app = Line()
    async with begun(app, database_url) as world:
        await app.automations.pause("line")
        await app.feed("e1")
        await world.advance("1d")
        assert app.prepared == []
        view = await app.automations.show("line")
        assert (view.status, view.sentence) == ("Stopped", "Paused by you")
        with pytest.raises(WrongState, match="is paused"):
            await app.automations.run_now("line")
        await app.automations.resume("line")
        await world.settle()
        assert await event_statuses(app) == {"e1": "consumed"}
        await sound(app)


async def test_a_pause_during_a_run_lets_it_end_and_is_no_error(database_url: str) -> None:
    app = Line()
    async with begun(app, database_url) as world:

        async def pause() -> None:
            await app.automations.pause("line")

        app.in_prepare = pause
        await app.feed("e1", "e2")
        await world.advance("1h")
        assert await last(app, 1) == ["committed committed"]
        assert await event_statuses(app) == {"e1": "consumed", "e2": "pending"}
        assert await open_run_state(app) == "sleeping:paused"
        app.in_prepare = None
        await app.automations.resume("line")
        await world.settle()
        assert set((await event_statuses(app)).values()) == {"consumed"}


async def test_a_pause_during_a_back_off_keeps_the_retry(database_url: str) -> None:
    app = Line()
    async with begun(app, database_url) as world:
        app.in_next = raising(Transient("down"))
        await app.feed("e1")
        await world.settle()
        await app.automations.pause("line")
        await world.advance("1h")
        assert await open_run_state(app) == "sleeping:paused"
        await app.automations.resume("line")
        await world.settle()
        assert app.done == [["e1"]]
        assert app.outside.calls == 1
        assert await event_statuses(app) == {"e1": "consumed"}
        await sound(app)


async def test_an_archived_automation_is_left_out_and_comes_back(database_url: str) -> None:
    app = Line()
    async with begun(app, database_url):
        await app.automations.archive("line")
        assert await app.automations.list() == []
        [one] = await app.automations.list(archived=True)
        assert one.status == "Stopped"
        await app.automations.resume("line")
        assert [one.automation.name for one in await app.automations.list()] == ["line"]
