"""Reading runs back: one, a chain, a page, counts, the ended ones."""

from __future__ import annotations

import pytest

from rota.core.runs.filters import checked_filter
from rota.errors import UnknownRun
from rota.store.backend.database import Database
from rota.store.runs import history, lists
from rota.store.runs.start import successor
from tests.kit.builders import (
    BIG,
    NOW,
    SPACE,
    begin,
    claim,
    fresh_id,
    get,
    new_run,
    reap,
    settle,
    start,
)


async def page(db: Database, *, before: str = "~", limit: int = 50, **filters: str) -> list[str]:
    wanted = checked_filter(**filters)  # type: ignore[arg-type]
    found = await db.read(lists.page, wanted, namespace=SPACE, before=before, limit=limit)
    return [run.id for run in found.runs]


async def test_a_run_is_found_by_a_prefix_that_fits_no_other(db: Database) -> None:
    ids = ["a1" + "0" * 30, "a2" + "0" * 30]
    await start(db, *(new_run(id=run_id) for run_id in ids))
    assert (await get(db, "a1")).id == ids[0]
    assert (await get(db, ids[1])).id == ids[1]


async def test_a_prefix_that_fits_several_is_refused(db: Database) -> None:
    await start(db, new_run(id="a1"), new_run(id="a2"))
    with pytest.raises(UnknownRun) as caught:
        await get(db, "a")
    assert "several" in str(caught.value)
    assert "more of the id" in caught.value.advice


@pytest.mark.parametrize("run_id", ["", "nobody", "zz", "%", "_", "ü", "'; drop table runs; --"])
async def test_a_run_that_is_not_there_is_an_error(db: Database, run_id: str) -> None:
    await start(db, new_run())
    with pytest.raises(UnknownRun):
        await get(db, run_id)


async def test_a_run_of_another_namespace_is_not_found(db: Database) -> None:
    theirs = new_run(namespace="theirs")
    await start(db, theirs)
    for given in (theirs.id, theirs.id[:-1]):
        with pytest.raises(UnknownRun):
            await get(db, given)


async def test_a_chain_is_reported_first_to_last(db: Database) -> None:
    held = await begin(db, worker="w0")
    retry = successor(held, fresh_id(), trigger="retry", available_at=NOW, attempt=2)
    await settle(db, held, "fail", retry=retry)
    await claim(db, "w1")
    await reap(db, now=NOW, gone=["w1"])
    found = await db.read(history.chain, root_id=held.id)
    assert [(run.attempt, run.recoveries, run.status) for run in found] == [
        (1, 0, "failed"), (2, 0, "crashed"), (2, 1, "pending"),
    ]  # fmt: skip


async def test_a_chain_retried_by_hand_after_recoveries_keeps_its_order(db: Database) -> None:
    held = await begin(db, worker="w0")
    for crash in range(3):
        await reap(db, now=NOW, gone=[f"w{crash}"], recoveries_max=2)
        await claim(db, f"w{crash + 1}")
    last = (await db.read(history.chain, root_id=held.id))[-1]
    next_run = successor(
        last, fresh_id(), trigger="retry", available_at=NOW, attempt=2, recoveries=0
    )
    await start(db, next_run)
    assert (await db.read(history.chain, root_id=held.id))[-1].id == next_run.id


async def test_only_chains_that_have_ended_are_reported_as_ended(db: Database) -> None:
    done, failing, open_ = await begin(db), await begin(db), await begin(db)
    await settle(db, done, output=BIG)
    retry = successor(failing, fresh_id(), trigger="retry", available_at=NOW, attempt=2)
    await settle(db, failing, "fail", reason="logic", retry=retry)
    roots = [done.id, failing.id, open_.id, "unknown"]
    assert await db.read(history.ended, roots) == [
        history.ChainResult(done.id, "completed", None, BIG, None)
    ]
    [again] = await claim(db)
    await settle(db, again, "fail", reason="fatal", error='{"type":"X"}')
    assert sorted(await db.read(history.ended, roots)) == sorted([
        history.ChainResult(done.id, "completed", None, BIG, None),
        history.ChainResult(failing.id, "failed", "fatal", None, '{"type":"X"}'),
    ])  # fmt: skip


async def test_a_page_is_newest_first_and_goes_on_where_the_last_ended(db: Database) -> None:
    fresh = [new_run() for _ in range(5)]
    await start(db, *fresh, new_run(namespace="theirs"))
    ids = [run.id for run in reversed(fresh)]
    assert await page(db) == ids
    assert await page(db, limit=2) == ids[:2]
    assert await page(db, limit=2, before=ids[1]) == ids[2:4]
    assert await page(db, before=ids[4]) == []


async def test_a_page_is_filtered(db: Database) -> None:
    held = await begin(db, name="ship", queue="mail", external_id="o-7")
    retry = successor(held, fresh_id(), trigger="retry", available_at=NOW, attempt=2)
    await settle(db, held, "fail", retry=retry)
    other = new_run()
    await start(db, other)
    assert await page(db, name="ship") == [retry.id, held.id]
    assert await page(db, queue="mail", status="failed") == [held.id]
    assert await page(db, external_id="o-7") == [held.id]
    assert await page(db, root_id=held.id) == [retry.id, held.id]
    assert await page(db, status="completed") == []


async def test_schedules_are_not_listed_among_runs(db: Database) -> None:
    await start(db, new_run(kind="schedule"))
    assert await page(db) == []


async def test_counts_and_what_is_ready(db: Database) -> None:
    assert await db.read(history.counts, namespace=SPACE) == {}
    await begin(db)
    await start(
        db, new_run(available_at=NOW - 5), new_run(), new_run("other", queue="mail"),
        new_run(available_at=NOW + 9), new_run(namespace="theirs"),
    )  # fmt: skip
    assert await db.read(history.counts, namespace=SPACE) == {
        "running": 1, "pending": 3, "sleeping": 1,
    }  # fmt: skip
    assert sorted(await db.read(history.ready, namespace=SPACE)) == [
        history.Ready("default", "work", 2, NOW - 5),
        history.Ready("mail", "other", 1, NOW),
    ]
