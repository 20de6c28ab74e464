"""Failure by the table: what each class leads to, backing off, blocking, fixing, pausing."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rota import Fatal, NeedsLogin, NeedsPermission, Transient
from rota.automations import Context, Prepared
from rota.automations.handler_runner import HandlerRunner
from rota.core.time.instants import SECOND
from rota.errors import WrongState
from rota.store.automations.handler_runs.begin import Notes
from rota.testing import virtual
from tests.automations.kit import (
    Line,
    begun,
    event_statuses,
    last,
    open_run_state,
    raising,
    sound,
    takes_from_faulty,
)


async def test_a_transient_failure_backs_off_and_a_new_run_starts_afresh(database_url: str) -> None:
    app = Line()
    async with begun(app, database_url) as world:
        app.in_prepare = raising(Transient("rate limit"))
        await app.feed("e1")
        await world.settle()
        assert await last(app, 1) == ["preparing paused:transient"]
        assert await open_run_state(app) == "sleeping:transient"
        assert (await app.automations.show("line")).sentence.startswith("Trying again in")
        await world.advance("6s")
        assert app.outside.effects == []
        await world.advance("4s")
        assert await last(app, 2) == ["preparing paused:transient", "committed committed"]
        first, second = reversed(await app.automations.activity("line", limit=2))
        assert second.retry_of == first.run.run_id
        assert (await app.automations.show("line")).automation.failures == 0
        await sound(app)


async def test_the_back_off_grows_is_capped_and_is_kept_in_the_database(database_url: str) -> None:
    app = Line(failures_max=50)
    pauses: list[float] = []
    async with begun(app, database_url) as world:
        app.in_prepare = raising(Transient("down"), times=9)
        await app.feed("e1")
        for _ in range(9):
            await world.settle()
            open_run = (await app.automations.show("line")).open_run
            assert open_run is not None
            assert open_run.available_at is not None
            pauses.append((open_run.available_at - world.clock.now()) / SECOND)
            world.clock.move_to(open_run.available_at)
        nominal = [10, 20, 40, 80, 160, 320, 600, 600, 600]
        for real, top in zip(pauses, nominal, strict=True):
            assert 0.7 * top <= real <= top
        await world.settle()
        assert await event_statuses(app) == {"e1": "consumed"}


async def test_a_retry_after_of_the_counterpart_is_honoured(database_url: str) -> None:
    app = Line()
    async with begun(app, database_url) as world:
        app.in_prepare = raising(Transient("busy", retry_after_s=90))
        await app.feed("e1")
        await world.advance("89s")
        assert app.done == []
        await world.advance("1s")
        assert app.done == [["e1"]]


async def test_a_huge_retry_after_leaves_the_automation_its_open_run(database_url: str) -> None:
    app = Line()
    async with begun(app, database_url) as world:
        app.in_prepare = raising(Transient("busy", retry_after_s=1e13))
        await app.feed("e1")
        await world.settle()
        assert await open_run_state(app) == "sleeping:transient"
        await sound(app)
        await world.advance("7d")
        assert app.done == [["e1"]]


async def test_a_failure_that_cannot_be_stored_waits_for_a_person(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = Line()
    async with begun(app, database_url) as world:
        app.in_prepare = raising(Transient("busy"))
        monkeypatch.setattr(HandlerRunner, "notes", lambda _: Notes(remark="\ud800"))
        await app.feed("e1")
        await world.settle()
        assert await open_run_state(app) == "waiting:internal"
        monkeypatch.undo()
        await app.automations.resolve("line")
        await world.settle()
        assert app.done == [["e1"]]
        await sound(app)


async def test_when_the_retries_are_used_up_a_person_is_asked(database_url: str) -> None:
    app = Line()
    async with begun(app, database_url) as world:
        app.in_prepare = raising(Transient("down"), times=6)
        await app.feed("e1")
        await world.advance("2h")
        assert await open_run_state(app) == "waiting:transient"
        assert len([one for one in await last(app, 10) if "transient" in one]) == 6
        view = await app.automations.show("line")
        assert (view.status, view.said.actions) == (
            "Needs attention",
            ("try-again", "skip"),
        )
        assert "down" in view.sentence
        await app.automations.resolve("line")
        await world.settle()
        assert await event_statuses(app) == {"e1": "consumed"}
        await sound(app)


@pytest.mark.parametrize("error", [ValueError("bad code"), Fatal("no"), KeyError("x")], ids=repr)
async def test_a_logic_failure_blocks_the_automation_until_somebody_acts(
    database_url: str, error: Exception
) -> None:
    app = Line()
    async with begun(app, database_url) as world:
        app.in_prepare = raising(error)
        await app.feed("e1")
        await world.advance("1d")
        assert await last(app, 1) == ["preparing failed:logic"]
        assert await open_run_state(app) == "waiting:logic"
        view = await app.automations.show("line")
        assert view.status == "Needs attention"
        assert str(error) in view.sentence
        await sound(app)
        await app.automations.resolve("line", "try-again")
        await world.settle()
        assert await event_statuses(app) == {"e1": "consumed"}
        await sound(app)


async def test_a_redeploy_answers_a_logic_failure(database_url: str) -> None:
    first = Line()
    async with begun(first, database_url) as world:
        first.in_prepare = raising(ValueError("bug"), times=99)
        await first.feed("e1")
        await world.settle()
        assert await open_run_state(first) == "waiting:logic"
        stopped_at = world.clock.now()
    second = Line(approval=False, mutates=False)  # other code
    async with virtual(second, url=database_url, start=stopped_at) as world:
        await world.settle()
        assert await event_statuses(second) == {"e1": "consumed"}
        await sound(second)


async def test_a_restart_with_the_same_code_does_not_answer_a_logic_failure(
    database_url: str,
) -> None:
    first = Line()
    async with begun(first, database_url) as world:
        first.in_prepare = raising(ValueError("bug"))
        await first.feed("e1")
        await world.settle()
        stopped_at = world.clock.now()
    second = Line()
    async with virtual(second, url=database_url, start=stopped_at) as world:
        await world.advance("1d")
        assert second.prepared == []
        assert await open_run_state(second) == "waiting:logic"


async def test_skip_lets_go_of_what_the_failed_run_had_taken(database_url: str) -> None:
    app = Line()
    async with begun(app, database_url) as world:
        app.in_mutate = raising(ValueError("cannot read this one"))
        await app.feed("bad", "good")
        await world.settle()
        await app.automations.resolve("line", "skip")
        await world.settle()
        assert await event_statuses(app) == {"bad": "skipped", "good": "consumed"}
        await sound(app)


@pytest.mark.parametrize(
    ("error", "reason", "begins"),
    [
        (NeedsLogin("reconnect Gmail"), "auth", "Waiting for you to renew credentials"),
        (NeedsPermission("not yours"), "permission", "Waiting for you to grant a permission"),
    ],
    ids=["auth", "permission"],
)
async def test_auth_and_permission_wait_for_a_person_and_the_same_run_goes_on(
    database_url: str, error: Exception, reason: str, begins: str
) -> None:
    app = Line()
    async with begun(app, database_url) as world:
        app.in_prepare = raising(error)
        await app.feed("e1")
        await world.advance("1d")
        assert await open_run_state(app) == f"waiting:{reason}"
        assert await last(app, 1) == ["preparing paused:approval"]
        assert (await app.automations.show("line")).sentence == f"{begins}: {error}"
        before = (await app.automations.activity("line", limit=1))[0].run.run_id
        await app.automations.resolve("line")
        await world.settle()
        [run] = await app.automations.activity("line", limit=1)
        assert (run.run.run_id, run.status) == (before, "completed")
        assert await event_statuses(app) == {"e1": "consumed"}
        await sound(app)


async def test_a_fault_of_the_host_stops_the_automation_and_says_so(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = Line()
    async with begun(app, database_url) as world:
        takes_from_faulty(app)
        await app.feed("e1")
        await world.advance("1d")
        assert await last(app, 1) == ["preparing failed:internal"]
        assert await open_run_state(app) == "waiting:internal"
        assert "a bug of the connector" in (await app.automations.show("line")).sentence
        assert "a bug of the connector" in caplog.text
        await sound(app)


async def test_a_failure_after_the_change_retries_next_alone(database_url: str) -> None:
    app = Line()
    async with begun(app, database_url) as world:
        app.in_next = raising(ValueError("bug in next"))
        await app.feed("e1")
        await world.settle()
        assert await last(app, 1) == ["emitting failed:logic"]
        assert await event_statuses(app) == {"e1": "reserved"}
        await sound(app)
        await app.automations.resolve("line")
        await world.settle()
        assert app.done == [["e1"]]
        assert app.outside.calls == 1
        assert app.applied == [("applied", "done")]
        assert await last(app, 2) == ["emitting failed:logic", "committed committed"]
        await sound(app)


async def test_a_failure_after_the_change_cannot_be_skipped(database_url: str) -> None:
    app = Line()
    async with begun(app, database_url) as world:
        app.in_next = raising(ValueError("bug in next"))
        await app.feed("e1")
        await world.settle()
        with pytest.raises(WrongState, match="has happened"):
            await app.automations.resolve("line", "skip")


async def test_one_failed_handler_stops_the_line_and_triggers_accumulate(database_url: str) -> None:
    app = Line()
    polled: list[str] = []

    async def poll(ctx: Context, state: Any) -> None:
        polled.append(f"{ctx.now:%M}")

    app.line.producer(every="1m", publishes=[app.work])(poll)
    async with begun(app, database_url) as world:
        app.in_prepare = raising(ValueError("bug"))
        await app.feed("e1")
        await world.settle()
        polled.clear()
        await app.feed("e2", "e3")
        await world.advance("10m")
        assert polled == []
        assert app.outside.effects == []
        await app.automations.resolve("line")
        await world.settle()
        assert polled == ["10"]
        assert set((await event_statuses(app)).values()) == {"consumed"}
        await sound(app)


async def test_a_handler_that_never_returns_is_stopped(database_url: str) -> None:
    app = Line()
    cancelled: list[str] = []
    async with begun(app, database_url) as world:

        async def hang(ctx: Context, state: Any) -> None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.append("yes")
                raise

        functions = app.line.handlers["worker"].functions
        good, functions["prepare"] = functions["prepare"], hang
        await app.feed("e1")
        await world.settle()
        assert (await app.automations.show("line")).status == "Running"
        await world.advance("300s")
        assert cancelled == ["yes"]
        assert await open_run_state(app) == "sleeping:timeout"
        assert await last(app, 1) == ["preparing paused:transient"]
        functions["prepare"] = good
        await world.advance("10s")
        assert await event_statuses(app) == {"e1": "consumed"}
        await sound(app)


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, GeneratorExit])
async def test_a_handler_cannot_end_the_program(
    database_url: str, kind: type[BaseException]
) -> None:
    app = Line()
    async with begun(app, database_url) as world:
        app.in_prepare = raising(kind("stop"))
        await app.feed("e1")
        await world.settle()
        assert await open_run_state(app) == "waiting:logic"
        await sound(app)


async def test_logs_of_every_phase_are_kept_also_of_the_one_that_failed(database_url: str) -> None:
    app = Line()
    async with begun(app, database_url) as world:

        async def prepare(ctx: Context, state: Any) -> Prepared:
            ctx.log("prepare", 1)
            return Prepared(await ctx.peek("work"))

        async def emit(ctx: Context, prepared: Prepared, mutation: Any) -> None:
            ctx.log("next", 2)
            raise ValueError("bug")

        app.line.handlers["worker"].functions.update(prepare=prepare, next=emit)
        await app.feed("e1")
        await world.settle()
        [run] = await app.automations.activity("line", limit=1)
        assert run.run.logs == '["prepare 1","next 2"]'
        assert "bug" in (run.error or "")
