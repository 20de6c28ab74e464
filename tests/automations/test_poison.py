"""Poison items and lasting outages: `skip_after`, the cap of Retry-After, events under used ids."""

from __future__ import annotations

from typing import Any

import pytest

from rota import Rota, Transient
from rota.automations import Change, Context, MutationResult, Prepared
from rota.core.automations.failure_policy import (
    EffectivePolicy,
    FailedAttempt,
    FailurePolicy,
    Pace,
    after_failure,
    effective,
)
from rota.core.time.instants import HOUR, SECOND
from rota.errors import NotSent, OutcomeUnknown
from rota.testing import virtual
from rota.tools import Safety
from tests.automations.kit import QUIET, Line, Outside, begun, event_statuses, raising, sound

PACE = Pace(failures_max=5, backoff_s=10, backoff_s_max=600, retry_after_s_max=3600)
YEAR = 31_536_000.0


def policy(**options: Any) -> EffectivePolicy:
    return effective([FailurePolicy(**options)], PACE)


class Poisoned(Rota):
    """A consumer with `skip_after` and a reconcilable tool that fails on the item "bad"."""

    def __init__(self, error: type[Exception]) -> None:
        super().__init__("sqlite://:memory:", **QUIET)
        self.outside = Outside(Safety.RECONCILABLE)
        line = self.automation("line", timezone="UTC", skip_after=3)
        work = line.topic("work", external=True)

        async def prepare(ctx: Context, state: Any) -> Prepared:
            events = await ctx.peek(work, limit=1)
            return Prepared(events, [event.id for event in events])

        async def mutate(ctx: Context, prepared: Prepared) -> Change:
            self.outside.before = raising(error("500")) if prepared.data == ["bad"] else None
            return self.outside.change(items=prepared.data)

        line.consumer("worker", subscribes=[work], prepare=prepare, mutate=mutate)


async def test_an_item_with_a_change_that_never_happens_is_skipped_and_others_pass(
    database_url: str,
) -> None:
    app = Poisoned(OutcomeUnknown)
    async with virtual(app, url=database_url) as world:
        await world.settle()
        for one in ("good", "bad", "later"):
            await app.automations.publish("line", "work", one, {})
        await world.advance("2h")
        assert await event_statuses(app) == {
            "good": "consumed", "bad": "skipped", "later": "consumed",
        }  # fmt: skip
        assert [items for _, items in app.outside.effects] == [
            {"items": ["good"]}, {"items": ["later"]},
        ]  # fmt: skip
        assert app.outside.calls == 5
        await sound(app)


async def test_a_call_that_is_not_sent_is_an_outage_and_skips_nothing(database_url: str) -> None:
    app = Poisoned(NotSent)
    async with virtual(app, url=database_url) as world:
        await world.settle()
        await app.automations.publish("line", "work", "bad", {})
        await world.advance("2h")
        assert await event_statuses(app) == {"bad": "pending"}


@pytest.mark.parametrize("safety", [Safety.IDEMPOTENT, Safety.UNKNOWABLE])
async def test_a_counterpart_that_asks_for_a_year_is_called_again_within_the_hour(
    database_url: str, safety: Safety
) -> None:
    app = Line(safety)
    error: Exception = OutcomeUnknown("429", retry_after_s=YEAR)
    if safety is Safety.UNKNOWABLE:
        error = NotSent("429", retry_after_s=YEAR)
    async with begun(app, database_url) as world:
        app.outside.before = raising(error)
        await app.feed("e1")
        await world.advance("59m")
        assert app.outside.calls == 1
        await world.advance("2m")
        assert app.outside.calls == 2
        assert await event_statuses(app) == {"e1": "consumed"}


async def test_the_longest_retry_after_is_a_setting(database_url: str) -> None:
    app = Line(retry_after_s_max=7200)
    async with begun(app, database_url) as world:
        app.in_prepare = raising(Transient("busy", retry_after_s=YEAR))
        await app.feed("e1")
        await world.advance("119m")
        assert await event_statuses(app) == {"e1": "pending"}
        await world.advance("2m")
        assert await event_statuses(app) == {"e1": "consumed"}


@pytest.mark.parametrize(
    ("failed", "number", "skips"),
    [
        (FailedAttempt(retried=True, outage=True), 9, False),
        (FailedAttempt(retried=True, outage=True, refuted=True), 2, False),
        (FailedAttempt(retried=True, outage=True, refuted=True), 3, True),
        (FailedAttempt(), 2, False),
        (FailedAttempt(), 3, True),
    ],
)
def test_skip_after_counts_failures_of_the_item_and_no_outage(
    failed: FailedAttempt, number: int, skips: bool
) -> None:
    after = after_failure(policy(skip_after=3), failed, number=number, chance=0)
    assert after.skips is skips
    assert (after.pause_us is None) is skips
    assert after_failure(policy(), failed, number=number, chance=0).skips is False


@pytest.mark.parametrize(("asked", "obeyed"), [(YEAR, 3600), (90, 90), (float("inf"), 3600)])
def test_retry_after_is_obeyed_up_to_its_cap(asked: float, obeyed: float) -> None:
    failed = FailedAttempt(retried=True, outage=True, retry_after_s=asked)
    after = after_failure(policy(), failed, number=1, chance=0)
    assert after.pause_us == obeyed * SECOND
    assert (after.pause_us or 0) <= HOUR
    assert policy().obeyed_s(None) is None


async def test_an_event_of_next_with_a_used_id_leaves_a_remark(database_url: str) -> None:
    app = Rota("sqlite://:memory:", **QUIET)
    line = app.automation("line", timezone="UTC")
    work = line.topic("work", external=True)
    digests = line.topic("digests")

    async def prepare(ctx: Context, state: Any) -> Prepared:
        return Prepared(await ctx.peek(work, limit=1))

    async def emit(ctx: Context, prepared: Prepared, mutation: MutationResult) -> None:
        if prepared.events:
            ctx.publish(digests, "digest", prepared.events[0].id)

    async def take(ctx: Context, state: Any) -> Prepared:
        return Prepared(await ctx.peek(digests))

    line.consumer("worker", subscribes=[work], publishes=[digests], prepare=prepare, next=emit)
    line.consumer("reader", subscribes=[digests], prepare=take)
    async with virtual(app, url=database_url) as world:
        await world.settle()
        for one in ("a", "b"):
            await app.automations.publish("line", "work", one, {})
            await world.settle()
        runs = [one.run for one in await app.automations.activity("line", limit=50)]
        remarks = [one.remark for one in reversed(runs) if one.handler == "worker" and one.prepared]
        assert [one for one in remarks if one] == [
            "1 event had a used id and changed nothing: digests/digest"
        ]
