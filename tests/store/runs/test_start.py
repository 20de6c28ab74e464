"""Start of runs: new ones, ones that were there before, bulk, and payloads that are big."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from rota.core.runs.model import NewRun, Started
from rota.errors import UsageError
from rota.store.backend.database import Database, Tx
from rota.store.runs.start import BulkItem, start_minimal, start_runs, start_uniform, successor
from tests.kit.builders import (
    BIG,
    NOW,
    SPACE,
    begin,
    chain,
    claim,
    fresh_id,
    get,
    new_run,
    settle,
    sound,
    sql,
    start,
    status,
)


async def test_a_new_run_is_pending_with_all_its_fields(db: Database) -> None:
    fresh = new_run(
        "ship", input='{"a":1}', queue="mail", priority=3, trigger="event", parent_id="p",
        external_id="o-7", limit_key="k", version="v1", tags='{"t":"1"}', options='{"retry":{}}',
    )  # fmt: skip
    assert await start(db, fresh) == [Started(fresh.id, existed=False)]
    run = await get(db, fresh.id)
    for field in NewRun.__struct_fields__:
        if field != "root_id":
            assert getattr(run, field) == getattr(fresh, field), field
    assert (run.status, run.root_id, run.claim_count) == ("pending", fresh.id, 0)
    assert (run.created_at, run.started_at, run.finished_at) == (NOW, None, None)
    assert run.lease_owner is None


async def test_a_run_for_later_sleeps_first(db: Database) -> None:
    later, now = new_run(available_at=NOW + 1), new_run(available_at=NOW)
    await start(db, later, now)
    assert await status(db, later.id) == "sleeping"
    assert await status(db, now.id) == "pending"


async def test_nothing_to_start_is_no_error(db: Database) -> None:
    assert await start(db) == []


async def test_a_second_start_with_the_same_external_id_gets_the_first_run(db: Database) -> None:
    first, second = new_run(external_id="o-7", input="1"), new_run(external_id="o-7", input="2")
    await start(db, first)
    assert await start(db, second) == [Started(first.id, existed=True)]
    assert (await get(db, first.id)).input == "1"
    assert await sql(db, "select count(*) from runs") == [(1,)]


async def test_an_external_id_stays_taken_when_its_run_is_over(db: Database) -> None:
    held = await begin(db, external_id="o-7")
    await settle(db, held)
    assert await start(db, new_run(external_id="o-7")) == [Started(held.id, existed=True)]


@pytest.mark.parametrize("other", [{"name": "other"}, {"namespace": "elsewhere"}])
async def test_external_ids_of_others_are_not_in_the_way(
    db: Database, other: dict[str, str]
) -> None:
    first, second = new_run(external_id="o-7"), new_run(**other, external_id="o-7")
    await start(db, first)
    assert await start(db, second) == [Started(second.id, existed=False)]


async def test_the_same_start_sent_again_is_success(db: Database) -> None:
    fresh = new_run(external_id="o-7")
    await start(db, fresh)
    assert await start(db, fresh) == [Started(fresh.id, existed=False)]
    assert await sql(db, "select count(*) from runs") == [(1,)]


async def test_a_start_that_only_its_id_can_stop_is_success_when_sent_again(db: Database) -> None:
    """The plain insert finds its own row, alone and inside of a larger transaction."""

    async def within(tx: Tx) -> list[Started]:
        return await start_runs(tx, [fresh], now=NOW, alone=False)

    fresh = new_run()
    await start(db, fresh)
    assert await start(db, fresh) == [Started(fresh.id, existed=False)]
    assert await db.write(within) == [Started(fresh.id, existed=False)]
    assert await sql(db, "select count(*) from runs") == [(1,)]


@pytest.mark.parametrize("body", [None, "1", BIG], ids=["none", "small", "big"])
async def test_a_plain_bulk_sent_again_is_success_and_brings_what_was_missing(
    db: Database, body: str | None
) -> None:
    items = [(fresh_id(), body if n % 2 else None) for n in range(4)]
    template = new_run("ship", queue="mail")
    assert await db.write(start_minimal, template, items[:2], now=NOW) == {}
    assert await db.write(start_minimal, template, items, now=NOW) == {}
    assert [(await get(db, run_id)).input for run_id, _ in items] == [None, body, None, body]
    assert await sql(db, "select count(*) from runs") == [(4,)]


async def test_a_bulk_of_old_and_new_is_answered_in_its_order(db: Database) -> None:
    old = [new_run(external_id=f"o-{n}") for n in range(3)]
    await start(db, *old)
    mixture = [
        new_run(), new_run(external_id="o-1"), new_run(external_id="o-9"),
        new_run(external_id="o-9"), old[2], new_run(external_id="o-0", input=BIG),
    ]  # fmt: skip
    assert await start(db, *mixture) == [
        Started(mixture[0].id, existed=False),
        Started(old[1].id, existed=True),
        Started(mixture[2].id, existed=False),
        Started(mixture[2].id, existed=True),
        Started(old[2].id, existed=False),
        Started(old[0].id, existed=True),
    ]
    assert await sql(db, "select count(*) from runs") == [(5,)]
    assert await sql(db, "select count(*) from payloads") == [(0,)]


async def test_many_starters_with_one_external_id_get_one_run(db: Database) -> None:
    answers = await asyncio.gather(*(start(db, new_run(external_id="o-7")) for _ in range(16)))
    assert len({answer[0].id for answer in answers}) == 1
    assert sum(not answer[0].existed for answer in answers) == 1


def _items(count: int, **fields: str) -> list[BulkItem]:
    return [(fresh_id(), fields.get("external"), "k", str(n)) for n in range(count)]


async def _alike(
    db: Database, items: Sequence[BulkItem], template: NewRun | None = None
) -> dict[str, str]:
    template = template or new_run("ship", queue="mail", priority=2, tags='{"a":"b"}')
    return await db.write(start_uniform, template, items, now=NOW)


async def test_runs_that_are_alike_are_created_like_any_other(db: Database) -> None:
    items = _items(3)
    assert await _alike(db, items) == {}
    plain = new_run("ship", queue="mail", priority=2, tags='{"a":"b"}', limit_key="k", input="1")
    await start(db, plain)
    alike, reference = await get(db, items[1][0]), await get(db, plain.id)
    for field in type(alike).__struct_fields__:
        if field not in ("id", "root_id"):
            assert getattr(alike, field) == getattr(reference, field), field
    assert alike.root_id == alike.id


async def test_runs_that_are_alike_may_exist_already_or_be_big(db: Database) -> None:
    first = _items(1, external="o-7")
    await _alike(db, first)
    [again], [other] = _items(1, external="o-7"), _items(1)
    assert await _alike(db, [other, again]) == {again[0]: first[0][0]}
    assert await status(db, other[0]) == "pending"
    big: list[BulkItem] = [(fresh_id(), None, None, BIG)]
    await _alike(db, big)
    assert (await get(db, big[0][0])).input == BIG


async def test_runs_that_are_alike_may_be_for_later(db: Database) -> None:
    items = _items(2)
    await _alike(db, items, new_run("ship", available_at=NOW + 5))
    assert await status(db, items[0][0]) == "sleeping"


async def test_a_big_input_spills_and_reads_back(db: Database) -> None:
    fresh = new_run(input=BIG)
    await start(db, fresh, new_run(input="small"))
    assert await sql(db, "select run_id, part from payloads") == [(fresh.id, "input")]
    assert await sql(db, f"select input from runs where id = '{fresh.id}'") == [(None,)]
    assert (await get(db, fresh.id)).input == BIG
    assert {held.input for held in await claim(db)} == {BIG, "small"}


async def test_a_big_input_belongs_to_the_chain(db: Database) -> None:
    held = await begin(db, input=BIG)
    retry = successor(held, fresh_id(), trigger="retry", available_at=NOW, attempt=2)
    await settle(db, held, "fail", retry=retry)
    assert [run.input for run in await chain(db, held.id)] == [BIG, BIG]
    assert (await claim(db))[0].input == BIG
    assert await sql(db, "select count(*) from payloads") == [(1,)]


async def test_a_start_that_finds_its_serial_key_taken_names_no_run_that_is_not_there(
    db: Database,
) -> None:
    """It may be refused or be answered with the run that holds the key; it is never made up."""
    first = new_run(serial_key="one")
    await start(db, first)
    try:
        [answer] = await start(db, new_run(serial_key="one"))
    except UsageError:
        return
    assert answer == Started(first.id, existed=True)


async def test_a_serial_key_is_free_again_when_its_run_is_over(db: Database) -> None:
    held = await begin(db, serial_key="one")
    await settle(db, held)
    second = new_run(serial_key="one")
    assert await start(db, second) == [Started(second.id, existed=False)]
    assert await sound(db)


async def test_a_second_successor_is_not_created(db: Database) -> None:
    held = await begin(db)
    next_runs = [
        successor(held, fresh_id(), trigger="retry", available_at=NOW, attempt=2) for _ in range(2)
    ]
    await settle(db, held, "fail", retry=next_runs[0])
    await start(db, next_runs[1])
    assert [run.id for run in await chain(db, held.id)] == [held.id, next_runs[0].id]
    assert await sound(db)


async def test_a_successor_keeps_what_makes_it_the_same_work(db: Database) -> None:
    held = await begin(
        db, name="ship", queue="mail", priority=5, limit_key="k", serial_key="s", parent_id="p",
        version="v", tags="{}", options="{}", input="1", external_id="o-7",
    )  # fmt: skip
    next_run = successor(held, "next_run", trigger="retry", available_at=NOW + 9, attempt=2)
    kept = (
        "name", "queue", "priority", "limit_key", "serial_key", "parent_id", "version", "tags",
        "options", "input", "namespace", "kind", "recoveries",
    )  # fmt: skip
    for field in kept:
        assert getattr(next_run, field) == getattr(held, field), field
    assert (next_run.root_id, next_run.retry_of, next_run.attempt) == (held.id, held.id, 2)
    assert next_run.external_id is None, "it stays with the first, which never leaves"
    assert next_run.namespace == SPACE
