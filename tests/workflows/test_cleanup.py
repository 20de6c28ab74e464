"""A retry of a run repeats the failed step, even if the code cleaned up after the failure."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from rota import Rota, RunFailed, StepFailed, blocking, gather, sleep, wait_for
from rota.testing import held, virtual
from tests.workflows.kit import Shop, attempts, charge_with_cleanup, keys, result, sound


async def with_finally(shop: Shop) -> str:
    paid = None
    try:
        paid = await shop.charge()
        return paid
    finally:
        if paid is None:
            await shop.release()


async def with_own_error(shop: Shop) -> str:
    try:
        return await shop.charge()
    except StepFailed:
        await shop.release()
        raise ConnectionError("no payment") from None


async def with_context_manager(shop: Shop) -> str:
    class Reservation:
        async def __aenter__(self) -> None:
            pass

        async def __aexit__(self, kind: object, *_: object) -> None:
            if kind is not None:
                await shop.release()

    async with Reservation():
        return await shop.charge()


async def with_a_branch_inside(shop: Shop) -> str:
    async def clean_up() -> None:
        await shop.release()

    try:
        return await shop.charge()
    except StepFailed:
        await gather(clean_up(), sleep("1h"))
        raise


async def with_a_branch_around(shop: Shop) -> str:
    try:
        [paid] = await gather(with_nothing(shop))
        return paid
    except StepFailed:
        await shop.release()
        raise


async def with_a_task_group(shop: Shop) -> str:
    try:
        async with asyncio.TaskGroup() as group:
            paid = group.create_task(with_nothing(shop))
        return await paid
    except* StepFailed:
        await shop.release()
        raise


async def with_nothing(shop: Shop) -> str:
    return await shop.charge()


async def with_a_failure_of_the_cleanup(shop: Shop) -> str:
    try:
        return await shop.charge()
    except StepFailed:
        try:
            await shop.audit()
        except StepFailed:
            await shop.release()
        raise


FORMS: list[Callable[[Shop], Awaitable[str]]] = [
    charge_with_cleanup,
    with_finally,
    with_own_error,
    with_context_manager,
    with_a_branch_inside,
    with_a_branch_around,
    with_a_task_group,
]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
@pytest.mark.parametrize("failures", [1, 2])
async def test_a_retry_repeats_the_failed_step_and_its_cleanup(
    database_url: str, form: Callable[[Shop], Awaitable[str]], failures: int
) -> None:
    shop = Shop(failures)

    @shop.app.workflow(retries=failures)
    async def flow() -> str:
        await shop.reserve()
        return await form(shop)

    async with virtual(shop.app, url=database_url) as world:
        run = await shop.app.start(flow)
        await world.drain()
        assert await result(run) == "paid"
        assert shop.calls == ["reserve", *["charge", "release"] * failures, "charge"]
        await sound(shop.app)


async def test_the_record_of_a_cleanup_is_kept_under_its_attempt(database_url: str) -> None:
    shop = Shop()

    @shop.app.workflow(retries=1)
    async def flow() -> str:
        return await charge_with_cleanup(shop)

    async with virtual(shop.app, url=database_url) as world:
        run = await shop.app.start(flow)
        await world.drain()
        assert await result(run) == "paid"
        assert sorted(await keys(shop.app, run)) == ["charge#0", "release#0 (attempt 1)"]


async def test_a_failure_of_the_cleanup_that_was_caught_is_repeated_with_it(
    database_url: str,
) -> None:
    shop = Shop(2)

    @shop.app.workflow(retries=2)
    async def flow() -> str:
        return await with_a_failure_of_the_cleanup(shop)

    async with virtual(shop.app, url=database_url) as world:
        run = await shop.app.start(flow)
        await world.drain()
        assert await result(run) == "paid"
        first, second = ["charge", "audit", "release"], ["charge", "audit"]
        assert shop.calls == [*first, *second, "charge"]


async def test_a_cleanup_that_fails_is_repeated_before_the_step(database_url: str) -> None:
    """The cleanup has ended the attempt, so a retry continues there."""
    shop = Shop()

    @shop.app.workflow(retries=2)
    async def flow() -> str:
        try:
            return await shop.charge()
        except StepFailed:
            await shop.audit()
            raise

    async with virtual(shop.app, url=database_url) as world:
        run = await shop.app.start(flow)
        await world.drain()
        assert await result(run) == "paid"
        assert shop.calls == ["charge", "audit", "audit", "charge"]


async def test_a_child_of_the_cleanup_is_started_again(database_url: str) -> None:
    shop = Shop(2)

    @shop.app.workflow
    async def refund() -> None:
        await shop.release()

    @shop.app.workflow(retries=2)
    async def flow() -> str:
        try:
            return await shop.charge()
        except StepFailed:
            await refund()
            raise

    async with virtual(shop.app, url=database_url) as world:
        run = await shop.app.start(flow)
        await world.drain()
        assert await result(run) == "paid"
        assert shop.calls == ["charge", "release", "charge", "release", "charge"]


async def test_a_failed_child_is_tried_again_after_a_cleanup(database_url: str) -> None:
    shop = Shop()

    @shop.app.workflow
    async def payment() -> str:
        return await shop.charge()

    @shop.app.workflow(retries=1)
    async def flow() -> str:
        try:
            return await payment()
        except RunFailed:
            await shop.release()
            raise

    async with virtual(shop.app, url=database_url) as world:
        run = await shop.app.start(flow)
        await world.drain()
        assert await result(run) == "paid"
        assert shop.calls == ["charge", "release", "charge"]


async def test_a_signal_is_awaited_again_after_a_cleanup(database_url: str) -> None:
    shop = Shop()

    @shop.app.workflow(retries=1)
    async def flow() -> str:
        try:
            return str(await wait_for("answer", timeout="1h", type=str))
        except TimeoutError:
            await shop.release()
            raise

    async with virtual(shop.app, url=database_url) as world:
        run = await shop.app.start(flow)
        await world.advance("1h")
        await world.settle()
        await run.signal("answer", "yes")
        await world.drain()
        assert await result(run) == "yes"
        assert shop.calls == ["release"]


async def test_a_step_that_the_code_cancelled_is_repeated_after_a_cleanup(
    database_url: str,
) -> None:
    shop = Shop()
    begun: list[int] = []

    @shop.app.step
    async def slow() -> str:
        begun.append(1)
        if len(begun) == 1:
            with held():
                await asyncio.sleep(30)
        return "done"

    @shop.app.workflow(retries=1)
    async def flow() -> str:
        try:
            async with asyncio.timeout(0.05):
                return await slow()
        except TimeoutError:
            await shop.release()
            raise

    async with virtual(shop.app, url=database_url) as world:
        run = await shop.app.start(flow)
        await world.drain()
        assert await result(run) == "done"
        assert (len(begun), shop.calls) == (2, ["release"])


async def test_a_sync_workflow_repeats_the_failed_step_too(database_url: str) -> None:
    app = Rota()
    calls: list[str] = []

    @app.step
    def charge() -> str:
        calls.append("charge")
        if calls.count("charge") == 1:
            raise ConnectionError("down")
        return "paid"

    @app.step
    def release() -> None:
        calls.append("release")

    @app.workflow(retries=1)
    def flow() -> str:
        try:
            return charge()
        except StepFailed:
            blocking.sleep("1h")
            release()
            raise

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.drain()
        assert await result(run) == "paid"
        assert calls == ["charge", "release", "charge"]


async def test_a_retry_by_hand_repeats_the_failed_step_too(database_url: str) -> None:
    shop = Shop()

    @shop.app.workflow
    async def flow() -> str:
        return await with_finally(shop)

    async with virtual(shop.app, url=database_url) as world:
        run = await shop.app.start(flow)
        await world.drain()
        assert await run.status() == "failed:transient"
        await shop.app.runs.retry(run.id)
        await world.drain()
        assert await result(run) == "paid"
        assert shop.calls == ["charge", "release", "charge"]


async def test_a_fork_knows_nothing_of_a_forgotten_cleanup(database_url: str) -> None:
    shop = Shop()

    @shop.app.workflow(retries=1)
    async def flow() -> str:
        paid = await charge_with_cleanup(shop)
        await shop.alert()
        return paid

    async with virtual(shop.app, url=database_url) as world:
        run = await shop.app.start(flow)
        await world.drain()
        fork = await shop.app.runs.fork(run.id, from_step="alert#0")
        await world.drain()
        assert await result(fork) == "paid"
        assert shop.calls == ["charge", "release", "charge", "alert", "alert"]


async def test_a_cleanup_that_was_interrupted_continues(database_url: str) -> None:
    """A replay inside the attempt repeats neither the failed step nor the cleanup before it."""
    shop = Shop()

    @shop.app.workflow(retries=1)
    async def flow() -> str:
        try:
            return await shop.charge()
        except StepFailed:
            await shop.release()
            await sleep("1h")
            await shop.alert()
            raise

    async with virtual(shop.app, url=database_url) as world:
        run = await shop.app.start(flow)
        await world.drain()
        assert await result(run) == "paid"
        assert shop.calls == ["charge", "release", "alert", "charge"]
        assert [row[0] for row in await attempts(shop.app, run)] == [1, 2]
