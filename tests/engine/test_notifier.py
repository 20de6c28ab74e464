"""The notifier as a loop of a live worker."""

from __future__ import annotations

from rota import Fatal, Rota
from rota.notifications import Notification
from tests.engine.kit import eventually, live


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
