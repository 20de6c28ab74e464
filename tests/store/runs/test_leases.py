"""Leases: renewal of what is listed, reaping, recovery, strays."""

from __future__ import annotations

import asyncio

import pytest

from rota.core.runs.model import Outcome
from rota.errors import LeaseLost
from rota.store.backend.database import Database
from rota.store.runs import steps
from rota.store.runs.cancel import cancel_chains
from rota.store.runs.recover import reap_runs, renew_leases, return_strays
from rota.store.runs.settle import settle_and_claim, settle_runs
from tests.kit.builders import (
    BIG,
    LEASE,
    NOW,
    SPACE,
    begin,
    chain,
    claim,
    get,
    new_run,
    reap,
    record_child,
    request,
    settle,
    sound,
    sql,
    start,
    status,
    step_of,
)

FORGET = """update runs set status = 'pending', lease_owner = null, lease_until = null,
    claim_count = 0"""
LAPSED = NOW + LEASE + 1


async def test_only_listed_claims_are_renewed(db: Database) -> None:
    listed, other = await begin(db), await begin(db)
    assert set(await db.write(renew_leases, [listed], lease_until=NOW + 99)) == {listed.id}
    assert (await get(db, listed.id)).lease_until == NOW + 99
    assert (await get(db, other.id)).lease_until == NOW + LEASE


async def test_a_lost_claim_is_missing_from_the_answer(db: Database) -> None:
    held, gone, again = await begin(db), await begin(db), await begin(db)
    await db.write(cancel_chains, [gone.id], reason="no", now=NOW)
    await settle(db, again, "release")
    await claim(db, "w2")
    assert set(await db.write(renew_leases, [held, gone, again], lease_until=NOW + 99)) == {held.id}
    assert (await get(db, again.id)).lease_until == NOW + LEASE
    assert not await db.write(renew_leases, [], lease_until=NOW)


async def test_a_lapsed_run_is_crashed_and_has_a_successor(db: Database) -> None:
    held = await begin(db, priority=4, limit_key="k", available_at=NOW - 5, input=BIG)
    [(run, recovered)] = await reap(db, now=LAPSED)
    assert (run.id, recovered) == (held.id, True)
    dead, successor = await chain(db, held.id)
    assert (dead.label, dead.finished_at, dead.lease_owner) == ("crashed:lapsed", LAPSED, None)
    assert (successor.status, successor.trigger, successor.retry_of) == (
        "pending",
        "recovery",
        held.id,
    )
    assert (successor.attempt, successor.recoveries) == (1, 1)
    assert (successor.available_at, successor.priority) == (NOW - 5, 4), (
        "it keeps its place in line"
    )
    assert (successor.limit_key, successor.input) == ("k", BIG)
    assert await sound(db)


async def test_a_recovery_goes_before_what_came_later(db: Database) -> None:
    held = await begin(db)
    behind = new_run(available_at=NOW + 1)
    await start(db, behind, now=NOW + 1)
    await reap(db, now=LAPSED)
    assert [one.root_id for one in await claim(db, now=LAPSED)] == [held.id, behind.id]


async def test_a_lease_that_holds_is_left_alone(db: Database) -> None:
    await begin(db)
    assert await reap(db, now=NOW + LEASE) == []


async def test_runs_of_a_worker_that_is_gone_are_reaped_at_once(db: Database) -> None:
    dead = await begin(db, worker="dead")
    alive = await begin(db, worker="alive")
    assert [run.id for run, _ in await reap(db, now=NOW, gone=["dead"])] == [dead.id]
    assert await status(db, dead.id) == "crashed:worker gone"
    assert await status(db, alive.id) == "running"


async def test_a_worker_does_not_reap_what_it_performs_itself(db: Database) -> None:
    mine, other = await begin(db, worker="me"), await begin(db, worker="me")
    reaped = await db.write(
        reap_runs, namespace=SPACE, now=LAPSED, gone=[], held=[mine.id], recoveries_max=5,
        new_ids=["heir1", "heir2"],
    )  # fmt: skip
    assert [run.id for run, _ in reaped] == [other.id]
    assert await settle(db, mine, now=LAPSED)


async def test_another_namespace_is_not_reaped(db: Database) -> None:
    await start(db, new_run(namespace="theirs"))
    await claim(db, "dead", namespace="theirs")
    assert await reap(db, now=LAPSED, gone=["dead"]) == []


async def test_a_run_that_crashes_too_often_is_quarantined(db: Database) -> None:
    root = (await begin(db, worker="w0")).id
    for crash in range(3):
        [(run, recovered)] = await reap(db, now=NOW, gone=[f"w{crash}"], recoveries_max=2)
        assert (run.recoveries, recovered) == (crash, crash < 2)
        await claim(db, f"w{crash + 1}", alone=crash == 1)  # from the second recovery on
    attempts = await chain(db, root)
    assert [run.status for run in attempts] == ["crashed"] * 3
    assert [run.recoveries for run in attempts] == [0, 1, 2]
    assert await sound(db)


async def test_with_no_recoveries_allowed_the_first_crash_is_the_last(db: Database) -> None:
    held = await begin(db)
    assert [recovered for _, recovered in await reap(db, now=LAPSED, recoveries_max=0)] == [False]
    assert len(await chain(db, held.id)) == 1


