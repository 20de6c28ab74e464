"""The notification loop as a loop of a live worker."""

from __future__ import annotations

from typing import Any

from rota import Fatal, Rota
from rota.notifications import Notification
from rota.testing import virtual
from tests.engine.kit import eventually, live
from tests.kit.writes import replace_writes


async def test_a_live_worker_sends_without_a_poll(database_url: str) -> None:
    app = Rota(keep_days=0)
    seen: list[str] = []

    @app.on_notification("failed")
    async def noted(notification: Notification) -> None:
        seen.append(notification.name)

    @app.workflow
    async def order() -> None:
        raise Fatal("sold out")

    async with live(app, database_url, queues=["default"]):
        await order.start()
        await eventually(lambda: seen == ["order"])


async def test_a_poll_between_the_commit_of_a_tick_and_its_answer_is_not_lost(
    database_url: str,
) -> None:
    app = Rota(keep_days=0)

    @app.on_notification("failed")
    async def noted(notification: Notification) -> None: ...

    async with virtual(app, url=database_url):
        assert app.runtime is not None
        for loop in (app.runtime.notification_loop, app.runtime.scheduler):
            assert loop is not None
            await loop.tick()
            assert loop.next_at is None
            await _tick_with_a_poll_at_its_end(app, loop)
            assert loop.next_at == 0


async def _tick_with_a_poll_at_its_end(app: Rota, loop: Any) -> None:
    database = app.connection.database
    write = database.write

    async def polled(function: Any, *args: Any, **kwargs: Any) -> Any:
        value = await write(function, *args, **kwargs)
        loop.poll()
        return value

    replace_writes(database, polled)
    await loop.tick()
    replace_writes(database, write)
