"""A commit that succeeded, with an answer that never arrived: the write is sent again."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from rota import Client, Rota, sleep, wait_for
from rota.errors import StoreUnreachable
from rota.store.runs import signals
from rota.store.runs.settle import settle_and_claim
from tests.kit import broken
from tests.kit.writes import replace_writes

QUICK: dict[str, Any] = {"lease_s": 20, "heartbeat_s": 0.3, "poll_s": 0.2, "migrate": True}


def lose_answers(app: Rota, lost: Callable[[Any, tuple[Any, ...], Any], bool]) -> None:
    """Make `app` lose the answers to those writes for which `lost(function, args, value)`."""
    write = app.connection.database.write

    async def losing(function: Any, *args: Any, **kwargs: Any) -> Any:
        value = await write(function, *args, **kwargs)
        if lost(function, args, value):
            raise StoreUnreachable("the answer was lost")
        return value

    replace_writes(app.connection.database, losing)


async def test_a_signal_taken_by_a_write_whose_answer_was_lost_still_arrives(
    database_url: str,
) -> None:
    app = Rota(database_url, **QUICK)
    losses: list[str] = []

    def first_taken(function: Any, args: Any, value: Any) -> bool:
        if function is not signals.await_signal or value.status != "completed" or losses:
            return False
        losses.append(value.output)
        return True

    @app.workflow
    async def listens() -> list[int]:
        return [await wait_for("word"), await wait_for("word")]

    async with app:
        lose_answers(app, first_taken)
        run = await app.start(listens)
        await run.signal("word", 1)
        await run.signal("word", 2)
        try:
            assert await run.result(timeout=60) == [1, 2]
        finally:
            with contextlib.suppress(Exception):
                await run.cancel()
    assert losses == ["1"]


async def test_a_run_claimed_again_in_the_lost_answer_to_its_own_settlement_goes_on_at_once(
    database_url: str,
) -> None:
    # One slot: the worker settles the suspension and claims the next run in the same commit. The
    # next run is the same one, because a signal came meanwhile.
    app = Rota(database_url, slots=1, **QUICK)
    losses: list[int] = []

    @app.workflow
    async def listens() -> int:
        value: int = await wait_for("word")
        return value

    async with app, Client(database_url, migrate=True) as outside:
        write = app.connection.database.write

        async def losing(function: Any, *args: Any, **kwargs: Any) -> Any:
            suspends = function is settle_and_claim and args[0][0].verb == "suspend"
            if suspends and not losses:
                await outside.runs.signal(run.id, "word", 5)
            value = await write(function, *args, **kwargs)
            if suspends and not losses:
                losses.append(len(value[1].claims))
                raise StoreUnreachable("the answer was lost")
            return value

        replace_writes(app.connection.database, losing)
        run = await outside.start("listens")
        # Long before the lease lapses, and without a crash in its history.
        assert await outside.runs.handle(run.id).result(timeout=60) == 5
        assert [attempt.status for attempt in await outside.runs.chain(run.id)] == ["completed"]
    assert losses == [1]


@pytest.mark.parametrize("nth", range(1, 31))
async def test_each_single_lost_answer_changes_nothing(database_url: str, nth: int) -> None:
    app = Rota(database_url, slots=2, **QUICK)
    executed: list[str] = []
    seen = 0

    def is_nth(function: Any, args: Any, value: Any) -> bool:
        nonlocal seen
        seen += 1
        return seen == nth

    @app.step
    async def note(label: str) -> str:
        executed.append(label)
        return label

    @app.workflow
    async def child(label: str) -> str:
        return await note(label)

    @app.workflow
    async def reports(name: str) -> list[str]:
        said = [await note(f"{name}-first")]
        await sleep(0.02)
        said.append(await child(f"{name}-child"))
        said.append(await wait_for("word"))
        said.append(await note(f"{name}-last"))
        return said

    async with app:
        names = ["a", "b", "c"]
        reported = [await app.start(reports, name) for name in names]
        for run in reported:
            await run.signal("word", "word")
        lose_answers(app, is_nth)
        results = await asyncio.gather(*(run.result(timeout=60) for run in reported))
        assert results == [[f"{n}-first", f"{n}-child", "word", f"{n}-last"] for n in names]
    assert sorted(executed) == sorted(f"{n}-{s}" for n in names for s in ("first", "child", "last"))
    assert await broken(database_url) == []
