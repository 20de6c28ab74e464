"""The one side effect of a run: the ledger, reconciliation, approval, and what people can do."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from rota.automations import Change, Context, Prepared
from rota.errors import (
    NeedsLogin,
    NotSent,
    OutcomeUnknown,
    Rejected,
    Transient,
    WrongState,
)
from rota.tools import Safety
from tests.automations.kit import (
    UNSURE,
    Line,
    begun,
    event_statuses,
    last,
    open_run_state,
    raising,
    sound,
)

LOST = OutcomeUnknown("the answer never came")


async def ledger(app: Line) -> list[str]:
    return [one.status for one in reversed(await app.automations.outputs("line"))]


async def test_an_applied_change_is_recorded_with_its_parameters_and_result(
    database_url: str,
) -> None:
    app = Line()
    async with begun(app, database_url, "e1"):
        [row] = await app.automations.outputs("line")
        assert (row.status, row.tool, row.title) == ("applied", "outside", "Work")
        assert msgspec.json.decode(row.params) == {"items": [{"id": "e1"}]}
        assert app.applied[0] == ("applied", "done")
        assert app.outside.keys == [row.id]
        assert await event_statuses(app) == {"e1": "consumed"}
        await sound(app)


async def test_the_ledger_knows_of_the_call_before_it_is_made(database_url: str) -> None:
    app = Line()
    seen: list[list[str]] = []
    async with begun(app, database_url) as world:
        perform = app.outside.perform

        async def look(params: Any, call: Any) -> Any:
            seen.append(await ledger(app))
            return await perform(params, call)

        app.outside.perform = look  # type: ignore[method-assign]
        await app.feed("e1")
        await world.settle()
        assert seen == [["in_flight"]]


async def test_a_consumer_without_a_call_shows_next_none_and_uses_its_events(
    database_url: str,
) -> None:
    app = Line()
    async with begun(app, database_url) as world:

        async def idle(ctx: Context, prepared: Prepared) -> None:
            ctx.log("nothing to change")

        app.line.handlers["worker"].functions["mutate"] = idle
        await app.feed("e1")
        await world.settle()
        assert [one.status for one in app.reported] == ["none"]
        assert await event_statuses(app) == {"e1": "consumed"}
        assert await ledger(app) == []


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (NotSent("refused"), "mutating paused:transient"),
        (Rejected("no such row"), "mutating failed:logic"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
async def test_a_certain_failure_releases_the_events_and_is_no_doubt(
    database_url: str, error: Exception, status: str
) -> None:
    app = Line()
    async with begun(app, database_url) as world:
        app.outside.before = raising(error)
        await app.feed("e1")
        await world.settle()
        assert await last(app, 1) == [status]
        assert await event_statuses(app) == {"e1": "pending"}
        assert await ledger(app) == ["failed"]
        if await open_run_state(app) == "waiting:logic":
            await app.automations.resolve("line")
        await world.advance("1m")
        assert await ledger(app) == ["failed", "applied"]
        assert len(app.outside.effects) == 1
        await sound(app)


@pytest.mark.parametrize("error", [LOST, RuntimeError("what?"), TimeoutError()], ids=str)
async def test_an_unknown_outcome_is_looked_up_at_once(database_url: str, error: Exception) -> None:
    app = Line()
    async with begun(app, database_url) as world:
        app.outside.after = raising(error)
        await app.feed("e1")
        await world.settle()
        assert (app.outside.calls, app.outside.looks) == (1, 1)
        assert await ledger(app) == ["applied"]
        assert app.applied[0] == ("applied", "done")
        assert len(app.outside.effects) == 1
        await sound(app)


async def test_an_unknown_outcome_that_did_not_happen_starts_over(database_url: str) -> None:
    app = Line()
    async with begun(app, database_url) as world:
        app.outside.before = raising(LOST)
        await app.feed("e1")
        await world.settle()
        assert await ledger(app) == ["failed"]
        assert await event_statuses(app) == {"e1": "pending"}
        assert await open_run_state(app) == "sleeping:transient"
        await world.advance("11s")
        assert await ledger(app) == ["failed", "applied"]
        assert len(set(app.outside.keys)) == 1
        await sound(app)


async def test_an_idempotent_tool_is_called_again_with_the_same_key(database_url: str) -> None:
    app = Line(Safety.IDEMPOTENT)
    async with begun(app, database_url) as world:
        app.outside.after = raising(LOST)
        await app.feed("e1")
        await world.settle()
        assert (app.outside.calls, app.outside.looks) == (2, 0)
        assert len(app.outside.effects) == 1
        assert await ledger(app) == ["applied"]


async def test_a_later_refusal_does_not_prove_that_the_first_call_had_no_effect(
    database_url: str,
) -> None:
    app = Line(Safety.IDEMPOTENT)

    def refuse() -> None:
        raise LOST if app.outside.calls == 1 else Rejected("duplicate")

    async with begun(app, database_url) as world:
        app.outside.after = refuse
        await app.feed("e1")
        await world.settle()
        assert await open_run_state(app) == "sleeping:reconciliation"
        assert await event_statuses(app) == {"e1": "reserved"}


async def test_while_the_outcome_is_unknown_the_run_sleeps_and_looks_again_with_growing_pauses(
    database_url: str,
) -> None:
    app = Line()
    app.outside.verdict = UNSURE
    async with begun(app, database_url) as world:
        app.outside.after = raising(LOST)
        await app.feed("e1")
        await world.settle()
        assert await open_run_state(app) == "sleeping:reconciliation"
        assert await last(app, 1) == ["mutating paused:reconciliation"]
        assert await event_statuses(app) == {"e1": "reserved"}
        looks = [app.outside.looks]
        for pause in ("10s", "20s", "40s"):
            await world.advance(pause)
            looks.append(app.outside.looks)
        assert looks == [1, 2, 3, 4]
        app.outside.verdict = None
        await world.advance("80s")
        assert await ledger(app) == ["applied"]
        assert await last(app, 1) == ["committed committed"]
        assert app.outside.calls == 1
        await sound(app)


async def test_after_five_looks_a_person_is_asked(database_url: str) -> None:
    app = Line()
    app.outside.verdict = UNSURE
    async with begun(app, database_url) as world:
        app.outside.after = raising(LOST)
        await app.feed("e1")
        await world.advance("10m")
        assert app.outside.looks == 5
        assert await open_run_state(app) == "waiting:reconciliation"
        assert await ledger(app) == ["indeterminate"]
        view = await app.automations.show("line")
        assert view.status == "Needs attention"
        assert view.said.actions == ("try-again", "happened", "did-not-happen", "skip")
        await sound(app)


async def test_a_person_lets_the_tool_look_again(database_url: str) -> None:
    app = Line()
    app.outside.verdict = UNSURE
    async with begun(app, database_url) as world:
        app.outside.after = raising(LOST)
        await app.feed("e1")
        await world.advance("10m")
        app.outside.verdict = None
        await app.automations.resolve("line", "try-again")
        await world.settle()
        assert await ledger(app) == ["applied"]
        assert app.applied[0][0] == "applied"
        assert app.outside.calls == 1
        await sound(app)


async def test_a_person_says_that_it_did_not_happen_and_it_is_done_again(database_url: str) -> None:
    app = Line(Safety.UNKNOWABLE)
    async with begun(app, database_url) as world:
        app.outside.before = raising(LOST)
        await app.feed("e1")
        await world.settle()
        assert await open_run_state(app) == "waiting:reconciliation"
        await app.automations.resolve("line", "did-not-happen")
        await world.settle()
        assert await ledger(app) == ["failed", "applied"]
        assert app.done == [["e1"], ["e1"]]
        assert await event_statuses(app) == {"e1": "consumed"}
        await sound(app)


async def test_a_person_skips_what_is_in_doubt_and_next_is_called(database_url: str) -> None:
    app = Line(Safety.UNKNOWABLE)
    async with begun(app, database_url) as world:
        app.outside.after = raising(LOST)
        await app.feed("e1")
        await world.settle()
        await app.automations.resolve("line", "skip")
        await world.settle()
        assert [one.status for one in app.reported] == ["skipped"]
        assert await event_statuses(app) == {"e1": "skipped"}
        assert await ledger(app) == ["skipped"]
        assert len(app.outside.effects) == 1
        await sound(app)


async def test_a_tool_that_cannot_look_cannot_try_again(database_url: str) -> None:
    app = Line(Safety.UNKNOWABLE)
    async with begun(app, database_url) as world:
        app.outside.after = raising(LOST)
        await app.feed("e1")
        await world.settle()
        with pytest.raises(WrongState, match="cannot find out"):
            await app.automations.resolve("line", "try-again")
        assert await ledger(app) == ["indeterminate"]
        said = (await app.automations.show("line")).said
        assert said.actions == ("happened", "did-not-happen", "skip")


async def test_a_person_may_decide_before_the_looks_are_used_up(database_url: str) -> None:
    app = Line()
    app.outside.verdict = UNSURE
    async with begun(app, database_url) as world:
        app.outside.after = raising(LOST)
        await app.feed("e1")
        await world.settle()
        await app.automations.resolve("line", "skip")
        await world.settle()
        assert await event_statuses(app) == {"e1": "skipped"}
        await sound(app)


async def test_a_result_that_cannot_be_stored_is_still_applied(database_url: str) -> None:
    app = Line()
    app.outside.result = object()
    async with begun(app, database_url, "e1"):
        [row] = await app.automations.outputs("line")
        assert (row.status, row.result) == ("applied", None)
        assert "cannot be written" in (row.error or "")
        assert app.applied[0] == ("applied", None)
        assert "the result of outside cannot be written" in (app.reported[0].problem or "")
        [run] = [
            one.run for one in await app.automations.activity("line") if one.run.reserved_count
        ]
        assert "the change was applied, but its result is lost: the result of outside" in (
            run.remark or ""
        )


async def test_a_lost_result_is_reported_again_when_next_is_repeated(database_url: str) -> None:
    app = Line()
    app.outside.result = object()
    async with begun(app, database_url) as world:
        app.in_next = raising(Transient("not now"))
        await app.feed("e1")
        await world.advance("1m")
        [run, *_] = await app.automations.activity("line")
        assert run.run.cause == "retry"
        assert "its result is lost" in (run.run.remark or "")
        assert "cannot be written" in (app.reported[-1].problem or "")
        assert len(app.outside.effects) == 1


async def test_no_result_is_no_problem(database_url: str) -> None:
    app = Line()
    app.outside.result = None
    async with begun(app, database_url, "e1"):
        assert app.applied[0] == ("applied", None)
        assert app.reported[0].problem is None


async def test_a_tool_that_settles_late_is_not_asked_too_soon(database_url: str) -> None:
    app = Line()
    app.outside.settle_s = 60.0
    async with begun(app, database_url) as world:
        app.outside.after = raising(LOST)
        await app.feed("e1")
        await world.advance("59s")
        assert app.outside.looks == 0
        await world.advance("1s")
        assert app.outside.looks == 1
        assert await ledger(app) == ["applied"]


# -- approval ----------------------------------------------------------------------------------


async def test_approval_shows_the_exact_parameters_before_anything_is_called(
    database_url: str,
) -> None:
    app = Line(approval=True)
    async with begun(app, database_url, "e1"):
        assert app.outside.calls == 0
        view = await app.automations.show("line")
        assert view.sentence == "Waiting for your approval: Work"
        assert view.mutation is not None
        assert msgspec.json.decode(view.mutation.params) == {"items": [{"id": "e1"}]}
        assert await last(app, 1) == ["mutating paused:approval"]
        assert await event_statuses(app) == {"e1": "reserved"}
        await sound(app)


async def test_what_is_approved_is_done(database_url: str) -> None:
    app = Line(approval=True)
    async with begun(app, database_url, "e1") as world:
        await app.automations.approve("line")
        await world.settle()
        assert len(app.outside.effects) == 1
        assert await last(app, 1) == ["committed committed"]
        assert await event_statuses(app) == {"e1": "consumed"}
        await sound(app)


async def test_what_is_rejected_is_skipped(database_url: str) -> None:
    app = Line(approval=True)
    async with begun(app, database_url, "e1") as world:
        await app.automations.reject("line")
        await world.settle()
        assert app.outside.calls == 0
        assert [one.status for one in app.reported] == ["skipped"]
        assert await event_statuses(app) == {"e1": "skipped"}
        await sound(app)


async def test_agreeing_to_other_parameters_is_not_agreeing(database_url: str) -> None:
    app = Line(approval=True)
    amount = [1]
    async with begun(app, database_url) as world:

        async def pay(ctx: Context, prepared: Prepared) -> Change:
            return app.outside.change(amount=amount[0])

        app.line.handlers["worker"].functions["mutate"] = pay
        await app.feed("e1")
        await world.settle()
        amount[0] = 1000
        await app.automations.approve("line")
        await world.settle()
        assert app.outside.calls == 0
        assert await open_run_state(app) == "waiting:approval"
        assert await ledger(app) == ["failed", "proposed"]
        await app.automations.approve("line")
        await world.settle()
        assert [params for _, params in app.outside.effects] == [{"amount": 1000}]


async def test_approving_what_does_not_wait_is_refused(database_url: str) -> None:
    app = Line(approval=True)
    async with begun(app, database_url):
        for verb in (app.automations.approve, app.automations.reject):
            with pytest.raises(WrongState, match="does not wait for approval"):
                await verb("line")
        with pytest.raises(WrongState):
            await app.automations.resolve("line", "skip")


async def test_auth_in_the_call_waits_and_then_the_same_run_goes_on(database_url: str) -> None:
    app = Line()
    async with begun(app, database_url) as world:
        app.outside.before = raising(NeedsLogin("the token has expired"))
        await app.feed("e1")
        await world.settle()
        assert await open_run_state(app) == "waiting:auth"
        assert await event_statuses(app) == {"e1": "reserved"}
        said = (await app.automations.show("line")).sentence
        assert said == "Waiting for you to renew credentials: the token has expired"
        await app.automations.resolve("line")
        await world.settle()
        assert app.done == [["e1"]]  # prepared once: no phase was reset
        assert len(app.outside.effects) == 1
        await sound(app)


async def test_an_error_of_the_script_before_its_call_is_its_own(database_url: str) -> None:
    app = Line()
    async with begun(app, database_url) as world:
        app.in_mutate = raising(Transient("later"))
        await app.feed("e1")
        await world.settle()
        assert await last(app, 1) == ["mutating paused:transient"]
        assert await ledger(app) == []
        await world.advance("11s")
        assert len(app.outside.effects) == 1


# -- time limits, on the engine's clock --------------------------------------------------------


async def never() -> None:
    await asyncio.Event().wait()


async def test_a_call_that_does_not_end_is_cancelled_and_looked_up(database_url: str) -> None:
    app = Line(tool_s=60)
    app.outside.before = never
    async with begun(app, database_url, "e1") as world:
        await world.advance("64s")
        assert await ledger(app) == ["in_flight"]
        await world.advance("1s")
        assert (await ledger(app), app.outside.looks) == (["failed"], 1)
        app.outside.before = None
        await world.advance("15s")
        assert await ledger(app) == ["failed", "applied"]
        await sound(app)


async def test_a_reconcile_that_does_not_end_counts_as_no_answer(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = Line(reconcile_s=30)
    app.outside.after = raising(LOST)
    with monkeypatch.context() as patched:

        async def look_up(params: Any, call: Any) -> Any:
            await never()

        patched.setattr(app.outside, "look_up", look_up)
        async with begun(app, database_url, "e1") as world:
            await world.advance("29s")
            assert await open_run_state(app) == "running"
            await world.advance("1s")
            assert await open_run_state(app) == "sleeping:reconciliation"
            patched.undo()
            await world.advance("41s")
            assert await ledger(app) == ["applied"]
            await sound(app)
