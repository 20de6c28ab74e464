"""Claims: order, limits, fairness, and never the same run twice."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from rota.core.runs.claim_positions import QueuePosition
from rota.core.runs.model import Claim, Outcome
from rota.core.time.instants import SECOND
from rota.store.backend.database import Database
from rota.store.runs import claim as claiming
from rota.store.runs import workers
from rota.store.runs.manual_retry import retry_chain
from rota.store.runs.settle import settle_and_claim
from rota.store.runs.start import successor
from tests.kit.builders import (
    LEASE,
    NOW,
    SPACE,
    begin,
    claim,
    declare,
    get,
    new_run,
    raw,
    request,
    settle,
    sound,
    start,
    status,
)

LIMITED: dict[str, Any] = {"limited": ["default"]}


def _ids(claims: list[Claim]) -> list[str]:
    return [held.id for held in claims]


async def test_a_claim_takes_the_run_and_its_lease(db: Database) -> None:
    fresh = new_run(input="1")
    await start(db, fresh)
    [held] = await claim(db, "w1", now=NOW + 5)
    run = await get(db, fresh.id)
    assert (run.status, run.lease_owner, run.lease_until) == ("running", "w1", NOW + 5 + LEASE)
    assert (run.claim_count, run.started_at) == (1, NOW + 5)
    for field in Claim.__struct_fields__:
        assert getattr(held, field) == getattr(run, field), field


async def test_a_second_claim_raises_the_count_and_keeps_the_first_start(db: Database) -> None:
    held = await begin(db)
    await settle(db, held, "release")
    [again] = await claim(db, "w2", now=NOW + 9)
    assert (again.claim_count, again.started_at) == (2, NOW)
    assert held.is_fresh
    assert not again.is_fresh


@pytest.mark.pg
@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
async def test_a_claim_after_a_position_passes_over_what_is_before_it(db: Database) -> None:
    passed, at, behind = (new_run(available_at=NOW - back) for back in (3, 2, 1))
    urgent, low = new_run(priority=5), new_run(priority=-5, available_at=NOW - 9)
    await start(db, passed, at, behind, urgent, low)
    after = {"default": QueuePosition(0, at.available_at, at.id)}
    assert _ids(await claim(db, after=after, slots=2)) == [urgent.id, behind.id]
    assert _ids(await claim(db, after=after)) == [low.id]
    assert _ids(await claim(db)) == [passed.id, at.id]


@pytest.mark.pg
@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
async def test_an_iteration_after_a_position_settles_and_claims(db: Database) -> None:
    held = await begin(db)
    passed, behind = new_run(available_at=NOW - 5), new_run(available_at=NOW + 1)
    await start(db, passed, behind, now=NOW + 1)
    after = {"default": QueuePosition(0, held.available_at, held.id)}
    wanted = request(now=NOW + 1, after=after)
    settled, claimed = await db.write(settle_and_claim, [Outcome(held, "complete")], wanted)
    assert settled.ids == {held.id}
    assert _ids(claimed.claims) == [behind.id]


async def test_the_highest_priority_then_the_oldest_goes_first(db: Database) -> None:
    a = new_run(available_at=NOW - 1)
    b = new_run(available_at=NOW - 2)
    c = new_run(priority=5)
    d = new_run(priority=-5, available_at=NOW - 99)
    e, f = new_run(available_at=NOW - 3), new_run(available_at=NOW - 3)
    await start(db, f, a, d, b, c, e)
    assert _ids(await claim(db, slots=4)) == [c.id, *sorted([e.id, f.id]), b.id]
    assert _ids(await claim(db)) == [a.id, d.id]


async def test_queues_are_served_in_the_order_given(db: Database) -> None:
    low, high = new_run(queue="low", priority=9), new_run(queue="high")
    other = new_run(queue="other")
    await start(db, low, high, other)
    assert _ids(await claim(db, queues=[("high", 5), ("low", 5)])) == [high.id, low.id]
    assert await status(db, other.id) == "pending"


async def test_slots_bound_each_queue_and_the_total_bounds_all(db: Database) -> None:
    await start(db, *(new_run(queue=queue) for queue in ("a", "b") for _ in range(5)))
    got = await claim(db, queues=[("a", 2), ("b", 5)], runs_max=4)
    assert Counter(held.queue for held in got) == {"a": 2, "b": 2}
    assert await claim(db, queues=[("a", 5)], runs_max=0) == []


async def test_only_known_names_are_claimed(db: Database) -> None:
    known, foreign = new_run("known"), new_run("foreign", priority=9)
    await start(db, foreign, known)
    assert _ids(await claim(db, names=["known"])) == [known.id]
    assert await claim(db, names=[]) == []
    assert await status(db, foreign.id) == "pending"


async def test_namespaces_do_not_see_each_other(db: Database) -> None:
    theirs = new_run(namespace="theirs")
    await start(db, theirs)
    assert await claim(db) == []
    assert _ids(await claim(db, namespace="theirs")) == [theirs.id]


async def test_sleeping_runs_are_not_claimed(db: Database) -> None:
    await start(db, new_run(available_at=NOW + 1))
    assert await claim(db, now=NOW + 2) == []


async def test_a_claim_waits_for_nobody_who_holds_a_row(db: Database) -> None:
    if db.dialect.name == "sqlite":
        pytest.skip("a file has one writer at a time")
    fresh, other = new_run(priority=9), new_run()
    await start(db, fresh, other)

    async def meanwhile(tx: Any) -> list[str]:
        await raw(tx, f"select 1 from runs where id = '{fresh.id}' for update")
        async with asyncio.timeout(30):
            return _ids(await claim(db))

    assert await db.write(meanwhile) == [other.id]
    assert _ids(await claim(db)) == [fresh.id]


async def test_two_claimers_never_get_the_same_run(db: Database) -> None:
    fresh = [new_run() for _ in range(60)]
    await start(db, *fresh)
    answers = await asyncio.gather(*(claim(db, f"w{n}", slots=7) for n in range(12)))
    got = [run_id for answer in answers for run_id in _ids(answer)]
    assert len(got) == len(set(got))
    rest = _ids(await claim(db))
    assert sorted(got + rest) == sorted(run.id for run in fresh)
    assert await sound(db)


async def test_a_limit_per_queue_holds_across_workers(db: Database) -> None:
    await declare(db, running_max=3)
    await start(db, *(new_run() for _ in range(6)))
    first = await claim(db, "w1", slots=2, **LIMITED)
    assert len(first) == 2
    assert len(await claim(db, "w2", **LIMITED)) == 1
    assert await claim(db, "w3", **LIMITED) == []
    await settle(db, first[0])
    assert len(await claim(db, "w3", **LIMITED)) == 1


async def test_a_limit_holds_against_workers_that_claim_at_once(db: Database) -> None:
    await declare(db, running_max=5)
    await start(db, *(new_run() for _ in range(20)))
    answers = await asyncio.gather(*(claim(db, f"w{n}", **LIMITED) for n in range(8)))
    assert sum(len(answer) for answer in answers) == 5


async def test_a_lowered_limit_takes_nothing_away(db: Database) -> None:
    await start(db, *(new_run() for _ in range(5)))
    assert len(await claim(db, slots=4)) == 4
    await declare(db, running_max=2)
    assert await claim(db, **LIMITED) == []


async def test_a_limited_queue_nobody_declared_is_not_limited(db: Database) -> None:
    await start(db, new_run(), new_run(limit_key="k"))
    assert len(await claim(db, **LIMITED)) == 2


async def test_a_limit_per_key_holds_and_keeps_the_line(db: Database) -> None:
    await declare(db, key_running_max=2)
    fresh = [new_run(limit_key="a") for _ in range(4)]
    await start(db, *fresh)
    first = await claim(db, "w1", **LIMITED)
    assert _ids(first) == [fresh[0].id, fresh[1].id]
    assert await claim(db, "w2", **LIMITED) == []
    await settle(db, first[1])
    assert _ids(await claim(db, "w2", **LIMITED)) == [fresh[2].id]


async def test_a_busy_key_with_a_long_line_delays_no_other(db: Database) -> None:
    await declare(db, key_running_max=1)
    busy = [new_run(limit_key="busy", available_at=NOW - 1000) for _ in range(300)]
    others = [new_run(limit_key=f"k{n}", available_at=NOW) for n in range(5)]
    free = new_run(available_at=NOW)
    await start(db, *busy, *others, free)
    got = await claim(db, slots=4, **LIMITED)
    assert _ids(got) == [busy[0].id, *(run.id for run in others[:3])]
    got = await claim(db, **LIMITED)
    assert _ids(got) == [others[3].id, others[4].id, free.id]


async def test_within_a_key_priority_goes_first(db: Database) -> None:
    await declare(db, key_running_max=1)
    low, high = new_run(limit_key="a"), new_run(limit_key="a", priority=4)
    await start(db, low, high)
    assert _ids(await claim(db, **LIMITED)) == [high.id]


async def test_a_run_this_worker_does_not_know_delays_no_other_of_its_key(db: Database) -> None:
    await declare(db, key_running_max=1)
    foreign = new_run("foreign", limit_key="a", available_at=NOW - 9)
    known = new_run("work", limit_key="a")
    await start(db, foreign, known)
    assert _ids(await claim(db, **LIMITED)) == [known.id]


async def test_keys_of_another_queue_or_namespace_are_not_counted(db: Database) -> None:
    await declare(db, key_running_max=1)
    await begin(db, queue="other", limit_key="a")
    theirs = new_run(namespace="theirs", limit_key="a")
    await start(db, theirs)
    await claim(db, namespace="theirs")
    mine = new_run(limit_key="a")
    await start(db, mine)
    assert _ids(await claim(db, **LIMITED)) == [mine.id]


async def _moved(db: Database, to: str) -> str:
    """The second attempt, in another queue, of a chain that held the place of its key."""
    await start(db, new_run(limit_key="k"))
    [held] = await claim(db, "w1", slots=9, **LIMITED)
    await settle(db, held, "fail", reason="logic")
    fresh = new_run().id
    assert await db.write(retry_chain, held.root_id, fresh, now=NOW, queue=to)
    return fresh


async def test_a_chain_in_another_queue_holds_no_place_of_an_open_key(db: Database) -> None:
    await declare(db, key_open_max=1)
    moved = await _moved(db, "other")
    await start(db, later := new_run(limit_key="k"))
    assert _ids(await claim(db, "w1", slots=9, **LIMITED)) == [later.id]
    assert await status(db, moved) == "pending"


async def test_a_chain_takes_its_place_of_an_open_key_with_it(db: Database) -> None:
    for queue in ("default", "other"):
        await declare(db, queue, key_open_max=1)
    moved = await _moved(db, "other")
    await start(db, later := new_run(limit_key="k", queue="other"))
    others: dict[str, Any] = {"queues": [("other", 9)], "limited": ["other"]}
    assert _ids(await claim(db, "w1", **others)) == [moved]
    assert await claim(db, "w1", **others) == []
    assert await status(db, later.id) == "pending"


async def test_all_limits_of_a_queue_hold_together(db: Database) -> None:
    await declare(db, running_max=3, key_running_max=1, rate_count=10, rate_per_us=SECOND)
    await start(db, *(new_run(limit_key=key) for key in "aabbccdd"))
    got = await claim(db, **LIMITED)
    assert [held.limit_key for held in got] == ["a", "b", "c"]


async def _rated(db: Database, now: int, **fields: Any) -> claiming.Claimed:
    return await db.write(claiming.claim, request(now=now, limited=["default"], **fields))


async def test_a_rate_holds_and_says_when_to_come_back(db: Database) -> None:
    await declare(db, rate_count=2, rate_per_us=SECOND)
    await start(db, *(new_run() for _ in range(6)))
    first = await _rated(db, NOW)
    assert len(first.claims) == 2
    assert first.retry_at == NOW + SECOND // 2
    early = await _rated(db, NOW + SECOND // 2 - 1)
    assert (early.claims, early.retry_at) == ([], NOW + SECOND // 2)
    assert len((await _rated(db, NOW + SECOND // 2)).claims) == 1
    assert len((await _rated(db, NOW + 10 * SECOND)).claims) == 2


async def test_an_idle_rated_queue_asks_nobody_to_come_back(db: Database) -> None:
    await declare(db, rate_count=2, rate_per_us=SECOND)
    assert await _rated(db, NOW) == claiming.Claimed([], None)


async def test_the_earliest_of_two_rated_queues_counts(db: Database) -> None:
    await declare(db, "slow", rate_count=1, rate_per_us=60 * SECOND)
    await declare(db, "quick", rate_count=1, rate_per_us=SECOND)
    await start(db, *(new_run(queue=queue) for queue in ("slow", "quick") for _ in range(2)))
    for order in (("slow", "quick"), ("quick", "slow")):
        asked = request(queues=[(name, 5) for name in order], limited=order)
        assert (await db.write(claiming.claim, asked)).retry_at == NOW + SECOND


async def test_a_paused_queue_gives_nothing_until_it_is_resumed(db: Database) -> None:
    await declare(db, running_max=5)
    await start(db, new_run())
    assert await db.write(workers.pause_queue, namespace=SPACE, name="default", paused=True)
    assert await claim(db, **LIMITED) == []
    assert await db.write(workers.pause_queue, namespace=SPACE, name="default", paused=False)
    assert len(await claim(db, **LIMITED)) == 1


@pytest.mark.parametrize("slots", [1, 5])
async def test_an_iteration_settles_and_claims_in_one_commit(db: Database, slots: int) -> None:
    held = await begin(db)
    fresh = [new_run() for _ in range(3)]
    await start(db, *fresh)
    outcome = Outcome(held, "complete", output='"ok"')
    settled, claimed = await db.write(settle_and_claim, [outcome], request(slots=slots))
    assert settled.ids == {held.id}
    assert _ids(claimed.claims) == [run.id for run in fresh[:slots]]


async def test_an_iteration_claims_the_retry_it_has_just_made(db: Database) -> None:
    held = await begin(db)
    retry = successor(held, "f" * 32, trigger="retry", available_at=NOW, attempt=2)
    _, claimed = await db.write(
        settle_and_claim, [Outcome(held, "fail", reason="logic", retry=retry)], request()
    )
    assert _ids(claimed.claims) == ["f" * 32]
