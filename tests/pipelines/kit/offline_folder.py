"""A folder of pipelines with schedules, run by a real app in virtual time; the AI is offline.

Virtual time begins on Tuesday, 2030-01-01, at midnight in UTC.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from rota import Rota
from rota.ai import Offline, Prices, Reply, Request
from rota.core.runs.stored_errors import read_error
from rota.errors import Rejected
from rota.pipelines.folder import schedule_sync
from rota.pipelines.folder.schedule_sync import Block
from rota.testing import World, virtual
from tests.pipelines.kit import load
from tests.schedules.kit import sound

PIPELINE = """
name: {name}
schedule:
  timezone: UTC
  retryPolicy: {{maxRetries: 0}}
{schedule}
input:
  items: [{items}]
map:
  prompt: "{name} {{{{title}}}}"
reduce:
  type: list
"""


def written(name: str, schedule: str, titles: Sequence[str] = ("one",)) -> str:
    """The text of a pipeline with this schedule block."""
    lines = "\n".join(f"  {line}" for line in schedule.splitlines())
    items = ", ".join(f"{{title: {title}}}" for title in titles)
    return PIPELINE.format(name=name, schedule=lines, items=items)


class OfflineWorld:
    """A folder of pipelines with an app that runs them in virtual time."""

    def __init__(self, root: Path, world: World, app: Rota) -> None:
        self.root, self.world, self.app = root, world, app
        self.rows: dict[str, str] = {}
        self.asked: list[str] = []
        self.broken: set[str] = set()
        self.answers = asyncio.Event()  # while it is not set, the model does not answer
        self.answers.set()

    async def add(self, name: str, schedule: str, *, titles: Sequence[str] = ("one",)) -> None:
        """A pipeline, its schedule in force."""
        loaded = load(self.root / name, written(name, schedule, titles))
        block = Block(f"{name}-1", self.app.settings.namespace, str(self.root), loaded)
        now = self.app.clock.now()
        ids = self.app.ids.endless(now)
        synced = await self.app.connection.database.write(
            schedule_sync.put, block, None, new_ids=ids, now=now
        )
        self.rows[name] = synced.row.id
        self.app.pipelines.know(name, self.root / name)
        assert self.app.runtime is not None
        self.app.runtime.scheduler.poll()

    async def ends(self, name: str) -> list[str]:
        """The outcomes of its occurrences, oldest first."""
        runs = await self.app.schedules.history(f"{name}-1", limit=100)
        return [run.label for run in reversed(runs)]

    async def reason(self, name: str) -> str:
        """The sentence of the last one."""
        [run, *_] = await self.app.schedules.history(f"{name}-1", limit=1)
        return read_error(run.error)["message"]

    def receive(self, prompt: str) -> None:
        """Note which pipeline asks, and fail for pipelines and items that are broken."""
        self.asked.append(prompt.split(maxsplit=1)[0])
        if self.broken & set(prompt.split()):
            raise Rejected("not now")


@contextlib.asynccontextmanager
async def offline_world(
    url: str, root: Path, app: Rota | None = None
) -> AsyncIterator[OfflineWorld]:
    """The yard of one test; sound when it is left."""
    app = app or Rota(keep_days=0)
    app.pipelines.serve()
    async with virtual(app, url=url) as world:
        place = OfflineWorld(root, world, app)
        app.pipelines.use(Model(place))
        yield place
        await sound(app)


class Model(Offline):
    """Answers as the yard says; a million tokens cost a thousand dollars in, and two out."""

    def __init__(self, place: OfflineWorld) -> None:
        super().__init__(prices=Prices({"offline:*": [1000.0, 2000.0]}))
        self._place = place

    async def ask(self, request: Request) -> Reply:
        """Ask the yard first."""
        self._place.receive(request.prompt)
        await self._place.answers.wait()
        return await super().ask(request)
