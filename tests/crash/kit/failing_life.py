"""A child process in which a run fails and a rule sends a message about it, killed on the way.

`python -m tests.crash.kit.failing_life --database URL --root FOLDER [--kill-at N]`. Points are
counted from the failure on, so the first is before the commit that settles the run. A child that
is not killed ends when the message is sent and nothing is open any more.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from pathlib import Path

from rota import Fatal, Rota
from tests.crash.kit.command_life import nothing_open
from tests.crash.kit.workflow_life import QUICK, arm
from tests.kit import until


async def live(url: str, root: Path, kill_at: int) -> None:
    """Start the run, unless it exists, and execute what follows."""
    app = Rota(url, migrate=True, **QUICK)
    sent = root / "sent"
    app.notify("file", command=f"cat >> '{sent}'; echo >> '{sent}'")

    @app.workflow
    async def order() -> None:
        if kill_at:
            arm(kill_at)
        raise Fatal("sold out")

    await app.start_worker()
    await app.options(external_id="order-1").start("order")

    async def over() -> bool:
        assert app.runtime is not None
        if not sent.exists() or not app.runtime.worker.idle:
            return False
        # One that is to be killed must not look: its looks would be points, without end.
        return bool(kill_at) or await nothing_open(app)

    await until(over)
    if kill_at:
        os._exit(0)
    await app.close()


def main() -> None:
    """The child process."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--database", required=True)
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--kill-at", type=int, default=0)
    options = parser.parse_args()
    asyncio.run(live(options.database, options.root, options.kill_at))


if __name__ == "__main__":
    main()
