"""The tables of chapter 16, "Scheduling": one test per row that no other file has. Which test
represents which row is written in `kit/requirements.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from rota import NeedsLogin, NeedsPermission, Transient
from rota.automations import Context, Fix, HandlerFailure
from rota.core.automations.phases import shown
from rota.core.time.instants import MINUTE, SECOND
from rota.errors import OutcomeUnknown, WrongState
from rota.testing import World, virtual
from tests.automations.kit import (
    UNSURE,
    Line,
    begun,
    both,
    dying,
    event_statuses,
    last,
    open_run_state,
    raising,
    sound,
    started,
    takes_from_faulty,
)

GOOD = """
async def prepare(ctx, state):
    events = await ctx.peek("work")
    return {"reservations": [{"topic": "work", "ids": [one.id for one in events]}], "data": 1}
"""


async def prepare(ctx: Context, state: Any) -> None:
    if await ctx.peek("work"):
        raise ValueError("a bug")


async def fixer(failure: HandlerFailure) -> Fix:
    return Fix({"prepare": GOOD}, "do not fail")


async def newest(app: Line) -> Any:
    return (await app.automations.activity("line", limit=1))[0]


async def state_now(app: Line) -> tuple[str, str, str]:
    """Status, phase and id of the newest handler run."""
    one = await newest(app)
    return shown(one.status, one.reason), one.run.phase, one.run.run_id


async def troubled(world: World, app: Line, trouble: str) -> None:
    """Let it fail in a named way on its event `e1`."""
    await started(world, app)
    match trouble:
        case "transient":
            app.in_prepare = raising(Transient("rate limit"))
        case "auth":
            app.in_prepare = raising(NeedsLogin("reconnect Gmail"))
        case "permission":
            app.in_prepare = raising(NeedsPermission("may not read"))
        case "logic":
            app.in_prepare = raising(ValueError("a bug"))
        case "logic, fixable":
            app.line.handlers["worker"].functions["prepare"] = prepare
        case "indeterminate":
            app.outside.after = raising(OutcomeUnknown("the line broke"))
            app.outside.verdict = UNSURE
        case "internal":
            takes_from_faulty(app)
    await app.feed("e1")
    await world.settle()


# -- in-memory state: queued -------------------------------------------------------------------


async def test_queued_triggers_that_fired_during_an_active_run_are_recovered_after_a_restart(
    database_url: str,
) -> None:
    """Producers from their next run, consumers from pending events."""
    polled: list[str] = []

    def made() -> Line:
        app = Line()

        async def poll(ctx: Context, state: Any) -> None:
            polled.append(f"{ctx.now:%H:%M}")

        app.line.producer(every="3m", publishes=["work"])(poll)
        return app

    first = made()
    async with begun(first, database_url) as world:
        polled.clear()

        async def everything_comes_due() -> None:
            world.clock.move_to(world.clock.now() + 4 * MINUTE)
            await first.feed("e2")
            await asyncio.Event().wait()  # the process ends in the middle of it

        first.in_prepare = everything_comes_due
        await first.feed("e1")
        await world.settle()
        assert polled == []
        stopped_at = world.clock.now()
    second = made()
    async with virtual(second, url=database_url, start=stopped_at) as world:
        await world.settle()
        assert second.done == [["e1"], ["e2"]]
        assert polled == ["00:04"]
        await sound(second)


# -- run status --------------------------------------------------------------------------------


async def test_active_means_that_it_is_executing(database_url: str) -> None:
    app = Line()
    seen: list[tuple[str, str, str]] = []
    async with begun(app, database_url) as world:

        async def look() -> None:
            seen.append(await state_now(app))

        app.in_prepare = app.in_mutate = app.in_next = look
        await app.feed("e1")
        await world.settle()
        assert [(status, phase) for status, phase, _ in seen] == [
            ("active", "preparing"),
            ("active", "prepared"),
            ("active", "mutated"),
        ]


async def test_paused_transient_backs_off_then_a_new_run(database_url: str) -> None:
    app = Line()
    async with virtual(app, url=database_url) as world:
        await troubled(world, app, "transient")
        status, _, failed = await state_now(app)
        assert status == "paused:transient"
        await world.advance("10s")
        run = await newest(app)
        assert (run.retry_of, run.run.phase) == (failed, "committed")
        await sound(app)


@pytest.mark.parametrize(
    ("verb", "event", "reported"),
    [("approve", "consumed", "applied"), ("reject", "skipped", "skipped")],
)
async def test_paused_approval_waits_until_the_user_approves_or_rejects(
    database_url: str, verb: str, event: str, reported: str
) -> None:
    app = Line(approval=True)
    async with begun(app, database_url, "e1") as world:
        await world.advance("1d")
        status, phase, run_id = await state_now(app)
        assert (status, phase) == ("paused:approval", "mutating")
        await getattr(app.automations, verb)("line")
        await world.settle()
        assert await state_now(app) == ("committed", "committed", run_id)
        assert await event_statuses(app) == {"e1": event}
        assert [one.status for one in app.reported] == [reported]
        await sound(app)


@pytest.mark.parametrize("by", ["reconciliation", "user action"])
async def test_paused_reconciliation_ends_by_reconciliation_or_user_action(
    database_url: str, by: str
) -> None:
    app = Line()
    async with virtual(app, url=database_url) as world:
        await troubled(world, app, "indeterminate")
        assert (await state_now(app))[0] == "paused:reconciliation"
        if by == "reconciliation":
            app.outside.verdict = None
            await world.advance("10s")
        else:
            await app.automations.resolve("line", "skip")
            await world.settle()
        assert (await state_now(app))[0] == "committed"
        assert app.outside.calls == 1
        await sound(app)


async def test_failed_logic_is_auto_fixed_then_a_new_run(database_url: str) -> None:
    app = Line(fix=fixer)
    async with virtual(app, url=database_url) as world:
        await troubled(world, app, "logic, fixable")
        assert await last(app, 2) == ["preparing failed:logic", "committed committed"]
        failed, fixed = reversed(await app.automations.activity("line", limit=2))
        assert (fixed.retry_of, fixed.run.version) == (failed.run.run_id, 2)
        assert await event_statuses(app) == {"e1": "consumed"}
        await sound(app)


async def test_failed_internal_leaves_the_workflow_paused(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = Line(fix=fixer)  # which is not asked
    async with virtual(app, url=database_url) as world:
        await troubled(world, app, "internal")
        await world.advance("1d")
        assert (await state_now(app))[0] == "failed:internal"
        assert (await app.automations.show("line")).status == "Needs attention"
        assert len(await app.automations.versions("line")) == 1
        assert "a bug of the connector" in caplog.text
        await sound(app)


async def test_committed_is_successfully_completed(database_url: str) -> None:
    app = Line()
    async with begun(app, database_url, "e1") as world:
        status, phase, run_id = await state_now(app)
        assert (status, phase) == ("committed", "committed")
        await world.advance("1d")
        assert await state_now(app) == (status, phase, run_id)


async def test_crashed_is_found_incomplete_and_recovery_creates_a_new_run(
    database_url: str,
) -> None:
    app = Line()
    async with begun(app, database_url) as world:
        app.in_prepare = dying(app)
        await app.feed("e1")
        await world.settle()
        recovery, crashed = await app.automations.activity("line", limit=2)
        assert shown(crashed.status, crashed.reason) == "crashed"
        assert (recovery.retry_of, recovery.run.cause) == (crashed.run.run_id, "recovery")
        await sound(app)


# -- phase reset rules -------------------------------------------------------------------------


@pytest.mark.parametrize("phase", ["preparing", "prepared", "mutating"])
async def test_before_the_mutation_is_applied_a_new_run_starts_fresh_from_preparing(
    database_url: str, phase: str
) -> None:
    app = Line()
    phases: list[str] = []
    async with begun(app, database_url) as world:

        async def look() -> None:
            phases.append((await newest(app)).run.phase)

        app.in_prepare = look
        match phase:
            case "preparing":
                app.in_prepare = both(look, raising(Transient("down")))
            case "prepared":
                app.in_mutate = dying(app)
            case "mutating":
                app.in_mutate = raising(Transient("down"))
        await app.feed("e1")
        await world.advance("10s")
        assert phases == ["preparing", "preparing"]
        fresh, before = await app.automations.activity("line", limit=2)
        assert (before.run.phase, fresh.retry_of) == (phase, before.run.run_id)
        assert len(app.outside.effects) == 1
        await sound(app)


@pytest.mark.parametrize("phase", ["mutated", "emitting"])
async def test_after_the_mutation_is_applied_a_new_run_copies_results_and_is_emitting(
    database_url: str, phase: str
) -> None:
    app = Line()
    phases: list[str] = []
    async with begun(app, database_url) as world:

        async def look() -> None:
            phases.append((await newest(app)).run.phase)

        strike = dying(app) if phase == "mutated" else raising(Transient("down"))
        app.in_next = both(strike, look)
        await app.feed("e1")
        await world.advance("10s")
        assert phases == ["emitting"]
        copy, before = await app.automations.activity("line", limit=2)
        assert (before.run.phase, copy.retry_of) == (phase, before.run.run_id)
        assert copy.run.prepared == before.run.prepared is not None
        assert app.done == [["e1"]]
        assert app.outside.calls == 1
        assert app.applied == [("applied", "done")]
        await sound(app)


# -- failure classification --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("trouble", "status", "phase", "next_action"),
    [
        pytest.param("transient", "paused:transient", "preparing", "new run", id="transient"),
        pytest.param("logic", "failed:logic", "preparing", "new run", id="logic error"),
        pytest.param("auth", "paused:approval", "preparing", "resume", id="auth failure"),
        pytest.param("permission", "paused:approval", "preparing", "resume",
                     id="permission denied"),
        pytest.param("indeterminate", "paused:reconciliation", "mutating", "resume",
                     id="mutation indeterminate"),
        pytest.param("internal", "failed:internal", "preparing", "nothing", id="internal error"),
    ],
)  # fmt: skip
async def test_a_failure_leads_to_its_status_and_its_next_action(
    database_url: str, trouble: str, status: str, phase: str, next_action: str
) -> None:
    app = Line()
    async with virtual(app, url=database_url) as world:
        await troubled(world, app, trouble)
        found, reached, run_id = await state_now(app)
        assert (found, reached) == (status, phase)
        app.outside.verdict = None
        if trouble in ("auth", "permission", "logic"):
            await app.automations.resolve("line", "try-again")
        await world.advance("1h")
        after = await state_now(app)
        if next_action == "nothing":
            assert after == (found, reached, run_id)
            return
        assert after[:2] == ("committed", "committed")
        assert (after[2] == run_id) == (next_action == "resume")
        assert (await newest(app)).retry_of == (None if next_action == "resume" else run_id)
        assert len(app.outside.effects) == 1
        await sound(app)


# -- run lifecycle integration -----------------------------------------------------------------


async def test_on_committed_wake_at_is_recorded_flags_are_cleared_and_triggers_checked(
    database_url: str,
) -> None:
    app = Line()
    async with begun(app, database_url) as world:
        app.wake_at = world.clock.moment() + timedelta(hours=1)
        await app.feed("e1", "e2")
        await world.settle()
        assert app.done == [["e1"], ["e2"]]
        [handler] = (await app.automations.show("line")).handlers
        assert not handler.is_dirty
        assert handler.wake_at == world.clock.now() + 3600 * SECOND
        assert await open_run_state(app) == "sleeping:idle"


async def test_on_paused_transient_a_retry_is_scheduled_and_triggers_accumulate(
    database_url: str,
) -> None:
    app = Line()
    async with virtual(app, url=database_url) as world:
        await troubled(world, app, "transient")
        await app.feed("e2", "e3")
        await world.advance("6s")
        assert app.done == []
        await world.advance("4s")
        assert app.done == [["e1"], ["e2"], ["e3"]]
        await sound(app)


@pytest.mark.parametrize(
    ("trouble", "waits", "answer"),
    [
        pytest.param("auth", "waiting:auth", "try-again", id="paused:approval"),
        pytest.param("indeterminate", "sleeping:reconciliation", "skip",
                     id="paused:reconciliation"),
        pytest.param("internal", "waiting:internal", "try-again", id="failed:internal"),
    ],
)  # fmt: skip
async def test_a_paused_workflow_does_nothing_until_it_is_resolved(
    database_url: str, trouble: str, waits: str, answer: Any
) -> None:
    app = Line(reconcile_max=1000)
    async with virtual(app, url=database_url) as world:
        await troubled(world, app, trouble)
        app.prepared.clear()
        await app.feed("e2")
        await world.advance("1d")
        assert await open_run_state(app) == waits
        assert app.prepared == []
        with pytest.raises(WrongState):
            await app.automations.run_now("line")
        app.line.handlers["worker"].functions["prepare"] = app._prepare
        await app.automations.resolve("line", answer)
        await world.settle()
        assert set((await event_statuses(app)).values()) <= {"consumed", "skipped"}
        await sound(app)


async def test_on_failed_logic_a_fix_is_triggered_and_a_retry_follows_it(
    database_url: str,
) -> None:
    asked: list[str] = []

    async def asks(failure: HandlerFailure) -> Fix:
        asked.append(f"{failure.handler} {failure.phase}")
        await app.feed("e2")  # triggers accumulate meanwhile
        return Fix({"prepare": GOOD}, "do not fail")

    app = Line(fix=asks)
    async with virtual(app, url=database_url) as world:
        await troubled(world, app, "logic, fixable")
        assert asked == ["worker preparing"]
        assert set((await event_statuses(app)).values()) == {"consumed"}
        await sound(app)


# -- observable state --------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["Running", "Idle", "Needs attention", "Stopped"])
async def test_users_see_a_status(database_url: str, word: str) -> None:
    app = Line()
    seen: list[str] = []

    async def look() -> None:
        seen.append((await app.automations.show("line")).status)

    async with begun(app, database_url) as world:
        match word:
            case "Running":
                app.in_prepare = look
            case "Needs attention":
                app.in_prepare = raising(ValueError("a bug"))
            case "Stopped":
                await app.automations.pause("line")
        await app.feed("e1")
        await world.settle()
        await look()
        assert seen[0] == word


async def test_users_see_an_issue_description(database_url: str) -> None:
    app = Line()
    async with virtual(app, url=database_url) as world:
        await troubled(world, app, "auth")
        sentence = (await app.automations.show("line")).sentence
        assert sentence == "Waiting for you to renew credentials: reconnect Gmail"


@pytest.mark.parametrize(
    ("when", "schedule", "next_check"),
    [
        ({"every": "5m"}, "Checks every 5 minutes", "Next check in 3 min"),
        ({"cron": "0 9 * * *"}, "Checks at 09:00, every day (UTC)", "Next check in 9 h"),
    ],
    ids=["interval", "daily"],
)
async def test_users_see_a_schedule(
    database_url: str, when: dict[str, str], schedule: str, next_check: str
) -> None:
    app = Line()

    async def poll(ctx: Context, state: Any) -> None: ...

    producer: Callable[..., Any] = app.line.producer
    producer(publishes=["work"], **when)(poll)
    async with virtual(app, url=database_url) as world:
        await world.advance("2m")
        view = await app.automations.show("line")
        assert (view.schedule, view.sentence) == (schedule, next_check)


async def test_users_see_recent_activity(database_url: str) -> None:
    app = Line()
    app.take = 3
    async with begun(app, database_url) as world:
        await app.automations.pause("line")
        await app.feed("e1", "e2", "e3")
        await app.automations.resume("line")
        await world.settle()
        run = await newest(app)
        assert (run.run.handler, run.run.reserved_count) == ("worker", 3)
        [output] = await app.automations.outputs("line")
        assert (output.title, output.tool, output.status) == ("Work", "outside", "applied")


async def test_users_see_pending_work(database_url: str) -> None:
    app = Line()
    async with virtual(app, url=database_url) as world:
        await troubled(world, app, "logic")
        await app.feed("e2")
        assert (await app.automations.show("line")).pending == {"work": 2}
        waiting = await app.automations.pending("line")
        assert [one.input.title for one in waiting] == ["e1", "e2"]
