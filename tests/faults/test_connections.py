"""Cut, silent and slow connections to PostgreSQL, and a server that goes down under load."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from rota import Client, RunHandle, Start
from rota.errors import StoreError
from tests.faults.kit import Proxy
from tests.kit import Effects, broken, select, until
from tests.kit.children import Child, end_all
from tests.kit.postgres import PostgresServer

pytestmark = pytest.mark.pg

# A lease that outlasts the troubles: no worker may lose a run because a connection was cut.
PATIENT = ("--set", "lease_s=15", "--set", "slots=20")
STEPS = """
select runs.external_id, steps.key, steps.output
from steps join runs on runs.id = steps.root_id where steps.status = 'completed'
"""


async def crew_of(
    count: int, url: str, effects: Effects, folder: Path, *extra: object
) -> list[Child]:
    common = ("--database", url, "--effects", effects.path, *extra)
    crew = [
        Child("tests.crash.kit.worker", *common, log=folder / f"worker-{n}.log")
        for n in range(count)
    ]

    async def all_ready() -> bool:
        return all("ready" in worker.log.read_text() for worker in crew)

    await until(all_ready)
    return crew


async def completed(client: Client, count: int) -> bool:
    try:
        return (await client.runs.counts()).get("completed") == count
    except StoreError:
        return False


async def check_once(url: str, effects: Effects, count: int) -> None:
    """Every run completed at its first attempt, every step executed exactly once."""
    assert await select(url, "select status, count(*) from runs group by status") == [
        ("completed", count)
    ]
    recorded = {f"{x}/{key}": json.loads(output) for x, key, output in await select(url, STEPS)}
    tokens = {effect.label: effect.token for effect in effects.read()}
    assert recorded == tokens
    assert len(effects.read()) == 2 * count
    assert await broken(url) == []


async def under_trouble(
    client: Client,
    count: int,
    trouble: Callable[[], Coroutine[Any, Any, None]],
) -> None:
    """Start runs a few at a time, make trouble beside them, then wait for all."""
    making = asyncio.create_task(trouble())
    for begin in range(0, count, 25):
        items = [
            Start(kwargs={"label": f"r{n}"}, external_id=f"r{n}") for n in range(begin, begin + 25)
        ]
        await insist(client, items)
        await asyncio.sleep(0.05)
    await making
    await until(lambda: completed(client, count), every_s=0.1)


async def insist(client: Client, items: list[Start]) -> None:
    """Start them, however often it takes: the external ids make it harmless."""
    while True:
        try:
            await client.start_many("two", items)
            return
        except StoreError:
            await asyncio.sleep(0.05)


@pytest.mark.timeout(240)
async def test_connections_cut_again_and_again_under_load_lose_and_double_nothing(
    server_url: str, effects: Effects, tmp_path: Path
) -> None:
    async with Proxy(server_url) as proxy, Client(proxy.url, migrate=True) as client:
        crew = await crew_of(2, proxy.url, effects, tmp_path, *PATIENT)

        async def cut() -> None:
            for number in itertools.count():
                if number >= 15 and proxy.cut_count > 30:
                    return
                await asyncio.sleep(0.2)
                proxy.cut()

        try:
            await under_trouble(client, 500, cut)
        finally:
            end_all(crew)
    await check_once(server_url, effects, 500)


@pytest.mark.timeout(240)
async def test_connections_that_go_silent_for_ever_stop_no_worker(
    server_url: str, effects: Effects, tmp_path: Path
) -> None:
    async with Proxy(server_url) as proxy, Client(server_url, migrate=True) as client:
        crew = await crew_of(1, proxy.url, effects, tmp_path, "--set", "lease_s=2")
        try:
            first = await client.start("two", label="a")
            await first.result(timeout=60)
            proxy.swallow()
            second = await client.start("two", label="b")
            # The lease bounds how long a worker may be out of reach.
            await second.result(timeout=60)
            assert crew[0].code is None
        finally:
            end_all(crew)


@pytest.mark.timeout(240)
async def test_a_run_held_while_its_connections_go_silent_is_not_lost(
    server_url: str, effects: Effects, tmp_path: Path
) -> None:
    async with Proxy(server_url) as proxy, Client(server_url, migrate=True) as client:
        crew = await crew_of(1, proxy.url, effects, tmp_path, "--set", "lease_s=2")
        try:
            run = await client.start("long", label="a", seconds=1)

            async def begun() -> bool:
                return effects.count("a/busy#0") == 1

            await until(begun)
            proxy.swallow()
            assert await run.result(timeout=60) == "a/busy#0"
        finally:
            end_all(crew)
    assert await broken(server_url) == []


@pytest.mark.timeout(240)
async def test_a_slow_line_delays_but_loses_nothing(
    server_url: str, effects: Effects, tmp_path: Path
) -> None:
    async with Proxy(server_url) as proxy, Client(server_url, migrate=True) as client:
        proxy.delay_s = 0.02
        crew = await crew_of(2, proxy.url, effects, tmp_path, *PATIENT)

        async def nothing() -> None:
            return None

        try:
            await under_trouble(client, 100, nothing)
        finally:
            end_all(crew)
    await check_once(server_url, effects, 100)


async def _refused(starting: asyncio.Task[RunHandle]) -> bool:
    await asyncio.wait([starting])
    return isinstance(starting.exception(), StoreError)


async def test_a_start_over_a_cut_line_may_be_repeated_and_starts_one_run(
    server_url: str,
) -> None:
    chance = random.Random(1)
    refused = 0
    async with Proxy(server_url) as proxy, Client(proxy.url, migrate=True) as client:
        for n in range(60):
            starting = asyncio.create_task(
                client.options(external_id=f"r{n}").start("two", label=f"r{n}")
            )
            await asyncio.wait([starting], timeout=chance.uniform(0, 0.004))
            proxy.cut()
            while await _refused(starting):
                refused += 1
                starting = asyncio.create_task(
                    client.options(external_id=f"r{n}").start("two", label=f"r{n}")
                )
    assert refused > 0
    assert await select(server_url, "select count(*), count(distinct external_id) from runs") == [
        (60, 60)
    ]


@pytest.mark.timeout(240)
async def test_a_server_restarted_under_load_loses_and_doubles_nothing(
    effects: Effects, tmp_path: Path
) -> None:
    with PostgresServer(durable=False) as server:
        url = server.create_database("load")
        async with Client(url, migrate=True) as client:
            crew = await crew_of(2, url, effects, tmp_path, *PATIENT)

            async def restart() -> None:
                for _ in range(3):
                    await asyncio.sleep(0.7)
                    await asyncio.to_thread(server.restart, "immediate")

            try:
                await under_trouble(client, 500, restart)
            finally:
                end_all(crew)
        await check_once(url, effects, 500)


async def test_a_worker_started_while_the_server_is_down_says_so(tmp_path: Path) -> None:
    with PostgresServer(durable=False) as server:
        url = server.create_database("down")
        server.stop("immediate")
        arguments = ("--database", url, "--effects", tmp_path / "effects")
        worker = Child("tests.crash.kit.worker", *arguments, log=tmp_path / "log")
        assert worker.wait() != 0
        assert "StoreUnreachable" in worker.tail()
