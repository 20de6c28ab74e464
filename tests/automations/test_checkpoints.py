"""The durable state at each phase, and the effect of each status: the rows of the model's
tables.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from rota import NeedsLogin, Transient
from rota.core.time.instants import SECOND
from rota.errors import OutcomeUnknown, WrongState
from rota.testing import virtual
from tests.automations.kit import (
    UNSURE,
    Line,
    begun,
    event_statuses,
    last,
    open_run_state,
    raising,
    sound,
    takes_from_faulty,
)
from tests.kit import until


async def newest(app: Line) -> Any:
    return (await app.automations.activity("line", limit=1))[0].run


async def test_prepared_persists_the_plan_the_reservation_and_the_wake_time(
    database_url: str,
) -> None:
    app = Line()
    seen: list[Any] = []
    async with begun(app, database_url) as world:

        async def look() -> None:
            [handler] = (await app.automations.show("line")).handlers
            seen.append((await newest(app), await event_statuses(app), handler.wake_at))

        app.in_mutate = look
        app.wake_at = world.clock.moment() + timedelta(hours=1)
        await app.feed("e1")
        await world.settle()
        [(run, events, wake_at)] = seen
        assert run.phase == "prepared"
        plan = msgspec.json.decode(run.prepared)
        assert (plan["reservations"], plan["data"]) == ({"work": ["e1"]}, [{"id": "e1"}])
        assert events == {"e1": "reserved"}
        assert wake_at == plan["wake_at"] == world.clock.now() + 3600 * SECOND


async def test_mutated_persists_the_result_with_the_phase(database_url: str) -> None:
    app = Line()
    seen: list[Any] = []
    async with begun(app, database_url) as world:

        async def look() -> None:
            [row] = await app.automations.outputs("line")
            seen.append(((await newest(app)).phase, row.status, row.result))

        app.in_next = look
        await app.feed("e1")
        await world.settle()
        assert seen == [("mutated", "applied", '"done"')]


async def test_committed_persists_state_and_consumption(database_url: str) -> None:
    app = Line()
    async with begun(app, database_url, "e1"):
        [handler] = (await app.automations.show("line")).handlers
        assert handler.state == "1"
        assert (await newest(app)).phase == "committed"
        assert await event_statuses(app) == {"e1": "consumed"}


@pytest.mark.parametrize("point", ["next_run_at", "wake_at", "state"])
async def test_what_must_survive_a_restart_is_in_the_database(
    database_url: str, point: str
) -> None:
    async def poll(ctx: Any, state: Any) -> int:
        return (state or 0) + 1

    def made() -> Line:
        app = Line()
        app.line.producer(every="1h", publishes=["work"])(poll)
        return app

    first = made()
    async with virtual(first, url=database_url) as world:
        first.wake_at = world.clock.moment() + timedelta(hours=2)
        await world.settle()
        before = [getattr(one, point) for one in (await first.automations.show("line")).handlers]
        stopped_at = world.clock.now()
    second = made()
    async with virtual(second, url=database_url, start=stopped_at):
        after = [getattr(one, point) for one in (await second.automations.show("line")).handlers]
        assert after == before
        assert any(value is not None for value in after)


@pytest.mark.parametrize(
    ("trouble", "status", "waits", "cleared_by"),
    [
        pytest.param("transient", "paused:transient", "sleeping:transient", None,
                     id="paused:transient"),
        pytest.param("auth", "paused:approval", "waiting:auth", "try-again", id="paused:approval"),
        pytest.param("doubt", "paused:reconciliation", "sleeping:reconciliation", None,
                     id="paused:reconciliation"),
        pytest.param("logic", "failed:logic", "waiting:logic", "try-again", id="failed:logic"),
        pytest.param("internal", "failed:internal", "waiting:internal", "try-again",
                     id="failed:internal"),
    ],
)  # fmt: skip
async def test_each_status_pauses_the_automation_and_is_resolved_as_the_table_says(
    database_url: str, trouble: str, status: str, waits: str, cleared_by: Any
) -> None:
    app = Line()
    async with begun(app, database_url) as world:
        match trouble:
            case "transient":
                app.in_prepare = raising(Transient("down"))
            case "auth":
                app.in_prepare = raising(NeedsLogin("expired"))
            case "doubt":
                app.outside.after = raising(OutcomeUnknown("?"))
                app.outside.verdict = UNSURE
            case "internal":
                takes_from_faulty(app)
            case _:
                app.in_prepare = raising(ValueError("bug"))
        await app.feed("e1")
        await world.settle()
        assert (await last(app, 1))[0].split(" ")[1] == status
        assert await open_run_state(app) == waits
        await app.feed("e2")  # triggers accumulate
        await world.settle()
        assert await open_run_state(app) == waits
        with pytest.raises(WrongState):  # "Run now" is disabled
            await app.automations.run_now("line")
        app.outside.verdict = None
        app.line.handlers["worker"].functions["prepare"] = app._prepare
        if cleared_by is not None:
            await app.automations.resolve("line", cleared_by)
        await world.advance("10s")
        assert set((await event_statuses(app)).values()) == {"consumed"}
        assert len(app.outside.effects) == 2
        await sound(app)


async def test_two_workers_share_the_work_and_do_nothing_twice(database_url: str) -> None:
    """Real time, two workers on one database, one counterpart."""
    first, second = Line(url=database_url, migrate=True), Line(url=database_url, migrate=True)
    second.outside = first.outside
    async with first, second:
        await asyncio.gather(*(first.feed(f"e{n:02d}") for n in range(20)))

        async def all_used() -> bool:
            found = (await event_statuses(second)).values()
            return len(found) == 20 and set(found) == {"consumed"}

        await until(all_used, timeout_s=60)
        assert len(first.outside.effects) == 20
        assert len({params["items"][0]["id"] for _, params in first.outside.effects}) == 20
        await sound(first)
