"""A reconcilable tool is asked only when its counterpart had time to settle, and a timeout never
counts as "did not happen"."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from rota.automations import Change, Context, Prepared, effects
from rota.core.time.instants import SECOND
from rota.errors import OutcomeUnknown, UsageError
from rota.testing import World
from rota.tools import Applied, Call, Command, HttpWrite, Lookup, NotApplied, Safety, Tool, tool
from rota.tools.base import Unknown, Verdict
from tests.automations.kit import (
    Line,
    begun,
    bury,
    dying_at,
    event_statuses,
    open_run_state,
    raising,
    sound,
)

VISIBLE_S = 5  # so long the counterpart works on a request before it shows what it did
LOST = OutcomeUnknown("the answer never came")


class SlowCounterpart:
    """Takes a request at once, and shows its effect some seconds later. Its tool is one of the
    user's own, with all defaults."""

    def __init__(self, app: Line) -> None:
        self.taken: list[tuple[str, int]] = []
        self.looks = 0
        self.fails: Exception | None = None

        @tool(safety="reconcilable")
        async def pay(call: Call) -> str:
            self.taken.append((call.key, app.clock.now()))
            if self.fails is not None:
                raise self.fails
            return "paid"

        @pay.reconcile
        async def find(call: Call) -> Verdict:
            self.looks += 1
            shown = app.clock.now() - VISIBLE_S * SECOND
            there = any(key == call.key and at <= shown for key, at in self.taken)
            return Applied("paid") if there else NotApplied("nothing is there")

        async def mutate(ctx: Context, prepared: Prepared) -> Change:
            return pay.change()

        app.line.handlers["worker"].functions["mutate"] = mutate


async def dies(world: World, app: Line, point: str) -> None:
    """Give it work, and kill the worker at a point of its call."""
    with dying_at(point):
        await app.feed("e1")
        await world.settle()
    assert await bury(app) == 1


@pytest.mark.parametrize("point", ["before-call", "after-call"])
async def test_a_worker_killed_in_its_call_makes_no_second_effect_at_a_slow_counterpart(
    database_url: str, point: str
) -> None:
    app = Line()
    async with begun(app, database_url) as world:
        counterpart = SlowCounterpart(app)
        await dies(world, app, point)
        await world.advance("1s")
        assert counterpart.looks == 0
        assert await open_run_state(app) == "sleeping:reconciliation"
        await world.advance("1m")
        assert counterpart.looks == 1
        assert len(counterpart.taken) == 1
        assert await event_statuses(app) == {"e1": "consumed"}
        await sound(app)


async def test_a_lost_answer_of_a_slow_counterpart_makes_no_second_effect(
    database_url: str,
) -> None:
    app = Line()
    async with begun(app, database_url) as world:
        counterpart = SlowCounterpart(app)
        counterpart.fails = LOST
        await app.feed("e1")
        await world.advance("9s")
        assert counterpart.looks == 0
        await world.advance("1s")
        assert counterpart.looks == 1
        assert len(counterpart.taken) == 1
        assert await event_statuses(app) == {"e1": "consumed"}
        await sound(app)


async def test_a_change_approved_long_after_it_was_proposed_has_time_to_settle_too(
    database_url: str,
) -> None:
    app = Line(approval=True)
    async with begun(app, database_url) as world:
        counterpart = SlowCounterpart(app)
        await app.feed("e1")
        await world.advance("1h")
        with dying_at("after-call"):
            await app.automations.approve("line")
            await world.settle()
        assert await bury(app) == 1
        await world.advance("1m")
        assert len(counterpart.taken) == 1
        assert await event_statuses(app) == {"e1": "consumed"}


async def test_a_worker_killed_long_after_its_call_began_leaves_time_to_settle(
    database_url: str,
) -> None:
    """The request may have been sent at any moment of a call of a minute."""
    app = Line()
    async with begun(app, database_url) as world:
        counterpart = SlowCounterpart(app)
        await dies(world, app, "before-call")
        world.clock.move_to(world.clock.now() + 59 * SECOND)  # so late it is sent, and killed
        [row] = await app.automations.outputs("line")
        counterpart.taken.append((row.id, world.clock.now()))
        await world.advance("1m")
        assert [key for key, _ in counterpart.taken] == [row.id]
        assert await event_statuses(app) == {"e1": "consumed"}


