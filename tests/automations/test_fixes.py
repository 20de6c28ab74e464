"""Fixes of automations: versions, budget, refusals."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rota.automations import Context, Fix, HandlerFailure, Prepared
from rota.testing import virtual
from tests.automations.kit import (
    Line,
    begun,
    event_statuses,
    last,
    open_run_state,
    sound,
    started,
)

GOOD = """
async def prepare(ctx, state):
    events = await ctx.peek("work")
    ctx.log("fixed")
    return {"reservations": [{"topic": "work", "ids": [one.id for one in events]}], "data": 1}
"""


async def prepare(ctx: Context, state: Any) -> Any:
    events = await ctx.peek("work")
    if events:
        raise ValueError("a bug")
    return None


def fixed_by(app: Line) -> None:
    app.line.handlers["worker"].functions["prepare"] = prepare


async def test_a_fix_is_recorded_as_a_version_and_the_chain_goes_on_with_it(
    database_url: str,
) -> None:
    asked: list[HandlerFailure] = []

    async def fixer(failure: HandlerFailure) -> Fix:
        asked.append(failure)
        return Fix({"prepare": GOOD}, "do not fail")

    app = Line(fix=fixer)
    fixed_by(app)
    async with begun(app, database_url, "e1") as world:
        [failure] = asked
        assert (failure.handler, failure.phase, failure.attempt) == ("worker", "preparing", 1)
        assert "a bug" in failure.error
        assert "a bug" in failure.source["prepare"]
        made = await app.automations.versions("line")
        assert [(one.version, one.made_by, one.comment) for one in made] == [
            (2, "fix", "do not fail"),
            (1, "deploy", None),
        ]
        assert await last(app, 2) == ["preparing failed:logic", "committed committed"]
        assert await event_statuses(app) == {"e1": "consumed"}
        assert (await app.automations.show("line")).automation.fixes == 0
        await sound(app)
        stopped_at = world.clock.now()
    second = Line(fix=fixer)
    fixed_by(second)
    async with virtual(second, url=database_url, start=stopped_at) as world:
        await second.feed("e2")
        await world.settle()
        assert len(asked) == 1  # the fix outlives the process
        assert await event_statuses(second) == {"e1": "consumed", "e2": "consumed"}


async def test_fixes_have_a_budget(database_url: str) -> None:
    asked: list[int] = []

    async def hopeless(failure: HandlerFailure) -> Fix:
        asked.append(failure.attempt)
        text = f"async def prepare(ctx, state):\n    raise ValueError({len(asked)})\n"
        return Fix({"prepare": text}, f"try {len(asked)}")

    app = Line(fix=hopeless)
    fixed_by(app)
    async with begun(app, database_url, "e1") as world:
        await world.advance("1d")
        assert asked == [1, 2, 3]
        assert await open_run_state(app) == "waiting:logic"
        [run] = await app.automations.activity("line", limit=1)
        assert run.run.remark == "given up after 3 fixes in a row"
        await sound(app)


@pytest.mark.parametrize(
    ("fix", "complaint"),
    [
        (None, "no fix was found"),
        (Fix({"prepare": "def ("}, "x"), "does not compile"),
        (Fix({"prepare": "x = 1"}, "x"), "does not define prepare"),
        (Fix({"prepare": "async def prepare(ctx):\n    pass"}, "x"), "takes"),
        (Fix({"run": "async def run(ctx, state):\n    pass"}, "x"), "does not have"),
        (Fix({}, "x"), "changes nothing"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_a_fix_that_is_none_is_refused_and_the_failure_stays_visible(
    database_url: str, fix: Fix | None, complaint: str
) -> None:
    async def fixer(failure: HandlerFailure) -> Fix | None:
        return fix

    app = Line(fix=fixer)
    fixed_by(app)
    async with begun(app, database_url, "e1"):
        assert await open_run_state(app) == "waiting:logic"
        [run] = await app.automations.activity("line", limit=1)
        assert complaint in (run.run.remark or "")
        assert len(await app.automations.versions("line")) == 1


async def test_a_fix_after_the_change_keeps_the_change(database_url: str) -> None:
    async def fixer(failure: HandlerFailure) -> Fix:
        text = "async def emit(ctx, prepared, mutation):\n    return mutation.status\n"
        return Fix({"next": text}, "return")

    app = Line(fix=fixer)

    async def emit(ctx: Context, prepared: Prepared, mutation: Any) -> None:
        raise ValueError("bug in next")

    app.line.handlers["worker"].functions["next"] = emit
    async with virtual(app, url=database_url) as world:
        app.take = 1
        await started(world, app, "e1")
        assert app.outside.calls == 1
        state = (await app.automations.show("line")).handlers[0].state
        assert state == '"applied"'
        await sound(app)


async def test_a_fixer_that_does_not_end_is_cancelled_after_phase_s(database_url: str) -> None:
    async def fixer(failure: HandlerFailure) -> Fix | None:
        await asyncio.Event().wait()
        return None

    app = Line(fix=fixer, phase_s=300)
    fixed_by(app)
    async with begun(app, database_url, "e1") as world:
        await world.advance("299s")
        assert await open_run_state(app) == "running"
        await world.advance("1s")
        assert await open_run_state(app) == "waiting:logic"
        [run] = await app.automations.activity("line", limit=1)
        assert run.run.remark == "the fix was refused: it did not end within 300 s"
