"""Settlement: every verb under its claim, fencing, wake-ups, retries and parents."""

from __future__ import annotations

from typing import Any

import pytest

from rota.core.runs.lifecycle import FINAL, RULES, SETTLING
from rota.core.runs.model import Claim, NewRun, Outcome
from rota.store.backend.database import Database
from rota.store.runs.cancel import cancel_chains
from rota.store.runs.manual_retry import resolve_run
from rota.store.runs.settle import SettleResult, settle_runs
from rota.store.runs.start import successor
from rota.store.runs.wake import WAKE_BATCH, poke, wake_due
from tests.kit.builders import (
    BIG,
    LEASE,
    NOW,
    SPACE,
    begin,
    chain,
    claim,
    fresh_id,
    get,
    later,
    new_run,
    reap,
    settle,
    signal,
    sound,
    sql,
    start,
    status,
)


def _retry(held: Claim, **fields: int) -> NewRun:
    fields = {"available_at": NOW} | fields
    return successor(
        held, fresh_id(), trigger="retry", attempt=held.attempt + 1,
        **fields,  # type: ignore[arg-type]
    )  # fmt: skip


@pytest.mark.parametrize("verb", sorted(SETTLING))
async def test_each_verb_leads_where_the_table_says(db: Database, verb: str) -> None:
    held = await begin(db)
    wake_at = later(1) if verb == "suspend" else None
    assert await settle(db, held, verb, reason="why", wake_at=wake_at, now=NOW + 5)
    run = await get(db, held.id)
    target = RULES[verb].target
    assert run.status == target
    assert (run.lease_owner, run.lease_until) == (None, None)
    assert run.finished_at == (NOW + 5 if target in FINAL else None)
    assert run.available_at == (wake_at or NOW)
    assert await sound(db)


@pytest.mark.parametrize("body", ['"ok"', BIG, "ü" * 3000, None])
async def test_an_output_reads_back_whatever_its_size(db: Database, body: str | None) -> None:
    held = await begin(db)
    await settle(db, held, output=body)
    assert (await get(db, held.id)).output == body


@pytest.mark.parametrize("body", ['{"type":"X"}', BIG])
async def test_an_error_reads_back_whatever_its_size(db: Database, body: str) -> None:
    held = await begin(db)
    await settle(db, held, "fail", reason="logic", error=body)
    run = await get(db, held.id)
    assert (run.label, run.error, run.output) == ("failed:logic", body, None)


async def test_outcomes_of_all_kinds_settle_together(db: Database) -> None:
    held = [await begin(db) for _ in range(6)]
    outcomes = [
        Outcome(held[0], "complete", output="1"),
        Outcome(held[1], "complete", output=BIG),
        Outcome(held[2], "fail", reason="logic", retry=_retry(held[2])),
        Outcome(held[3], "suspend", reason="sleep", wake_at=later(1)),
        Outcome(held[4], "ask", reason="auth", error=BIG),
        Outcome(held[5], "release"),
    ]
    done = await db.write(settle_runs, outcomes, now=NOW)
    assert done.ids == {one.id for one in held}
    assert done.woke
    assert [await status(db, one.id) for one in held] == [
        "completed", "completed", "failed:logic", "sleeping:sleep", "waiting:auth", "pending",
    ]  # fmt: skip
    assert await sound(db)


async def test_a_plain_end_wakes_nobody(db: Database) -> None:
    done = await db.write(settle_runs, [Outcome(await begin(db), "complete")], now=NOW)
    assert not done.woke


async def test_nothing_to_settle_is_no_error(db: Database) -> None:
    assert await db.write(settle_runs, [], now=NOW) == SettleResult(frozenset(), woke=False)


async def _reaped(db: Database, held: Claim) -> None:
    await reap(db, now=NOW + LEASE + 1)


async def _cancelled(db: Database, held: Claim) -> None:
    await db.write(cancel_chains, [held.root_id], reason="no", now=NOW)


async def _released(db: Database, held: Claim) -> None:
    await settle(db, held, "release")


async def _claimed_again(db: Database, held: Claim) -> None:
    await settle(db, held, "release")
    await claim(db, "w2")


async def _completed(db: Database, held: Claim) -> None:
    await settle(db, held, output='"first"')


LOSSES = [_reaped, _cancelled, _released, _claimed_again, _completed]


@pytest.mark.parametrize("verb", sorted(SETTLING))
@pytest.mark.parametrize("lose", LOSSES, ids=lambda lose: lose.__name__)
async def test_a_stale_claim_changes_nothing(db: Database, lose: object, verb: str) -> None:
    held = await begin(db)
    assert callable(lose)
    await lose(db, held)
    before = await chain(db, held.id)
    count = await sql(db, "select count(*) from runs")
    retry = _retry(held) if verb == "fail" else None
    assert not await settle(db, held, verb, output=BIG, error=BIG, wake_at=NOW, retry=retry)
    assert await chain(db, held.id) == before
    assert await sql(db, "select count(*) from runs") == count
    assert await sql(db, "select count(*) from payloads") == [(0,)]
    assert await sound(db)


