"""A primary with a standby: the primary is killed under load and the standby promoted."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator

import pytest

from rota import Client, Rota, errors
from rota.client.doctor import examine
from rota.settings import Settings
from rota.store.invariants import INVARIANTS
from tests.kit import broken, execute, select, until
from tests.kit.postgres import PostgresServer
from tests.kit.standby import StandbyServer

pytestmark = [
    pytest.mark.pg,
    pytest.mark.slow,
    pytest.mark.wall_clock("two servers change roles within real seconds"),
]
NODES = ("primary", "standby")


class Pair:
    """The two servers, and one URL for both."""

    def __init__(self, primary: PostgresServer, standby: StandbyServer) -> None:
        self.primary = primary
        self.standby = standby
        user = primary.url().partition("://")[2].partition("@")[0]
        hosts = ",".join(f"127.0.0.1:{server.port}" for server in (primary, standby))
        self.url = f"postgresql://{user}@{hosts}/postgres"

    async def fail_over(self) -> None:
        """Kill the primary, as a power cut does, and promote the standby."""
        await asyncio.to_thread(self.primary.stop, "immediate")
        await asyncio.to_thread(self.standby.promote)

    async def replicate_synchronously(self) -> None:
        """A commit is acknowledged when the standby has it."""
        await execute(
            self.primary.url(), "alter system set synchronous_standby_names = '*'",
            "select pg_reload_conf()",
        )  # fmt: skip

        async def in_force() -> bool:
            found = await select(
                self.primary.url(), "select 1 from pg_stat_replication where sync_state = 'sync'"
            )
            return bool(found)

        await until(in_force)

    async def cut_replication(self) -> None:
        """Commits from now on do not reach the standby."""
        await execute(
            self.standby.url(), "alter system set primary_conninfo = ''", "select pg_reload_conf()"
        )

        async def is_cut() -> bool:
            found = await select(self.standby.url(), "select 1 from pg_stat_wal_receiver")
            return not found

        await until(is_cut)


@pytest.fixture
def pair() -> Iterator[Pair]:
    with PostgresServer(durable=False) as primary, StandbyServer(primary) as standby:
        yield Pair(primary, standby)


@contextlib.asynccontextmanager
async def worker(url: str) -> AsyncIterator[list[str]]:
    """A worker on both servers; yields the labels of the runs that it has executed."""
    executed: list[str] = []
    app = Rota(url, migrate=True, lease_s=3, heartbeat_s=1, poll_s=1)

    @app.step
    async def note(label: str) -> None:
        executed.append(label)

    @app.workflow
    async def flow(label: str) -> str:
        await note(label)
        return label

    await app.start_worker()
    try:
        yield executed
    finally:
        await app.stop_worker(0)
        await app.close()


async def start_until(url: str, over: asyncio.Event) -> list[str]:
    """Start runs one after another; the external ids of those that were acknowledged."""
    acknowledged: list[str] = []
    number = 0
    async with Client(url) as client:
        while not over.is_set():
            label = f"r{number}"
            try:
                await client.options(external_id=label).start("flow", label=label)
            except errors.StoreError:
                await asyncio.sleep(0.05)  # the same start again: its external id makes it one run
                continue
            acknowledged.append(label)
            number += 1
            await asyncio.sleep(0.01)
    return acknowledged


async def statuses(url: str) -> dict[str, list[str]]:
    rows = await select(url, "select external_id, status from rota.runs order by external_id")
    found: dict[str, list[str]] = {}
    for label, status in rows:
        found.setdefault(label, []).append(status)
    return found


async def is_done(url: str) -> bool:
    return set(map(tuple, (await statuses(url)).values())) == {("completed",)}


async def test_synchronous_failover_loses_no_run_and_doubles_none(pair: Pair) -> None:
    async with worker(pair.url) as executed:
        await pair.replicate_synchronously()
        over = asyncio.Event()
        starts = asyncio.create_task(start_until(pair.url, over))
        await until(lambda: _reaches(executed, 50))
        before = len(executed)
        await pair.fail_over()
        await until(lambda: _reaches(executed, before + 50))
        over.set()
        acknowledged = await starts
        after = pair.standby.url()
        await until(lambda: is_done(after))
        assert set(acknowledged) <= (await statuses(after)).keys()
        assert await broken(f"{after}?schema=rota") == []


async def test_the_doctor_works_on_a_standby(pair: Pair) -> None:
    async with worker(pair.url):
        async with Client(pair.url) as client:
            await client.options(external_id="one").start("flow", label="one")
        await until(lambda: _has_arrived(pair))
        report = await examine(pair.standby.url(), Settings(), full=True)
    assert report.code is None
    found = {one.what: one for one in report.findings}
    assert found["schema"].level == "warn"
    assert "not writable" in found["schema"].says
    assert found["invariants"].says == f"all {len(INVARIANTS)} hold"


async def _has_arrived(pair: Pair) -> bool:
    tables = await select(pair.standby.url(), "select 1 from pg_tables where tablename = 'runs'")
    return bool(tables) and await is_done(pair.standby.url())


async def test_asynchronous_failover_loses_what_had_not_arrived_and_heals_the_rest(
    pair: Pair,
) -> None:
    async with worker(pair.url) as executed:
        async with Client(pair.url) as client:
            kept = [f"kept{n}" for n in range(20)]
            for label in kept:
                await client.options(external_id=label).start("flow", label=label)
            await until(lambda: _has_arrived(pair))
            await pair.cut_replication()
            lost = await client.options(external_id="lost").start("flow", label="lost")
            assert await lost.result(timeout=60) == "lost"
            await pair.fail_over()
            await until(lambda: _starts(client, "after"))
            with pytest.raises(errors.UnknownRun):
                await lost.status()
        await until(lambda: _reaches(executed, 22))
        after = pair.standby.url()
        await until(lambda: is_done(after))
        assert (await statuses(after)).keys() == {*kept, "after"}
        assert await broken(f"{after}?schema=rota") == []


async def _reaches(executed: list[str], count: int) -> bool:
    return len(executed) >= count


async def _starts(client: Client, label: str) -> bool:
    try:
        await client.options(external_id=label).start("flow", label=label)
    except errors.StoreError:
        return False
    return True
