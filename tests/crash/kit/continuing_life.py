"""A story with continuations that crash tests kill at every commit.

`python -m tests.crash.kit.continuing_life --database URL --effects FILE [--kill-at N]` starts a
parent with a child that continues as new, sends the child its signals and waits for the result.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
from typing import Any

import rota
from rota import Rota, sleep, wait_for
from rota.errors import UnknownRun, WrongState
from tests.crash.kit.workflow_life import AGAIN, QUICK, arm
from tests.kit import PATIENCE_S, Effects

SEGMENTS = 4


def make_app(url: str, effects: Effects, **overrides: Any) -> Rota:
    """An app with a parent, and a child that continues as new after each signal; its third segment
    takes two attempts."""
    app = Rota(url, migrate=True, **(QUICK | overrides))

    @app.step
    async def note(label: str) -> str:
        effects.add(label)
        return label

    @app.workflow(retries=AGAIN)
    async def count(n: int, seen: list[int]) -> list[int]:
        await note(f"count/{n}/note#0")
        while len(seen) <= n:
            # A restarted sender sends its signals again.
            told = await wait_for("n", type=int)
            seen = sorted({*seen, told})
        await sleep(0.02)
        if n == 2 and rota.this_run().attempt == 1:
            raise ConnectionError("the first attempt of this segment fails")
        if n < SEGMENTS - 1:
            raise rota.continue_as_new(n + 1, seen)
        return seen

    @app.workflow
    async def elder() -> list[int]:
        child = await app.options(external_id="child").start(count, 0, [])
        return await child.result()

    return app


async def live(url: str, effects: Effects) -> list[int]:
    """Start the elder (again, for all we know), send the signals and return its result."""
    app = make_app(url, effects)
    async with app:
        run = await app.options(external_id="elder").start("elder")
        await _send_signals(app)
        result: list[int] = await run.result(timeout=PATIENCE_S)
        return result


async def _send_signals(app: Rota) -> None:
    n = 0
    async with asyncio.timeout(PATIENCE_S):
        while n < SEGMENTS:
            try:
                with contextlib.suppress(WrongState):  # it has ended already
                    await app.runs.signal("child", "n", n)
                n += 1
            except UnknownRun:  # the elder has not started it yet
                await asyncio.sleep(0.02)


def main() -> None:
    """The child process."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--database", required=True)
    parser.add_argument("--effects", required=True)
    parser.add_argument("--kill-at", type=int, default=0)
    options = parser.parse_args()
    if options.kill_at:
        arm(options.kill_at)
    result = asyncio.run(live(options.database, Effects(options.effects)))
    assert result == list(range(SEGMENTS)), result


if __name__ == "__main__":
    main()
