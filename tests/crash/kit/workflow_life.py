"""The story that crash tests kill at every commit: an app, and a child process that lives it.

`python -m tests.crash.kit.workflow_life --database URL --effects FILE --order NAME [--kill-at N]`
starts one order, signals it and waits for its result. With `--kill-at` the process ends by
SIGKILL at the Nth point it reaches, before or after a commit.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import os
import signal
from typing import Any

from rota import (
    RetryPolicy,
    Rota,
    StepFailed,
    Transient,
    faults,
    gather,
    sleep,
    this_run,
    wait_for,
)
from rota.errors import WrongState
from tests.kit import PATIENCE_S, Effects

# The usual lease: see `tests.crash.kit.worker`.
QUICK: dict[str, Any] = {
    "heartbeat_s": 0.5, "poll_s": 0.2, "stop_s": 5, "slots": 8, "keep_days": 0,
    "recoveries_max": 1000,
}  # fmt: skip
AGAIN = RetryPolicy(attempts=4, delay_s=0.02, factor=1)


def _delivery(app: Rota, effects: Effects) -> tuple[Any, Any]:
    """A step that fails in the first attempt of its run, and its cleanup."""

    @app.step
    async def deliver(label: str, attempt: int) -> str:
        effects.add(label)
        if attempt == 1:
            raise Transient("the first attempt always fails")
        return label

    @app.step
    async def undo(label: str) -> None:
        effects.add(label)

    return deliver, undo


def make_app(url: str, effects: Effects, **overrides: Any) -> Rota:
    """An app with a workflow that uses everything: steps, sleep, child, retries, signal, gather,
    and a cleanup after a failed step."""
    app = Rota(url, migrate=True, **(QUICK | overrides))

    @app.step
    async def note(label: str) -> str:
        effects.add(label)
        return label

    @app.step
    def part(label: str) -> str:
        effects.add(label)
        return label

    @app.step(retries=AGAIN)
    async def shaky(label: str) -> str:
        effects.add(label)
        if effects.count(label) == 1:
            raise Transient("the first try always fails")
        return label

    deliver, undo = _delivery(app, effects)

    @app.workflow
    async def pack(order: str) -> str:
        first = await note(f"pack/{order}/note#0")
        await sleep(0.03)
        second = await note(f"pack/{order}/note#1")
        return f"{first} {second}"

    @app.workflow(retries=AGAIN)
    async def fulfil(order: str) -> list[str]:
        said = [await note(f"fulfil/{order}/note#0")]
        await sleep(0.05)
        said += await gather(*(part.aio(f"fulfil/{order}/part#{n}") for n in range(3)))
        said.append(await shaky(f"fulfil/{order}/shaky#0"))
        said.append(await pack(order))
        said.append(await wait_for("paid"))
        try:
            said.append(await deliver(f"fulfil/{order}/deliver#0", this_run().attempt))
        except StepFailed:
            await undo(f"fulfil/{order}/undo#0")
            raise
        said.append(await note(f"fulfil/{order}/note#1"))
        return said

    return app


def expected(order: str) -> list[str]:
    """The right result of an order."""
    own = f"fulfil/{order}"
    return [
        f"{own}/note#0",
        *(f"{own}/part#{n}" for n in range(3)),
        f"{own}/shaky#0",
        f"pack/{order}/note#0 pack/{order}/note#1",
        "with a card",
        f"{own}/deliver#0",
        f"{own}/note#1",
    ]


def arm(kill_at: int) -> None:
    """End this process by SIGKILL at the Nth point it reaches."""
    reached = itertools.count(1)

    def strike(point: str) -> None:
        if next(reached) == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    faults.strike = strike


async def live(url: str, effects: Effects, order: str) -> list[str]:
    """Start the order (again, for all we know), pay for it and return its result."""
    app = make_app(url, effects)
    async with app:
        run = await app.options(external_id=order).start("fulfil", order)
        with contextlib.suppress(WrongState):  # it has ended already
            await run.signal("paid", "with a card")
        result: list[str] = await run.result(timeout=PATIENCE_S)
        return result


def main() -> None:
    """The child process."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--database", required=True)
    parser.add_argument("--effects", required=True)
    parser.add_argument("--order", required=True)
    parser.add_argument("--kill-at", type=int, default=0)
    options = parser.parse_args()
    if options.kill_at:
        arm(options.kill_at)
    result = asyncio.run(live(options.database, Effects(options.effects), options.order))
    assert result == expected(options.order), result


if __name__ == "__main__":
    main()
