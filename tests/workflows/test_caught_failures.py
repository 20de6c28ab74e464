"""Which failures a retry of a run repeats: those in branches, and none that the code caught."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from rota import StepFailed, gather, sleep
from rota.testing import virtual
from tests.workflows.kit import Shop, charge_with_cleanup, result, sound


async def test_steps_that_a_gather_cancelled_are_repeated_with_the_failed_one(
    database_url: str,
) -> None:
    shop = Shop()
    begun: list[int] = []

    @shop.app.step
    async def slow() -> str:
        begun.append(1)
        if len(begun) == 1:
            await asyncio.sleep(30)
        return "packed"

    @shop.app.workflow(retries=1)
    async def flow() -> list[str]:
        try:
            return await gather(shop.charge(), slow())
        except StepFailed:
            await shop.release()
            raise

    async with virtual(shop.app, url=database_url) as world:
        run = await shop.app.start(flow)
        await world.drain()
        assert await result(run) == ["paid", "packed"]
        assert (len(begun), shop.calls) == (2, ["charge", "release", "charge"])


async def test_branches_that_clean_up_by_themselves_are_repeated(database_url: str) -> None:
    """One branch fails, the other one is cancelled: both clean up."""
    shop = Shop()
    done: list[str] = []

    @shop.app.step
    async def note(what: str) -> None:
        done.append(what)

    @shop.app.step
    async def slow() -> str:
        if "slow" not in done:
            done.append("slow")
            await asyncio.sleep(30)
        return "packed"

    async def pack() -> str:
        packed = None
        try:
            packed = await slow()
            return packed
        finally:
            if packed is None:
                await note("unpack")

    @shop.app.workflow(retries=1)
    async def flow() -> list[str]:
        return await gather(charge_with_cleanup(shop), pack())

    async with virtual(shop.app, url=database_url) as world:
        run = await shop.app.start(flow)
        await world.drain()
        assert await result(run) == ["paid", "packed"]
        assert (done, shop.calls) == (["slow", "unpack"], ["charge", "release", "charge"])
        await sound(shop.app)


async def test_a_completed_step_beside_the_cleanup_is_not_repeated(database_url: str) -> None:
    shop = Shop()

    @shop.app.workflow(retries=1)
    async def flow() -> str:
        reserved = asyncio.create_task(later(shop))
        try:
            return await shop.charge()
        except StepFailed:
            await reserved
            await shop.release()
            raise

    async def later(shop: Shop) -> None:
        await sleep("1h")
        await shop.reserve()

    async with virtual(shop.app, url=database_url) as world:
        run = await shop.app.start(flow)
        await world.drain()
        assert await result(run) == "paid"
        assert shop.calls == ["charge", "reserve", "release", "charge"]


# -- failures that the code really caught ----------------------------------------------------------


async def after_a_fallback(shop: Shop) -> Any:
    try:
        await shop.charge()
    except StepFailed:
        await shop.release()
    await shop.audit()


async def in_the_fallback(shop: Shop) -> Any:
    try:
        await shop.charge()
    except StepFailed:
        await shop.release()
        await shop.audit()


async def by_another_error(shop: Shop) -> Any:
    try:
        await shop.charge()
    except StepFailed:
        await shop.release()
    if "trip" not in shop.calls:
        shop.calls.append("trip")
        raise OSError("disk full")


@pytest.mark.parametrize(
    ("form", "calls"),
    [
        (after_a_fallback, ["charge", "release", "audit", "audit"]),
        (in_the_fallback, ["charge", "release", "audit", "audit"]),
        (by_another_error, ["charge", "release", "trip"]),
    ],
)
async def test_a_failure_that_was_caught_stays(
    database_url: str, form: Callable[[Shop], Awaitable[Any]], calls: list[str]
) -> None:
    shop = Shop(9)

    @shop.app.workflow(retries=1)
    async def flow() -> None:
        await form(shop)

    async with virtual(shop.app, url=database_url) as world:
        run = await shop.app.start(flow)
        await world.drain()
        assert await run.status() == "completed"
        assert shop.calls == calls


async def test_an_error_that_is_raised_after_other_steps_repeats_nothing(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The later steps have completed: a retry must not execute them again, so it is logged."""
    shop = Shop()

    @shop.app.workflow(retries=1)
    async def flow() -> None:
        failed = None
        try:
            await shop.charge()
        except StepFailed as error:
            failed = error
        await shop.alert()
        if failed is not None:
            raise failed

    async with virtual(shop.app, url=database_url) as world:
        run = await shop.app.start(flow)
        await world.drain()
        assert await run.status() == "failed:transient"
    assert shop.calls == ["charge", "alert"]
    assert "the failure of charge#0 counts as caught" in caplog.text
