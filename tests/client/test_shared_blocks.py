"""`async with app` and `async with app.connected()`: blocks of one app share it."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from rota import Client, Rota, wait_for
from rota.errors import StoreUnreachable, UsageError
from rota.testing import virtual


def double(url: str) -> tuple[Rota, Any]:
    app = Rota(url, migrate=True)

    @app.workflow
    async def flow(number: int) -> int:
        return 2 * number

    return app, flow


async def is_closed(app: Rota) -> bool:
    with pytest.raises(UsageError, match="not connected"):
        await app.runs.list()
    return not app.connection.is_open and app.runtime is None


async def test_connected_inside_an_app_leaves_its_worker_alone(database_url: str) -> None:
    app, flow = double(database_url)
    async with app:
        worker = app.runtime
        async with app.connected():
            async with app.connected():
                assert app.runtime is worker
            first = await flow.start(1)
        second = await flow.start(2)
        assert await first.result(timeout=60) == 2
        assert await second.result(timeout=60) == 4
        assert app.runtime is worker
    assert await is_closed(app)


async def test_handlers_of_the_same_moment_share_a_connection(database_url: str) -> None:
    app, flow = double(database_url)

    async def handler(number: int) -> str:
        async with app.connected():
            return (await flow.start(number)).id

    ids = await asyncio.gather(*map(handler, range(6)))
    assert len(set(ids)) == 6
    assert await is_closed(app)
    async with app:
        results = [app.runs.handle(each).result(timeout=60) for each in ids]
        assert await asyncio.gather(*results) == [0, 2, 4, 6, 8, 10]


async def test_a_block_that_ends_first_closes_nothing(database_url: str) -> None:
    app, flow = double(database_url)
    ends = [asyncio.Event() for _ in range(3)]
    begun = asyncio.Barrier(4)

    async def handler(end: asyncio.Event) -> int:
        async with app.connected():
            run = await flow.start(3)
            await begun.wait()
            await end.wait()
            return int(await run.result(timeout=60))

    handlers = [asyncio.create_task(handler(end)) for end in ends]
    async with app:
        await begun.wait()
        for end, task in zip(ends[:2], handlers, strict=False):
            end.set()
            assert await task == 6
    # The worker ends with its block, the connection with the last handler.
    assert app.runtime is None
    database = app.connection.database
    run = await flow.start(4)
    assert await run.status() == "pending"
    ends[2].set()
    assert await handlers[2] == 6
    assert app.connection.is_open is False
    assert database is not None
    assert await is_closed(app)


async def test_a_worker_inside_a_connected_block_ends_with_its_own_block(database_url: str) -> None:
    app, flow = double(database_url)
    async with app.connected():
        database = app.connection.database
        run = await flow.start(1)
        async with app, app:
            assert await run.result(timeout=60) == 2
        assert app.runtime is None
        assert app.connection.database is database
        assert await (await flow.start(2)).status() == "pending"
    assert await is_closed(app)


@pytest.mark.parametrize("opens", [Rota.connect, Rota.start_worker])
async def test_an_app_that_was_opened_by_hand_is_closed_by_hand(
    database_url: str, opens: Callable[[Rota], Awaitable[object]]
) -> None:
    app, flow = double(database_url)
    await opens(app)
    worker = app.runtime
    async with app.connected():
        run = await flow.start(1)
    async with app:
        assert await run.result(timeout=60) == 2
    assert app.runtime is worker
    assert app.connection.is_open
    await app.close()
    assert await is_closed(app)


async def test_a_block_in_which_the_app_was_closed_ends_without_an_error(database_url: str) -> None:
    app, flow = double(database_url)
    async with app:
        async with app.connected():
            await app.close()
        assert await is_closed(app)
        async with app:
            assert await (await flow.start(1)).result(timeout=60) == 2
            await app.close()
            await app.connect()
    assert app.connection.is_open  # by hand, after the blocks had lost theirs
    await app.close()


async def test_a_block_that_fails_to_begin_does_not_count(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, flow = double(database_url)
    deploys = app._deploy

    async def fails() -> None:
        raise StoreUnreachable("the network is down")

    monkeypatch.setattr(app, "_deploy", fails)
    with pytest.raises(StoreUnreachable):
        await app.__aenter__()
    assert await is_closed(app)
    async with app.connected():
        with pytest.raises(StoreUnreachable):
            await app.__aenter__()
        assert app.runtime is None
        run = await flow.start(1)
        monkeypatch.setattr(app, "_deploy", deploys)
        async with app:
            assert await run.result(timeout=60) == 2
    assert await is_closed(app)


async def test_a_block_whose_connection_fails_does_not_count() -> None:
    app, flow = double("sqlite:////no/such/folder/rota.db")
    for _ in range(2):
        with pytest.raises(StoreUnreachable):
            await app.connected().__aenter__()
    assert await is_closed(app)
    app.url = "sqlite://:memory:"
    async with app.connected():
        assert await (await flow.start(1)).status() == "pending"
    assert await is_closed(app)


async def test_a_cancelled_block_ends_like_any_other(database_url: str) -> None:
    app, flow = double(database_url)
    inside = asyncio.Event()

    async def handler() -> None:
        async with app.connected():
            inside.set()
            await asyncio.Event().wait()

    async with app.connected():
        task = asyncio.create_task(handler())
        await inside.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await (await flow.start(1)).status() == "pending"
    assert await is_closed(app)


async def test_a_second_worker_of_one_app_is_refused(database_url: str) -> None:
    app, flow = double(database_url)
    async with app:
        with pytest.raises(UsageError, match="has a worker already"):
            await app.start_worker()
        assert await (await flow.start(1)).result(timeout=60) == 2


async def test_blocks_of_a_client_without_code_share_it_too(database_url: str) -> None:
    app, _ = double(database_url)
    async with app.connected():
        pass
    client = Client(database_url)
    async with client:
        async with client:
            await client.start("flow", number=1)
        assert len(await client.runs.list()) == 1
    assert not client.connection.is_open


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_blocks_of_an_event_loop_that_was_closed_do_not_count(database_url: str) -> None:
    app, flow = double(database_url)

    async def first() -> None:
        await app.__aenter__()

    async def second() -> None:
        async with app:
            assert await (await flow.start(1)).result(timeout=60) == 2
        assert await is_closed(app)

    asyncio.run(first())
    asyncio.run(second())
    gc.collect()  # what was not closed warns here


async def test_code_with_blocks_of_its_own_is_tested_on_virtual_time(database_url: str) -> None:
    app = Rota()

    @app.workflow
    async def flow() -> str:
        return str(await wait_for("answer", timeout="1d"))

    async with virtual(app, url=database_url) as world:
        async with app.connected():
            run = await flow.start()
        async with app:
            await world.settle()
            await run.signal("answer", "yes")
            await world.drain()
            assert await run.result() == "yes"
        assert app.connection.is_open
