"""Schedules in the store: firing in one transaction, by any scheduler, once. Its cost and its
races.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import msgspec
import pytest

from rota.core.runs.model import Outcome, Schedule
from rota.core.schedules.intent import Intent, Policies, read_intent
from rota.core.time.instants import DAY, HOUR, MINUTE, SECOND
from rota.core.time.recurrence import parse
from rota.errors import StoreIOError
from rota.schedules.ledger_check import ledger_faults
from rota.store.backend.database import Database, Row, Tx
from rota.store.runs import history
from rota.store.runs.settle import settle_runs
from rota.store.schedules import fire as firing
from rota.store.schedules import outcomes, templates
from tests.kit.builders import SPACE, claim, fresh_id, get, settle, sound, sql
from tests.store.schedules.kit import Watched

START = 1_893_456_000 * SECOND  # 2030-01-01T00:00Z
HOURLY = parse("0 * * * *", zone="UTC", now=START)


def template(name: str = "s", spec: Any = HOURLY, **fields: Any) -> Schedule:
    """A schedule of the workflow `work`, first due an hour after START."""
    policies = fields.pop("policies", Policies())
    intent = Intent("work", spec, "text", policies)
    due_at = fields.pop("due_at", START + HOUR)
    values: dict[str, Any] = {
        "id": fresh_id(START), "namespace": SPACE, "queue": "default", "priority": 0,
        "status": "scheduled", "reason": None, "available_at": due_at, "due_at": due_at,
        "cron_expr": "text", "spec": msgspec.json.encode(intent).decode(), "options": None,
        "input": None, "created_at": START,
    }  # fmt: skip
    return Schedule(name=name, **(values | fields))


async def put(db: Database, *rows: Schedule) -> None:
    for row in rows:
        assert await db.write(templates.put, row, trigger="manual", now=START)


def ids(now: int) -> Iterator[str]:
    return (fresh_id(now) for _ in itertools.count())


async def fire(db: Database, now: int, limit: int = 1000) -> firing.Fired:
    return await db.write(firing.fire, namespace=SPACE, now=now, limit=limit, new_ids=ids(now))


async def find(db: Database, name: str = "s") -> Schedule:
    found = await db.read(templates.find, namespace=SPACE, name=name)
    assert found is not None
    return found


async def complete(db: Database, now: int) -> None:
    """No gap in any ledger, and every invariant."""
    assert await db.read(ledger_faults, namespace=SPACE, now=now) == []
    assert await sound(db)


# -- rows ------------------------------------------------------------------------------------


async def test_a_schedule_counts_as_no_run(db: Database) -> None:
    await put(db, template("a"), template("b", status="paused", available_at=None))
    assert await db.read(history.counts, namespace=SPACE) == {}
    await fire(db, START + HOUR)
    assert await db.read(history.counts, namespace=SPACE) == {"pending": 1}


async def test_a_name_is_taken_once_per_namespace(db: Database) -> None:
    await put(db, template())
    assert not await db.write(templates.put, template(), trigger="manual", now=START)
    await put(db, template(namespace="other"))


async def test_schedules_are_listed_by_name_a_page_at_a_time(db: Database) -> None:
    await put(db, *(template(f"s{n}") for n in (3, 1, 4, 2)))
    page = await db.read(templates.listing, namespace=SPACE, limit=3)
    assert [row.name for row in page] == ["s1", "s2", "s3"]
    rest = await db.read(templates.listing, namespace=SPACE, after="s3", limit=3)
    assert [row.name for row in rest] == ["s4"]


async def test_change_writes_every_part_and_delete_frees_the_name(db: Database) -> None:
    row = template()
    await put(db, row)
    fresh = msgspec.structs.replace(row, queue="q", priority=3, status="paused", reason="r",
        available_at=None, due_at=START + DAY, input='["x"]', options='{"a":1}')  # fmt: skip
    assert await db.write(templates.change, fresh)
    assert await find(db) == fresh
    assert await db.write(templates.delete, row.id)
    assert not await db.write(templates.delete, row.id)
    assert not await db.write(templates.change, fresh)
    await put(db, template())


async def test_change_and_delete_never_touch_a_run(db: Database) -> None:
    await put(db, template())
    await fire(db, START + HOUR)
    [held] = await claim(db, now=START + HOUR)
    assert not await db.write(templates.delete, held.id)
    assert not await db.write(templates.change, template(id=held.id))
    assert (await get(db, held.id)).status == "running"


# -- firing ----------------------------------------------------------------------------------


async def test_firing_inserts_the_run_and_advances_the_template(db: Database) -> None:
    row = template(input='["x"]', options='{"a":1}', queue="q", priority=5)
    await put(db, row)
    fired = await fire(db, START + HOUR + 7)
    assert fired == firing.Fired(1, 1, [], START + 2 * HOUR, lateness=[("s", 7)], skips=[])
    [run] = await db.read(outcomes.ledger, row.id)
    assert (run.due_at, run.available_at, run.created_at) == (
        START + HOUR, START + HOUR, START + HOUR + 7,
    )  # fmt: skip
    assert (run.input, run.options, run.queue, run.priority) == ('["x"]', '{"a":1}', "q", 5)
    assert (await find(db)).due_at == START + 2 * HOUR
    await complete(db, START + HOUR + 7)


async def test_nothing_due_changes_nothing_and_shows_the_next_instant(db: Database) -> None:
    await put(db, template())
    assert await fire(db, START) == firing.Fired(0, 0, [], START + HOUR, lateness=[], skips=[])
    await put(db, template("rests", status="paused", available_at=None))
    assert (await fire(db, START)).next_at == START + HOUR


async def test_an_empty_store_has_no_next_instant(db: Database) -> None:
    assert await fire(db, START) == firing.Fired(0, 0, [], None, lateness=[], skips=[])


async def test_a_batch_takes_the_oldest_first(db: Database) -> None:
    await put(db, *(template(f"s{n}", due_at=START + n * MINUTE) for n in (3, 1, 2)))
    now = START + DAY
    assert (await fire(db, now, limit=1)).due_count == 1
    assert (await find(db, "s1")).due_at == now + HOUR
    assert (await find(db, "s2")).due_at == START + 2 * MINUTE


async def test_skipped_occurrences_are_rows_with_range_and_reason(db: Database) -> None:
    row = template()
    await put(db, row)
    await fire(db, START + 9 * HOUR + 10 * MINUTE)
    newest, range_ = await db.read(outcomes.ledger, row.id)
    assert (newest.status, newest.due_at) == ("pending", START + 9 * HOUR)
    assert range_.label == "skipped:missed"
    assert range_.due_at == START + 8 * HOUR
    assert msgspec.json.decode(range_.output or "") == {
        "from_at": START + HOUR, "to_at": START + 8 * HOUR, "count": 8,
    }  # fmt: skip
    assert range_.finished_at is not None
    await complete(db, START + 9 * HOUR + 10 * MINUTE)


async def test_anybody_may_fire_at_once_and_each_occurrence_is_fired_once(db: Database) -> None:
    rules = Policies(overlap="allow")  # type: ignore[arg-type]
    spec = parse("* * * * * *", zone="UTC", now=START)
    first = START + SECOND
    rows = [template(f"s{n}", spec, policies=rules, due_at=first) for n in range(30)]
    await put(db, *rows)
    for second in range(1, 6):
        now = START + second * SECOND
        await asyncio.gather(*(fire(db, now, limit=11) for _ in range(8)))
    counts = Counter(
        (row[0], row[1])
        for row in await sql(db, "select schedule_id, due_at from runs where kind = 'workflow'")
    )
    assert set(counts.values()) == {1}
    assert len(counts) == 30 * 5
    await complete(db, START + 5 * SECOND)


COLUMNS = (
    "namespace, kind, name, queue, priority, status, reason, available_at, due_at, schedule_id,"
    " retry_of, parent_id, attempt, recoveries, trigger, external_id, tags, options, input, output,"
    " spec, created_at, started_at, finished_at"
)


async def test_the_plain_way_writes_what_the_long_way_does(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = template(input='["x"]', options='{"a":1}', queue="q", priority=5)
    await put(db, row)
    written: list[list[Row]] = []
    for is_plain in (firing._is_plain, lambda *_: False):
        monkeypatch.setattr(firing, "_is_plain", is_plain)
        await db.write(templates.change, row)
        await sql(db, "update runs set started_at = null")
        for hours in (1, 2):  # the second run knows of the first
            await fire(db, START + hours * HOUR + 7)
            await sql(
                db, "update runs set status = 'completed', finished_at = 1 where spec is null"
            )
        written.append(await sql(db, f"select {COLUMNS} from runs order by due_at, kind"))
        await sql(db, "delete from runs where spec is null")
    assert len(written[0]) == 3
    assert written[0] == written[1]


async def test_a_template_at_no_time_of_its_own_goes_on(db: Database) -> None:
    """Whatever the origin of the row: the next valid time is due, and firing must not stop."""
    await put(db, template(due_at=START + HOUR - MINUTE))
    fired = await fire(db, START + HOUR)
    assert (fired.run_count, fired.next_at) == (1, START + 2 * HOUR)
    assert (await find(db)).due_at == START + 2 * HOUR


async def test_a_fired_occurrence_is_left_alone_when_its_advance_was_lost(db: Database) -> None:
    row = template()
    await put(db, row)
    await fire(db, START + HOUR)
    await claim(db, now=START + HOUR)
    await db.write(templates.change, row)
    await fire(db, START + HOUR + 1)
    assert len(await db.read(outcomes.ledger, row.id)) == 1
    assert (await find(db)).due_at == START + 2 * HOUR


async def test_a_run_for_a_template_that_is_gone_is_not_created(db: Database) -> None:
    row = template()
    await put(db, row)
    await db.write(templates.delete, row.id)
    extra = templates.extra_row(
        row, read_intent(row.spec), id=fresh_id(), available_at=START, trigger="manual"
    )
    assert await db.write(templates.add_runs, [extra], now=START) == []


# -- what it costs ---------------------------------------------------------------------------

COSTLY = {
    "plain": Policies(),
    "allow": Policies(overlap="allow"),  # type: ignore[arg-type]
    "pause after failures": Policies(failures_max=3),
    "cancel-running": Policies(overlap="cancel-running"),  # type: ignore[arg-type]
    "max runs": Policies(runs_max=100),
}


@pytest.mark.parametrize("rules", COSTLY.values(), ids=COSTLY)
async def test_many_due_schedules_cost_no_more_statements_than_few(
    db: Database, rules: Policies
) -> None:
    statements: list[int] = []
    for count in (2, 20):
        prefix = f"n{count}-"
        await put(db, *(template(f"{prefix}{n}", policies=rules) for n in range(count)))
        await fire(db, START + HOUR)  # now each has an open run
        seen: list[str] = []

        async def watched(tx: Tx, seen: list[str] = seen) -> firing.Fired:
            now = START + 2 * HOUR
            return await firing.fire(
                Watched(tx, seen), namespace=SPACE, now=now, limit=1000, new_ids=ids(now)
            )

        fired = await db.write(watched)
        assert fired.due_count == count
        statements.append(len(seen))
        await sql(db, "delete from runs where schedule_id is not null")
        await sql(db, "delete from runs")
    assert statements[0] == statements[1]


async def _ended_at_once(db: Database, count: int) -> list[str]:
    """The statements of settling runs of `count` schedules, each with one in line behind it."""
    await put(db, *(template(f"n{count}-{n}") for n in range(count)))
    for hours in (1, 2):
        await fire(db, START + hours * HOUR)
    held = await claim(db, now=START + 2 * HOUR, runs_max=count, queues=[("default", count)])
    assert len(held) == count
    seen: list[str] = []

    async def watched(tx: Tx) -> None:
        ends = [Outcome(one, "complete") for one in held]
        await settle_runs(Watched(tx, seen), ends, now=START + 3 * HOUR)

    await db.write(watched)
    ready = await sql(db, "select count(*) from runs where status = 'pending'")
    assert ready == [(count,)], "each line must have moved on by one"
    await sql(db, "delete from runs where schedule_id is not null")
    await sql(db, "delete from runs")
    return seen


async def test_many_runs_that_end_cost_no_more_statements_than_few(db: Database) -> None:
    assert await _ended_at_once(db, 2) == await _ended_at_once(db, 20)


async def test_many_pauses_that_end_cost_no_more_statements_than_few(db: Database) -> None:
    statements: list[list[str]] = []
    for count in (2, 20):
        rows = [
            template(f"p{count}-{n}", status="paused", available_at=START + 3 * HOUR)
            for n in range(count)
        ]
        await put(db, *rows)
        seen: list[str] = []

        async def watched(tx: Tx, seen: list[str] = seen) -> tuple[int, list[tuple[str, str]]]:
            now = START + 4 * HOUR
            return await firing.end_pauses(
                Watched(tx, seen), namespace=SPACE, now=now, new_ids=ids(now)
            )

        assert await db.write(watched) == (count, [])
        statements.append(seen)
    assert statements[0] == statements[1]


async def test_an_error_of_the_database_quarantines_no_schedule(db: Database) -> None:
    now = START + 4 * HOUR
    # After the next occurrence: the clock was set back.
    row = template(status="paused", due_at=START + DAY, available_at=START + 2 * HOUR)
    await put(db, row)

    async def failing(query: str) -> None:
        if query == "last_recorded":
            raise StoreIOError("the disk failed")

    async def watched(tx: Tx) -> tuple[int, list[tuple[str, str]]]:
        return await firing.end_pauses(
            Watched(tx, [], failing), namespace=SPACE, now=now, new_ids=ids(now)
        )

    with pytest.raises(StoreIOError):
        await db.write(watched)
    assert await find(db) == row


async def test_failures_in_a_row_are_counted_for_each_schedule_by_itself(db: Database) -> None:
    rules = Policies(overlap="allow", failures_max=3)  # type: ignore[arg-type]
    ends = {"a": "fff", "b": "fcf", "c": "cff", "d": "ff", "e": "ffc"}
    await put(db, *(template(name, policies=rules) for name in ends))
    for place in range(3):
        now = START + (place + 1) * HOUR
        await fire(db, now)
        for one in await claim(db, now=now, runs_max=9, queues=[("default", 9)]):
            name = (await find_id(db, one.schedule_id or "")).name
            verb = "fail" if ends[name][place : place + 1] == "f" else "complete"
            if place < len(ends[name]):
                await settle(db, one, verb, now=now)
    await fire(db, START + 4 * HOUR)
    rests = {name: (await find(db, name)).status for name in ends}
    assert rests == dict.fromkeys("bcde", "scheduled") | {"a": "paused"}


async def find_id(db: Database, schedule_id: str) -> Schedule:
    found = await db.read(templates.listing, namespace=SPACE)
    return next(row for row in found if row.id == schedule_id)


async def test_catching_up_on_many_is_done_in_bounded_transactions(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(firing, "RUNS_MAX", 25)
    rules = Policies(overlap="allow", missed="all", missed_max=1000)  # type: ignore[arg-type]
    await put(db, template("a", policies=rules), template("b", policies=rules), template("c"))
    now = START + 40 * HOUR
    counts = []
    while (fired := await fire(db, now)).due_count:
        counts.append(fired.run_count)
        assert fired.more == (fired.run_count >= 25)
    assert (counts, sum(counts)) == ([25, 25, 25, 6], 81)
    await complete(db, now)


# -- races (PostgreSQL: transactions that really run at the same time) -----------------------


async def _beside(db: Database, at: str, other: Callable[[], Awaitable[Any]], now: int) -> None:
    """Fire, and let `other` happen while the firing is before the statement `at`."""
    other_done: list[asyncio.Task[Any]] = []

    async def before(query: str) -> None:
        if query == at and not other_done:
            task = asyncio.ensure_future(other())
            other_done.append(task)
            with contextlib.suppress(TimeoutError):  # it may have to wait for us
                await asyncio.wait_for(asyncio.shield(task), 0.3)

    async def slow_fire(tx: Tx) -> firing.Fired:
        return await firing.fire(
            Watched(tx, [], before), namespace=SPACE, now=now, limit=100, new_ids=ids(now)
        )

    await db.write(slow_fire)
    assert other_done, f"never came to {at}"
    await other_done[0]


def _only_postgres(db: Database) -> None:
    if db.dialect.name != "postgres":
        pytest.skip("SQLite has one writer at a time")


async def test_a_run_that_ends_while_the_next_is_queued_behind_it_releases_it(
    db: Database,
) -> None:
    _only_postgres(db)
    row = template()
    await put(db, row)
    await fire(db, START + HOUR)
    [held] = await claim(db, now=START + HOUR)
    now = START + 2 * HOUR
    await _beside(db, "fire_runs", lambda: settle(db, held, now=now), now)
    newest = (await db.read(outcomes.ledger, row.id))[0]
    assert newest.due_at == now
    assert newest.status == "pending", "it waits for the end of a run that has ended"
    await complete(db, now)


async def test_a_schedule_deleted_while_it_fires_leaves_nothing_stuck(db: Database) -> None:
    _only_postgres(db)
    row = template()
    await put(db, row)
    now = START + HOUR
    await _beside(db, "fire_plain", lambda: db.write(templates.delete, row.id), now)
    assert await db.read(templates.find, namespace=SPACE, name="s") is None
    assert await sql(db, "select status, schedule_id from runs") in ([], [("pending", None)])
    await complete(db, now)


async def test_a_schedule_changed_while_it_fires_keeps_the_change(db: Database) -> None:
    _only_postgres(db)
    row = template()
    await put(db, row)

    async def pause(tx: Tx) -> None:
        old = await templates.find(tx, namespace=SPACE, name="s", lock=True)
        assert old is not None
        await templates.change(
            tx, msgspec.structs.replace(old, status="paused", reason="x", available_at=None)
        )

    now = START + HOUR
    await _beside(db, "fire_plain", lambda: db.write(pause), now)
    after = await find(db)
    assert (after.status, after.due_at) == ("paused", now + HOUR)
    assert len(await db.read(outcomes.ledger, row.id)) == 1
    await complete(db, now)


async def test_what_another_scheduler_has_in_hand_is_left_to_it(db: Database) -> None:
    _only_postgres(db)
    await put(db, *(template(f"s{n}") for n in range(6)))
    now = START + HOUR
    seen: list[firing.Fired] = []

    async def other() -> None:
        seen.append(await fire(db, now))

    await _beside(db, "fire_plain", other, now)
    assert seen[0].due_count == 0
    assert await sql(db, "select count(*) from runs where kind = 'workflow'") == [(6,)]


async def test_a_queued_run_is_released_once_when_two_runs_end_at_once(db: Database) -> None:
    row = template()
    await put(db, row)
    intent = read_intent(row.spec)
    extra: list[Row] = [
        templates.extra_row(
            row, intent, id=fresh_id(START), due_at=START - n * HOUR, trigger="backfill",
            status="pending" if n <= 2 else "sleeping",
            reason=None if n <= 2 else "backfill",
            available_at=START if n <= 2 else None,
        )
        for n in range(1, 7)
    ]  # fmt: skip
    await db.write(templates.add_runs, extra, now=START)
    done = 0
    while held := await claim(db, now=START):
        await asyncio.gather(*(settle(db, one, now=START) for one in held))
        done += len(held)
        assert await sound(db)
    assert done == 6
