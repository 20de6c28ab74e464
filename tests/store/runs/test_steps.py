"""Steps and signals: fenced, written once, taken once. Children created once; forks."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from rota.core.runs.model import Claim, Started, StoredStep
from rota.errors import LeaseLost
from rota.store.backend.database import Database, Tx
from rota.store.runs import signals, steps
from rota.store.runs.cancel import cancel_chains
from tests.kit.builders import (
    BIG,
    LEASE,
    NOW,
    begin,
    claim,
    get,
    later,
    new_run,
    reap,
    record_child,
    settle,
    signal,
    sound,
    sql,
    start,
    status,
    step_of,
    waiting_step,
)


async def load(db: Database, root_id: str) -> list[StoredStep]:
    return (await db.read(steps.load, [root_id]))[root_id]


async def ask(db: Database, held: Claim, key: str = "wait#1", **fields: object) -> StoredStep:
    step = waiting_step(held, key, **fields)
    return await db.write(signals.await_signal, held, "go", step, now=NOW)


async def test_a_step_reads_back_with_all_its_fields(db: Database) -> None:
    held = await begin(db)
    record = step_of(held, "charge#1", output=BIG, position=3, attempt=2)
    assert await db.write(steps.record, [record]) == [True]
    assert await load(db, held.id) == [record.step]


async def test_steps_come_back_by_chain_and_in_order(db: Database) -> None:
    first, second, empty = await begin(db), await begin(db), await begin(db)
    records = [
        step_of(first, "b", position=2), step_of(second, "x", position=1),
        step_of(first, "a", position=1), step_of(first, "c", position=3),
    ]  # fmt: skip
    assert await db.write(steps.record, records) == [True] * 4
    found = await db.read(steps.load, [first.id, second.id, empty.id])
    assert {root: [step.key for step in listed] for root, listed in found.items()} == {
        first.id: ["a", "b", "c"], second.id: ["x"], empty.id: [],
    }  # fmt: skip


async def test_steps_of_one_commit_may_differ_in_everything(db: Database) -> None:
    first, second = await begin(db), await begin(db)
    records = [
        step_of(first, "a", position=1), step_of(first, "b", position=2, attempt=2, output="2"),
        step_of(second, "c", status="failed", error='{"type":"E"}', wake_at=NOW + 5),
    ]  # fmt: skip
    assert await db.write(steps.record, records) == [True] * 3
    found = await db.read(steps.load, [first.id, second.id])
    assert [*found[first.id], *found[second.id]] == [record.step for record in records]


async def test_a_stale_claim_records_nothing(db: Database) -> None:
    held = await begin(db)
    await settle(db, held, "release")
    [again] = await claim(db, "w2")
    answer = await db.write(steps.record, [step_of(held, "a"), step_of(again, "b")])
    assert answer == [False, True]
    assert [step.key for step in await load(db, held.id)] == ["b"]


@pytest.mark.parametrize("beside", [None, "step", "child"], ids=["alone", "uniform", "mixed"])
async def test_a_finished_step_never_changes(db: Database, beside: str | None) -> None:
    held, neighbour = await begin(db), await begin(db)
    record = step_of(held, "a", output="1")
    await db.write(steps.record, [record])
    other = step_of(held, "a", output="2", started_at=NOW + 1)
    batch = [other] if beside is None else [other, step_of(neighbour, "b", kind=beside)]
    written = await db.write(steps.record, batch)
    assert written == ([False, True] if beside else [False])
    assert await load(db, held.id) == [record.step]


async def test_the_same_writing_sent_again_is_success(db: Database) -> None:
    held = await begin(db)
    record = step_of(held, "a")
    for _ in range(2):
        assert await db.write(steps.record, [record]) == [True]
    assert await load(db, held.id) == [record.step]


@pytest.mark.parametrize("before", ["failed", "waiting"])
async def test_a_step_that_is_not_finished_may_become_so(db: Database, before: str) -> None:
    held = await begin(db)
    finished_at = None if before == "waiting" else NOW
    await db.write(
        steps.record, [step_of(held, "a", status=before, output=None, finished_at=finished_at)]
    )
    done = step_of(held, "a", output="2", started_at=NOW + 1, attempt=2)
    assert await db.write(steps.record, [done]) == [True]
    [step] = await load(db, held.id)
    assert (step.status, step.output, step.attempt) == ("completed", "2", 2)


@pytest.mark.parametrize("before", ["failed", "waiting"])
async def test_the_second_attempt_sent_again_is_success_too(db: Database, before: str) -> None:
    held = await begin(db)
    finished_at = None if before == "waiting" else NOW
    await db.write(
        steps.record, [step_of(held, "a", status=before, output=None, finished_at=finished_at)]
    )
    done = step_of(held, "a", output="2", started_at=NOW + 1, attempt=2)
    for _ in range(2):
        assert await db.write(steps.record, [done]) == [True]


async def test_steps_belong_to_the_chain(db: Database) -> None:
    held = await begin(db)
    await db.write(steps.record, [step_of(held, "a", output="1")])
    await reap(db, now=later(1))
    [successor] = await claim(db, now=later(1))
    assert successor.root_id == held.id
    assert not successor.is_fresh
    assert await db.write(steps.record, [step_of(held, "late")]) == [False]
    await db.write(steps.record, [step_of(successor, "b", position=2)])
    assert [step.key for step in await load(db, held.id)] == ["a", "b"]
    assert await sound(db)


async def test_two_batches_over_the_same_runs_both_end(db: Database) -> None:
    held = [await begin(db) for _ in range(10)]
    batches = [
        [step_of(one, f"s{n}", position=n) for one in (held if n % 2 else reversed(held))]
        for n in range(6)
    ]
    answers = await asyncio.gather(*(db.write(steps.record, batch) for batch in batches))
    assert answers == [[True] * 10] * 6


@pytest.mark.parametrize("act", ["uniform", "mixed", "held"])
async def test_a_reaper_leaves_a_run_alone_while_its_steps_are_being_recorded(
    db: Database, act: str
) -> None:
    if db.dialect.name == "sqlite":
        pytest.skip("a file has one writer at a time")
    held = await begin(db)
    kinds = ("step", "child" if act == "mixed" else "step")
    batch = [step_of(held, f"s{n}", kind=kind) for n, kind in enumerate(kinds)]

    async def meanwhile(tx: Tx) -> int:
        if act == "held":
            await steps._held(tx, [held])
        else:
            await steps.record(tx, batch, alone=False)
        return len(await reap(db, now=NOW + 2 * LEASE))

    assert await db.write(meanwhile) == 0
    assert len(await reap(db, now=NOW + 2 * LEASE)) == 1


async def test_a_child_and_its_step_are_created_together(db: Database) -> None:
    parent = await begin(db)
    child = new_run("child", parent_id=parent.id, trigger="child")
    record = step_of(parent, "child#1", kind="child")
    started = await db.write(record_child, record, child, now=NOW)
    assert started == Started(child.id, existed=False)
    [step] = await load(db, parent.id)
    assert step.child_id == child.id
    assert await status(db, child.id) == "pending"


async def test_a_child_that_exists_is_the_one_remembered(db: Database) -> None:
    first = new_run("child", external_id="o-7")
    await start(db, first)
    parent = await begin(db)
    child = new_run("child", external_id="o-7", parent_id=parent.id)
    record = step_of(parent, "child#1")
    started = await db.write(record_child, record, child, now=NOW)
    assert started == Started(first.id, existed=True)
    assert (await load(db, parent.id))[0].child_id == first.id


async def test_a_stale_parent_bears_no_child(db: Database) -> None:
    parent = await begin(db)
    await settle(db, parent, "release")
    with pytest.raises(LeaseLost):
        await db.write(record_child, step_of(parent, "c"), new_run("child"), now=NOW)
    assert await sql(db, "select count(*) from runs") == [(1,)]


async def test_children_of_many_parents_are_inserted_together_but_not_those_of_a_stale_one(
    db: Database,
) -> None:
    parents = [await begin(db) for _ in range(3)]
    await settle(db, parents[1], "release")
    starts = [
        steps.ChildStart(
            step_of(parent, f"child#{n}", kind="child"), new_run("child", parent_id=parent.id)
        )
        for n in range(2)
        for parent in parents
    ]
    answers = await db.write(steps.record_children, starts, now=NOW)
    assert [answer and answer.id for answer in answers] == [
        None if start.record.claim is parents[1] else start.child.id for start in starts
    ]
    assert await sql(db, "select count(*) from runs where name = 'child'") == [(4,)]
    assert [len(await load(db, parent.id)) for parent in parents] == [2, 0, 2]
    assert await db.write(steps.record_children, starts, now=NOW) == answers  # sent again
    assert await sound(db)


async def test_looks_after_many_children_answer_each(db: Database) -> None:
    parent, other = await begin(db), await begin(db)
    over, open_, theirs = (
        new_run("child", parent_id=who.id, trigger="child") for who in (parent, parent, other)
    )
    await start(db, over, open_, theirs)
    [held] = await claim(db, names=["child"], slots=1)
    await settle(db, held)
    looks = [steps.ChildQuery(parent, run.id) for run in (over, open_, theirs)]
    ends = await db.write(steps.read_child_ends, looks)
    assert [(end.ended is not None, end.is_own) for end in ends] == [
        (True, True),
        (False, True),
        (False, False),
    ]


async def test_signals_are_taken_once_and_in_their_order(db: Database) -> None:
    held = await begin(db)
    for body in ("1", "2", None):
        await signal(db, held.id, body=body)
    await signal(db, held.id, name="other", body="9")
    taken = [await ask(db, held, f"wait#{n}", position=n) for n in range(4)]
    assert [step.output for step in taken] == ["1", "2", None, None]
    assert [step.status for step in taken] == ["completed"] * 3 + ["waiting"]
    assert await sql(db, "select name, taken_by from signals where taken_by is null") == [
        ("other", None)
    ]


async def test_a_wait_asked_again_after_a_lost_answer_takes_no_second_signal(db: Database) -> None:
    held = await begin(db)
    for body in ("1", "2"):
        await signal(db, held.id, body=body)
    step = waiting_step(held, "wait#1")
    answers = [
        await db.write(signals.await_signal, held, "go", step, now=NOW + again)
        for again in range(2)
    ]
    assert [answer.output for answer in answers] == ["1", "1"]
    assert await sql(db, "select count(*) from signals where taken_by is null") == [(1,)]


async def test_a_signal_for_another_chain_is_not_taken(db: Database) -> None:
    held, other = await begin(db), await begin(db)
    await signal(db, other.id)
    assert (await ask(db, held)).status == "waiting"


async def test_a_wait_without_a_signal_is_recorded_and_the_signal_wakes_it(db: Database) -> None:
    held = await begin(db)
    assert (await ask(db, held)).status == "waiting"
    await settle(db, held, "suspend", reason="signal")
    await signal(db, held.id, body="7")
    [again] = await claim(db)
    assert (await ask(db, again)).output == "7"
    assert (await load(db, held.id))[0].status == "completed"
    assert await sound(db)


@pytest.mark.parametrize(("wake_at", "verdict"), [(NOW + 1, "waiting"), (NOW, "failed")])
async def test_a_wait_fails_when_its_time_is_up(db: Database, wake_at: int, verdict: str) -> None:
    held = await begin(db)
    step = await ask(db, held, wake_at=wake_at)
    assert step.status == verdict
    assert (await load(db, held.id)) == [step]


async def test_a_signal_that_is_there_beats_the_time_that_is_up(db: Database) -> None:
    held = await begin(db)
    await signal(db, held.id)
    assert (await ask(db, held, wake_at=NOW - 1)).status == "completed"


async def test_a_stale_claim_takes_no_signal(db: Database) -> None:
    held = await begin(db)
    await signal(db, held.id)
    await settle(db, held, "release")
    with pytest.raises(LeaseLost):
        await ask(db, held)
    assert await sql(db, "select taken_by from signals") == [(None,)]


async def test_a_signal_sent_twice_under_one_id_is_one(db: Database) -> None:
    held = await begin(db)
    for _ in range(2):
        await db.write(
            signals.send_signal, signal_id="s1", root_id=held.id, name="go", body="1", now=NOW
        )
    assert await sql(db, "select count(*) from signals") == [(1,)]


async def test_no_signal_is_lost_between_asking_and_suspending(db: Database) -> None:
    held = await begin(db)
    asked, _ = await asyncio.gather(ask(db, held), signal(db, held.id))
    await settle(db, held, "suspend", reason="signal")
    expected = "sleeping:signal" if asked.status == "completed" else "pending"
    # A wake-up too many is harmless; one too few would leave the run asleep for ever.
    assert await status(db, held.id) in (expected, "pending")


async def test_a_fork_remembers_what_was_finished_before_the_step(db: Database) -> None:
    held = await begin(db, input=BIG)
    await db.write(
        steps.record,
        [
            step_of(held, "a", position=1, output="1"),
            step_of(held, "b", position=2, status="failed", wake_at=0),
            step_of(held, "c", position=3, output="3"),
            step_of(held, "c (attempt 1)", position=3, output="0", wake_at=0),
            step_of(held, "d", position=4, output="4"),
        ],
    )
    run = await get(db, held.id)
    fork = new_run(input=run.input, trigger="fork")
    started = await db.write(steps.fork, fork, from_root=held.id, position=4, now=NOW)
    assert started == Started(fork.id, existed=False)
    copied = await load(db, fork.id)
    assert [(step.key, step.output) for step in copied] == [("a", "1"), ("c", "3")]
    originals = {step.key: step for step in await load(db, held.id)}
    assert copied[0] == msgspec.structs.replace(originals["a"], root_id=fork.id)
    assert len(originals) == 5
    await settle(db, held)
    [forked] = await claim(db)
    assert (forked.id, forked.input, forked.is_fresh) == (fork.id, BIG, False)
    assert await sound(db)


async def test_a_forked_chain_is_a_chain_of_its_own(db: Database) -> None:
    held = await begin(db)
    fork = new_run(trigger="fork")
    await db.write(steps.fork, fork, from_root=held.id, position=1, now=NOW)
    assert await db.write(cancel_chains, [held.id], reason="no", now=NOW) == [held.id]
    assert await status(db, fork.id) == "pending"
