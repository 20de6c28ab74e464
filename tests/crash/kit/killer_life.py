"""One life of a worker that executes a run which kills the process, beside other runs.

python -m tests.crash.kit.killer_life URL EFFECTS
"""

from __future__ import annotations

import asyncio
import os
import sys

from rota import Rota
from tests.kit import Effects

NEIGHBOURS = 50
KILLED = 77  # the exit code of a life that the run ended


def make_app(url: str, effects: Effects) -> Rota:
    """The app of every life. The clock is real: the process really dies."""
    app = Rota(url, migrate=True, heartbeat_s=0.2, lease_s=5, keep_days=0, slots=120)
    under_way = 0

    @app.step
    async def work(number: int) -> None:
        nonlocal under_way
        under_way += 1
        effects.add("neighbour", str(number))
        await asyncio.sleep(0.05)  # the work that is in progress when the process dies
        under_way -= 1

    @app.workflow
    async def neighbour(number: int) -> int:
        await work(number)
        return number

    @app.step
    async def kill() -> None:
        effects.add("killer", str(under_way))
        os._exit(KILLED)

    @app.workflow(priority=-1)
    async def killer() -> None:
        await kill()

    return app


async def live(url: str, effects: Effects) -> None:
    """Work until nothing is open any more."""
    app = make_app(url, effects)
    async with app:
        while True:
            counts = await app.runs.counts()
            if not {"pending", "running", "sleeping"} & counts.keys():
                return
            await asyncio.sleep(0.02)


def main() -> None:
    """The child process."""
    asyncio.run(live(sys.argv[1], Effects(sys.argv[2])))


if __name__ == "__main__":
    main()
