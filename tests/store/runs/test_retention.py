"""Retention: what is over and old goes with all its belongings; nothing unresolved ever does."""

from __future__ import annotations

from typing import Any

import pytest

from rota.core.runs.model import Claim
from rota.core.time.instants import DAY
from rota.store.backend.database import Database
from rota.store.runs import retention, steps
from rota.store.runs.cancel import cancel_chains
from rota.store.runs.recover import reap_runs
from rota.store.runs.retention import ChainEnd
from rota.store.runs.start import successor
from tests.kit.builders import (
    BIG,
    NOW,
    SPACE,
    begin,
    claim,
    fresh_id,
    later,
    new_run,
    settle,
    signal,
    sound,
    sql,
    start,
    step_of,
)

CUT = f"{(NOW + DAY) // 1000:012x}"  # a day after everything here was created


async def prune(
    db: Database, before_id: str = CUT, limit: int = 100, before_at: int = 1 << 62
) -> int:
    done = await db.write(
        retention.prune, namespace=SPACE, before_id=before_id, before=ChainEnd(before_at),
        limit=limit,
    )  # fmt: skip
    return done.chains


async def left(db: Database) -> list[str]:
    return [row[0] for row in await sql(db, "select id from runs order by id")]


async def _over(db: Database, verb: str = "complete", **fields: Any) -> Claim:
    held = await begin(db, **fields)
    await settle(db, held, verb)
    return held


async def test_a_chain_goes_with_everything_that_belongs_to_it(db: Database) -> None:
    held = await begin(db, input=BIG)
    await db.write(steps.record, [step_of(held, "a")])
    await signal(db, held.id)
    retry = successor(held, fresh_id(), trigger="retry", available_at=NOW, attempt=2)
    await settle(db, held, "fail", error=BIG, retry=retry)
    [again] = await claim(db)
    await settle(db, again, output=BIG)
    assert await prune(db) == 1
    for table in ("runs", "payloads", "steps", "signals"):
        assert await sql(db, f"select count(*) from {table}") == [(0,)], table


@pytest.mark.parametrize("verb", ["release", "suspend", "ask"])
async def test_nothing_open_is_pruned(db: Database, verb: str) -> None:
    held, running = await begin(db), await begin(db)
    await settle(db, held, verb, wake_at=later(1))
    assert await prune(db) == 0
    assert await left(db) == [held.id, running.id]


async def test_a_chain_whose_retry_is_open_stays(db: Database) -> None:
    held = await begin(db)
    retry = successor(held, fresh_id(), trigger="retry", available_at=NOW, attempt=2)
    await settle(db, held, "fail", retry=retry)
    assert await prune(db) == 0


async def test_a_chain_whose_retry_is_too_young_stays(db: Database) -> None:
    held = await begin(db)
    young = fresh_id(NOW + 2 * DAY)
    retry = successor(held, young, trigger="retry", available_at=NOW, attempt=2)
    await settle(db, held, "fail", retry=retry)
    await settle(db, (await claim(db))[0])
    assert await prune(db) == 0


@pytest.mark.parametrize("verb", ["release", "suspend", "ask"])
async def test_a_child_whose_parent_waits_stays(db: Database, verb: str) -> None:
    parent = await begin(db, name="parent")
    child = await _over(db, parent_id=parent.id)
    await settle(db, parent, verb, wake_at=later(1))
    assert await prune(db) == 0
    assert child.id in await left(db)


async def test_a_child_whose_parent_is_open_stays(db: Database) -> None:
    parent = await begin(db, name="parent")
    child = await _over(db, parent_id=parent.id)
    assert await prune(db) == 0
    await settle(db, parent)
    assert await prune(db) == 2
    assert child.id not in await left(db)


async def test_a_child_whose_parents_retry_is_open_stays(db: Database) -> None:
    parent = await begin(db, name="parent")
    await _over(db, parent_id=parent.id)
    retry = successor(parent, fresh_id(), trigger="retry", available_at=NOW, attempt=2)
    await settle(db, parent, "fail", retry=retry)
    assert await prune(db) == 0


async def test_a_child_whose_failed_parent_stays_may_be_needed_by_its_retry(db: Database) -> None:
    parent = await begin(db, name="parent")
    child = await _over(db, parent_id=parent.id)
    below = await _over(db, "fail", parent_id=child.id)
    await settle(db, parent, "fail", now=NOW + 2 * DAY)
    assert await prune(db, before_at=NOW + DAY) == 1, "no retry of a completed child needs its own"
    assert await left(db) == [parent.id, child.id]
    assert below.id not in await left(db)
    assert await prune(db, before_at=NOW + 3 * DAY) == 2


