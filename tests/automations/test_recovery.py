"""Death at every moment of a turn, for each kind of tool: what the next run does about it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from rota.core.time.instants import SECOND
from rota.errors import LeaseLost, Rejected
from rota.store.automations.effects import Wanted
from rota.store.automations.handler_runs import checkpoint
from rota.testing import World, virtual
from rota.tools import Safety
from tests.automations.kit import (
    UNSURE,
    Line,
    begun,
    bury,
    dying,
    dying_at,
    event_statuses,
    last,
    open_run_state,
    raising,
    sound,
)


async def dies(world: World, app: Line, point: str) -> None:
    """Give it work and kill it at a point."""
    with dying_at(point):
        await app.feed("e1")
        await world.settle()
    assert await bury(app) == 1
    await sound(app)


@pytest.mark.parametrize("safety", [Safety.IDEMPOTENT, Safety.RECONCILABLE], ids=str)
@pytest.mark.parametrize("point", ["before-call", "after-call"])
async def test_an_effect_happens_once_whenever_the_worker_dies(
    database_url: str, safety: Safety, point: str
) -> None:
    app = Line(safety)
    async with begun(app, database_url) as world:
        await dies(world, app, point)
        await world.advance("1m")
        assert len(app.outside.effects) == 1
        assert await event_statuses(app) == {"e1": "consumed"}
        assert [one.status for one in app.reported] == ["applied"]
        await sound(app)


@pytest.mark.parametrize("point", ["before-call", "after-call"])
async def test_an_effect_that_nobody_can_look_up_happens_at_most_once(
    database_url: str, point: str
) -> None:
    app = Line(Safety.UNKNOWABLE)
    async with begun(app, database_url) as world:
        await dies(world, app, point)
        await world.advance("1h")
        assert len(app.outside.effects) == (0 if point == "before-call" else 1)
        assert app.outside.calls <= 1
        assert await open_run_state(app) == "waiting:reconciliation"
        assert await event_statuses(app) == {"e1": "reserved"}
        await sound(app)


async def test_a_crash_during_prepare_starts_afresh(database_url: str) -> None:
    app = Line()
    async with begun(app, database_url) as world:
        app.in_prepare = dying(app)
        await app.feed("e1")
        await world.settle()
        assert await last(app, 2) == ["preparing crashed", "committed committed"]
        [newest] = await app.automations.activity("line", limit=1)
        assert newest.run.cause == "recovery"
        assert len(app.outside.effects) == 1
        await sound(app)


async def test_a_crash_after_prepare_releases_the_events_and_starts_afresh(
    database_url: str,
) -> None:
    app = Line()
    async with begun(app, database_url) as world:
        app.in_mutate = dying(app)
        await app.feed("e1")
        await world.settle()
        assert app.done == [["e1"], ["e1"]]
        assert await last(app, 2) == ["prepared crashed", "committed committed"]
        [event] = await app.automations.events("line")
        assert (event.status, event.attempt) == ("consumed", 2)
        assert len(app.outside.effects) == 1
        await sound(app)


async def test_a_crash_after_the_change_goes_on_with_next_and_what_was_copied(
    database_url: str,
) -> None:
    app = Line()
    async with begun(app, database_url) as world:
        app.in_next = dying(app)
        await app.feed("e1")
        await world.settle()
        assert app.done == [["e1"]]  # prepare was not run again
        assert app.outside.calls == 1
        assert app.applied[0] == ("applied", "done")
        assert await last(app, 2) == ["mutated crashed", "committed committed"]
        runs = await app.automations.activity("line", limit=2)
        assert runs[0].retry_of == runs[1].run.run_id
        assert [one.act for one in await app.automations.touched(runs[1].run.run_id)] == [
            "reserved",
            "transferred",
        ]
        assert [one.act for one in await app.automations.touched(runs[0].run.run_id)] == [
            "reserved",
            "consumed",
        ]
        await sound(app)


async def test_a_crash_while_it_is_looked_up_looks_again(database_url: str) -> None:
    app = Line()
    async with begun(app, database_url) as world:
        await dies(world, app, "after-call")
        look_up = app.outside.look_up

        async def gone(params: Any, call: Any) -> Any:
            app.outside.look_up = look_up  # type: ignore[method-assign]
            await bury(app)
            return UNSURE

        app.outside.look_up = gone  # type: ignore[method-assign]
        await world.settle()
        assert len(app.outside.effects) == 1
        assert await event_statuses(app) == {"e1": "consumed"}
        await sound(app)


async def test_one_that_kills_its_worker_too_often_waits_for_a_person(database_url: str) -> None:
    app = Line(recoveries_max=2)
    async with begun(app, database_url) as world:
        app.in_prepare = dying(app, times=2)
        await app.feed("e1")
        await world.settle()
        assert await open_run_state(app) == "waiting:crashes"
        view = await app.automations.show("line")
        assert view.status == "Needs attention"
        assert "crashed its worker too often" in view.sentence
        await sound(app)
        await app.automations.resolve("line")
        await world.settle()
        assert await event_statuses(app) == {"e1": "consumed"}
        await sound(app)


async def test_a_worker_that_lost_its_lease_changes_nothing(database_url: str) -> None:
    """Another has taken over while it was away; its result does not count."""
    app = Line()
    async with begun(app, database_url) as world:
        prepare = app._prepare

        async def away(ctx: Any, state: Any) -> Any:
            app.line.handlers["worker"].functions["prepare"] = prepare
            value = await prepare(ctx, state)
            assert await bury(app) == 1
            return value

        app.line.handlers["worker"].functions["prepare"] = away
        await app.feed("e1")
        await world.settle()
        assert len(app.outside.effects) == 1
        assert await event_statuses(app) == {"e1": "consumed"}
        await sound(app)


async def test_a_handler_that_was_stopped_for_a_shutdown_goes_on_elsewhere(
    database_url: str,
) -> None:
    """The worker hands its run over; the next one sees what the ledger knows."""
    first = Line()
    async with begun(first, database_url) as world:

        async def hang(params: Any, call: Any) -> Any:
            first.outside.effects.append((call.key, params))
            await never()

        first.outside.perform = hang  # type: ignore[method-assign]
        await first.feed("e1")
        await world.settle()
        stopped_at = world.clock.now()
    second = Line()
    second.outside.effects = first.outside.effects
    async with virtual(second, url=database_url, start=stopped_at + SECOND) as world:
        await world.settle()
        assert second.outside.calls == 0
        assert second.outside.looks == 1
        assert await event_statuses(second) == {"e1": "consumed"}
        await sound(second)


async def never() -> None:
    import asyncio

    await asyncio.Event().wait()


async def test_a_handler_that_is_gone_after_its_change_is_finished_without_next(
    database_url: str,
) -> None:
    first = Line()
    async with begun(first, database_url) as world:
        first.in_next = raising(ConnectionError("gone"))
        await first.feed("e1")
        await world.settle()
        assert await open_run_state(first) == "sleeping:transient"
        stopped_at = world.clock.now()
    second = Line()
    second.line._handlers.clear()
    second.line.consumer("other", subscribes=["work"], prepare=second._prepare)
    async with virtual(second, url=database_url, start=stopped_at + 60 * SECOND) as world:
        await world.settle()
        assert await event_statuses(second) == {"e1": "consumed"}
        assert second.outside.calls == 0
        await sound(second)


@pytest.mark.parametrize("times", [1, 2], ids=["the first worker", "and the recovery"])
async def test_a_worker_that_lost_its_lease_before_its_call_writes_no_ledger_and_calls_nothing(
    database_url: str, times: int
) -> None:
    """The ledger is written under the claim: calls of the stale worker do not begin."""
    app = Line()
    async with begun(app, database_url) as world:
        lost: list[str] = []

        async def lose() -> None:
            if len(lost) < times:
                [run, *_] = await app.automations.activity("line", limit=1)
                lost.append(run.run.run_id)
                assert await bury(app) == 1

        app.in_mutate = lose
        await app.feed("e1")
        await world.settle()
        assert len(lost) == times
        [row] = await app.automations.outputs("line")
        assert row.run_id not in lost
        assert (row.status, row.resolved_by) == ("applied", "tool")
        # A call of the stale worker would have been found, and looked up.
        assert (app.outside.calls, app.outside.looks, len(app.outside.effects)) == (1, 0, 1)
        assert await event_statuses(app) == {"e1": "consumed"}
        await sound(app)


async def test_a_worker_that_lost_its_lease_during_its_call_does_not_settle_the_ledger(
    database_url: str,
) -> None:
    """The recovery finds out for itself: the answer of the stale worker does not count."""
    app = Line()
    async with begun(app, database_url) as world:
        lost: list[int] = []

        async def lose() -> None:
            if not lost:
                lost.append(await bury(app))

        app.outside.after = lose
        await app.feed("e1")
        await world.settle()
        assert lost == [1]
        [row] = await app.automations.outputs("line")
        assert (row.status, row.resolved_by) == ("applied", "reconcile")
        assert (app.outside.calls, app.outside.looks, len(app.outside.effects)) == (1, 1, 1)
        assert await event_statuses(app) == {"e1": "consumed"}
        await sound(app)


async def test_a_worker_that_lost_its_lease_during_its_call_does_not_record_a_refusal(
    database_url: str,
) -> None:
    """If it were recorded, it would free the recovery to make the same effect a second time."""
    app = Line()
    async with begun(app, database_url) as world:
        lost: list[int] = []

        async def lose() -> None:
            if not lost:
                lost.append(await bury(app))
                raise Rejected("a proxy says that it did not happen")

        app.outside.after = lose
        await app.feed("e1")
        await world.settle()
        assert lost == [1]
        [row] = await app.automations.outputs("line")
        assert (row.status, row.resolved_by) == ("applied", "reconcile")
        assert (app.outside.calls, app.outside.looks, len(app.outside.effects)) == (1, 1, 1)
        await sound(app)


async def test_a_call_under_way_is_not_handed_to_another_owner_of_the_same_claim(
    database_url: str,
) -> None:
    """A server that lost commits may give one claim twice: only one of the two owners may call."""
    app = Line()
    async with begun(app, database_url) as world:
        refused: list[str] = []

        async def begin_again() -> None:
            assert app.runtime is not None
            [claim] = app.runtime.worker.held.values()
            [row] = await app.automations.outputs("line")
            wanted = Wanted("line", "worker", row.tool, row.safety, row.params, row.title)
            now = app.clock.now()
            again = await app.connection.database.write(
                checkpoint.call_begins, claim, wanted, approval=False, now=now
            )
            assert again.id == row.id  # its own answer was lost: it may continue
            with pytest.raises(LeaseLost):
                await app.connection.database.write(
                    checkpoint.call_begins, replace(claim, lease_owner="another"), wanted,
                    approval=False, now=now,
                )  # fmt: skip
            refused.append(row.id)

        app.outside.before = begin_again
        await app.feed("e1")
        await world.settle()
        assert len(refused) == len(app.outside.effects) == 1
        await sound(app)