async def test_the_last_crash_wakes_the_parent_and_others_do_not(db: Database) -> None:
    parent = await begin(db, name="parent", worker="boss")
    await begin(db, parent_id=parent.id, worker="w1")
    await settle(db, parent, "suspend", reason="child")
    await reap(db, now=NOW, gone=["w1"], recoveries_max=1)
    assert await status(db, parent.id) == "sleeping:child"
    await claim(db, "w2")
    await reap(db, now=NOW, gone=["w2"], recoveries_max=1)
    assert await status(db, parent.id) == "pending"
    assert await sound(db)


async def test_a_serial_key_passes_to_the_successor(db: Database) -> None:
    held = await begin(db, serial_key="one")
    await reap(db, now=LAPSED)
    successor = (await chain(db, held.id))[1]
    assert (successor.serial_key, successor.status) == ("one", "pending")
    assert await sql(db, "select count(*) from runs") == [(2,)]
    assert await sound(db)


async def test_reaping_is_bounded_and_goes_on(db: Database) -> None:
    for _ in range(5):
        await begin(db)
    assert len(await reap(db, now=LAPSED, batch=3)) == 3
    assert len(await reap(db, now=LAPSED, batch=3)) == 2
    assert await reap(db, now=LAPSED, batch=3) == []
    assert await sound(db)


async def test_reapers_at_once_make_one_successor_each(db: Database) -> None:
    for _ in range(10):
        await begin(db)
    answers = await asyncio.gather(*(reap(db, now=LAPSED, batch=20) for _ in range(4)))
    assert sum(len(answer) for answer in answers) == 10
    assert await sql(db, "select count(*) from runs") == [(20,)]
    assert await sound(db)


async def test_a_renewed_lease_saves_the_run(db: Database) -> None:
    held = await begin(db)
    await db.write(renew_leases, [held], lease_until=LAPSED)
    assert await reap(db, now=LAPSED) == []
    assert await settle(db, held, now=LAPSED)


async def test_strays_are_handed_back_and_the_held_stay(db: Database) -> None:
    held, stray = await begin(db), await begin(db)
    other = await begin(db, worker="w2")
    count = await db.write(return_strays, namespace=SPACE, worker_id="w1", held=[held])
    assert count == 1
    assert await status(db, stray.id) == "pending"
    assert await status(db, held.id) == "running"
    assert await status(db, other.id) == "running"
    assert not await settle(db, stray), "the lost claim is fenced out"
    [again] = await claim(db)
    assert (again.id, again.claim_count) == (stray.id, 2)
    assert not again.is_fresh, "the lost claim may have recorded steps"
    assert await sound(db)


async def test_with_nothing_held_all_are_strays(db: Database) -> None:
    await begin(db)
    assert await db.write(return_strays, namespace=SPACE, worker_id="w1", held=[]) == 1


async def test_a_claim_that_the_server_forgot_counts_no_more_than_a_lost_one(db: Database) -> None:
    """A standby that never got a claim gives the same number to another worker."""
    first = await begin(db)
    await sql(db, FORGET)
    [second] = await claim(db, "w2")
    assert (first.id, first.claim_count) == (second.id, second.claim_count)
    assert not await db.write(renew_leases, [first], lease_until=NOW + 99)
    assert await db.write(steps.record, [step_of(first, "a")]) == [False]
    with pytest.raises(LeaseLost):
        await db.write(record_child, step_of(first, "b"), new_run(), now=NOW)
    for verb in ("complete", "fail", "release"):
        assert not await settle(db, first, verb)
    both = [Outcome(first, "complete", output="1"), Outcome(second, "complete", output="2")]
    assert (await db.write(settle_runs, both, now=NOW)).ids == {second.id}
    assert (await get(db, second.id)).output == "2"


async def test_an_iteration_settles_nothing_of_a_claim_that_the_server_forgot(db: Database) -> None:
    first = await begin(db)
    await sql(db, FORGET)
    [second] = await claim(db, "w2")
    done, _ = await db.write(settle_and_claim, [Outcome(first, "complete")], request("w1"))
    assert done.ids == frozenset()
    done, _ = await db.write(settle_and_claim, [Outcome(second, "complete")], request("w2"))
    assert done.ids == {second.id}


async def test_a_worker_learns_that_another_one_completed_a_run_under_the_same_number(
    db: Database,
) -> None:
    held = await begin(db)
    await sql(
        db,
        "update runs set status = 'pending', lease_owner = null, lease_until = null,"
        " claim_count = 0",
    )  # a standby that never got the claim
    [other] = await claim(db, worker="w2")
    assert other.claim_count == held.claim_count
    assert await settle(db, other, output='"theirs"')
    assert not await settle(db, held, output='"ours"')


async def test_a_run_that_the_worker_knows_under_an_earlier_claim_is_a_stray(db: Database) -> None:
    held = await begin(db)
    await settle(db, held, "release")
    [again] = await claim(db)
    assert again.claim_count == held.claim_count + 1
    strays = {"namespace": SPACE, "worker_id": "w1"}
    assert await db.write(return_strays, held=[again], **strays) == 0
    assert await db.write(return_strays, held=[held], **strays) == 1
    assert await status(db, held.id) == "pending"