async def test_a_child_whose_completed_parent_stays_goes(db: Database) -> None:
    parent = await begin(db, name="parent")
    child = await _over(db, parent_id=parent.id)
    await settle(db, parent, now=NOW + 2 * DAY)
    assert await prune(db, before_at=NOW + DAY) == 1
    assert child.id not in await left(db)


async def test_an_open_child_stays_when_its_parent_goes(db: Database) -> None:
    parent = await begin(db, name="parent")
    child = await begin(db, parent_id=parent.id)
    await settle(db, parent)
    assert await prune(db) == 1
    assert await left(db) == [child.id]
    assert await settle(db, child)
    assert await sound(db)


async def test_what_is_younger_than_the_cut_stays(db: Database) -> None:
    old, young = await _over(db), await _over(db)
    assert await prune(db, before_id=young.id) == 1
    assert await left(db) == [young.id]
    assert old.id < young.id


async def test_another_namespace_stays(db: Database) -> None:
    await start(db, new_run(namespace="theirs"))
    [theirs] = await claim(db, namespace="theirs")
    await settle(db, theirs)
    assert await prune(db) == 0


async def test_pruning_is_bounded_and_takes_the_oldest_first(db: Database) -> None:
    over = [await _over(db) for _ in range(4)]
    assert await prune(db, limit=3) == 3
    assert await left(db) == [over[3].id]
    assert await prune(db, limit=3) == 1


@pytest.mark.parametrize("end", ["complete", "fail", "cancel", "reap"])
async def test_every_end_is_pruned(db: Database, end: str) -> None:
    held = await begin(db)
    if end == "cancel":
        await db.write(cancel_chains, [held.id], reason="no", now=NOW)
    elif end == "reap":
        await db.write(
            reap_runs, namespace=SPACE, now=NOW, gone=["w1"], recoveries_max=0, new_ids=["x"]
        )
    else:
        await settle(db, held, end)
    assert await prune(db) == 1


async def test_runs_survive_the_end_of_their_schedule(db: Database) -> None:
    fresh = new_run()
    await start(db, fresh)
    fired = new_run(schedule_id=fresh.id, due_at=NOW)
    await start(db, fired)
    await sql(db, f"delete from runs where id = '{fresh.id}'")
    assert await sql(db, "select id, schedule_id, due_at from runs") == [(fired.id, None, NOW)]


async def test_the_count_to_keep_gives_the_end_of_the_oldest_that_stays(db: Database) -> None:
    over = [await begin(db) for _ in range(4)]
    await begin(db)
    for minute, held in enumerate(reversed(over)):  # the first to start ends last
        await settle(db, held, now=later(60 * minute))

    async def oldest(keep: int) -> ChainEnd | None:
        return await db.read(retention.oldest_to_keep, namespace=SPACE, keep=keep)

    assert await oldest(1) == (later(180), over[0].id)
    assert await oldest(4) == (later(0), over[3].id)
    assert await oldest(5) is None
    assert await db.read(retention.oldest_to_keep, namespace="theirs", keep=1) is None


async def test_ends_of_one_instant_are_in_the_order_of_ids(db: Database) -> None:
    over = [await _over(db) for _ in range(4)]
    cut = await db.read(retention.oldest_to_keep, namespace=SPACE, keep=2)
    assert cut == (NOW, over[2].id)
    await db.write(retention.prune, namespace=SPACE, before_id=CUT, before=cut, limit=100)
    assert await left(db) == [over[2].id, over[3].id]


async def test_a_chain_ends_with_its_last_attempt(db: Database) -> None:
    held = await begin(db)
    other = await _over(db)
    retry = successor(held, fresh_id(), trigger="retry", available_at=NOW, attempt=2)
    await settle(db, held, "fail", retry=retry)
    assert await db.read(retention.oldest_to_keep, namespace=SPACE, keep=2) is None, "it is open"
    [again] = await claim(db)
    await settle(db, again, now=later(60))
    cut = await db.read(retention.oldest_to_keep, namespace=SPACE, keep=1)
    assert cut == (later(60), held.id)
    await db.write(retention.prune, namespace=SPACE, before_id=CUT, before=cut, limit=100)
    assert await left(db) == [held.id, again.id]
    assert other.id not in await left(db)


async def test_a_batch_looks_at_one_page_and_says_where_the_next_begins(db: Database) -> None:
    held = [await begin(db) for _ in range(4)]  # open: they stay, and are before the others
    over = [await _over(db) for _ in range(3)]
    pages, after_id = [], ""
    while True:
        done = await db.write(
            retention.prune, namespace=SPACE, before_id=CUT, limit=3, after_id=after_id
        )
        pages.append(done)
        if done.after_id is None:
            break
        after_id = done.after_id
    assert pages == [(0, held[2].id), (2, over[1].id), (1, None)]
    assert await left(db) == [run.id for run in held]
