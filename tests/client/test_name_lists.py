"""Lists by name: schedules, automations, pipelines and workers in pages, with a part of a name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from rota import NeedsLogin, Rota
from rota.automations import Context, Prepared
from rota.client import answers, overview
from rota.client.client import Client
from rota.errors import BadInput
from rota.pipelines.client import PipelineClient
from rota.store.runs import workers
from rota.testing import VirtualClock, virtual
from tests.kit.builders import NOW, sql, worker_row

COPIES = """
insert into runs (id, namespace, kind, name, queue, priority, status, available_at, due_at, spec,
    root_id, attempt, recoveries, trigger, created_at)
with recursive n (i) as (select 1 union all select i + 1 from n where i < {count})
select 'c' || i, namespace, kind, 'tenant-' || i, queue, priority,
    case when i % 100 = 0 then 'paused' else status end, available_at, due_at, spec, 'c' || i,
    attempt, recoveries, trigger, created_at
from runs, n where runs.name = 'first'
"""
COUNT = 1_250  # more than one question answers with


async def walked(
    page: Callable[..., Awaitable[Sequence[Any]]], name: Callable[[Any], str], **asked: Any
) -> list[str]:
    """All pages of a list, one after the other."""
    found: list[str] = []
    while True:
        part = await page(after=found[-1] if found else "", **asked)
        found += [name(one) for one in part]
        if len(part) < asked["limit"]:
            return found


async def test_every_schedule_is_reached_in_pages_and_by_a_part_of_its_name(
    database_url: str,
) -> None:
    async with Client(database_url, clock=VirtualClock(NOW), migrate=True) as client:
        await client.schedules.create("first", "work", "1h")
        await sql(client.connection.database, COPIES.format(count=COUNT))
        schedules = client.schedules

        async def names(**asked: Any) -> list[str]:
            return await walked(schedules.list, lambda one: one.schedule.name, **asked)

        everything = await names(limit=400)
        assert len(everything) == COUNT + 1
        assert everything == sorted(everything)
        assert await names(limit=20, search="NANT-12") == [
            one for one in everything if "nant-12" in one
        ]
        assert len(await names(limit=5, paused=True)) == 12
        assert await names(limit=5, search="%") == []
        assert await schedules.count() == (COUNT + 1, 12)
        assert await schedules.count(search="tenant-120") == (11, 1)
        assert await schedules.count(search="nobody") == (0, 0)
        for bad in ("a\0b", "x" * 5_000):
            with pytest.raises(BadInput):
                await schedules.list(search=bad)
            with pytest.raises(BadInput):
                await schedules.count(search=bad)


async def _nothing(ctx: Context, state: object) -> Prepared:
    return Prepared()


async def _login(ctx: Context, state: object) -> Prepared:
    raise NeedsLogin("the token has expired")


async def test_automations_come_in_pages_and_by_a_part_of_their_names(database_url: str) -> None:
    app = Rota(database_url)
    for number in range(7):
        automation = app.automation(f"mail-{number}")
        automation.topic("letters", external=True)
        automation.consumer("read", subscribes=["letters"], prepare=_nothing)
    async with virtual(app, url=database_url):

        async def names(**asked: Any) -> list[str]:
            return await walked(app.automations.list, lambda one: one.automation.name, **asked)

        assert await names(limit=3) == [f"mail-{number}" for number in range(7)]
        assert await names(limit=2, search="AIL-3") == ["mail-3"]
        assert await names(limit=2, search="post") == []
        with pytest.raises(BadInput, match="limit"):
            await app.automations.list(limit=0)


async def test_an_automation_of_a_later_page_that_needs_attention_is_listed(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "PAGE_SIZE", 2)
    app = Rota(database_url)
    for number in range(5):
        automation = app.automation(f"mail-{number}")
        automation.topic("letters", external=True)
        prepare = _nothing if number < 4 else _login
        automation.consumer("read", subscribes=["letters"], prepare=prepare)
    async with virtual(app, url=database_url) as world:
        await app.automations.publish("mail-4", "letters", "l-1", {})
        await world.settle()
        [one] = await app.overview.attention()
        assert (one.kind, one.name, one.reason) == ("automation", "mail-4", "auth")


async def test_automations_that_wait_do_not_hide_a_run_that_waits(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overview, "ATTENTION_MAX", 2)
    app = Rota(database_url)

    @app.workflow
    async def fetch() -> None:
        raise NeedsLogin("log in")

    for number in range(3):
        automation = app.automation(f"mail-{number}")
        automation.topic("letters", external=True)
        automation.consumer("read", subscribes=["letters"], prepare=_login)
    async with Client(database_url, clock=VirtualClock(NOW), migrate=True) as client:
        await client.start("fetch")  # before the automations, so that their rows are newer
    async with virtual(app, url=database_url) as world:
        for number in range(3):
            await app.automations.publish(f"mail-{number}", "letters", "l-1", {})
        await world.settle()
        kinds = sorted(one.kind for one in await app.overview.attention())
        assert kinds == ["automation", "automation", "automation", "run"]


async def test_workers_come_in_pages_and_by_a_part_of_their_machine(database_url: str) -> None:
    async with Client(database_url, clock=VirtualClock(NOW), migrate=True) as client:
        for number in range(9):
            row = worker_row(
                f"w{9 - number}", host=f"eu-{number % 3}", started_at=NOW + number // 2
            )
            await client.connection.database.write(workers.register, row)
        overview = client.overview

        async def ids(**asked: Any) -> list[str]:
            return await walked(overview.workers, lambda one: one.worker.id, **asked)

        everyone = [one.worker.id for one in await overview.workers()]
        assert len(everyone) == 9
        assert await ids(limit=2) == everyone
        assert sorted(await ids(limit=2, search="EU-1")) == ["w2", "w5", "w8"]
        assert await ids(limit=2, search="us") == []


async def test_a_pipeline_is_known_however_many_runs_came_after_its_last(
    database_url: str,
) -> None:
    async with Client(database_url, clock=VirtualClock(NOW), migrate=True) as client:
        pipelines = PipelineClient(client)
        for name in ("papers", "letters", "papers", "/part"):
            await _pipeline_run(client, name)
        known = await pipelines.known()
        assert [(one.id, one.is_here) for one in known] == [("letters", False), ("papers", False)]
        newest = await client.runs.page(name="pipeline:papers", limit=1)
        assert known[1].last_run == newest.runs[0]
        assert [one.id for one in await pipelines.known(search="APER")] == ["papers"]
        assert [one.id for one in await pipelines.known(after="letters")] == ["papers"]
        assert [one.id for one in await pipelines.known(limit=1)] == ["letters"]


async def _pipeline_run(client: Client, name: str) -> None:
    run = await client.start("work")
    await sql(
        client.connection.database,
        f"update runs set kind = 'pipeline', name = 'pipeline:{name}' where id = '{run.id}'",
    )
