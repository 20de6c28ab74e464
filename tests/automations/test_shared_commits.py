"""Handler runs of several automations that begin and end in one transaction."""

from __future__ import annotations

from typing import Any

from rota import Rota
from rota.automations import Context, Prepared
from rota.testing import virtual
from tests.automations.kit import QUIET, event_statuses, plain, sound, sql, statuses

NAMES = [f"mail-{number}" for number in range(4)]


def _app(stolen: str = "") -> Rota:
    """Automations that publish an event each and consume it; `stolen` loses its claim at work."""
    app = Rota("sqlite://:memory:", **QUIET)
    for name in NAMES:
        _declare(app, name, stolen == name)
    return app


def _declare(app: Rota, name: str, is_stolen: bool) -> None:
    automation = plain(app, name)
    topic = automation.topic("found")

    @automation.producer(every="1d", publishes=[topic])
    async def look(ctx: Context, state: int | None) -> int:
        if is_stolen:
            await sql(app, f"update runs set claim_count = claim_count + 1 where name = '{name}'"
                " and status = 'running'")  # fmt: skip
        ctx.publish(topic, f"{name}-1", 1)
        return (state or 0) + 1

    async def take(ctx: Context, state: Any) -> Prepared:
        return Prepared(await ctx.peek(topic))

    automation.consumer("read", subscribes=[topic], prepare=take)


async def test_runs_that_end_together_each_leave_what_is_theirs(database_url: str) -> None:
    app = _app()
    async with virtual(app, url=database_url) as world:
        await world.settle()
        for name in NAMES:
            assert await event_statuses(app, name) == {f"{name}-1": "consumed"}
            assert await statuses(app, name) == [
                "read committed committed", "look committed committed", "read committed committed",
            ]  # fmt: skip
        states = await sql(app, "select automation, state from handlers where kind = 'producer'")
        assert sorted(states) == [(name, "1") for name in NAMES]
        await sound(app)


async def test_a_run_that_lost_its_claim_leaves_nothing_and_its_neighbours_all(
    database_url: str,
) -> None:
    app = _app(stolen="mail-2")
    async with virtual(app, url=database_url) as world:
        await world.settle()
        for name in NAMES:
            wanted = {} if name == "mail-2" else {f"{name}-1": "consumed"}
            assert await event_statuses(app, name) == wanted
        [(phase,)] = await sql(app, "select phase from handler_runs where handler = 'look'"
            " and automation = 'mail-2'")  # fmt: skip
        assert phase == "executing"
        await sql(app, "update runs set claim_count = claim_count - 1 where name = 'mail-2'"
            " and status = 'running'")  # fmt: skip
        await sound(app)
