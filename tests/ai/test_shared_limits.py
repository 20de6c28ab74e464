"""Limits in the database: the limits of one worker are those of all workers together."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rota.ai import Limits, Offline, Request, invoker_of
from rota.ai import limits as rules
from rota.ai.base import Invoker, passing
from rota.ai.limits import Decision, State
from rota.ai.shared_limits import FRESH_US, Shared, shared
from rota.core.time.instants import HOUR, MINUTE, SECOND
from rota.errors import RunFailed, Transient
from rota.store.backend.database import Database
from tests.ai.kit.limited_caller import BURST_S
from tests.ai.kit.model_server import Model, Say
from tests.kit.builders import NOW, opened, sql
from tests.kit.children import Child, end_all
from tests.pipelines.kit.live_app import ai_settings, world

ASK = Request("m", "x" * 40, max_tokens=10)


class Clock:
    """Time that passes when a caller waits, or when the test says so."""

    def __init__(self) -> None:
        self.at = NOW
        self.waited: list[int] = []

    def now(self) -> int:
        return self.at

    async def wait(self, event: asyncio.Event, until: int) -> None:
        self.waited.append(until - self.at)
        self.at = max(self.at, until)


@contextlib.asynccontextmanager
async def workers(url: str, count: int = 3) -> AsyncIterator[list[Database]]:
    """Several that have the same database open, as processes do."""
    async with contextlib.AsyncExitStack() as stack:
        yield [await stack.enter_async_context(opened(url)) for _ in range(count)]


def keepers(databases: Sequence[Database], clock: Clock, name: str) -> list[Shared]:
    return [Shared(each, clock, namespace="default", name=name) for each in databases]


def limited(database: Database, clock: Clock, invoker: Invoker, limits: Limits) -> Invoker:
    return shared(database, clock, namespace="default")(invoker, limits)


def check_windows(given: Sequence[tuple[int, int]], *, per_minute: int, burst: int) -> None:
    """No window saw more than the burst and what flowed in meanwhile."""
    for first, last in itertools.combinations(range(len(given)), 2):
        window = given[last][0] - given[first][0]
        spent = sum(size for _, size in given[first:last]) + min(given[last][1], burst)
        assert spent <= burst + window * per_minute / MINUTE + 1e-6


async def test_no_window_ever_sees_more_than_it_may_however_many_ask(database_url: str) -> None:
    """Drawn histories: several keepers ask at the same instants, for requests and for tokens."""
    chance = random.Random(5)
    async with workers(database_url) as databases:
        for history in range(12):
            per_minute = chance.choice([30, 60, 300, 600])
            limits = Limits(
                requests_per_minute=per_minute, tokens_per_minute=10 * per_minute,
                burst_s=chance.choice([1.0, 10.0]),
            )  # fmt: skip
            clock = Clock()
            all_ = keepers(databases, clock, f"provider-{history}")
            given: list[tuple[int, int]] = []

            async def one_call(
                keeper: Shared, limits: Limits = limits, clock: Clock = clock,
                given: list[tuple[int, int]] = given,
            ) -> None:  # fmt: skip
                size = chance.randrange(30)

                def step(state: State) -> tuple[State, Decision]:
                    return rules.admit(limits, state, now=clock.at, tokens=size)

                if not (await keeper.change(step)).wait_us:
                    given.append((clock.at, size))

            for _ in range(8):
                await asyncio.gather(*(one_call(keeper) for keeper in all_ for _ in range(5)))
                clock.at += chance.randrange(10 * SECOND)
            burst = max(1, int(per_minute * limits.burst_s / 60))
            check_windows([(at, 1) for at, _ in given], per_minute=per_minute, burst=burst)
            tokens = max(1, int(10 * per_minute * limits.burst_s / 60))
            check_windows(given, per_minute=10 * per_minute, burst=tokens)
            assert given


@pytest.mark.wall_clock("processes share a limit per real minute")
async def test_processes_share_one_limit(database_url: str, tmp_path: Path) -> None:
    per_minute, seconds = 2400, 2.0
    async with workers(database_url, 1):
        pass  # it is migrated now
    children = [
        Child(
            "tests.ai.kit.limited_caller", "--database", database_url, "--out", tmp_path / f"{n}",
            "--per-minute", per_minute, "--seconds", seconds, log=tmp_path / f"log{n}",
        )
        for n in range(3)
    ]  # fmt: skip
    try:
        codes = [await asyncio.to_thread(child.wait) for child in children]
        assert codes == [0, 0, 0], [child.tail() for child in children]
    finally:
        end_all(children)
    each = [(tmp_path / f"{n}").read_text().split() for n in range(3)]
    assert all(each), "one of them never had a turn"
    given = sorted(round(float(at) * SECOND) for lines in each for at in lines)
    burst = int(per_minute * BURST_S / 60)
    check_windows([(at, 1) for at in given], per_minute=per_minute, burst=burst)
    assert len(given) > per_minute / 60 * seconds / 2  # and most of what may be asked is


async def test_a_wait_that_one_caller_got_holds_for_all(database_url: str) -> None:
    clock = Clock()
    throttled = Offline("acme", replies=[passing("429", retry_after_s=7, throttled=True)])
    async with workers(database_url, 2) as (here, there):
        first = limited(here, clock, throttled, Limits())
        with pytest.raises(Transient, match="429"):
            await first.ask(ASK)
        await limited(there, clock, Offline("acme"), Limits()).ask(ASK)
        assert clock.waited == [7 * SECOND]
        await limited(there, clock, Offline("other"), Limits()).ask(ASK)
        assert clock.waited == [7 * SECOND]


async def test_a_breaker_that_one_opened_is_open_for_all_and_one_probes(
    database_url: str,
) -> None:
    clock = Clock()
    limits = Limits(failures_max=2, open_s=30)
    broken = Offline("acme", replies=[passing("500"), passing("500")])
    well = Offline("acme")
    async with workers(database_url, 2) as (here, there):
        first, second = (limited(here, clock, broken, limits), limited(there, clock, well, limits))
        for _ in range(2):
            with pytest.raises(Transient, match="500"):
                await first.ask(ASK)
        with pytest.raises(Transient, match="circuit breaker"):
            await second.ask(ASK)
        assert well.calls == 0
        clock.at += 30 * SECOND
        await second.ask(ASK)
        assert well.calls == 1
        clock.at += FRESH_US
        await first.ask(ASK)
        [[text]] = await sql(here, "select state from ai_limits")
        assert '"open_until":0' in text


async def test_a_worker_learns_of_a_wait_soon_though_it_looks_seldom(database_url: str) -> None:
    clock = Clock()
    async with workers(database_url, 2) as (here, there):
        calm = limited(there, clock, Offline("acme"), Limits())
        await calm.ask(ASK)
        seen = passing("429", retry_after_s=60, throttled=True)
        with pytest.raises(Transient):
            await limited(here, clock, Offline("acme", replies=[seen]), Limits()).ask(ASK)
        clock.at += FRESH_US
        await calm.ask(ASK)
        assert clock.waited == [60 * SECOND - FRESH_US]


@pytest.mark.parametrize("limits", [Limits(requests_per_minute=60, burst_s=2), Limits()])
async def test_a_clock_that_is_set_back_does_not_stop_a_provider(
    database_url: str, limits: Limits
) -> None:
    clock = Clock()
    told = passing("429", retry_after_s=7, throttled=True)
    async with workers(database_url, 2) as (here, there):
        first = limited(here, clock, Offline("acme", replies=[told]), limits)
        with pytest.raises(Transient, match="429"):
            await first.ask(ASK)
        clock.at -= 3 * HOUR
        second = limited(there, clock, Offline("acme"), limits)
        await second.ask(ASK)
        assert clock.waited == [7 * SECOND]
        begun = clock.at
        for _ in range(4):
            await second.ask(ASK)
        assert clock.at - begun <= 4 * SECOND


async def test_a_worker_learns_of_a_wait_though_the_clock_was_set_back(database_url: str) -> None:
    clock = Clock()
    async with workers(database_url, 2) as (here, there):
        calm = limited(there, clock, Offline("acme"), Limits())
        await calm.ask(ASK)
        clock.at -= 3 * HOUR
        told = passing("429", retry_after_s=60, throttled=True)
        with pytest.raises(Transient):
            await limited(here, clock, Offline("acme", replies=[told]), Limits()).ask(ASK)
        await calm.ask(ASK)
        assert clock.waited == [60 * SECOND]


class Counted:
    """A database that counts its writes."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.writes = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)

    async def write_brief(self, *args: Any, **kwargs: Any) -> Any:
        self.writes += 1
        return await self._database.write_brief(*args, **kwargs)


