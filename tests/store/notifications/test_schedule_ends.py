"""Reporting ends: created with the end itself, once, and only for receivers that want it."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec

from rota.core.notifications.model import NOTIFY
from rota.core.runs.ids import IdMaker
from rota.core.runs.model import Outcome, Schedule
from rota.core.schedules.intent import Intent, Missed, Policies
from rota.core.time.instants import DAY, HOUR
from rota.core.time.recurrence import parse
from rota.store.backend.database import Database
from rota.store.notifications import schedule_ends
from rota.store.notifications.schedule_ends import ScheduleEnd
from rota.store.runs.cancel import cancel_chains
from rota.store.runs.settle import settle_runs
from rota.store.schedules import fire, templates
from tests.kit.builders import (
    LEASE,
    NOW,
    SPACE,
    begin,
    claim,
    fresh_id,
    get,
    new_run,
    reap,
    settle,
    sound,
    sql,
)  # fmt: skip

BODY = '{"pipeline_id":"p"}'
MIDNIGHT = NOW - NOW % DAY


async def _schedule(db: Database, name: str = "daily", *, body: str | None = BODY) -> str:
    """A schedule that was due at midnight, and whom it tells."""
    intent = Intent(
        workflow="work", spec=parse("0 0 * * *", zone="UTC", now=0), text="0 0 * * *",
        policies=Policies(missed=Missed.SKIP),
    )  # fmt: skip
    row = Schedule(
        fresh_id(), SPACE, name, "default", 0, "scheduled", None, MIDNIGHT, MIDNIGHT, "0 0 * * *",
        templates.stored(intent), None, None, MIDNIGHT - HOUR,
    )  # fmt: skip
    await db.write(templates.put, row, trigger="manual", now=NOW)
    await db.write(schedule_ends.put, row.id, body)
    return row.id


async def _reported(db: Database) -> list[dict[str, Any]]:
    rows = await sql(db, f"select input from runs where name = '{NOTIFY}' order by id")
    return [msgspec.json.decode(row[0]) for row in rows]


async def test_an_end_is_reported_in_the_transaction_that_settles_it(db: Database) -> None:
    schedule_id = await _schedule(db)
    held = await begin(db, schedule_id=schedule_id, due_at=NOW)
    done = await db.write(settle_runs, [Outcome(held, "complete")], now=NOW)
    assert done.woke, "somebody has to look for the new run"
    [told] = await _reported(db)
    assert told == {"run_id": held.id, "what": "ended", "tells": msgspec.json.decode(BODY)}
    [run] = await claim(db, names=[NOTIFY])
    assert run.external_id == held.id
    assert await sound(db)


async def test_a_schedule_that_notifies_nobody_has_no_such_runs(db: Database) -> None:
    schedule_id = await _schedule(db, body=None)
    held = await begin(db, schedule_id=schedule_id, due_at=NOW)
    assert await settle(db, held)
    assert await _reported(db) == []
    await db.write(schedule_ends.put, schedule_id, BODY)
    await db.write(schedule_ends.put, schedule_id, None)
    assert await db.read(schedule_ends.of, [schedule_id]) == {}


async def test_a_try_that_is_followed_by_another_is_no_end(db: Database) -> None:
    schedule_id = await _schedule(db)
    held = await begin(db, schedule_id=schedule_id, due_at=NOW)
    again = new_run(
        root_id=held.root_id, retry_of=held.id, schedule_id=schedule_id, due_at=NOW, attempt=2,
        trigger="retry",
    )  # fmt: skip
    assert await settle(db, held, "fail", reason="transient", retry=again)
    assert await _reported(db) == []
    [second] = await claim(db)
    assert await settle(db, second, "fail", reason="transient")
    assert [told["run_id"] for told in await _reported(db)] == [again.id]


async def test_one_who_lost_the_run_notifies_nobody(db: Database) -> None:
    schedule_id = await _schedule(db)
    held = await begin(db, schedule_id=schedule_id, due_at=NOW)
    assert await settle(db, held)
    assert not await settle(db, held)
    assert len(await _reported(db)) == 1


async def test_a_run_that_crashed_for_good_is_reported_and_one_that_is_taken_over_is_not(
    db: Database,
) -> None:
    schedule_id = await _schedule(db)
    held = await begin(db, schedule_id=schedule_id, due_at=NOW)
    await reap(db, now=NOW + LEASE + 1, recoveries_max=1)
    assert await _reported(db) == []
    [heir] = await claim(db, "w2", now=NOW + LEASE + 1)
    await reap(db, now=NOW + 3 * LEASE, recoveries_max=1)
    [told] = await _reported(db)
    assert told["run_id"] == heir.id
    assert (await get(db, held.id)).status == "crashed"


async def test_one_that_is_called_off_is_nobodys_news(db: Database) -> None:
    schedule_id = await _schedule(db)
    held = await begin(db, schedule_id=schedule_id, due_at=NOW)
    await db.write(cancel_chains, [held.root_id], reason="by request", now=NOW)
    assert await _reported(db) == []


async def test_one_that_is_held_back_is_skipped_and_reported(db: Database) -> None:
    schedule_id = await _schedule(db)
    held = await begin(db, schedule_id=schedule_id, due_at=NOW)
    assert await settle(db, held, "skip", reason="condition", error='{"message":"no file"}')
    run = await get(db, held.id)
    assert run.label == "skipped:condition"
    assert run.finished_at == NOW
    assert [told["run_id"] for told in await _reported(db)] == [held.id]
    assert await sound(db)


async def test_what_firing_leaves_out_is_reported(db: Database) -> None:
    await _schedule(db)
    await _schedule(db, "silent", body=None)
    ids = IdMaker(lambda bits: 7 << (bits - 8)).endless(NOW)
    fired = await db.write(
        fire.fire, namespace=SPACE, now=MIDNIGHT + 2 * HOUR, limit=100, new_ids=ids
    )
    assert fired.run_count == 1, "the run that tells; the occurrences themselves are skipped"
    [told] = await _reported(db)
    assert told["what"] == "skipped"
    assert (await get(db, told["run_id"])).label == "skipped:missed"
    assert await sound(db)


async def test_the_same_thing_is_reported_once(db: Database) -> None:
    schedule_id = await _schedule(db)
    thing = ScheduleEnd(schedule_id, "abc", "began")
    counts = [
        await db.write(schedule_ends.report_all, [thing], now=NOW + later) for later in range(3)
    ]
    assert counts == [1, 0, 0]
    assert await db.read(
        schedule_ends.notified_before, ["abc:began", "other"], namespace=SPACE
    ) == {"abc:began"}


async def test_the_execution_before_an_instant_is_the_last_that_came_to_an_end(
    db: Database,
) -> None:
    schedule_id = await _schedule(db)
    ends = [("complete", None), ("fail", "logic"), ("skip", "after")]
    runs = []
    for number, (verb, reason) in zip(itertools.count(), ends, strict=False):
        held = await begin(db, schedule_id=schedule_id, due_at=NOW + number)
        await settle(db, held, verb, reason=reason)
        runs.append(await get(db, held.id))
    before = [await db.read(schedule_ends.end_before, run) for run in runs]
    assert before == [None, ("completed", None), ("failed", "logic")]


async def test_a_schedule_that_is_deleted_takes_its_notices_with_it(db: Database) -> None:
    schedule_id = await _schedule(db)
    await db.write(templates.delete, schedule_id, now=NOW)
    assert await db.read(schedule_ends.of, [schedule_id]) == {}
