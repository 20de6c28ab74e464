"""Answers of people: "it happened" continues as applied, one answer for many automations, and who
answered, when and why."""

from __future__ import annotations

import getpass
from typing import Any

import pytest

from rota import Rota
from rota.automations import Change, Context, MutationResult, Prepared
from rota.core.time.instants import moment
from rota.errors import BadInput, NotSent, OutcomeUnknown, UnknownOption, UsageError, WrongState
from rota.testing import virtual
from rota.tools import Safety, Unknown
from tests.automations.kit import (
    QUIET,
    Line,
    Outside,
    begun,
    event_statuses,
    open_run_state,
    raising,
    sound,
)

LOST = OutcomeUnknown("the answer never came")


async def answered(app: Rota, name: str = "line") -> list[tuple[str, str, str | None]]:
    """The answers of people, oldest first: what, who, why."""
    found = reversed(await app.automations.answers(name))
    return [(one.act, one.person, one.note) for one in found]


@pytest.mark.parametrize("safety", [Safety.UNKNOWABLE, Safety.RECONCILABLE, Safety.IDEMPOTENT])
async def test_a_change_that_did_happen_goes_on_as_applied_with_its_result(
    database_url: str, safety: Safety
) -> None:
    app = Line(safety)
    app.outside.verdict = Unknown("the line is dead")
    async with begun(app, database_url) as world:
        app.outside.after = raising(LOST, 1000)
        await app.feed("e1")
        await world.advance("1h")
        assert "happened" in (await app.automations.show("line")).said.actions
        calls = app.outside.calls
        await app.automations.resolve("line", "happened", result={"id": 7}, by="anna", note="seen")
        await world.settle()
        assert app.applied == [("applied", {"id": 7})]
        assert app.outside.calls == calls
        assert await event_statuses(app) == {"e1": "consumed"}
        [row] = await app.automations.outputs("line")
        assert (row.status, row.result, row.resolved_by) == ("applied", '{"id":7}', "person")
        assert await answered(app) == [("happened", "anna", "seen")]
        await sound(app)


async def test_a_change_that_did_happen_needs_no_result(database_url: str) -> None:
    app = Line(Safety.UNKNOWABLE)
    async with begun(app, database_url) as world:
        app.outside.after = raising(LOST)
        await app.feed("e1")
        await world.settle()
        await app.automations.resolve("line", "happened")
        await world.settle()
        assert app.applied == [("applied", None)]
        assert await answered(app) == [("happened", getpass.getuser(), None)]


async def test_a_result_is_only_taken_for_a_change_that_happened(database_url: str) -> None:
    app = Line(Safety.UNKNOWABLE)
    async with begun(app, database_url) as world:
        app.in_prepare = raising(ValueError("bug"))
        await app.feed("e1")
        await world.settle()
        with pytest.raises(WrongState, match="it has no side effect with an unknown outcome"):
            await app.automations.resolve("line", "happened")
        with pytest.raises(UsageError, match="'skip' takes no result"):
            await app.automations.resolve("line", "skip", result=1)
        with pytest.raises(UsageError, match="result of the change"):
            await app.automations.resolve("line", "happened", result=object())
        assert await open_run_state(app) == "waiting:logic"
        assert await answered(app) == []


# -- who, when and why -------------------------------------------------------------------------


async def test_the_ledger_records_who_approved_when_and_why(database_url: str) -> None:
    app = Line(approval=True)
    async with begun(app, database_url, "e1") as world:
        await world.advance("5m")
        await app.automations.approve("line", by="anna", note="the amount is right")
        await world.settle()
        [row] = await app.automations.outputs("line")
        [reported] = await app.automations.answers("line", change_id=row.id)
        assert (reported.act, reported.person, reported.note) == (
            "approved",
            "anna",
            "the amount is right",
        )
        assert f"{moment(reported.at):%H:%M}" == "00:05"
        [run] = [one for one in await app.automations.activity("line") if one.answers]
        assert run.run.run_id == row.run_id
        assert run.answers[0].words == "approved by anna: the amount is right"
        await sound(app)


async def test_every_answer_is_recorded_with_its_person(database_url: str) -> None:
    app = Line(approval=True)
    async with begun(app, database_url, "e1") as world:
        ask = app.automations
        await ask.reject("line", by="bea", note="no")
        app.in_prepare = raising(ValueError("bug"), 2)
        await ask.publish("line", "work", "e2")
        await world.settle()
        await ask.resolve("line", "try-again", by="carl")
        await world.settle()
        await ask.resolve("line", "skip", by="dora", note="broken for good")
        await world.settle()
        await ask.pause("line")
        await app.feed("e3", "e4")
        await ask.skip_event("line", "work", "e3", by="emil")
        [seen] = [one for one in await ask.pending("line") if one.input.external_id == "e4"]
        await ask.skip_input("line", seen.input.id, by="fred", note="not ours")
        await ask.requeue("line", "work", "e3", by="gina")
        assert await answered(app) == [
            ("rejected", "bea", "no"),
            ("try-again", "carl", None),
            ("skip", "dora", "broken for good"),
            ("skip", "emil", None),
            ("skip", "fred", "not ours"),
            ("requeue", "gina", None),
        ]
        await sound(app)


