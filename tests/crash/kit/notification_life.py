"""A child process that runs a scheduled pipeline once, reports it, and is killed on the way.

`python -m tests.crash.kit.notification_life --database URL --root FOLDER [--kill-at N]`. Points
are counted from the last item on, so the first is before the commit by which the execution ends.
One that is not killed ends when nothing is open any more.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from datetime import UTC, datetime
from pathlib import Path

from rota import Rota
from rota.ai import Offline
from rota.core.time.instants import instant, iso, moment
from rota.pipelines.definition.loader import read_pipeline
from rota.pipelines.folder import schedule_sync
from rota.pipelines.folder.schedule_sync import Block
from rota.pipelines.folder.state_file import ScheduleState
from tests.crash.kit.command_life import nothing_open
from tests.crash.kit.workflow_life import QUICK, arm
from tests.kit import until

NAME = "yearly"
PIPELINE = """
name: Once a year
schedule:
  cron: "0 0 1 1 *"
  timezone: UTC
  notify:
    on_success: ["{url}/hook", {{command: "cat > told"}}]
    ping: "{url}/ping"
input:
  items: [{{title: one}}, {{title: two}}]
map:
  prompt: "About {{{{title}}}}"
reduce:
  type: list
"""


async def live(url: str, root: Path, kill_at: int) -> None:
    """Put the schedule in force, which is late for this year, and execute what follows."""
    app = Rota(url, migrate=True, **QUICK)
    app.pipelines.use(Offline())
    app.pipelines.know(NAME, root / NAME)
    app.pipelines.serve()
    await app.connect()
    if kill_at:
        app.pipelines.listen(lambda reported: arm(kill_at) if reported.phase == "ended" else None)
    now = app.clock.now()
    loaded = read_pipeline(root / NAME, now=now, host_zone="UTC")
    block = Block(NAME, app.settings.namespace, str(root), loaded)
    new_year = iso(instant(datetime(moment(now).year, 1, 1, tzinfo=UTC)))
    late = ScheduleState(schedule_id=NAME, pipeline_id=NAME, next_run=new_year)
    ids = app.ids.endless(now)
    await app.connection.database.write(schedule_sync.put, block, late, new_ids=ids, now=now)
    await app.start_worker()

    async def over() -> bool:
        assert app.runtime is not None
        if not (root / NAME / "told").exists() or not app.runtime.worker.idle:
            return False
        # One that is to be killed must not look: its looks would be points, without end.
        return bool(kill_at) or await nothing_open(app)

    await until(over)
    if kill_at:
        os._exit(0)  # all messages are sent; how a worker signs off is another story
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
