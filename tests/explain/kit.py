"""The kit of the tests of `why`: an app with a workflow for every way to wait, and the question."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

from rota import NeedsLogin, Rota, sleep, wait_for
from rota.core.runs.model import Queue
from rota.explain.schedule import Explanation
from rota.explain.why import why
from rota.store.runs import workers
from rota.testing import held

NOON = datetime(2027, 3, 1, 12, tzinfo=UTC)
BERLIN = "Europe/Berlin"


def make() -> Rota:
    app = Rota("sqlite://:memory:", keep_days=0)

    @app.workflow
    async def works() -> str:
        return "done"

    @app.workflow
    async def fails() -> None:
        raise ValueError("disk full")

    @app.workflow
    async def naps(long: str = "90m") -> None:
        await sleep(long)

    @app.workflow
    async def asks() -> str:
        return await wait_for("answer", type=str)

    @app.workflow
    async def login() -> None:
        raise NeedsLogin("expired")

    @app.workflow
    async def parent() -> None:
        await naps()

    @app.step
    async def is_at_work() -> None:
        with held():
            await asyncio.Event().wait()

    @app.workflow(queue="mail")
    async def holds() -> None:
        await is_at_work()

    return app


async def ask(app: Rota, name: str, at: str | None = None) -> Explanation:
    """The answer, which is always one sentence."""
    found = await why(app, name, at=None if at is None else datetime.fromisoformat(at))
    assert found.sentence.endswith(".")
    assert ". " not in found.sentence, "one sentence"
    assert found.facts
    return found


async def limit(app: Rota, **limits: Any) -> None:
    """Declare limits of queue mail, as a worker would."""
    queue = Queue(app.settings.namespace, "mail", **limits)
    await app.connection.database.write(workers.put_queues, [queue])
