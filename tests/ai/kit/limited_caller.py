"""A child process that asks as fast as the limits of a store allow, and says when it did.

`python -m tests.ai.kit.limited_caller --database URL --out FILE --per-minute N --seconds S`
"""

from __future__ import annotations

import argparse
import asyncio
import time
from pathlib import Path

from rota.ai import limits as rules
from rota.ai.limits import Decision, Limits, State
from rota.ai.shared_limits import Shared
from rota.core.time.instants import SECOND
from rota.engine.clock import SystemClock
from rota.settings import Settings
from rota.store.backend.database import open_url

BURST_S = 0.5


async def ask(url: str, out: Path, per_minute: int, seconds: float) -> None:
    """Take turns until the time is over; one line for each, with the instant it was given at."""
    limits = Limits(requests_per_minute=per_minute, burst_s=BURST_S)
    clock = SystemClock()
    database = open_url(url, Settings())
    await database.open()
    keeper = Shared(database, clock, namespace="default", name="openai")
    end = time.monotonic() + seconds

    def step(state: State) -> tuple[State, tuple[int, Decision]]:
        now = clock.now()
        state, decision = rules.admit(limits, state, now=now, tokens=1)
        return state, (now, decision)

    async def one(lines: list[int]) -> None:
        while time.monotonic() < end:
            at, decision = await keeper.change(step)
            if decision.wait_us:
                await clock.wait(asyncio.Event(), clock.now() + decision.wait_us)
            else:
                lines.append(at)

    given: list[int] = []
    await asyncio.gather(*(one(given) for _ in range(4)))
    await database.close()
    out.write_text("".join(f"{at / SECOND:.6f}\n" for at in given))


def main() -> None:
    """Read the command line and ask."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--database", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--per-minute", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    given = parser.parse_args()
    asyncio.run(ask(given.database, given.out, given.per_minute, given.seconds))


if __name__ == "__main__":
    main()