async def test_a_provider_without_rates_that_is_well_costs_no_write(database_url: str) -> None:
    clock = Clock()
    async with workers(database_url, 1) as [database]:
        counted = Counted(database)
        ai = limited(counted, clock, Offline("acme"), Limits())
        for _ in range(50):
            await ai.ask(ASK)
        assert counted.writes == 1
        clock.at += FRESH_US
        await ai.ask(ASK)
        assert counted.writes == 2


async def test_those_who_ask_at_the_same_time_share_a_write(database_url: str) -> None:
    clock = Clock()
    limits = Limits(requests_per_minute=60_000)
    async with workers(database_url, 1) as [database]:
        counted = Counted(database)
        ai = limited(counted, clock, Offline("acme"), limits)
        await asyncio.gather(*(ai.ask(ASK) for _ in range(100)))
        assert counted.writes < 20


async def test_one_who_gives_up_costs_a_slot_and_holds_nobody_up(database_url: str) -> None:
    clock = Clock()
    async with workers(database_url, 1) as [database]:
        ai = limited(database, clock, Offline("acme"), Limits(requests_per_minute=600))
        impatient = [asyncio.ensure_future(ai.ask(ASK)) for _ in range(5)]
        await asyncio.sleep(0)
        impatient[0].cancel()
        impatient[3].cancel()
        ended = await asyncio.gather(*impatient, return_exceptions=True)
        assert [isinstance(one, BaseException) for one in ended].count(True) == 2
        await asyncio.wait_for(ai.ask(ASK), 60)


