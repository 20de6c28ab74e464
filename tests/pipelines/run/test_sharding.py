"""One big run, several machines: they share its items, and the loss of one loses nothing."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from rota import Rota
from rota.pipelines.outcome import Progress
from rota.pipelines.run.sharding import grouped
from rota.store.pipelines.steps import StepKey
from tests.ai.kit.model_server import Model
from tests.kit import until
from tests.pipelines.kit.killed_child import (
    FORMS,
    PARALLEL,
    check_output,
    child,
    doubled,
    put_items,
)
from tests.pipelines.kit.live_app import ai_settings, assert_every_page

COUNT = 600


class Meeting(Model):
    """A model that answers only when more have come than one machine would send."""

    def __init__(self) -> None:
        super().__init__(answer=doubled)
        self.met = asyncio.Event()

    async def _visit(self, reader: Any, writer: Any) -> None:
        if self.connections > PARALLEL:
            self.met.set()
        await self.met.wait()
        await super()._visit(reader, writer)

    @property
    def askers(self) -> set[str]:
        """The keys of the callers; each machine has its own."""
        return {asked.headers["authorization"] for asked in self.asked}


@pytest.mark.pg
@pytest.mark.slow
@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
@pytest.mark.parametrize("form", FORMS)
async def test_machines_share_the_items_of_one_run(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    folder = put_items(tmp_path / "many", COUNT, form)
    monkeypatch.setenv("ROTA_TEST_KEY", "here")
    model = Meeting()
    async with model.up():
        app = Rota(database_url, migrate=True, lease_s=20, heartbeat_s=0.2)
        app.pipelines.use(ai_settings(model.url))
        app.pipelines.serve()
        reported: list[Progress] = []
        app.pipelines.listen(reported.append)
        async with app:
            others = [
                await child(database_url, str(folder), model.url, "serve", key=f"machine-{number}")
                for number in range(2)
            ]
            try:
                await until(lambda: _workers(app, 3))
                ref = await app.pipelines.start(folder)
                await until(lambda: _asked(model, COUNT // 2))
                others[0].kill()  # a machine is lost in the middle of its part
                result = await ref.result(timeout=100)
            finally:
                for other in others:
                    if other.returncode is None:
                        other.kill()
                    await other.wait()
            assert (result.outcome, result.processed) == ("completed", COUNT)
            assert len(json.loads((await app.pipelines.result(ref.id)).output or "")) == COUNT
            await assert_every_page(app, ref.id, 7)
    assert len(model.askers) > 1
    assert {each.root_id for each in reported} == {ref.id}
    assert any(0 < each.done < COUNT for each in reported)
    assert COUNT <= len(model.asked) <= COUNT + PARALLEL
    check_output(folder, COUNT)


async def _workers(app: Rota, count: int) -> bool:
    return len(await app.workers()) >= count


async def _asked(model: Model, count: int) -> bool:
    return len(model.asked) >= count


def test_parts_are_of_a_fair_size() -> None:
    def shards(*sizes: int) -> list[int]:
        begins = [sum(sizes[:n]) for n in range(len(sizes))]
        chunks = [StepKey(f"{begin}", begin, "completed", 1) for begin in begins]
        groups = grouped("run", "map", chunks, sum(sizes))
        assert [key for group in groups for key in group.chunks] == [one.key for one in chunks]
        return [group.end - group.begin for group in groups]

    assert shards(200, 200, 50) == [200, 200, 50]
    assert shards(80, 80, 80, 10) == [240, 10]
    assert shards(*[1] * 40) == [16, 16, 8]
    assert shards() == []
