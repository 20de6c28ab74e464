"""Memory of runs that have ended: reference counts free it, and no cycle waits for a collection."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from rota import Rota, gather, this_step
from rota.testing import World, virtual
from rota.workflows.run_loop import RunLoop
from rota.workflows.step_attempt import StepAttempt
from rota.workflows.steps import StepCall
from rota.workflows.workflow_run import WorkflowRun

PARTS = (WorkflowRun, RunLoop, StepCall, StepAttempt)


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def parts() -> list[str]:
    """The parts of runs that are in memory."""
    return [type(one).__name__ for one in gc.get_objects() if isinstance(one, PARTS)]


@pytest.mark.parametrize("warm", [True, False])
async def test_nothing_of_an_ended_run_is_left(warm: bool, no_collector: None) -> None:
    app = Rota()

    @app.step
    async def double(n: int) -> int:
        assert this_step().attempt == 1
        return 2 * n

    @app.workflow
    async def flow(n: int) -> int:
        return sum(await gather(*[double(i) for i in range(n)])) + await double(n)

    @app.workflow
    async def noop() -> None:
        pass

    async with virtual(app, warm=warm) as world:
        await _end(world, app)
        assert parts() == []


async def _end(world: World, app: Rota) -> None:
    runs = [await app.start("flow", 5), await app.start("noop")]
    await world.drain()
    assert [(await run.run()).status for run in runs] == ["completed", "completed"]
