"""Store functions keep what they are given or raise an error of ours; nothing else escapes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rota.core.runs.model import Outcome, Schedule
from rota.core.runs.retry import RetryPolicy
from rota.errors import RotaError, StoreError
from rota.store.backend.database import Database
from rota.store.runs import signals, steps
from rota.store.runs.settle import settle_runs
from rota.store.runs.start import start_runs, start_uniform, successor
from rota.store.schedules import templates
from tests.kit import hostile
from tests.kit.builders import (
    NOW,
    begin,
    fresh_id,
    new_run,
    opened,
    settle,
    sound,
    step_of,
    waiting_step,
)
from tests.kit.sampling import examples

Feed = Callable[[Database, str, int], Awaitable[Any]]
FEW = settings(max_examples=examples(30), suppress_health_check=[HealthCheck.too_slow])


def fed(url: str, feed: Feed) -> None:
    """Feed a store function with text and numbers; afterwards the database must be sound."""

    async def one(text: str, number: int) -> None:
        async with opened(url) as db:
            try:
                await feed(db, text, number)
            except StoreError as error:
                raise AssertionError("a bad value is not the database's fault") from error
            except RotaError:
                pass

    @FEW
    @given(hostile.texts(), hostile.integers())
    def feed_all(text: str, number: int) -> None:
        asyncio.run(one(text, number))

    async def is_sound() -> None:
        async with opened(url) as db:
            await sound(db)

    feed_all()
    asyncio.run(is_sound())


def test_start_keeps_or_refuses_hostile_values(database_url: str) -> None:
    async def feed(db: Database, text: str, number: int) -> None:
        for fields in (
            {"external_id": text}, {"queue": text}, {"limit_key": text}, {"input": text},
            {"available_at": number}, {"priority": number}, {"tags": text},
        ):  # fmt: skip
            fresh = [new_run(**fields), new_run()]
            for batch in (fresh[:1], fresh):
                try:
                    await db.write(start_runs, batch, now=NOW)
                except StoreError:
                    raise
                except RotaError:
                    continue

    fed(database_url, feed)


def test_bulk_starts_keep_or_refuse_hostile_values(database_url: str) -> None:
    async def feed(db: Database, text: str, number: int) -> None:
        template = new_run(available_at=max(number, NOW))
        items = [(fresh_id(), text, text, text), (fresh_id(), None, None, None)]
        await db.write(start_uniform, template, items, now=NOW)

    fed(database_url, feed)


def test_outcomes_are_settled_or_refused_whatever_they_hold(database_url: str) -> None:
    async def feed(db: Database, text: str, number: int) -> None:
        for verb, fields in (
            ("complete", {"output": text}), ("fail", {"reason": "logic", "error": text}),
            ("suspend", {"reason": "sleep", "wake_at": number}),
        ):  # fmt: skip
            held, other = await begin(db), await begin(db)
            outcomes = [Outcome(held, verb, **fields), Outcome(other, "complete")]
            try:
                await db.write(settle_runs, outcomes, now=NOW)
            except StoreError:
                raise
            except RotaError:
                await settle(db, held)
                await settle(db, other)

    fed(database_url, feed)


def test_a_retry_at_a_hostile_instant_is_stored_or_refused(database_url: str) -> None:
    async def feed(db: Database, text: str, number: int) -> None:
        held = await begin(db)
        retry = successor(held, fresh_id(), trigger="retry", available_at=number, attempt=2)
        await db.write(settle_runs, [Outcome(held, "fail", "logic", retry=retry)], now=NOW)

    fed(database_url, feed)


def test_steps_are_recorded_or_refused_whatever_they_hold(database_url: str) -> None:
    async def feed(db: Database, text: str, number: int) -> None:
        held = await begin(db)
        bad = step_of(held, text or "k", output=text, wake_at=number)
        for batch in ([bad], [bad, step_of(held, "good")]):
            try:
                await db.write(steps.record, batch)
            except StoreError:
                raise
            except RotaError:
                continue
        assert await db.write(steps.record, [step_of(held, "after")])
        await settle(db, held)

    fed(database_url, feed)


def test_signals_are_kept_or_refused_whatever_they_hold(database_url: str) -> None:
    async def feed(db: Database, text: str, number: int) -> None:
        held = await begin(db)
        await db.write(
            signals.send_signal, signal_id=fresh_id(), root_id=held.root_id, name=text, body=text,
            now=NOW,
        )  # fmt: skip
        step = waiting_step(held, "w", wake_at=number)
        await db.write(signals.await_signal, held, text, step, now=NOW)

    fed(database_url, feed)


def test_schedules_are_kept_or_refused_whatever_they_hold(database_url: str) -> None:
    async def feed(db: Database, text: str, number: int) -> None:
        schedule = Schedule(
            id=fresh_id(), namespace="default", name=text, queue="default", priority=0,
            status="scheduled", reason=None, available_at=number, due_at=number, cron_expr=text,
            spec="{}", options=None, input=text, created_at=NOW,
        )  # fmt: skip
        await db.write(templates.put, schedule, trigger="manual", now=NOW)
        await db.write(templates.delete, schedule.id, now=NOW)

    fed(database_url, feed)


@given(hostile.numbers(), hostile.numbers(), st.integers())
def test_a_retry_policy_is_sane_or_refused(delay_s: float, longest_s: float, attempts: int) -> None:
    try:
        policy = RetryPolicy(attempts=attempts, delay_s=delay_s, delay_s_max=longest_s)
    except RotaError:
        return
    assert policy.delay_us(1, 0.5) >= 0
    msgspec.json.encode(policy)
