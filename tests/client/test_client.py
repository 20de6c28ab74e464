"""The client: one method per verb, and a clear error for every verb that does not apply."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rota import Client, Rota, Start
from rota.client.start import RunOptions
from rota.client.start_many import bulk
from rota.core.time.instants import SECOND
from rota.errors import (
    AlreadyStarted,
    BadInput,
    NotSerialisable,
    PayloadTooBig,
    UnknownWorkflow,
    UsageError,
)
from rota.testing import virtual
from tests.client.kit import shop
from tests.workflows.kit import Parcel, Receipt, result


async def test_arguments_go_by_place_and_by_name(database_url: str) -> None:
    app, fulfil = shop()
    async with virtual(app, url=database_url) as world:
        runs = [
            await app.start(fulfil, "a"),
            await app.start(fulfil, "a", 2),
            await app.start(fulfil, order="a", amount=3),
            await app.start("fulfil", "a", amount=4),
        ]
        await world.drain()
        assert [await result(run) for run in runs] == ["a x1", "a x2", "a x3", "a x4"]


async def test_typed_input_arrives_as_its_type(database_url: str) -> None:
    app, _ = shop()
    when = datetime(2030, 1, 1, tzinfo=UTC)
    async with virtual(app, url=database_url) as world:
        run = await app.start("typed", Receipt("o", 5), Parcel(weight=1, label="x"), when)
        await world.drain()
        assert await result(run) == "5 x 2030-01-01T00:00:00+00:00"


@pytest.mark.parametrize(
    ("name", "args", "words"),
    [
        ("fulfil", (7,), "$.order"),
        ("fulfil", ("a", "many"), "$.amount"),
        ("fulfil", (), "order"),
        ("fulfil", ("a", 1, 2), "too many"),
        (
            "typed",
            ({"order": "o", "total": "x"}, Parcel(weight=1, label="x"), datetime.now(UTC)),
            "$.receipt.total",
        ),
        (
            "typed",
            (Receipt("o", 1), {"weight": "heavy", "label": "x"}, datetime.now(UTC)),
            "weight",
        ),
        ("typed", (Receipt("o", 1), Parcel(weight=1, label="x"), "tomorrow"), "$.when"),
    ],
)
async def test_bad_input_names_the_path_and_starts_nothing(
    database_url: str, name: str, args: tuple[Any, ...], words: str
) -> None:
    app, _ = shop()
    async with virtual(app, url=database_url):
        with pytest.raises(BadInput) as error:
            await app.start(name, *args)
        assert words in str(error.value)
        assert name in str(error.value)
        assert await app.runs.list() == []


async def test_an_unknown_argument_is_refused(database_url: str) -> None:
    app, fulfil = shop()
    async with virtual(app, url=database_url):
        with pytest.raises(BadInput, match="colour"):
            await app.start(fulfil, "a", colour="red")


async def test_input_that_is_no_json_or_too_big_is_refused(database_url: str) -> None:
    app = Rota(payload_bytes_max=2000)

    @app.workflow
    async def anything(value: Any) -> None:
        return None

    async with virtual(app, url=database_url):
        with pytest.raises(NotSerialisable, match="anything"):
            await app.start(anything, object())
        with pytest.raises(PayloadTooBig, match="2,000"):
            await app.start(anything, "x" * 3000)
        assert await app.runs.list() == []


async def test_an_unknown_workflow_is_answered_with_the_nearest_names(database_url: str) -> None:
    app, _ = shop()
    async with virtual(app, url=database_url):
        with pytest.raises(UnknownWorkflow, match="'fulfill'") as error:
            await app.start("fulfill")
        assert "fulfil" in error.value.advice
        with pytest.raises(UnknownWorkflow) as error:
            await app.start("xyzzy")
        assert "nap" in error.value.advice


async def test_the_same_external_id_starts_once(database_url: str) -> None:
    app, fulfil = shop()
    async with virtual(app, url=database_url) as world:
        first = await app.options(external_id="o-7").start(fulfil, "a")
        second = await app.options(external_id="o-7").start(fulfil, "b")
        assert (first.existed, second.existed) == (False, True)
        assert first.id == second.id
        await world.drain()
        assert await result(second) == "a x1"
        third = await app.options(external_id="o-7").start(fulfil, "c")
        assert third.id == first.id
        other = await app.options(external_id="o-7").start("nap")
        assert not other.existed


async def test_a_taken_external_id_can_be_refused(database_url: str) -> None:
    app, fulfil = shop()
    async with virtual(app, url=database_url):
        first = await app.options(external_id="o-7", on_conflict="reject").start(fulfil, "a")
        with pytest.raises(AlreadyStarted, match="'o-7'") as error:
            await app.options(external_id="o-7", on_conflict="reject").start(fulfil, "b")
        assert error.value.facts["run_id"] == first.id
        both = app.options(external_id="o-7", unique_key="u", on_conflict="reject")
        with pytest.raises(AlreadyStarted, match="external id 'o-7' or unique key 'u'"):
            await both.start(fulfil, "b")
        assert len(await app.runs.list()) == 1


async def test_many_are_started_in_order_each_with_its_own_id(database_url: str) -> None:
    app, fulfil = shop()
    async with virtual(app, url=database_url) as world:
        await app.options(external_id="o-2").start(fulfil, "old")
        items = [
            ("a",),
            Start(("b", 2), external_id="o-1", key="k"),
            Start(kwargs={"order": "c"}, external_id="o-2"),
            Start(("d",), external_id="o-1"),
        ]
        runs = await app.options(tags={"batch": "1"}, priority=3).start_many(fulfil, items)
        assert [run.existed for run in runs] == [False, False, True, True]
        assert runs[3].id == runs[1].id
        row = await runs[1].run()
        assert (row.tags, row.priority, row.limit_key) == ('{"batch":"1"}', 3, "k")
        await world.drain()
        assert [await result(run) for run in runs] == ["a x1", "b x2", "old x1", "b x2"]


async def test_one_bad_item_of_many_starts_none(database_url: str) -> None:
    app, fulfil = shop()
    async with virtual(app, url=database_url):
        with pytest.raises(BadInput, match=r"\$\.amount"):
            await app.start_many(fulfil, [("a",), ("b", "many"), ("c",)])
        assert await app.runs.list() == []
        assert await app.start_many(fulfil, []) == []


@pytest.mark.parametrize(
    ("item", "plain"),
    [
        (Start(kwargs={"n": 1}), True),
        (Start(kwargs={"n": 1}, external_id="x"), False),
        (Start(kwargs={"n": 1}, key="k"), False),
    ],
    ids=["plain", "external id", "key"],
)
def test_runs_with_nothing_of_their_own_but_an_input_go_the_short_way(
    item: Start, plain: bool
) -> None:
    """Also if no worker knows the workflow, and if the arguments come as a `Start`."""
    starter = Client("sqlite:///nowhere.db").starter
    items = [Start(kwargs={"n": 0}), item]
    many = bulk(starter, (None, "flow"), items, RunOptions(), now=0)
    assert many.plain == plain
    assert {len(row) for row in many.rows} == ({2} if plain else {4})


async def test_more_than_one_bulk_is_started(database_url: str) -> None:
    app, fulfil = shop()
    async with virtual(app, url=database_url):
        runs = await app.start_many(fulfil, [(str(n),) for n in range(2500)])
        assert len({run.id for run in runs}) == 2500
        assert await app.runs.counts() == {"pending": 2500}
        assert [run.id for run in runs] == sorted(run.id for run in runs)


async def test_a_start_may_be_put_off(database_url: str) -> None:
    app, fulfil = shop()
    async with virtual(app, url=database_url) as world:
        at = world.clock.moment()
        delayed = await app.options(delay="90s").start(fulfil, "a")
        timed = await app.options(at=at + timedelta(minutes=2)).start(fulfil, "b")
        past = await app.options(at=at - timedelta(days=1)).start(fulfil, "c")
        negative = await app.options(delay=-5).start(fulfil, "d")
        await world.settle()
        assert await result(past) == "c x1"
        assert await result(negative) == "d x1"
        assert (await delayed.run()).status == "sleeping"
        await world.drain()
        rows = [await run.run() for run in (delayed, timed)]
        began = [(row.started_at or 0) - row.created_at for row in rows]
        assert began == [90 * SECOND, 120 * SECOND]


async def test_a_start_is_put_off_in_one_way_only(database_url: str) -> None:
    app, fulfil = shop()
    async with virtual(app, url=database_url):
        with pytest.raises(BadInput, match="delay or at"):
            await app.options(delay=1, at=datetime.now(UTC)).start(fulfil, "a")
        with pytest.raises(BadInput, match="time zone"):
            await app.options(at=datetime(2030, 1, 1)).start(fulfil, "a")  # noqa: DTZ001
        with pytest.raises(BadInput, match="not a duration"):
            await app.options(delay="soon").start(fulfil, "a")
        assert await app.runs.list() == []


async def test_a_caller_that_waits_gets_an_error_when_the_client_is_closed(
    database_url: str,
) -> None:
    app = Rota(database_url, migrate=True)

    @app.workflow
    async def flow() -> None: ...

    async with app.connected():
        run = await flow.start()  # no worker executes it
        waits = [asyncio.create_task(run.result(timeout=limit)) for limit in (None, 60)]
        while len(app.connection.results.awaited.get(run.id, ())) < 2:
            await asyncio.sleep(0)
    for one in waits:
        with pytest.raises(UsageError, match=f"waited for run {run.id}"):
            await asyncio.wait_for(one, 10)
