"""A run that is undone: because it fails, is cancelled with a grace, or its time is over.

`python -m tests.crash.kit.saga_life --database URL --effects FILE --end HOW [--kill-at N]` starts
it, lets it end in that way and waits for the end. `--kill-at` is that of `workflow_life`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
from typing import Any

import rota
from rota import Rota, RunFailed, blocking, compensate, sleep, wait_for
from rota.errors import WrongState
from tests.crash.kit.workflow_life import QUICK, arm
from tests.kit import PATIENCE_S, Effects

BOOKED = 2
LABELS = {
    "fail": "failed:logic",
    "cancel": "cancelled:withdrawn",
    "timeout": "failed:timeout",
    "sync": "cancelled:withdrawn",
}


def make_app(url: str, effects: Effects) -> Rota:
    """An app with one trip in an async and in a sync form."""
    app = Rota(url, migrate=True, **QUICK)

    @app.step
    async def book(n: int) -> None:
        effects.add(f"book/{n}")

    @app.step
    async def undo(n: int) -> None:
        effects.add(f"undo/{n}")

    @app.step
    async def note(label: str) -> None:
        effects.add(label)

    @app.workflow(timeout="1d", cleanup="1h")
    async def trip(end: str) -> None:
        for n in range(BOOKED):
            compensate(undo, n)  # before the call: a killed worker may have made it
            await book(n)
        if end == "fail":
            await sleep(0.05)
            raise ValueError("no money")
        try:
            await wait_for("go")
        except (rota.Cancelled, rota.TimedOut):
            await note("clean/0")
            await sleep(0.05)
            await note("clean/1")
            raise

    @app.workflow
    def sync_trip(end: str) -> None:
        for n in range(BOOKED):
            compensate(undo, n)
            blocking.block_on(book.aio(n))
        try:
            blocking.wait_for("go")
        finally:
            blocking.block_on(note.aio("clean/0"))

    return app


async def live(url: str, effects: Effects, end: str) -> str:
    """Start the trip (again, for all we know), let it end, and return how it ended."""
    app = make_app(url, effects)
    async with app:
        name = "sync_trip" if end == "sync" else "trip"
        options: dict[str, Any] = {"timeout": 0.5} if end == "timeout" else {}
        run = await app.options(external_id=end, **options).start(name, end)
        if end in ("cancel", "sync"):
            while not (await run.status()).startswith(("sleeping", "cancelled")):
                await asyncio.sleep(0.01)
            with contextlib.suppress(WrongState):  # it has ended already
                await run.cancel(reason="withdrawn", grace="1h")
        with contextlib.suppress(RunFailed):
            await run.result(timeout=PATIENCE_S)
        return await run.status()


def main() -> None:
    """The child process."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--database", required=True)
    parser.add_argument("--effects", required=True)
    parser.add_argument("--end", choices=sorted(LABELS), required=True)
    parser.add_argument("--kill-at", type=int, default=0)
    options = parser.parse_args()
    if options.kill_at:
        arm(options.kill_at)
    label = asyncio.run(live(options.database, Effects(options.effects), options.end))
    assert label == LABELS[options.end], label


if __name__ == "__main__":
    main()
