"""A part of a big run: neighbouring chunks of its items, mapped on this machine."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import msgspec

from rota.core.runs.model import Claim, Outcome
from rota.engine.context import EngineContext
from rota.engine.journal import Journal
from rota.engine.outcome import judge
from rota.errors import RunCancelled
from rota.pipelines import snapshot as snapshots
from rota.pipelines.run import withheld
from rota.pipelines.run.context import ProgressReporter, context_of
from rota.pipelines.run.linear_runner import map_stage
from rota.pipelines.run.model_caller import LOST
from rota.pipelines.run.run_store import PositionedItem, RunReader, RunStore, chunk_items
from rota.pipelines.run.sharding import ShardInput, ShardOutput
from rota.pipelines.run.stages import FILTER
from rota.pipelines.snapshot import Snapshot
from rota.store.runs import history

if TYPE_CHECKING:
    from rota.pipelines.client import PipelineClient

log = logging.getLogger("rota.pipelines")


async def perform_part(
    pipelines: PipelineClient, base: EngineContext, journal: Journal, claim: Claim
) -> Outcome:
    """Map the items of the shard. The parent run maps those that are left."""
    given = msgspec.json.decode(claim.input or "", type=ShardInput)
    try:
        snapshot = await _snapshot(base, given)
        store = RunStore(base.database, journal, claim)
        progress = ProgressReporter(claim, snapshot.pipeline_id, ())
        context = context_of(snapshot, store, pipelines._invoker(), progress)
        part = snapshot.pipeline.map
        assert part is not None
        stage = map_stage(context, part, given.end)
        whole = RunReader(base.database, given.whole)
        held = await withheld.read(whole, FILTER)
        await stage.perform(withheld.without(_items(whole, given), held))
    except LOST:
        raise
    except Exception as error:
        log.warning("part %s of run %s stopped: %s", claim.id, given.whole, error)
        failure = judge(error)
        return Outcome(claim, "fail", failure.kind, error=failure.detail)
    done = ShardOutput(context.progress.done, context.progress.failed)
    return Outcome(claim, "complete", output=msgspec.json.encode(done).decode())


async def _snapshot(base: EngineContext, given: ShardInput) -> Snapshot:
    chain = await base.database.read(history.chain, root_id=given.whole)
    if not chain:
        raise RunCancelled(f"run {given.whole} is gone, so there is nothing to take part in")
    return snapshots.read(chain[0].input)


async def _items(reader: RunReader, given: ShardInput) -> AsyncIterator[PositionedItem]:
    for key in given.chunks:
        step = await reader.step(key)
        if step is None:
            return  # the run was pruned meanwhile
        for number, item in enumerate(chunk_items(step)):
            yield PositionedItem(step.position + number, item)
