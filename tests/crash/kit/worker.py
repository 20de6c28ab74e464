"""A worker process for load, contention and fault tests, and the workflows it executes.

`python -m tests.crash.kit.worker --database URL --effects FILE [--set NAME=VALUE ...]` works until
SIGTERM. It says `ready` once it has signed on. `--clock FILE` reads the wall clock's error (in
seconds) from a file, so that a test can step the clocks of several processes at once; `--deaf`
neither sends nor receives wake-ups.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import signal
import time
from pathlib import Path
from typing import Any

from rota import Rota, sleep
from rota.store.backend.database import Database
from tests.kit import Effects

# The lease is the usual one: a neighbour finds a dead process by its pid at the next heartbeat. A
# short lease would lapse while a busy machine keeps a living process waiting.
QUICK: dict[str, Any] = {
    "heartbeat_s": 0.3, "poll_s": 0.2, "stop_s": 5, "keep_days": 0, "recoveries_max": 1000,
}  # fmt: skip


def make_app(url: str, effects: Effects, **overrides: Any) -> Rota:  # noqa: C901
    """An app with small workflows that leave effects."""
    app = Rota(url, migrate=True, **(QUICK | overrides))

    @app.step
    async def note(label: str) -> str:
        return effects.add(label)

    @app.step
    async def busy(label: str, seconds: float) -> str:
        effects.add(label, "begin")
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            effects.add(label, "cancelled")
            raise
        effects.add(label, "end")
        return label

    @app.workflow
    async def two(label: str) -> list[str]:
        first = await note(f"{label}/note#0")
        return [first, await note(f"{label}/note#1")]

    @app.workflow
    async def long(label: str, seconds: float) -> str:
        return await busy(f"{label}/busy#0", seconds)

    @app.workflow
    async def nap(label: str, seconds: float) -> str:
        await sleep(seconds)
        return await note(f"{label}/note#0")

    @app.workflow
    async def parent(label: str, seconds: float) -> str:
        child = await app.start(long, f"{label}-child", seconds)
        result: str = await child.result()
        return result

    @app.workflow
    async def stubborn(label: str) -> str:
        try:
            await busy(label, 60)
        except asyncio.CancelledError:
            effects.add(label, "swallowed")
        await note(f"{label}/note#0")
        return "a result nobody wants"

    @app.workflow(queue="narrow")
    async def slot(label: str, seconds: float) -> None:
        await busy(label, seconds)

    return app


def deafen(database: Database) -> None:
    """Neither send nor receive wake-ups from now on."""

    async def listen(notified: object) -> None:
        return None

    async def notify(topics: object) -> None:
        return None

    database.notify_soon = lambda topic: None  # type: ignore[method-assign]
    database.notify = notify  # type: ignore[method-assign]
    database.listen = listen  # type: ignore[method-assign]


def follow_clock(path: Path) -> None:
    """Let this process's wall clock be wrong by what a file says (seconds)."""
    true_ns = time.time_ns

    def wrong_ns() -> int:
        return true_ns() + int(float(path.read_text() or 0) * 1e9)

    time.time_ns = wrong_ns


async def work(app: Rota, *, deaf: bool) -> None:
    """Work until SIGTERM."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await app.connect()
    if deaf:
        deafen(app.connection.database)
    await app.start_worker()
    print("ready", flush=True)  # noqa: T201
    await stop.wait()
    await app.close()


def main() -> None:
    """The child process."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--database", required=True)
    parser.add_argument("--effects", required=True)
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--limit", default="", help="limits of the queue `narrow`, as JSON")
    parser.add_argument("--clock", type=Path)
    parser.add_argument("--deaf", action="store_true")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    if options.clock:
        follow_clock(options.clock)
    chosen = {name: json.loads(value) for name, _, value in (s.partition("=") for s in options.set)}
    app = make_app(options.database, Effects(options.effects), **chosen)
    if options.limit:
        app.queue("narrow", **json.loads(options.limit))
    asyncio.run(work(app, deaf=options.deaf))


if __name__ == "__main__":
    main()