@pytest.mark.parametrize("output", [BIG, "1", None])
async def test_a_stale_claim_among_fresh_ones_loses_alone(db: Database, output: str | None) -> None:
    stale, *fresh = [await begin(db) for _ in range(3)]
    await _claimed_again(db, stale)
    outcomes = [Outcome(one, "complete", output=output) for one in (stale, *fresh)]
    assert (await db.write(settle_runs, outcomes, now=NOW)).ids == {one.id for one in fresh}
    assert await status(db, stale.id) == "running"
    assert [(await get(db, one.id)).output for one in fresh] == [output, output]


async def test_runs_that_return_nothing_end_whatever_came_before(db: Database) -> None:
    first, again = await begin(db), await begin(db)
    await settle(db, again, "suspend", reason="sleep", wake_at=NOW, output='"old"')
    await db.write(wake_due, namespace=SPACE, now=NOW)
    [again] = await claim(db)
    outcomes = [Outcome(one, "complete") for one in (first, again)]
    assert (await db.write(settle_runs, outcomes, now=NOW)).ids == {first.id, again.id}
    assert {(await get(db, one.id)).label for one in (first, again)} == {"completed"}
    assert await sound(db)


async def test_a_stale_child_does_not_wake_its_parent(db: Database) -> None:
    parent = await begin(db, name="parent")
    child = await begin(db, parent_id=parent.id)
    await settle(db, parent, "suspend", reason="child")
    await _claimed_again(db, child)
    await settle(db, child)
    assert await status(db, parent.id) == "sleeping:child"


async def test_a_wake_up_that_comes_before_the_suspension_is_honoured(db: Database) -> None:
    held = await begin(db)
    await signal(db, held.root_id)
    assert await settle(db, held, "suspend", reason="signal")
    run = await get(db, held.id)
    assert (run.label, run.available_at) == ("pending", NOW)
    assert (await claim(db, "w2"))[0].id == held.id


async def test_a_wake_up_counts_once(db: Database) -> None:
    held = await begin(db)
    await signal(db, held.root_id)
    await settle(db, held, "suspend", reason="signal")
    [again] = await claim(db)
    assert await settle(db, again, "suspend", reason="signal")
    assert await status(db, held.id) == "sleeping:signal"


@pytest.mark.parametrize("verb", ["complete", "fail", "ask", "release"])
async def test_a_wake_up_does_not_change_other_ends(db: Database, verb: str) -> None:
    held = await begin(db)
    await signal(db, held.root_id)
    await settle(db, held, verb)
    assert (await get(db, held.id)).status == RULES[verb].target


async def test_a_poke_wakes_the_open_run_of_each_chain(db: Database) -> None:
    first = await begin(db)
    retry = _retry(first)
    await settle(db, first, "fail", retry=retry)
    [second] = await claim(db)
    await settle(db, second, "suspend", reason="signal")
    other = await begin(db)
    await settle(db, other, "suspend", reason="signal")
    assert await db.write(poke, [first.id], now=NOW + 7) == 1
    run = await get(db, retry.id)
    assert (run.label, run.available_at) == ("pending", NOW + 7)
    assert await status(db, other.id) == "sleeping:signal"
    assert await db.write(poke, [first.id, "unknown"], now=NOW) == 0


async def test_a_poke_leaves_what_waits_for_a_person(db: Database) -> None:
    held = await begin(db)
    await settle(db, held, "ask", reason="auth")
    assert await db.write(poke, [held.id], now=NOW) == 0
    assert await status(db, held.id) == "waiting:auth"


async def test_a_signal_does_not_start_a_delayed_run_before_its_time(db: Database) -> None:
    fresh = new_run(available_at=later(1))
    await start(db, fresh)
    await signal(db, fresh.id)
    run = await get(db, fresh.id)
    assert (run.status, run.available_at) == ("sleeping", later(1))


async def test_a_signal_does_not_cut_a_retrys_patience_short(db: Database) -> None:
    held = await begin(db)
    retry = successor(
        held, fresh_id(), trigger="retry", available_at=later(1), attempt=2, reason="retry"
    )
    await settle(db, held, "fail", reason="transient", retry=retry)
    await signal(db, held.id)
    run = await get(db, retry.id)
    assert (run.status, run.available_at) == ("sleeping", later(1))


async def test_a_failure_and_its_retry_are_one(db: Database) -> None:
    held = await begin(db)
    retry = _retry(held, available_at=NOW + 5)
    await settle(db, held, "fail", reason="transient", retry=retry)
    first, second = await chain(db, held.id)
    assert (first.label, second.label) == ("failed:transient", "sleeping")
    assert (second.retry_of, second.root_id, second.attempt) == (held.id, held.id, 2)
    assert (second.trigger, second.available_at) == ("retry", NOW + 5)
    assert await sound(db)


