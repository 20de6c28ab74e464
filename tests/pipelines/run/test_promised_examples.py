"""The pipelines that the format was promised with, run as they are written, and fired by time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rota import Rota
from rota.ai.offline import Offline
from rota.pipelines import snapshot
from rota.pipelines.definition.loader import read_pipeline
from rota.pipelines.folder.schedule_sync import Block, new_schedule
from rota.store.schedules import templates as store
from rota.testing import virtual
from tests.ai.kit.model_server import Model
from tests.pipelines.kit import write
from tests.pipelines.kit.documents import (
    DAILY,
    QUEUES,
    WEEKLY,
)
from tests.pipelines.kit.live_app import says, world


def knowing(prompt: str) -> Any:
    first = prompt.splitlines()[0]
    if first.startswith("Categorize"):
        return {"severity": "high" if "down" in first else "low", "category": "ops"}
    if first.startswith("Sync"):
        return {"status": "ok", "records_synced": len(first)}
    return {"depth": 7 if "standard" in first else 0, "oldest_message_age": "5 min"}


async def test_the_daily_report_runs_unchanged(database_url: str, tmp_path: Path) -> None:
    folder = write(tmp_path / "daily-report", DAILY)
    (folder / "bugs.csv").write_text('id,title\n1,"Site, down"\n2,Typo\n')
    async with world(database_url, tmp_path, Model(answer=says(knowing))) as it:
        result = await (await it.app.pipelines.start(folder)).result(timeout=60)
        assert json.loads(result.output or "") == [
            {"input": {"id": "1", "title": "Site, down"},
             "output": {"severity": "high", "category": "ops"}, "success": True},
            {"input": {"id": "2", "title": "Typo"},
             "output": {"severity": "low", "category": "ops"}, "success": True},
        ]  # fmt: skip
        assert it.prompts[0].startswith("Categorize: ")
        assert '{"severity": …, "category": …}' in it.prompts[0]


async def test_the_weekly_sync_runs_unchanged(database_url: str, tmp_path: Path) -> None:
    folder = write(tmp_path / "weekly-sync", WEEKLY)
    (folder / "sync-targets.csv").write_text("endpoint\na/b\nc|d\n")
    async with world(database_url, tmp_path, Model(answer=says(knowing))) as it:
        result = await (await it.app.pipelines.start(folder)).result(timeout=60)
        assert (result.output or "").splitlines() == [
            "| endpoint | → status | → records_synced | status |",
            "| --- | --- | --- | --- |",
            "| a/b | ok | 8 | ok |",
            "| c\\|d | ok | 8 | ok |",
        ]


async def test_the_queue_monitor_runs_unchanged(database_url: str, tmp_path: Path) -> None:
    folder = write(tmp_path / "queue-monitor", QUEUES)
    async with world(database_url, tmp_path, Model(answer=says(knowing))) as it:
        result = await (await it.app.pipelines.start(folder)).result(timeout=60)
        rows = json.loads(result.output or "")
        assert [row["output"]["depth"] for row in rows] == [0, 7]


async def test_a_schedule_fires_pipeline_runs(database_url: str, tmp_path: Path) -> None:
    folder = write(tmp_path / "queue-monitor", QUEUES)
    app = Rota(database_url)
    app.pipelines.use(Offline(replies=lambda request: json.dumps(knowing(request.prompt))))
    app.pipelines.know("queue-monitor", folder)
    async with virtual(app, url=database_url) as world:  # a Tuesday, before nine in Los Angeles
        now = app.clock.now()
        loaded = read_pipeline(folder, now=now)
        block = Block("queue-monitor-1", "default", str(tmp_path), loaded)
        row = new_schedule(block, None, schedule_id=app.ids.make(now), now=now)
        assert row.input is not None
        assert snapshot.read(row.input).pipeline == loaded.pipeline
        await app.connection.database.write(store.put, row, trigger="manual", now=now)
        world._scheduler.next_at = now
        await world.advance("24h")
        runs = [run for run in await app.runs.list() if run.kind == "pipeline"]
        assert len(runs) == 9 * 4
        assert {run.name for run in runs} == {"pipeline:queue-monitor"}
        assert {run.label for run in runs} == {"completed"}
        assert {run.trigger for run in runs} == {"schedule"}
