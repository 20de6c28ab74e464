"""Receivers of a schedule: recorded once, in the transaction of the end, and only if wanted."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import msgspec

from rota.core.notifications.model import NOTIFY
from rota.core.runs.ids import IdMaker
from rota.core.runs.model import Outcome, Schedule
from rota.core.runs.options import StoredRunOptions
from rota.core.schedules.intent import Intent, Missed, Policies
from rota.core.time.instants import DAY, HOUR
from rota.core.time.recurrence import parse
from rota.engine.notification_loop import QUEUE, dispatch_batch
from rota.store.backend.database import Database
from rota.store.notifications import recipients, record
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
    await db.write(recipients.put, row.id, body)
    return row.id


async def _recorded(db: Database) -> list[tuple[str, str]]:
    """Kind and run of what waits for the notification loop."""
    rows = await sql(
        db, "select kind, run_id from notifications where recipients is not null order by id"
    )
    return [(kind, run_id) for kind, run_id in rows]


async def _dispatch(db: Database, now: int = NOW) -> list[dict[str, Any]]:
    """The inputs of the runs that send, after the notification loop has looked."""
    ids = (fresh_id() for _ in itertools.count())
    await db.write(dispatch_batch, namespace=SPACE, now=now, new_ids=ids, alive_after=0)
    rows = await sql(db, f"select input from runs where name = '{NOTIFY}' order by id")
    return [msgspec.json.decode(row[0]) for row in rows]


async def test_an_end_is_recorded_in_the_transaction_that_settles_it(db: Database) -> None:
    schedule_id = await _schedule(db)
    held = await begin(db, schedule_id=schedule_id, due_at=NOW)
    done = await db.write(settle_runs, [Outcome(held, "complete")], now=NOW)
    assert done.woke, "a notification loop has to look"
    assert await _recorded(db) == [("succeeded", held.id)]
    [sent] = await _dispatch(db)
    assert sent == {"run_id": held.id, "what": "succeeded", "tells": msgspec.json.decode(BODY)}
    assert await _recorded(db) == []
    [run] = await claim(db, names=[NOTIFY], queues=[(QUEUE, 1)])
    assert run.external_id == held.id
    [(sent_to,)] = await sql(db, "select sent_to from notifications")
    assert sent_to == "pipeline.yaml"
    assert await sound(db)


async def test_a_schedule_that_notifies_nobody_has_no_such_rows(db: Database) -> None:
    schedule_id = await _schedule(db, body=None)
    held = await begin(db, schedule_id=schedule_id, due_at=NOW)
    assert await settle(db, held)
    held = await begin(db, schedule_id=schedule_id, due_at=NOW + 1)
    assert await settle(db, held, "fail", reason="logic")
    assert await sql(db, "select id from notifications") == []
    await db.write(recipients.put, schedule_id, BODY)
    await db.write(recipients.put, schedule_id, None)
    assert await db.read(recipients.of, schedule_id) is None


async def test_a_try_that_is_followed_by_another_is_no_end(db: Database) -> None:
    schedule_id = await _schedule(db)
    held = await begin(db, schedule_id=schedule_id, due_at=NOW)
    again = new_run(
        root_id=held.root_id, retry_of=held.id, schedule_id=schedule_id, due_at=NOW, attempt=2,
        trigger="retry",
    )  # fmt: skip
    assert await settle(db, held, "fail", reason="transient", retry=again)
    assert await _recorded(db) == []
    [second] = await claim(db)
    assert await settle(db, second, "fail", reason="transient")
    assert await _recorded(db) == [("failed", again.id)]


async def test_one_who_lost_the_run_notifies_nobody(db: Database) -> None:
    schedule_id = await _schedule(db)
    held = await begin(db, schedule_id=schedule_id, due_at=NOW)
    assert await settle(db, held)
    assert not await settle(db, held)
    assert len(await _recorded(db)) == 1


async def test_a_run_that_crashed_for_good_is_reported_and_one_that_is_taken_over_is_not(
    db: Database,
) -> None:
    schedule_id = await _schedule(db)
    held = await begin(db, schedule_id=schedule_id, due_at=NOW)
    await reap(db, now=NOW + LEASE + 1, recoveries_max=1)
    assert await _recorded(db) == []
    [successor] = await claim(db, "w2", now=NOW + LEASE + 1)
    await reap(db, now=NOW + 3 * LEASE, recoveries_max=1)
    assert await _recorded(db) == [("quarantined", successor.id)]
    assert (await get(db, held.id)).status == "crashed"


async def test_one_that_is_cancelled_is_nobodys_news(db: Database) -> None:
    schedule_id = await _schedule(db)
    held = await begin(db, schedule_id=schedule_id, due_at=NOW)
    await db.write(cancel_chains, [held.root_id], reason="by request", now=NOW)
    assert await _recorded(db) == []


async def test_one_that_is_held_back_is_skipped_and_reported(db: Database) -> None:
    schedule_id = await _schedule(db)
    held = await begin(db, schedule_id=schedule_id, due_at=NOW)
    assert await settle(db, held, "skip", reason="condition", error='{"message":"no file"}')
    run = await get(db, held.id)
    assert run.label == "skipped:condition"
    assert run.finished_at == NOW
    assert await _recorded(db) == [("missed", held.id)]
    assert await sound(db)


async def test_what_firing_leaves_out_is_reported(db: Database) -> None:
    await _schedule(db)
    await _schedule(db, "silent", body=None)
    ids = IdMaker(lambda bits: 7 << (bits - 8)).endless(NOW)
    fired = await db.write(
        fire.fire, namespace=SPACE, now=MIDNIGHT + 2 * HOUR, limit=100, new_ids=ids
    )
    assert fired.run_count == 1, "the notification loop has to look; the occurrences are skipped"
    [(kind, run_id)] = await _recorded(db)
    assert kind == "missed"
    assert (await get(db, run_id)).label == "skipped:missed"
    assert await sound(db)


async def test_a_beginning_is_reported_once_however_often_the_run_is_claimed(
    db: Database,
) -> None:
    schedule_id = await _schedule(db)
    held = await begin(db, schedule_id=schedule_id, due_at=NOW)
    counts = [await db.write(record.began, held, now=NOW + later * HOUR) for later in range(3)]
    assert counts == [True, False, False]
    [sent] = await _dispatch(db)
    assert (sent["run_id"], sent["what"]) == (held.root_id, "began")


async def test_each_wait_for_a_person_is_a_message_of_its_own(db: Database) -> None:
    schedule_id = await _schedule(db)
    held = await begin(db, schedule_id=schedule_id, due_at=NOW)
    assert await settle(db, held, "ask", reason="login")
    [first] = await _dispatch(db)
    await sql(
        db, f"update runs set status = 'pending', available_at = {NOW} where id = '{held.id}'"
    )
    [held] = await claim(db)
    assert await settle(db, held, "ask", reason="login")
    sent = await _dispatch(db)
    assert [one["run_id"] for one in sent] == [held.id] * 2
    kinds = {one["what"].partition(":")[0] for one in sent}
    assert kinds == {"needs_attention"}
    assert len({one["what"] for one in sent}) == 2
    assert first in sent


async def test_a_success_after_trouble_is_a_recovery_and_others_of_its_batch_are_successes(
    db: Database,
) -> None:
    schedule_id = await _schedule(db)
    bad = await begin(db, schedule_id=schedule_id, due_at=NOW)
    assert await settle(db, bad, "fail", reason="logic")
    held = [await begin(db, schedule_id=schedule_id, due_at=NOW + at) for at in (1, 2)]
    await db.write(settle_runs, [Outcome(one, "complete") for one in held], now=NOW)
    kinds = sorted(kind for kind, _ in await _recorded(db))
    assert kinds == ["failed", "recovered", "succeeded"]
    last = await begin(db, schedule_id=schedule_id, due_at=NOW + 3)
    assert await settle(db, last)
    assert ("succeeded", last.id) in await _recorded(db)


async def test_a_retry_with_failed_items_again_is_no_recovery(db: Database) -> None:
    schedule_id = await _schedule(db)
    bad = await begin(db, schedule_id=schedule_id, due_at=NOW)
    assert await settle(db, bad, "complete", reason="partial")
    noted = StoredRunOptions(recovers=1).text()
    held = await begin(db, schedule_id=schedule_id, due_at=NOW + 1, options=noted)
    assert await settle(db, held, "complete", reason="partial")
    assert sorted(await _recorded(db)) == sorted([("failed", bad.id), ("failed", held.id)])
    rows = await sql(db, "select is_open from notifications")
    assert rows == [(1,), (1,)]


async def test_a_dispatcher_of_the_version_before_leaves_the_receivers_for_the_next(
    db: Database,
) -> None:
    schedule_id = await _schedule(db)
    held = await begin(db, schedule_id=schedule_id, due_at=NOW)
    assert await settle(db, held, "fail", reason="logic")
    await sql(db, f"update notifications set dispatched_at = {NOW}, sent_to = 'ops'")
    [sent] = await _dispatch(db)
    assert (sent["run_id"], sent["what"]) == (held.id, "failed")
    assert await sql(db, "select sent_to, dispatched_at from notifications") == [
        ("ops, pipeline.yaml", NOW)
    ]


async def test_several_notifiers_send_each_message_once_without_any_rule(db: Database) -> None:
    schedule_id = await _schedule(db)
    for at in range(6):
        held = await begin(db, schedule_id=schedule_id, due_at=NOW + at)
        assert await settle(db, held)
    found = await asyncio.gather(*(_dispatch(db) for _ in range(4)))
    assert max(len(one) for one in found) == 6
    assert len(await _dispatch(db)) == 6
    assert await sound(db)


async def test_a_schedule_that_is_deleted_takes_its_receivers_with_it(db: Database) -> None:
    schedule_id = await _schedule(db)
    held = await begin(db, schedule_id=schedule_id, due_at=NOW)
    assert await settle(db, held)
    await db.write(templates.delete, schedule_id, now=NOW)
    assert await db.read(recipients.of, schedule_id) is None
    [sent] = await _dispatch(db)
    assert sent["run_id"] == held.id, "what happened before is still reported"