async def test_the_switchboard_puts_real_calls_under_limits_that_are_shared(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCAL_KEY", "k")
    clock = Clock()
    busy = Say(status=429, headers={"retry-after": "3"}, raw=b"{}")
    async with Model(busy).up() as model, workers(database_url, 2) as databases:
        local = {"kind": "openai", "base_url": f"{model.url}/v1", "key_env": "LOCAL_KEY"}
        settings = {"model": "local:m", "providers": {"local": local}}
        first, second = (
            invoker_of(settings, limit=shared(each, clock, namespace="default"))
            for each in databases
        )
        with pytest.raises(Transient):
            await first.ask(ASK)
        await second.ask(ASK)
        assert clock.waited == [3 * SECOND]
        assert len(model.asked) == 2
        for each in (first, second):
            await each.aclose()


async def test_pipelines_keep_their_limits_in_the_store(database_url: str, tmp_path: Path) -> None:
    """Two apps on one database: waits that one worker found apply to the other."""
    text = """
        name: Limited
        input: {items: [{title: one}]}
        map: {prompt: "About {{title}}"}
        reduce: {type: list}
        """
    async with world(database_url, tmp_path / "a") as first:
        first.app.pipelines.use(
            ai_settings(first.model.url, limits={"requests_per_minute": 600, "burst_s": 1.0})
        )
        assert (await first.run(text)).outcome == "completed"
    async with workers(database_url, 1) as [database]:
        [[name, state]] = await sql(database, "select name, state from ai_limits")
        assert name == "local"
        assert msgspec.json.decode(state, type=State).requests_ready_at > 0
        busy = msgspec.json.encode(State(open_until=1 << 60, failures=99)).decode()
        await sql(database, f"update ai_limits set state = '{busy}'")
    async with world(database_url, tmp_path / "b") as second:
        ref = await second.app.pipelines.start(second.pipeline(text))
        # The provider is down for longer than any call waits.
        with pytest.raises(RunFailed, match="local has failed too often"):
            await ref.result(timeout=60)
        assert second.model.asked == []
