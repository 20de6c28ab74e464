"""Retention of chains that continue as new: ended segments go while the chain is open."""

from __future__ import annotations

from typing import Any

import pytest

import rota
from rota import Rota, sleep
from rota.core.time.instants import moment
from rota.testing import World, virtual
from tests.workflows.kit import result, sound


async def prune(world: World) -> None:
    """Beat until nothing more is pruned."""
    for _ in range(4):
        await world.advance("61s")
        await world.beat()


def looping(**settings: Any) -> tuple[Rota, Any]:
    """A workflow with a step, a child, an attempt that fails and a day of sleep in each segment."""
    app = Rota(**settings)

    @app.step
    async def note(n: int) -> int:
        return n

    @app.workflow
    async def child(n: int) -> int:
        return await note(n)

    @app.workflow(retries=1)
    async def loop(n: int, last: int) -> int:
        await note(n)
        await child(n)
        if rota.this_run().attempt == 1:
            raise ConnectionError("each segment takes two attempts")
        await sleep("1d")
        if n < last:
            raise rota.continue_as_new(n + 1, last)
        return n

    return app, loop


@pytest.mark.parametrize("settings", [{"keep_days": 3}, {"keep_days": 0, "keep_runs": 3}])
async def test_old_segments_go_and_the_chain_stays(
    database_url: str, settings: dict[str, Any]
) -> None:
    app, loop = looping(**settings)
    async with virtual(app, url=database_url) as world:
        run = await loop.options(external_id="l").start(0, 12)
        await world.advance("10d")
        before = await app.runs.chain(run.id)
        assert len(before) >= 20
        await prune(world)
        chain = await app.runs.chain(run.id)
        assert chain[0].id == run.id  # it has the ids of the chain
        assert 3 <= len(chain) <= 10, [row.input for row in chain]
        assert (await app.runs.get("l")).id == chain[-1].id
        kept = [row.id for row in chain[1:]]
        left = [row.id for row in before if row.id >= kept[0]]
        assert left == kept[: len(left)]
        assert len(await app.runs.children(run.id)) <= 6
        with pytest.raises(TimeoutError):
            await app.runs.wait(run.id, timeout=0)
        assert await app.runs.steps(chain[0]) == []
        assert (await app.runs.steps(run.id))[0].output == "10"
        await sound(app)
        await world.drain()
        assert await result(run) == 12
        await world.advance("30d")
        await app.start(loop, 1, 0)
        await world.advance("5d")
        await prune(world)
        if settings["keep_days"]:  # otherwise it is one of the newest
            assert await app.runs.list(root_id=run.id) == []
        await sound(app)


async def test_a_chain_is_archived_with_the_steps_of_all_segments(database_url: str) -> None:
    app, loop = looping(keep_days=0)
    async with virtual(app, url=database_url) as world:
        run = await loop.start(0, 2)
        await world.drain()
        assert await result(run) == 2
        await world.advance("60d")
        month = f"{moment(world.clock.now()):%Y-%m}"
        assert await app.operations.archive(month) == 4
        found = await app.operations.archived(run.id)
        assert found is not None
        assert len(found.attempts) == 6
        assert [step.output for step in found.steps if step.key == "note#0"] == ["0", "1", "2"]
        assert await app.runs.list() == []
        await sound(app)
