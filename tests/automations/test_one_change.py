"""The one change of a handler run is the value that `mutate` returns. A second one cannot be
returned, and one that is built and not returned stops the run before anything is sent."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import pytest

from rota import Rota
from rota.automations import Change, Context, MutationResult, Prepared
from rota.errors import BadAutomation, UsageError
from rota.tools import tool
from tests.automations.kit import (
    QUIET,
    Faulty,
    Line,
    begun,
    bury,
    dying_at,
    event_statuses,
    last,
    open_run_state,
    sound,
)

Mutate = Callable[[Any, Context, Prepared], Any]


def uses(app: Line, **functions: Any) -> None:
    """From now on these are phases of the consumer."""
    app.line.handlers["worker"].functions.update(functions)


class Several:
    """Forms of mutate that ask for several changes, or lose the one that they ask for."""

    def __init__(self, app: Line) -> None:
        self.send = app.outside

    async def a_list(self, ctx: Context, prepared: Prepared) -> Any:
        return [self.send.change(items=item) for item in (1, 2)]

    async def a_list_of_one(self, ctx: Context, prepared: Prepared) -> Any:
        return [self.send.change(items=1)]

    async def a_tuple(self, ctx: Context, prepared: Prepared) -> Any:
        return self.send.change(items=1), self.send.change(items=2)

    async def the_last_of_a_loop(self, ctx: Context, prepared: Prepared) -> Any:
        made = None
        for item in (1, 2):
            made = self.send.change(items=item)
        return made

    async def without_return(self, ctx: Context, prepared: Prepared) -> Any:
        self.send.change(items=1)

    async def in_two_branches(self, ctx: Context, prepared: Prepared) -> Any:
        if prepared.data:
            self.send.change(items=1)
        return self.send.change(items=2)

    async def mapped(self, ctx: Context, prepared: Prepared) -> Any:
        make = lambda item: self.send.change(items=item)  # noqa: E731
        list(map(make, (1, 2, 3)))

    async def as_a_key(self, ctx: Context, prepared: Prepared) -> Any:
        sorted((1, 2), key=lambda item: str(self.send.change(items=item)))

    async def on_an_exit_stack(self, ctx: Context, prepared: Prepared) -> Any:
        async with AsyncExitStack() as stack:
            stack.callback(self.send.change, items=1)

    async def by_a_partial(self, ctx: Context, prepared: Prepared) -> Any:
        make = partial(self.send.change, items=1)
        make()
        return make()

    async def in_tasks(self, ctx: Context, prepared: Prepared) -> Any:
        async def make(item: int) -> Change:
            return self.send.change(items=item)

        return (await asyncio.gather(make(1), make(2)))[0]

    def in_a_thread(self, ctx: Context, prepared: Prepared) -> Any:
        self.send.change(items=1)
        return self.send.change(items=2)

    def a_generator_of_its_own(self, ctx: Context, prepared: Prepared) -> Any:
        return (self.send.change(items=item) for item in (1, 2))

    async def a_result(self, ctx: Context, prepared: Prepared) -> Any:
        return {"sent": True}


SEVERAL = [one for name, one in vars(Several).items() if not name.startswith("_")]


@pytest.mark.parametrize("form", SEVERAL, ids=lambda form: form.__name__)
async def test_a_mutate_that_asks_for_more_than_it_returns_makes_no_change(
    database_url: str, form: Mutate
) -> None:
    app = Line()
    async with begun(app, database_url) as world:
        uses(app, mutate=form.__get__(Several(app)))
        await app.feed("e1")
        await world.settle()
        assert await open_run_state(app) == "waiting:logic"
        said = (await app.automations.show("line")).sentence
        assert "change" in said
        assert app.outside.effects == []
        assert await last(app, 1) == ["mutating failed:logic"]
        assert await event_statuses(app) == {"e1": "pending"}
        await sound(app)


class One:
    """Forms of mutate that return one change."""

    def __init__(self, app: Line) -> None:
        self.send = app.outside

    async def by_branch(self, ctx: Context, prepared: Prepared) -> Change:
        if prepared.data:
            return self.send.change(items=1)
        return self.send.change(items=2)

    async def from_a_loop(self, ctx: Context, prepared: Prepared) -> Change | None:
        for item in (1, 2):
            if item == 1:
                return self.send.change(items=item)
        return None

    async def by_a_helper(self, ctx: Context, prepared: Prepared) -> Change:
        return await asyncio.create_task(self._help(1))

    async def _help(self, item: int) -> Change:
        return self.send.change(items=item)

    async def kept_in_a_variable(self, ctx: Context, prepared: Prepared) -> Change:
        made = self.send.change(items=1)
        ctx.log("a change of", made.tool.name)
        return made

    def in_a_thread(self, ctx: Context, prepared: Prepared) -> Change:
        return self.send.change(items=1)

    def made_in_a_thread_of_its_own(self, ctx: Context, prepared: Prepared) -> Change:
        made: list[Change] = []
        thread = threading.Thread(target=lambda: made.append(self.send.change(items=1)))
        thread.start()
        thread.join()
        return made[0]


ONE = [one for name, one in vars(One).items() if not name.startswith("_")]


@pytest.mark.parametrize("form", ONE, ids=lambda form: form.__name__)
async def test_a_mutate_that_returns_one_change_makes_it(database_url: str, form: Mutate) -> None:
    app = Line()
    async with begun(app, database_url) as world:
        uses(app, mutate=form.__get__(One(app)))
        await app.feed("e1")
        await world.settle()
        assert [params for _, params in app.outside.effects] == [{"items": 1}]
        assert app.applied[0] == ("applied", "done")
        assert await event_statuses(app) == {"e1": "consumed"}


async def test_code_that_runs_beside_mutate_does_not_count_its_changes(database_url: str) -> None:
    """A change that another task builds is not one of this mutate."""
    app = Line()
    async with begun(app, database_url) as world:
        stop = asyncio.Event()

        async def other() -> None:
            while not stop.is_set():
                app.outside.change(items=9)
                await asyncio.sleep(0)

        task = asyncio.create_task(other())
        await app.feed("e1")
        await world.settle()
        stop.set()
        await task
        assert [params for _, params in app.outside.effects] == [{"items": [{"id": "e1"}]}]


@pytest.mark.parametrize("phase", ["prepare", "next"])
async def test_a_change_that_another_phase_builds_is_refused(database_url: str, phase: str) -> None:
    app = Line()

    async def build(*args: Any) -> None:
        app.outside.change(items=1)

    async with begun(app, database_url) as world:
        uses(app, **{phase: build})
        await app.feed("e1")
        await world.settle()
        assert await open_run_state(app) == "waiting:logic"
        said = (await app.automations.show("line")).sentence
        assert f"{phase} of worker built a change of outside" in said


async def test_a_call_of_a_write_tool_names_the_line_to_write(database_url: str) -> None:
    app = Line()

    async def mutate(ctx: Context, prepared: Prepared) -> None:
        await ctx.call(app.outside, items=1)

    async with begun(app, database_url) as world:
        uses(app, mutate=mutate)
        await app.feed("e1")
        await world.settle()
        shown = await app.automations.show("line")
        assert "ctx.call reads, and outside makes a change" in shown.sentence
        assert app.outside.calls == 0


def test_a_read_tool_makes_no_change() -> None:
    with pytest.raises(UsageError, match="faulty reads, so it makes no change"):
        Faulty().change()


# -- what a deploy refuses -------------------------------------------------------------------------


@tool(safety="idempotent")
async def send(text: str) -> None: ...


async def take(ctx: Context, state: Any) -> Prepared:
    return Prepared()


async def returns_a_list(ctx: Context, prepared: Prepared) -> list[Change]:
    return [send.change(text="a")]


async def returns_two(ctx: Context, prepared: Prepared) -> tuple[Change, Change] | None:
    return None


async def returns_a_word(ctx: Context, prepared: Prepared) -> str:
    return "sent"


def yields(ctx: Context, prepared: Prepared) -> Iterator[Change]:
    yield send.change(text="a")


@pytest.mark.parametrize(
    ("mutate", "problem"),
    [
        (returns_a_list, "returns list[rota.tools.base.Change]"),
        (returns_two, "returns tuple[rota.tools.base.Change"),
        (returns_a_word, "returns str"),
        (yields, "has `yield`"),
    ],
)
def test_a_deploy_refuses_a_mutate_that_is_declared_to_return_anything_else(
    mutate: Any, problem: str
) -> None:
    line = Rota(**QUIET).automation("line")
    work = line.topic("work", external=True)
    line.consumer("worker", subscribes=[work], prepare=take, mutate=mutate)
    with pytest.raises(BadAutomation) as caught:
        line.version(now=0)
    assert problem in str(caught.value)


async def optional(ctx: Context, prepared: Prepared) -> Change | None:
    return None


async def nothing(ctx: Context, prepared: Prepared) -> None: ...


async def anything(ctx: Context, prepared: Prepared) -> Any: ...


async def undeclared(ctx, prepared): ...  # type: ignore[no-untyped-def]


async def unknown(ctx: Context, prepared: Prepared) -> Missing: ...  # type: ignore[name-defined] # noqa: F821


@pytest.mark.parametrize("mutate", [optional, nothing, anything, undeclared, unknown])
def test_a_deploy_takes_a_mutate_that_may_return_one_change(mutate: Any) -> None:
    line = Rota(**QUIET).automation("line")
    work = line.topic("work", external=True)
    line.consumer("worker", subscribes=[work], prepare=take, mutate=mutate)
    assert line.version(now=0).name == "line"


# -- events of later phases ------------------------------------------------------------------------


@pytest.mark.parametrize("kill", [None, "before-call", "after-call"])
async def test_the_events_of_a_run_have_their_payloads_in_every_phase(
    database_url: str, kill: str | None
) -> None:
    """By value, as they were reserved; in a recovery too."""
    app = Line()
    seen: dict[str, list[Any]] = {"mutate": [], "next": []}

    def note(phase: str, prepared: Prepared) -> None:
        [event] = prepared.events
        seen[phase].append((event.topic, event.id, dict(event.payload), event.status))
        assert event.created_at.year == 2030
        event.payload["id"] = "spoilt"

    async def prepare(ctx: Context, state: Any) -> Prepared | None:
        events = await ctx.peek("work", limit=1)
        return Prepared(events) if events else None

    async def mutate(ctx: Context, prepared: Prepared) -> Change:
        note("mutate", prepared)
        return app.outside.change(items=1)

    async def following(ctx: Context, prepared: Prepared, mutation: MutationResult) -> None:
        if prepared.events:
            note("next", prepared)

    async with begun(app, database_url) as world:
        uses(app, prepare=prepare, mutate=mutate, next=following)
        if kill is None:
            await app.feed("e1")
        else:
            with dying_at(kill):
                await app.feed("e1")
                await world.settle()
            assert await bury(app) == 1
        await world.advance("1m")
        assert set(map(repr, seen["mutate"])) == {"('work', 'e1', {'id': 'e1'}, 'reserved')"}
        assert seen["next"] == [("work", "e1", {"id": "e1"}, "reserved")]
        assert len(app.outside.effects) == 1
        await sound(app)


async def test_a_newer_payload_does_not_reach_a_run_that_has_begun(database_url: str) -> None:
    app = Line()
    seen: list[Any] = []

    async def correct() -> None:
        await app.automations.publish("line", "work", "e1", {"id": "corrected"})

    async def following(ctx: Context, prepared: Prepared, mutation: MutationResult) -> None:
        seen.extend(event.payload for event in prepared.events)

    async with begun(app, database_url) as world:
        uses(app, next=following)
        app.in_mutate = correct
        await app.feed("e1")
        await world.settle()
        assert seen[0] == {"id": "e1"}
