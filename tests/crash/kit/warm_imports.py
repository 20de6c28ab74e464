"""Only the server of forks imports it. Otherwise every life would import these modules itself, and
compute again what Rota keeps after its first run: queries, fingerprints, types. Both cost many
times as much as living.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import tempfile
from importlib import import_module
from pathlib import Path

from rota.net import http
from rota.store.backend import queries
from tests.crash.kit import automation_life, pipeline_life, schedule_life, workflow_life
from tests.kit import Effects

for name in (
    "anyio._backends._asyncio",
    "httpcore2",
    "rota.store.backend.postgres",
    "rota.store.backend.sqlite",
    "rota.tools.sql_postgres",
    "rota.tools.sql_sqlite",
    "rota.pipelines.run.runner",
    "tests.ai.kit.limited_caller",
    "tests.crash.kit.budget_life",
    "tests.crash.kit.command_life",
    "tests.crash.kit.failing_life",
    "tests.crash.kit.killer_life",
    "tests.crash.kit.notification_life",
    "tests.crash.kit.worker",
    "tests.crash.schedulers",
    "tests.tools.kit.child",
):
    import_module(name)
MEMORY = "sqlite://:memory:"


async def live_each_once(folder: Path) -> None:
    """One life of each kind, in memory."""
    life = automation_life.Life(MEMORY, "warm", "append", {"folder": str(folder)}, folder)
    await automation_life.live(life)
    await workflow_life.live(MEMORY, Effects(folder / "workflow"), "warm")
    effects = Effects(folder / "pipeline")
    await pipeline_life.live(MEMORY, effects, folder / "story", pipeline_life.TEXT)
    await schedule_life.report(MEMORY, "fire")


http._trust()  # reads the certificates of the machine
queries.texts("postgres")
logging.disable(logging.CRITICAL)
with tempfile.TemporaryDirectory() as temporary:
    asyncio.run(live_each_once(Path(temporary)))
logging.disable(logging.NOTSET)
# The collector of a fork would write to each of these objects, and so copy its page.
gc.collect()
gc.freeze()
