"""User code that would end the process or the event loop: its call fails, and the worker lives."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from rota.automations import Context, Fix, HandlerFailure, Prepared
from rota.errors import OutcomeUnknown
from rota.store.automations import state
from rota.tools import Safety, Tool, Verdict, tool
from tests.automations.kit import (
    UNSURE,
    Line,
    begun,
    event_statuses,
    open_run_state,
    raising,
    sound,
    sql,
)

EXITS = (SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError)
LOST = OutcomeUnknown("the answer never came")


def exiting(kind: type[BaseException], times: int = 1) -> Callable[[], Any]:
    """Code that raises so, from a coroutine."""
    strike = raising(kind(3), times)

    async def leave() -> None:
        strike()

    return leave


@pytest.mark.parametrize("kind", EXITS)
@pytest.mark.parametrize("safety", [Safety.IDEMPOTENT, Safety.RECONCILABLE])
async def test_a_write_that_would_end_the_process_has_an_unknown_outcome(
    database_url: str, kind: type[BaseException], safety: Safety
) -> None:
    app = Line(safety)
    async with begun(app, database_url) as world:
        app.outside.after = exiting(kind)
        await app.feed("e1", "e2")
        await world.advance("10m")
        assert len(app.outside.effects) == 2
        assert await event_statuses(app) == {"e1": "consumed", "e2": "consumed"}
        assert [one.status for one in app.reported] == ["applied", "applied"]
        await sound(app)


@pytest.mark.parametrize("kind", EXITS)
async def test_a_person_is_asked_about_a_write_that_no_tool_can_find_out(
    database_url: str, kind: type[BaseException]
) -> None:
    app = Line(Safety.UNKNOWABLE)
    async with begun(app, database_url) as world:
        app.outside.after = exiting(kind)
        await app.feed("e1")
        await world.settle()
        assert await open_run_state(app) == "waiting:reconciliation"
        [change] = await app.automations.outputs("line")
        assert kind.__name__ in (change.error or "")
        await app.automations.resolve("line", "happened")
        await world.settle()
        assert await event_statuses(app) == {"e1": "consumed"}
        await sound(app)


@pytest.mark.parametrize("kind", [*EXITS, StopIteration])
async def test_a_plain_function_in_its_thread_cannot_end_the_process_either(
    database_url: str, kind: type[BaseException]
) -> None:
    app = Line()
    strike = raising(kind(3))

    @tool(safety="idempotent")
    def plain(items: list[Any]) -> str:
        strike()
        return "done"

    app.outside = plain  # type: ignore[assignment]
    async with begun(app, database_url, "e1") as world:
        await world.advance("1m")
        assert await event_statuses(app) == {"e1": "consumed"}
        assert app.applied == [("applied", "done")]
        await sound(app)


@pytest.mark.parametrize("kind", EXITS)
async def test_a_lookup_that_would_end_the_process_counts_as_one_look(
    database_url: str, kind: type[BaseException]
) -> None:
    app = Line()
    strike = raising(kind(3))
    look_up = app.outside.look_up

    async def leave(params: Any, call: Any) -> Verdict:
        app.outside.looks += 1
        strike()
        return await look_up(params, call)

    app.outside.look_up = leave  # type: ignore[method-assign]
    async with begun(app, database_url) as world:
        app.outside.after = raising(LOST)
        await app.feed("e1")
        await world.advance("10m")
        assert len(app.outside.effects) == 1
        assert await event_statuses(app) == {"e1": "consumed"}
        await sound(app)


class Leaves(Tool):
    """A read that would end the process."""

    name = "leaves"
    safety = Safety.READ

    def __init__(self, kind: type[BaseException]) -> None:
        self.strike = raising(kind(3))

    def read(self, params: dict[str, Any]) -> Any:
        return params

    async def perform(self, params: Any, call: Any) -> str:
        self.strike()
        return "text"


@pytest.mark.parametrize("kind", EXITS)
async def test_a_read_that_would_end_the_process_is_an_internal_error(
    database_url: str, kind: type[BaseException]
) -> None:
    app = Line()
    page = Leaves(kind)

    async def prepare(ctx: Context, state: Any) -> Prepared:
        events = await ctx.peek("work")
        if events:
            await ctx.call(page)
        return Prepared(events)

    app.line.handlers["worker"].functions["prepare"] = prepare
    async with begun(app, database_url, "e1") as world:
        assert await open_run_state(app) == "waiting:internal"
        assert kind.__name__ in (await app.automations.show("line")).sentence
        await app.automations.resolve("line", "try-again")
        await world.settle()
        assert await event_statuses(app) == {"e1": "consumed"}
        await sound(app)


@pytest.mark.parametrize("kind", EXITS)
async def test_parameters_that_end_the_process_when_read_call_nothing(
    database_url: str, kind: type[BaseException]
) -> None:
    app = Line()
    strike = raising(kind(3))
    app.outside.read = lambda params: strike() or params  # type: ignore[method-assign]
    async with begun(app, database_url, "e1") as world:
        assert app.outside.calls == 0
        assert (await open_run_state(app)).startswith("waiting:")
        await app.automations.resolve("line", "try-again")
        await world.settle()
        assert await event_statuses(app) == {"e1": "consumed"}
        await sound(app)


@pytest.mark.parametrize("kind", EXITS)
@pytest.mark.parametrize("at_once", [True, False])
async def test_a_fixer_that_would_end_the_process_has_no_fix(
    database_url: str, kind: type[BaseException], at_once: bool
) -> None:
    def at_the_call(failure: HandlerFailure) -> Any:
        raise kind(3)

    async def later(failure: HandlerFailure) -> Fix | None:
        raise kind(3)

    app = Line(fix=at_the_call if at_once else later)
    async with begun(app, database_url) as world:
        app.in_prepare = raising(ValueError("a bug"))
        await app.feed("e1")
        await world.settle()
        assert await open_run_state(app) == "waiting:logic"
        [run] = await app.automations.activity("line", limit=1)
        assert kind.__name__ in (run.run.remark or "")
        await sound(app)


async def test_a_run_with_a_task_that_was_cancelled_from_outside_continues_and_buries_nothing(
    database_url: str,
) -> None:
    """A program that cancels all tasks of its loop is not an error of the automation."""
    app = Line(Safety.IDEMPOTENT)

    async def cancel_the_run() -> None:
        for task in asyncio.all_tasks():
            if type(task).__name__ == "RunTask":
                task.cancel()
        await asyncio.sleep(0)

    async with begun(app, database_url) as world:
        app.outside.after = cancel_the_run
        await app.feed("e1")
        await world.settle()
        app.outside.after = None
        await world.advance("5m")
        await world.beat()
        await world.settle()
        assert len(app.outside.effects) == 1
        assert await event_statuses(app) == {"e1": "consumed"}
        assert not any("logic" in (one.reason or "") for one in await app.runs.list())
        await sound(app)


async def orphaned(app: Line, status: str) -> None:
    """The open run ends as an earlier version ended it, with nothing after it."""
    await sql(
        app,
        "update runs set status = 'failed', reason = 'logic', finished_at = created_at, "
        "lease_owner = null, lease_until = null, available_at = null "
        "where kind = 'automation' and finished_at is null",
    )
    await sql(app, f"update mutations set status = '{status}'")


@pytest.mark.parametrize("safety", [Safety.IDEMPOTENT, Safety.RECONCILABLE, Safety.UNKNOWABLE])
@pytest.mark.parametrize("with_open_run", [False, True])
async def test_resume_takes_up_a_chain_that_ended_without_an_answer(
    database_url: str, safety: Safety, with_open_run: bool
) -> None:
    app = Line(safety)
    async with begun(app, database_url) as world:
        app.outside.after = raising(LOST, 2)
        app.outside.verdict = UNSURE
        await app.feed("e1")
        await world.settle()
        await orphaned(app, "in_flight")
        if with_open_run:  # what `resume` of an earlier version made
            await sql(
                app,
                "insert into runs (id, namespace, kind, name, queue, priority, status, reason, "
                "root_id, attempt, recoveries, trigger, serial_key, created_at) "
                "select 'f' || substr(id, 2), namespace, kind, name, queue, priority, 'sleeping', "
                "'event', 'f' || substr(id, 2), 1, 0, 'event', 'automation:line', created_at "
                "from runs where kind = 'automation' and reason = 'logic'",
            )
        app.outside.after = app.outside.verdict = None
        [orphan] = await app.connection.database.read(state.orphaned_chains, namespace="default")
        assert orphan.automation == "line"
        await app.automations.resume("line")
        await world.advance("10m")
        if safety is Safety.UNKNOWABLE:
            assert await open_run_state(app) == "waiting:reconciliation"
            await app.automations.resolve("line", "happened")
            await world.settle()
        assert len(app.outside.effects) == 1
        assert await event_statuses(app) == {"e1": "consumed"}
        assert [one.status for one in app.reported] == ["applied"]
        assert await app.connection.database.read(state.orphaned_chains, namespace="default") == []
        await sound(app)
