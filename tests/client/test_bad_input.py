"""Bad names, keys, priorities and numbers get the same BadInput on both databases."""

from __future__ import annotations

import math
from datetime import date
from typing import Any

import pytest

from rota import Rota, Start, wait_for
from rota.core.runs.names import KEY_BYTES_MAX, NAME_BYTES_MAX, PRIORITY_MAX
from rota.errors import BadInput, NotSerialisable, UsageError
from rota.testing import virtual
from tests.workflows.kit import result, trouble

BAD_TEXTS = ["", "a\0b", "a\ud800", "x" * (KEY_BYTES_MAX + 1), "é" * KEY_BYTES_MAX, 7]
IDS = ["empty", "NUL", "lone surrogate", "too long", "too many bytes", "not text"]


def plain() -> tuple[Rota, Any]:
    app = Rota()

    @app.workflow
    async def echo(value: Any = None) -> Any:
        return value

    return app, echo


@pytest.mark.parametrize("text", BAD_TEXTS, ids=IDS)
async def test_a_bad_id_key_queue_or_signal_name_is_refused(database_url: str, text: Any) -> None:
    app, echo = plain()
    async with virtual(app, url=database_url):
        for option in ("external_id", "key", "queue"):
            with pytest.raises(BadInput, match=option):
                await echo.options(**{option: text}).start()
        with pytest.raises(BadInput, match="external_id"):
            await app.start_many(echo, [Start((1,), external_id=text)])
        with pytest.raises(BadInput, match="key"):
            await app.start_many(echo, [Start((1,), key=text)])
        assert await app.runs.list() == []
        run = await app.start(echo)
        with pytest.raises(BadInput, match="signal name"):
            await app.runs.signal(run.id, text)
        with pytest.raises(BadInput, match="reason"):
            await app.runs.cancel(run.id, reason=text)


@pytest.mark.parametrize(
    "priority", [1.5, 2**31, -(2**31), 2**63, 10**30, math.nan, "1", True], ids=repr
)
async def test_a_priority_that_is_not_a_whole_number_in_range_is_refused(
    database_url: str, priority: Any
) -> None:
    app, echo = plain()
    async with virtual(app, url=database_url):
        with pytest.raises(BadInput, match="priority"):
            await echo.options(priority=priority).start()
        with pytest.raises(BadInput, match="priority"):
            await echo.options(priority=priority).start_many([(1,)])
        assert await app.runs.list() == []


async def test_the_longest_names_and_highest_priorities_are_kept(database_url: str) -> None:
    app, echo = plain()
    async with virtual(app, url=database_url) as world:
        key, queue = "k" * KEY_BYTES_MAX, "q" * NAME_BYTES_MAX
        run = await echo.options(external_id=key, key=key, priority=PRIORITY_MAX).start()
        await echo.options(queue=queue, priority=-PRIORITY_MAX).start()
        await app.runs.signal(run.id, queue)
        assert (await echo.options(external_id=key).start()).existed
        await world.settle()
        assert await run.status() == "completed"


def test_a_bad_name_queue_or_priority_is_refused_at_registration() -> None:
    app = Rota()

    async def work() -> None:
        return None

    for words in ({"name": "a\0"}, {"queue": ""}, {"priority": 1.5}, {"name": "n" * 256}):
        with pytest.raises(BadInput):
            app.workflow(**words)(work)
    with pytest.raises(BadInput, match="step name"):
        app.step(name="\ud800")(work)
    with pytest.raises(BadInput, match="the key of step work"):
        app.step(work).keyed("a\0b")
    with pytest.raises(BadInput, match="queue"):
        app.queue("")


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf], ids=str)
async def test_nan_and_infinity_are_refused_and_the_error_names_the_place(
    database_url: str, value: float
) -> None:
    app, echo = plain()

    @app.step
    async def measure() -> Any:
        return {"share": [1.0, value]}

    @app.workflow
    async def outer(inside: bool) -> Any:
        return await measure() if inside else value

    @app.workflow
    async def waits() -> Any:
        return await wait_for("go")

    async with virtual(app, url=database_url) as world:
        for arguments in ((value,), ({"a": value},), ([value],)):
            said = rf"argument value of echo holds {value} at `\$"
            with pytest.raises(NotSerialisable, match=said):
                await app.start(echo, *arguments)
        waiting = await app.start(waits)
        with pytest.raises(NotSerialisable, match=r"signal go holds .* at `\$`"):
            await app.runs.signal(waiting.id, "go", value)
        step, output = await app.start(outer, True), await app.start(outer, False)
        await world.settle()
        assert "at `$.share[1]`" in (await trouble(step))["message"]
        assert "the result of workflow outer" in (await trouble(output))["message"]
        assert await waiting.status() == "sleeping:signal"


async def test_none_stays_none(database_url: str) -> None:
    app, echo = plain()
    async with virtual(app, url=database_url) as world:
        run = await app.start(echo, {"a": None, "b": 0.5})
        await world.settle()
        assert await result(run) == {"a": None, "b": 0.5}


@pytest.mark.parametrize("at", ["tomorrow", 1_700_000_000, date(2031, 1, 1)], ids=repr)
async def test_a_start_at_what_is_no_datetime_is_refused(at: Any) -> None:
    app, echo = plain()
    async with virtual(app):
        with pytest.raises(BadInput, match="is not a datetime"):
            await echo.options(at=at).start()


async def test_what_is_no_workflow_cannot_be_started() -> None:
    app, _ = plain()

    def forgotten() -> None: ...

    @app.step
    async def step() -> None: ...

    other: Any
    async with virtual(app):
        for other in (forgotten, step, 5, None):
            with pytest.raises(UsageError, match="is not a workflow"):
                await app.start(other)
            with pytest.raises(UsageError, match="is not a workflow"):
                await app.start_many(other, [()])


@pytest.mark.parametrize("given", [5, None, b"id", 1.5], ids=repr)
async def test_an_id_or_a_name_that_is_not_text_is_refused(database_url: str, given: Any) -> None:
    app, _ = plain()
    async with virtual(app, url=database_url):
        runs, automations = app.runs, app.automations
        for call in (runs.get, runs.steps, runs.chain, runs.children, runs.retry, runs.cancel):
            with pytest.raises(BadInput, match=r"run id=.* is not text"):
                await call(given)
        with pytest.raises(BadInput, match=r"run id=.* is not text"):
            await runs.signal(given, "go")
        with pytest.raises(BadInput, match=r"automation name=.* is not text"):
            await automations.show(given)
        with pytest.raises(BadInput, match=r"automation name=.* is not text"):
            await automations.pause(given)


async def test_start_many_without_a_list_of_items_is_refused(database_url: str) -> None:
    app, echo = plain()
    none: Any = 5
    async with virtual(app, url=database_url):
        for start in (echo.start_many(none), app.start_many("echo", none)):
            with pytest.raises(BadInput, match="start_many got 5, not a list of items"):
                await start
        assert await app.runs.list() == []