async def test_the_end_of_a_child_wakes_its_parent(db: Database) -> None:
    parent = await begin(db, name="parent")
    child = await begin(db, parent_id=parent.id)
    await settle(db, parent, "suspend", reason="child")
    done = await db.write(settle_runs, [Outcome(child, "complete")], now=NOW + 3)
    assert done.woke
    run = await get(db, parent.id)
    assert (run.label, run.available_at) == ("pending", NOW + 3)
    assert await sound(db)


@pytest.mark.parametrize(
    ("verb", "fields"),
    [
        ("suspend", {"wake_at": later(1), "reason": "sleep"}),
        ("ask", {"reason": "auth"}),
        ("release", {}),
    ],
)
async def test_a_child_that_goes_on_does_not_wake_its_parent(
    db: Database, verb: str, fields: dict[str, Any]
) -> None:
    parent = await begin(db, name="parent")
    child = await begin(db, parent_id=parent.id)
    await settle(db, parent, "suspend", reason="child")
    await settle(db, child, verb, **fields)
    assert await status(db, parent.id) == "sleeping:child"


async def test_a_child_that_is_tried_again_wakes_its_parent_only_at_its_end(db: Database) -> None:
    parent = await begin(db, name="parent")
    child = await begin(db, parent_id=parent.id)
    await settle(db, parent, "suspend", reason="child")
    await settle(db, child, "fail", reason="logic", retry=_retry(child))
    assert await status(db, parent.id) == "sleeping:child"
    [again] = await claim(db)
    await settle(db, again, "fail", reason="logic")
    assert await status(db, parent.id) == "pending"


async def test_the_end_of_a_child_wakes_the_retry_of_its_parent(db: Database) -> None:
    parent = await begin(db, name="parent")
    child = await begin(db, parent_id=parent.id)
    await settle(db, parent, "fail", retry=_retry(parent))
    [next_run] = await claim(db, names=["parent"])
    await settle(db, next_run, "suspend", reason="child")
    await settle(db, child)
    assert await status(db, next_run.id) == "pending"


async def test_due_sleepers_wake_and_the_next_is_named(db: Database) -> None:
    fresh = [new_run(available_at=NOW + n) for n in (1, 2, 3)]
    await start(db, *fresh, new_run(namespace="theirs", available_at=NOW + 1))
    assert await db.write(wake_due, namespace=SPACE, now=NOW) == (0, NOW + 1, False)
    assert await db.write(wake_due, namespace=SPACE, now=NOW + 2) == (2, NOW + 3, False)
    assert [await status(db, run.id) for run in fresh] == ["pending", "pending", "sleeping"]
    assert await db.write(wake_due, namespace=SPACE, now=NOW + 3) == (1, None, False)


async def test_a_sleeper_without_a_time_is_left_to_its_signal(db: Database) -> None:
    held = await begin(db)
    await settle(db, held, "suspend", reason="signal")
    assert await db.write(wake_due, namespace=SPACE, now=later(9999)) == (
        0,
        None,
        False,
    )
    assert await sound(db)


async def test_more_sleepers_than_a_batch_wake_in_batches(db: Database) -> None:
    await start(db, *(new_run(available_at=NOW + 1) for _ in range(WAKE_BATCH + 1)))
    assert await db.write(wake_due, namespace=SPACE, now=NOW + 1) == (
        WAKE_BATCH, NOW + 1, False,
    )  # fmt: skip
    assert await db.write(wake_due, namespace=SPACE, now=NOW + 1) == (1, None, False)


async def test_a_resolved_run_goes_on_as_a_new_attempt(db: Database) -> None:
    held = await begin(db)
    await settle(db, held, "ask", reason="auth", error='{"type":"NeedsLogin"}')
    assert await db.write(resolve_run, held.id, now=NOW + 4)
    run = await get(db, held.id)
    assert (run.label, run.attempt, run.available_at) == ("pending", 2, NOW + 4)
    assert run.error is None
    [again] = await claim(db)
    assert (again.id, again.claim_count) == (held.id, 2)


async def test_a_big_error_does_not_outlive_its_answer(db: Database) -> None:
    held = await begin(db)
    await settle(db, held, "ask", reason="auth", error=BIG)
    await db.write(resolve_run, held.id, now=NOW)
    assert (await get(db, held.id)).error is None
    [again] = await claim(db)
    await settle(db, again, output="1")
    assert (await get(db, held.id)).error is None


@pytest.mark.parametrize("verb", sorted(SETTLING - {"ask"}))
async def test_only_a_waiting_run_can_be_resolved(db: Database, verb: str) -> None:
    held = await begin(db)
    assert not await db.write(resolve_run, held.id, now=NOW)
    await settle(db, held, verb, wake_at=later(1))
    assert not await db.write(resolve_run, held.id, now=NOW)
    assert not await db.write(resolve_run, "unknown", now=NOW)