async def test_a_person_who_tries_again_does_not_make_it_ask_too_soon(database_url: str) -> None:
    app = Line()
    async with begun(app, database_url) as world:
        counterpart = SlowCounterpart(app)
        counterpart.fails = LOST
        await app.feed("e1")
        await world.advance("2s")
        await app.automations.resolve("line", "try-again")
        await world.settle()
        assert counterpart.looks == 0
        assert await open_run_state(app) == "sleeping:reconciliation"
        await world.advance("8s")
        assert (counterpart.looks, len(counterpart.taken)) == (1, 1)
        assert await event_statuses(app) == {"e1": "consumed"}


class Overrunning(Tool):
    """A tool that does not keep its time, and has its effect all the same."""

    name = "overrunning"
    safety = Safety.UNKNOWABLE

    def __init__(self) -> None:
        self.done = 0

    def read(self, params: dict[str, Any]) -> Any:
        return params

    async def call(self, params: dict[str, Any], call: Call) -> Any:
        """Past all that the base class does about errors and time."""
        try:
            await asyncio.Event().wait()
        finally:
            self.done += 1

    async def perform(self, params: Any, call: Call) -> Any:
        raise AssertionError


async def test_a_timeout_never_counts_as_did_not_happen(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(effects, "OVERRUN_S", 0.0)
    app = Line(tool_s=0.1)
    async with begun(app, database_url) as world:
        late = Overrunning()

        async def mutate(ctx: Context, prepared: Prepared) -> Change:
            return late.change()

        app.line.handlers["worker"].functions["mutate"] = mutate
        await app.feed("e1")
        await world.advance("1h")
        [row] = await app.automations.outputs("line")
        assert (row.status, late.done) == ("indeterminate", 1)
        assert "TimeoutError" in (row.error or "")
        assert await open_run_state(app) == "waiting:reconciliation"
        assert await event_statuses(app) == {"e1": "reserved"}
        await sound(app)


@pytest.mark.parametrize("error", [TimeoutError("no end"), LOST], ids=str)
async def test_a_look_that_times_out_says_nothing(database_url: str, error: Exception) -> None:
    app = Line()
    async with begun(app, database_url) as world:
        app.outside.after = raising(LOST)
        look_up = app.outside.look_up

        async def late(params: Any, call: Call) -> Verdict:
            app.outside.look_up = look_up  # type: ignore[method-assign]
            raise error

        app.outside.look_up = late  # type: ignore[method-assign]
        await app.feed("e1")
        await world.settle()
        assert await open_run_state(app) == "sleeping:reconciliation"
        await world.advance("1m")
        assert len(app.outside.effects) == 1
        assert await event_statuses(app) == {"e1": "consumed"}


async def test_a_thread_that_still_works_on_the_effect_is_not_taken_for_nothing() -> None:
    """A function that overran its time cannot be stopped: the outcome is unknown until it has
    ended.
    """
    go, sent = threading.Event(), list[str]()

    @tool(safety="reconcilable", settle_s=0)
    def send(call: Call) -> None:
        go.wait(20)
        sent.append(call.key)

    @send.reconcile
    def find(call: Call) -> Verdict:
        return Applied(None) if call.key in sent else NotApplied("nothing is there")

    call = Call("k", 0.05)
    with pytest.raises(OutcomeUnknown):
        await send.call({}, call)
    verdict = await send.reconcile({}, call)
    assert isinstance(verdict, Unknown)
    assert "still running" in verdict.why
    assert isinstance(await send.reconcile({}, Call("other", 5)), NotApplied)
    go.set()
    while isinstance(verdict, Unknown):
        verdict = await send.reconcile({}, Call("k", 5))
    assert verdict == Applied(None)


def test_every_reconcilable_tool_waits_ten_seconds_by_default() -> None:
    @tool(safety="reconcilable")
    def own() -> None: ...

    @tool(safety="reconcilable", settle_s=60)
    def slow() -> None: ...

    class ByClass(Overrunning):
        safety = Safety.RECONCILABLE

    lookup = Lookup("/x/{key}")
    assert {
        each.settle_s
        for each in (own, ByClass(), HttpWrite(lookup=lookup), Command(["a"], lookup=["b"]))
    } == {10.0}
    assert slow.settle_s == 60
    assert HttpWrite(lookup=lookup, settle_s=0).settle_s == 0


@pytest.mark.parametrize("bad", [-1, float("nan"), float("inf"), "10", True, None])
def test_a_settle_time_that_makes_no_sense_is_refused(bad: Any) -> None:
    for make in (
        lambda: tool(safety="reconcilable", settle_s=bad),
        lambda: HttpWrite(lookup=Lookup("/x/{key}"), settle_s=bad),
        lambda: Command(["a"], lookup=["b"], settle_s=bad),
    ):
        with pytest.raises(UsageError, match="settle_s"):
            make()
