"""Lists of items in the steps of a run, as several claims of one run write them."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from rota import Client
from rota.core.redaction import Redactor
from rota.engine.journal import Journal
from rota.pipelines.run.inputs import stream
from rota.pipelines.run.run_store import CHUNK_ITEMS, RunStore
from tests.kit.builders import begin, claim, settle


async def test_a_list_that_a_released_claim_left_unfinished_does_not_mix_with_the_next_one(
    database_url: str,
) -> None:
    async with Client(database_url) as client:
        db, journal, now = (
            client.connection.database,
            Journal(client.connection.database, client.clock),
            client.clock.now(),
        )
        first = await begin(db, kind="pipeline", now=now)
        unfinished = RunStore(db, journal, first).fill("input")
        for number in range(2 * CHUNK_ITEMS):
            await unfinished.add({"of": "the first claim", "number": number})
        assert await settle(db, first, "release", now=now)
        [second] = await claim(db, "w2", now=now, names=[first.name], queues=[(first.queue, 1)])
        assert (second.id, second.claim_count) == (first.id, first.claim_count + 1)
        again = RunStore(db, journal, second)
        assert await again.put_items("input", stream([{"of": "the second claim"}])) == 1
        read = [placed.item async for placed in again.items("input")]
        assert read == [{"of": "the second claim"}]


async def test_an_item_list_takes_little_space_and_plain_ones_can_be_read(
    database_url: str,
) -> None:
    """SQLite stores packed chunks. A chunk of the version before, or of PostgreSQL, is a list."""
    items = [
        {"id": number, "note": f"the order number {number} of a customer in town {number % 7}"}
        for number in range(3 * CHUNK_ITEMS)
    ]
    async with Client(database_url) as client:
        db, now = client.connection.database, client.clock.now()
        held = await begin(db, kind="pipeline", now=now)
        store, plain = (RunStore(db, Journal(db, client.clock), held) for _ in range(2))
        plain.packs = False
        await store.put_items("input", stream(items))
        await plain.put_items("plain", stream(items))

        async def size(name: str) -> int:
            return sum([len(step.output or "") async for step in store.steps(f"in/{name}/")])

        for name in ("input", "plain"):
            assert [placed.item async for placed in store.items(name)] == items
        if db.is_local:
            assert await size("input") < await size("plain") / 3
        else:
            assert abs(await size("input") - await size("plain")) < 100


async def test_surfaces_read_packed_items_as_json_so_that_secret_fields_are_hidden(
    database_url: str,
) -> None:
    items = [{"id": number, "password": f"hunter2-{number}"} for number in range(3)]
    async with Client(database_url) as client:
        db, now = client.connection.database, client.clock.now()
        held = await begin(db, kind="pipeline", now=now)
        await RunStore(db, Journal(db, client.clock), held).put_items("input", stream(items))
        for found in (await client.runs.steps(held.id), await client.runs.steps_page(held.id)):
            texts = [step.output or "" for step in found]
            assert items in [json.loads(text) for text in texts]
            assert "hunter2" not in "".join(Redactor(["password"]).text(text) for text in texts)


async def test_a_result_that_is_being_written_is_stored_although_its_run_is_stopped(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answer is paid for: a worker that stops must not lose it in the middle of a write."""
    async with Client(database_url) as client:
        db, now = client.connection.database, client.clock.now()
        held = await begin(db, kind="pipeline", now=now)
        store = RunStore(db, Journal(db, client.clock), held)
        writes, go, write = asyncio.Event(), asyncio.Event(), db.write_brief

        async def slow(*args: Any, **options: Any) -> Any:
            writes.set()
            await go.wait()
            return await write(*args, **options)

        monkeypatch.setattr(db, "write_brief", slow)
        step = store.made("at/map/000000000/x", kind="item", output={"text": "paid"})
        putting = asyncio.create_task(store.put([step]))
        await writes.wait()
        putting.cancel()
        await asyncio.sleep(0)
        assert not putting.done(), "the claim would be released before the write"
        go.set()
        await asyncio.gather(putting, return_exceptions=True)
        assert putting.cancelled()
        assert await store.step(step.key) is not None
