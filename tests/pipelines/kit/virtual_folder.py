"""A folder of pipelines and the daemon that looks after it, on virtual time.

The loops are the real ones; time passes only when the test says so, or slowly while it waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import textwrap
import time
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rota import Rota
from rota.ai.base import Reply, Request
from rota.ai.offline import Offline
from rota.core.time.instants import Duration, micros
from rota.pipelines.folder.scheduler import PipelineScheduler
from rota.testing import VirtualClock

START = datetime(2030, 1, 1, tzinfo=UTC)  # a Tuesday

DAILY = """
name: Daily
schedule:
  cron: "0 9 * * *"
  timezone: UTC
input:
  items:
    - {title: one}
    - {title: two}
map:
  prompt: "About {{title}}"
reduce:
  type: list
"""

JOB = """
name: Job
schedule:
  cron: "0 9 * * *"
  timezone: UTC
  retryPolicy: {maxRetries: 2, retryDelayMs: 60000}
job:
  prompt: "Say hello"
"""


def block(text: str, **more: Any) -> str:
    """The pipeline with more lines in its schedule block, as JSON is YAML."""
    lines = "".join(f"  {key}: {json.dumps(value)}\n" for key, value in more.items())
    return text.replace("  timezone: UTC\n", "  timezone: UTC\n" + lines)


class Gated(Offline):
    """A model that answers when the gate is open; `asked_now` counts who is before it."""

    def __init__(self, *replies: str | Exception) -> None:
        super().__init__(replies=list(replies))
        self.gate = asyncio.Event()
        self.gate.set()
        self.waiting = 0

    async def ask(self, request: Request) -> Reply:
        self.waiting += 1
        try:
            await self.gate.wait()
        finally:
            self.waiting -= 1
        return await super().ask(request)


class FolderWorld:
    """One folder, one database, one clock; daemons come and go."""

    def __init__(self, root: Path, url: str, *, start: datetime = START) -> None:
        self.root = root / "pipelines"
        self.root.mkdir(parents=True, exist_ok=True)
        self.url = url
        self.clock = VirtualClock(start)
        self.model = Gated()
        self.events: list[Any] = []

    # -- files -----------------------------------------------------------------------------

    def write(self, name: str, text: str) -> Path:
        """Write a pipeline; its folder."""
        folder = self.root / name
        folder.mkdir(exist_ok=True)
        (folder / "pipeline.yaml").write_text(textwrap.dedent(text).lstrip("\n"))
        return folder

    def state(self, name: str) -> dict[str, Any]:
        """The state file of a pipeline."""
        found: dict[str, Any] = json.loads((self.root / name / ".schedule-state.json").read_text())
        return found

    def total(self, name: str) -> int:
        """How many executions its state file counts."""
        if not (self.root / name / ".schedule-state.json").exists():
            return 0
        return int(self.state(name)["stats"]["totalRuns"])

    def has_run(self, name: str, times: int) -> bool:
        """Whether its state file counts so many executions."""
        return self.total(name) == times

    # -- daemons ---------------------------------------------------------------------------

    def app(self) -> Rota:
        """An app on this house's database and clock."""
        app = Rota(self.url, clock=self.clock, migrate=True)
        app.pipelines.use(self.model)
        return app

    def scheduler(self, app: Rota, **options: Any) -> PipelineScheduler:
        """A scheduler that is not started yet; what it tells is kept in `events`."""
        made = PipelineScheduler(app, self.root, **options)
        made.on("*", self.events.append)
        return made

    @contextlib.asynccontextmanager
    async def daemon(self, **options: Any) -> AsyncIterator[PipelineScheduler]:
        """A scheduler that runs, and is stopped in the end."""
        app = self.app()
        made = self.scheduler(app, **options)
        try:
            await made.start()
            yield made
        finally:
            self.model.gate.set()
            await made.stop(0)
            await app.close()

    # -- time ------------------------------------------------------------------------------

    def pass_time(self, duration: Duration) -> None:
        """Time has passed, all at once."""
        self.clock.move_to(self.clock.now() + micros(duration))

    async def until(self, condition: Callable[[], Any], timeout_s: float = 60) -> None:
        """Let a little time pass, again and again, until something is so."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < deadline, f"never so; told: {self.reported()}"
            self.clock.move_to(self.clock.now() + 100_000)
            await asyncio.sleep(0.01)

    async def tick(self, scheduler: PipelineScheduler, times: int = 3) -> None:
        """Let the files be looked at so many times, half a second apart."""
        for _ in range(times):
            self.clock.move_to(self.clock.now() + 500_000)
            await scheduler.look()

    # -- notifications ---------------------------------------------------------------------

    def reported(self, *names: str) -> list[Any]:
        """The events so far by name, or those of these names."""
        return [e.name for e in self.events] if not names else self.of(*names)

    def of(self, *names: str) -> list[Any]:
        """The events of these names."""
        return [event for event in self.events if event.name in names]

    def changes(self) -> list[tuple[str, str]]:
        """Which schedules changed, and how."""
        return [(event.pipeline_id, event.change) for event in self.of("schedule:changed")]
