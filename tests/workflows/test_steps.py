"""Steps: executions, recorded results, and their keys."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rota import Rota, sleep
from rota.testing import virtual
from tests.workflows.kit import (
    Invoice,
    Parcel,
    Receipt,
    keys,
    result,
    sound,
    step_named,
    trouble,
)


async def test_a_step_is_executed_once_however_often_the_run_is_replayed(database_url: str) -> None:
    app = Rota()
    calls: list[int] = []

    @app.step
    async def double(n: int) -> int:
        calls.append(n)
        return n * 2

    @app.workflow
    async def flow(n: int) -> int:
        first = await double(n)
        await sleep("1h")
        second = await double(first)
        await sleep("1h")
        return second

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow, 3)
        await world.drain()
        assert await result(run) == 12
        assert calls == [3, 6]
        await sound(app)


async def test_steps_are_keyed_by_name_and_order(database_url: str) -> None:
    app = Rota()

    @app.step
    async def one(n: int) -> int:
        return n

    @app.step(name="zwei")
    async def two(n: int) -> int:
        return n

    @app.workflow
    async def flow() -> None:
        await one(1)
        await two(2)
        await one(3)

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.drain()
        assert await keys(app, run) == ["one#0", "zwei#0", "one#1"]


async def test_a_keyed_step_keeps_its_result_when_the_order_changes(database_url: str) -> None:
    app = Rota()
    calls: list[str] = []
    order = ["a", "b", "c"]

    @app.step
    async def fetch(item: str) -> str:
        calls.append(item)
        return item.upper()

    @app.workflow
    async def flow() -> dict[str, str]:
        found = {item: await fetch.keyed(item)(item) for item in order}
        await sleep("1h")
        return found

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.settle()
        order.reverse()
        await world.drain()
        assert await result(run) == {"a": "A", "b": "B", "c": "C"}
        assert calls == ["a", "b", "c"]
        assert await keys(app, run) == ["fetch:a", "fetch:b", "fetch:c", "sleep#0"]


async def test_an_explicit_key_never_meets_a_counted_one(database_url: str) -> None:
    app = Rota()

    @app.step
    async def one(n: int) -> int:
        return n

    @app.workflow
    async def flow() -> list[int]:
        return [await one(1), await one.keyed("0")(2), await one.keyed("#0")(3)]

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.drain()
        assert await result(run) == [1, 2, 3]


async def test_a_step_is_a_plain_call_outside_of_workflows() -> None:
    app = Rota()

    @app.step
    async def double(n: int) -> int:
        return n * 2

    @app.step
    def triple(n: int) -> int:
        return n * 3

    @app.workflow
    async def flow(n: int) -> int:
        return await double(n)

    assert await double(2) == 4
    assert await double.keyed("k")(2) == 4
    assert await double.aio(2) == 4
    assert triple(2) == 6
    assert await triple.aio(2) == 6
    assert await flow(2) == 4
    assert double.name == "double"


async def test_a_step_called_inside_a_step_is_a_plain_call(database_url: str) -> None:
    app = Rota()

    @app.step
    async def inner() -> int:
        return 1

    @app.step
    async def outer() -> int:
        return await inner() + sum(await asyncio.gather(inner(), inner()))

    @app.step(timeout="1m")
    async def timed() -> int:
        return await inner()

    @app.step
    def threaded() -> int:
        return asyncio.run(awaited(inner))

    @app.workflow
    async def flow() -> int:
        return await outer() + await timed() + await threaded.aio()

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.drain()
        assert await result(run) == 5
        assert await keys(app, run) == ["outer#0", "timed#0", "threaded#0"]


async def awaited(step: Any) -> int:
    """Call a step in a new event loop."""
    return int(await step())


async def test_a_sync_step_of_an_async_workflow_runs_in_a_thread(database_url: str) -> None:
    app = Rota()
    calls: list[str] = []

    @app.step
    def slow(word: str) -> str:
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()
        calls.append(word)
        return word.upper()

    @app.workflow
    async def flow() -> str:
        word = await slow.aio("hi")
        await sleep("1h")
        return word

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.drain()
        assert await result(run) == "HI"
        assert calls == ["hi"]


async def test_a_sync_step_called_plainly_in_an_async_workflow_says_what_to_write(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = Rota()
    calls: list[int] = []

    @app.step
    def load() -> int:
        calls.append(1)
        return 1

    @app.workflow
    async def flow() -> int:
        return load()

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.drain()
        assert await run.status() == "failed:logic"
        assert "step load is a sync function" in (await trouble(run))["message"]
        assert "await load.aio(" in caplog.text
        assert calls == []


async def test_results_are_read_by_their_hints_live_and_on_replay_alike(database_url: str) -> None:
    app = Rota()
    seen: list[list[Any]] = []

    @app.step
    async def as_dataclass() -> Receipt:
        return Receipt("o-7", 5)

    @app.step
    async def as_pydantic() -> Parcel:
        return Parcel(weight=1.5, label="x")

    @app.step
    async def as_struct() -> Invoice:
        return Invoice(1, Receipt("o-8", 6))

    @app.step
    async def as_tuple() -> tuple[int, Receipt]:
        return (1, Receipt("o-9", 7))

    @app.step
    async def nothing() -> Receipt | None:
        return None

    @app.workflow
    async def flow() -> Invoice:
        seen.append(
            [
                await as_dataclass(),
                await as_pydantic(),
                await as_struct(),
                await as_tuple(),
                await nothing(),
            ]
        )
        await sleep("1h")
        return Invoice(2, Receipt("end", 0))

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.drain()
        assert await result(run) == Invoice(2, Receipt("end", 0))
        live, replayed = seen
        assert live == replayed
        assert live == [
            Receipt("o-7", 5),
            Parcel(weight=1.5, label="x"),
            Invoice(1, Receipt("o-8", 6)),
            (1, Receipt("o-9", 7)),
            None,
        ]


async def test_a_step_that_takes_any_number_of_arguments_has_a_typed_result_too(
    database_url: str,
) -> None:
    app = Rota()
    seen: list[Any] = []

    @app.step
    async def total(*numbers: int, **more: int) -> Receipt:
        return Receipt("sum", sum(numbers) + sum(more.values()))

    @app.workflow
    async def flow() -> None:
        seen.append(await total(1, 2, extra=3))
        await sleep("1h")

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.drain()
        assert await run.status() == "completed"
        assert seen == [Receipt("sum", 6), Receipt("sum", 6)]


async def test_what_a_step_returns_is_what_a_replay_will_see(database_url: str) -> None:
    """Without hints the live call must not return something richer than JSON remembers."""
    app = Rota()
    seen: list[Any] = []

    @app.step
    async def pair():  # type: ignore[no-untyped-def]  # the point is that it has no hints
        return (1, {2: Receipt("o", 1)})

    @app.workflow
    async def flow() -> None:
        seen.append(await pair())
        await sleep("1h")

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.drain()
        assert await run.status() == "completed"
        assert seen[0] == seen[1] == [1, {"2": {"order": "o", "total": 1}}]


async def test_a_result_that_does_not_fit_its_hint_is_not_remembered_as_done(
    database_url: str,
) -> None:
    app = Rota()
    good = False

    @app.step
    async def count() -> int:
        return 3 if good else "three"  # type: ignore[return-value]  # wrong on purpose

    @app.workflow
    async def flow() -> int:
        return await count()

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.drain()
        assert await run.status() == "failed:logic"
        assert "count" in (await trouble(run))["message"]
        assert (await step_named(app, run, "count#0")).status == "failed"
        good = True
        await app.runs.retry(run.id)
        await world.drain()
        assert await result(run) == 3


async def test_a_result_that_is_not_json_fails_the_step_and_records_no_value(
    database_url: str,
) -> None:
    app = Rota()
    calls: list[int] = []

    @app.step
    async def odd() -> object:
        calls.append(1)
        return object()

    @app.workflow
    async def flow() -> None:
        await odd()

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.drain()
        assert await run.status() == "failed:logic"
        message = (await trouble(run))["message"]
        assert "NotSerialisable" in message
        assert "the result of step odd" in message
        assert (await step_named(app, run, "odd#0")).output is None
        assert calls == [1]


async def test_a_result_over_the_limit_fails_the_step_with_both_sizes(database_url: str) -> None:
    app = Rota(payload_bytes_max=2048)

    @app.step
    async def bulk() -> str:
        return "x" * 3000

    @app.workflow
    async def flow() -> str:
        return await bulk()

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.drain()
        message = (await trouble(run))["message"]
        assert "PayloadTooBig" in message
        assert "3,002" in message
        assert "2,048" in message
        assert (await step_named(app, run, "bulk#0")).output is None


async def test_outputs_that_cannot_be_stored_fail_the_run_and_store_nothing(
    database_url: str,
) -> None:
    app = Rota(payload_bytes_max=2048)

    @app.workflow
    async def odd() -> object:
        return object()

    @app.workflow
    async def bulk() -> str:
        return "x" * 3000

    @app.workflow
    async def circle() -> list[Any]:
        loop: list[Any] = []
        loop.append(loop)
        return loop

    async with virtual(app, url=database_url) as world:
        runs = [await app.start(flow) for flow in (odd, bulk, circle)]
        await world.drain()
        kinds = [(await trouble(run))["type"] for run in runs]
        assert kinds == ["NotSerialisable", "PayloadTooBig", "NotSerialisable"]
        for run in runs:
            row = await run.run()
            assert (row.status, row.output) == ("failed", None)


async def test_an_output_that_does_not_fit_the_hint_fails_the_run(database_url: str) -> None:
    app = Rota()

    @app.workflow
    async def flow() -> int:
        return "three"  # type: ignore[return-value]  # wrong on purpose

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.drain()
        assert await run.status() == "failed:logic"
        assert "flow" in (await trouble(run))["message"]


async def test_a_big_result_is_replayed_whole(database_url: str) -> None:
    app = Rota()
    text = "é" * 300_000
    seen: list[bool] = []

    @app.step
    async def bulk() -> str:
        return text

    @app.workflow
    async def flow() -> str:
        found = await bulk()
        seen.append(found == text)
        await sleep("1h")
        return found

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.drain()
        assert await result(run) == text
        assert seen == [True, True]


@pytest.mark.parametrize("text", ["a\x00b", "🦉", "\u2028'\"\\"])
async def test_any_text_survives_as_input_result_and_output(database_url: str, text: str) -> None:
    app = Rota()

    @app.step
    async def same(word: str) -> str:
        return word

    @app.workflow
    async def flow(word: str) -> str:
        found = await same(word)
        await sleep("1h")
        return found

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow, text)
        await world.drain()
        assert await result(run) == text