async def test_an_answer_that_is_refused_is_not_recorded(database_url: str) -> None:
    app = Line(approval=True)
    async with begun(app, database_url, "e1"):
        with pytest.raises(WrongState):
            await app.automations.approve("line", expected="another", by="anna")
        with pytest.raises(BadInput, match="by=''"):
            await app.automations.approve("line", by="")
        with pytest.raises(UnknownOption, match="'why'"):
            await app.automations.approve("line", why="x")  # type: ignore[call-arg]
        assert await answered(app) == []
        assert await open_run_state(app) == "waiting:approval"


# -- one answer for many -----------------------------------------------------------------------


class Many(Rota):
    """Automations of one consumer each, with a tool that can be made to misbehave."""

    def __init__(self, *names: str) -> None:
        super().__init__("sqlite://:memory:", **QUIET)
        self.tools: dict[str, Outside] = {}
        self.reported: dict[str, list[MutationResult]] = {name: [] for name in names}
        for name in names:
            self._declare(name)

    def _declare(self, name: str) -> None:
        outside = self.tools[name] = Outside(Safety.UNKNOWABLE)
        outside.name = f"tool-{name[0]}"
        one = self.automation(name, timezone="UTC")
        work = one.topic("work", external=True)

        async def prepare(ctx: Context, state: Any) -> Prepared:
            return Prepared(await ctx.peek(work, limit=1))

        async def mutate(ctx: Context, prepared: Prepared) -> Change:
            return outside.change()

        async def emit(ctx: Context, prepared: Prepared, mutation: MutationResult) -> None:
            self.reported[name].append(mutation)

        one.consumer("worker", subscribes=[work], prepare=prepare, mutate=mutate, next=emit)

    async def feed(self) -> None:
        for name in self.reported:
            await self.automations.publish(name, "work", "e1")


async def test_one_answer_for_all_that_wait_is_counted_first_and_then_given(
    database_url: str,
) -> None:
    app = Many("a1", "a2", "b1", "c1")
    async with virtual(app, url=database_url) as world:
        for name in ("a1", "a2", "b1"):
            app.tools[name].after = raising(LOST)
        await app.feed()
        await world.settle()
        ask = app.automations
        counted = await ask.answer_all("happened", dry_run=True)
        assert (counted.count, counted.names) == (3, ["a1", "a2", "b1"])
        assert await open_run_state(app, "a1") == "waiting:reconciliation"
        assert (await ask.answer_all("happened", dry_run=True, name="a*")).count == 2
        assert (await ask.answer_all("happened", dry_run=True, tool="tool-b")).names == ["b1"]
        assert (await ask.answer_all("happened", dry_run=True, reason="logic")).count == 0
        assert (await ask.answer_all("approve", dry_run=True)).count == 0
        done = await ask.answer_all("happened", result=5, name="a*", by="anna", note="checked")
        assert (done.names, done.refused) == (["a1", "a2"], {})
        await world.settle()
        reported = MutationResult("applied", 5)
        assert (app.reported["a1"][-1], app.reported["a2"][-1]) == (reported, reported)
        assert await open_run_state(app, "b1") == "waiting:reconciliation"
        assert await answered(app, "a2") == [("happened", "anna", "checked")]
        await sound(app)


async def test_all_automations_of_an_outage_are_tried_again_with_one_answer(
    database_url: str,
) -> None:
    app = Many("a1", "a2")
    async with virtual(app, url=database_url) as world:
        for tool in app.tools.values():
            tool.before = raising(NotSent("down"), 1000)
        await app.feed()
        await world.advance("1h")
        assert await open_run_state(app, "a1") == "sleeping:transient"
        for tool in app.tools.values():
            tool.before = None
        assert (await app.automations.answer_all("try-again", reason="transient")).count == 2
        await world.settle()
        assert [len(tool.effects) for tool in app.tools.values()] == [1, 1]


async def test_an_answer_that_is_none_or_a_filter_that_is_none_is_refused() -> None:
    app = Many("a1")
    async with virtual(app):
        with pytest.raises(BadInput, match="'maybe' is not an answer"):
            await app.automations.answer_all("maybe")  # type: ignore[arg-type]
        with pytest.raises(UnknownOption, match="'names'"):
            await app.automations.answer_all("skip", names="a*")  # type: ignore[call-arg]
        with pytest.raises(BadInput, match="'transent' is not a reason to wait") as typo:
            await app.automations.answer_all("skip", reason="transent")
        assert typo.value.advice == "Did you mean transient?"
