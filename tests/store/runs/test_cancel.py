"""Cancelling: chains, children and grandchildren, and what happens at the same moment."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from rota.core.runs.lifecycle import CONTINUED
from rota.core.runs.model import Claim, Outcome
from rota.errors import LeaseLost
from rota.store.backend.database import Database, Tx
from rota.store.runs import steps
from rota.store.runs.cancel import cancel_chains
from rota.store.runs.recover import reap_runs, renew_leases
from rota.store.runs.settle import settle_runs
from rota.store.runs.start import continuation, successor
from tests.kit.builders import (
    LEASE,
    NOW,
    begin,
    chain,
    claim,
    fresh_id,
    get,
    later,
    new_run,
    reap,
    record_child,
    settle,
    sound,
    sql,
    start,
    status,
    step_of,
)


async def cancel(db: Database, *roots: str) -> list[str]:
    return await db.write(cancel_chains, roots, reason="by request", now=NOW + 1)


async def test_every_open_status_can_be_cancelled(db: Database) -> None:
    sleeping, waiting, held = await begin(db), await begin(db), await begin(db)
    await settle(db, sleeping, "suspend", reason="sleep", wake_at=later(1))
    await settle(db, waiting, "ask", reason="auth")
    pending = new_run()
    await start(db, pending)
    ids = [sleeping.id, waiting.id, held.id, pending.id]
    assert sorted(await cancel(db, *ids)) == sorted(ids)
    for run_id in ids:
        run = await get(db, run_id)
        assert (run.label, run.finished_at) == ("cancelled:by request", NOW + 1)
        assert run.lease_owner is None
    assert await sound(db)


async def test_what_is_over_is_not_cancelled(db: Database) -> None:
    held = await begin(db)
    await settle(db, held)
    assert await cancel(db, held.id, "unknown") == []
    assert await status(db, held.id) == "completed"


async def test_the_open_retry_of_a_chain_is_cancelled(db: Database) -> None:
    held = await begin(db)
    retry = successor(held, fresh_id(), trigger="retry", available_at=later(1), attempt=2)
    await settle(db, held, "fail", reason="logic", retry=retry)
    assert await cancel(db, held.id) == [retry.id]
    assert await status(db, held.id) == "failed:logic"


async def test_children_and_grandchildren_go_along(db: Database) -> None:
    root = await begin(db)
    child = await begin(db, parent_id=root.id)
    retry = successor(child, fresh_id(), trigger="retry", available_at=NOW, attempt=2)
    await settle(db, child, "fail", retry=retry)
    done = await begin(db, parent_id=root.id, name="done")
    await settle(db, done)
    # The parent of a grandchild is the chain of the child, named by its first run.
    grandchild = await begin(db, parent_id=child.root_id, name="grandchild")
    stranger = await begin(db, name="stranger")
    assert sorted(await cancel(db, root.id)) == sorted([root.id, retry.id, grandchild.id])
    assert await status(db, done.id) == "completed"
    assert await status(db, stranger.id) == "running"
    assert await sound(db)


async def test_a_cancelled_child_wakes_its_parent(db: Database) -> None:
    parent = await begin(db, name="parent")
    child = await begin(db, parent_id=parent.id)
    await settle(db, parent, "suspend", reason="child")
    await cancel(db, child.id)
    assert await status(db, parent.id) == "pending"
    assert await sound(db)


async def test_a_cancelled_run_is_neither_settled_nor_renewed_nor_reaped(db: Database) -> None:
    held = await begin(db)
    await cancel(db, held.id)
    assert not await settle(db, held)
    assert not await db.write(renew_leases, [held], lease_until=later(1))
    assert await reap(db, now=NOW + LEASE + 1) == []
    assert await db.write(steps.record, [step_of(held, "a")]) == [False]
    assert await sql(db, "select count(*) from steps") == [(0,)]


Deed = Callable[[Tx], Awaitable[object]]


async def _meet(db: Database, deed: Deed, then: Callable[[], Awaitable[list[str]]]) -> list[str]:
    """Run `deed`, let `then` begin and run into its locks, and commit. Return what `then` says.

    SQLite has one writer, so there the second simply comes after the first.
    """
    if db.dialect.name == "sqlite":
        await db.write(deed)
        return await then()
    done, blocked = asyncio.Event(), asyncio.Event()

    async def linger(tx: Tx) -> None:
        await deed(tx)
        done.set()
        await asyncio.wait_for(blocked.wait(), 10)

    first = asyncio.ensure_future(db.write(linger))
    await done.wait()
    second = asyncio.ensure_future(then())
    waits = "select count(*) from pg_locks where not granted"
    async with asyncio.timeout(10):
        while (await sql(db, waits))[0][0] == 0 and not second.done():
            await asyncio.sleep(0.005)
    blocked.set()
    await first
    return await second


async def _begun(db: Database) -> Claim:
    return await begin(db, worker="w1")


async def test_a_child_created_at_the_moment_of_the_cancel_is_cancelled_too(db: Database) -> None:
    parent = await _begun(db)
    child = new_run("child", parent_id=parent.id, trigger="child")

    async def start_child(tx: Tx) -> None:
        await record_child(tx, step_of(parent, "child#1"), child, now=NOW)

    await _meet(db, start_child, lambda: cancel(db, parent.id))
    assert await status(db, parent.id) == "cancelled:by request"
    assert await sound(db)
    assert await status(db, child.id) == "cancelled:by request"


async def test_a_retry_made_at_the_moment_of_the_cancel_is_cancelled(db: Database) -> None:
    held = await _begun(db)
    retry = successor(held, fresh_id(), trigger="retry", available_at=NOW, attempt=2)

    async def fail(tx: Tx) -> None:
        await settle_runs(tx, [Outcome(held, "fail", retry=retry)], now=NOW, alone=False)

    assert await _meet(db, fail, lambda: cancel(db, held.id)) == [retry.id]
    assert [run.status for run in await chain(db, held.id)] == ["failed", "cancelled"]


async def test_a_continuation_made_at_the_moment_of_the_cancel_is_cancelled(db: Database) -> None:
    held = await _begun(db)
    following = continuation(held, fresh_id(), body="{}", version=None, now=NOW)

    async def continue_as_new(tx: Tx) -> None:
        outcome = Outcome(held, "continue", CONTINUED, retry=following)
        await settle_runs(tx, [outcome], now=NOW, alone=False)

    assert await _meet(db, continue_as_new, lambda: cancel(db, held.id)) == [following.id]
    assert [run.label for run in await chain(db, held.id)] == [
        "completed:continued", "cancelled:by request",
    ]  # fmt: skip


async def test_a_run_that_was_cancelled_does_not_continue(db: Database) -> None:
    held = await _begun(db)
    await cancel(db, held.id)
    following = continuation(held, fresh_id(), body="{}", version=None, now=NOW)
    outcome = Outcome(held, "continue", CONTINUED, retry=following)
    assert (await db.write(settle_runs, [outcome], now=NOW)).ids == frozenset()
    assert [run.label for run in await chain(db, held.id)] == ["cancelled:by request"]


async def test_a_recovery_made_at_the_moment_of_the_cancel_is_cancelled(db: Database) -> None:
    held = await _begun(db)
    next_run = fresh_id()

    async def recover(tx: Tx) -> None:
        await reap_runs(
            tx, namespace="default", now=NOW, gone=["w1"], recoveries_max=5, new_ids=[next_run]
        )

    assert await _meet(db, recover, lambda: cancel(db, held.id)) == [next_run]
    assert [run.status for run in await chain(db, held.id)] == ["crashed", "cancelled"]


async def test_an_end_at_the_moment_of_the_cancel_stays(db: Database) -> None:
    held = await _begun(db)

    async def complete(tx: Tx) -> None:
        await settle_runs(tx, [Outcome(held, "complete")], now=NOW, alone=False)

    assert await _meet(db, complete, lambda: cancel(db, held.id)) == []
    assert await status(db, held.id) == "completed"


async def test_a_child_is_not_created_to_a_cancelled_run(db: Database) -> None:
    parent = await _begun(db)
    await cancel(db, parent.id)
    child = new_run("child", parent_id=parent.id)
    with pytest.raises(LeaseLost):
        await db.write(record_child, step_of(parent, "child#1"), child, now=NOW)
    assert await sql(db, "select count(*) from runs") == [(1,)]
    assert await claim(db, names=["child"]) == []
