"""Sharding: a map of a big run in shards, each a run of its own that any worker may claim.

The run sleeps meanwhile, and the end of each shard wakes it. The run itself maps the items that a
shard did not map, for whatever reason. So a shard that fails loses nothing.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from rota.core.runs.lifecycle import Trigger
from rota.core.runs.model import Claim, NewRun, Outcome, StoredStep
from rota.engine.context import EngineContext
from rota.engine.journal import Journal
from rota.engine.outcome import judge
from rota.engine.wakeups import READY
from rota.errors import RunCancelled
from rota.pipelines import snapshot as snapshots
from rota.pipelines.definition.nodes import MapNode
from rota.pipelines.definition.sections import MapStep
from rota.pipelines.executor import PART_NAME, PART_QUEUE
from rota.pipelines.run.context import PipelineContext, ProgressReporter, context_of
from rota.pipelines.run.frozen_models import frozen
from rota.pipelines.run.map_stage import MapStage
from rota.pipelines.run.model_caller import LOST
from rota.pipelines.run.run_budgets import budgets_of
from rota.pipelines.run.run_store import (
    PositionedItem,
    RunReader,
    RunStore,
    chunk_items,
    chunk_prefix,
    shard_prefix,
)
from rota.pipelines.snapshot import Snapshot
from rota.store.pipelines.steps import StepKey
from rota.store.runs import history

if TYPE_CHECKING:
    from rota.pipelines.client import PipelineClient

log = logging.getLogger("rota.pipelines")

SHARDS_MIN = 2  # a map of fewer shards is not worth sharing
SHARD_ITEMS = 200
SHARD_CHUNKS = 16  # of large items, of which a chunk holds few


class ShardsRunning(Exception):
    """The run has nothing to do until its shards are over."""


class ShardInput(msgspec.Struct, frozen=True):
    """The range of a shard: neighbouring chunks of an item list of the whole run."""

    whole: str  # the chain of the whole run
    node_id: str  # the map
    chunks: list[str]  # their keys
    begin: int  # the position of the first item
    end: int  # and the one after the last


class ShardOutput(msgspec.Struct, frozen=True):
    """The outcome of a shard's items."""

    done: int
    failed: int


def grouped(whole: str, node_id: str, chunks: Sequence[StepKey], total: int) -> list[ShardInput]:
    """Neighbouring chunks of a run in shards of a fair size."""
    groups: list[ShardInput] = []
    waiting: list[StepKey] = []
    ends = [*(chunk.position for chunk in chunks[1:]), total]
    for chunk, end in zip(chunks, ends, strict=False):
        waiting.append(chunk)
        if end - waiting[0].position >= SHARD_ITEMS or len(waiting) >= SHARD_CHUNKS or end == total:
            keys = [each.key for each in waiting]
            groups.append(ShardInput(whole, node_id, keys, waiting[0].position, end))
            waiting = []
    return groups


class Sharding(NamedTuple):
    """Splits the maps of a run into shards."""

    base: EngineContext
    journal: Journal
    claim: Claim

    def is_worth_it(self, step: MapStep) -> bool:
        """Whether to share: not where one process must count failures."""
        return not step.fail_fast and step.max_failures is None

    async def shards_of(
        self, context: PipelineContext, node_id: str, item_list: str, total: int
    ) -> list[RunReader]:
        """The chains of the shards, all of them ended; none when the map is not split."""
        known = [step async for step in context.run_store.steps(shard_prefix(node_id))]
        if not known:
            if self.claim.attempt > 1:
                return []  # the run itself executes the rest after a failure
            known = await self._share_out(context, node_id, item_list, total)
        children = [step.child_id for step in known if step.child_id is not None]
        ended = await self.base.database.read(history.ended, children)
        if len(ended) < len(children):
            _report(context, ended)
            raise ShardsRunning
        return [context.run_store.of(child) for child in children]

    async def _share_out(
        self, context: PipelineContext, node_id: str, item_list: str, total: int
    ) -> list[StoredStep]:
        prefix = await chunk_prefix(context.run_store, item_list)
        chunks = [key async for key in context.run_store.keys(prefix)]
        groups = grouped(self.claim.root_id, node_id, chunks, total)
        if len(groups) < SHARDS_MIN:
            return []
        made = [await self._shard(context.run_store, group) for group in groups]
        self.base.wakeups.notify_soon(READY)
        return made

    async def _shard(self, run_store: RunStore, given: ShardInput) -> StoredStep:
        now = self.base.clock.now()
        child = NewRun(
            id=self.base.ids.make(now), namespace=self.claim.namespace, name=PART_NAME,
            available_at=now, input=msgspec.json.encode(given).decode(), kind="pipeline",
            queue=PART_QUEUE, priority=self.claim.priority, trigger=Trigger.CHILD,
            parent_id=self.claim.root_id,
        )  # fmt: skip
        key = f"{shard_prefix(given.node_id)}{given.begin:09d}"
        step = msgspec.structs.replace(
            run_store.made(key, kind="part", position=given.begin),
            status="waiting", child_id=child.id, finished_at=None,
        )  # fmt: skip
        started = await self.journal.record_child(self.claim, step, child)
        return msgspec.structs.replace(step, child_id=started.id)


def _report(context: PipelineContext, ended: Sequence[history.ChainResult]) -> None:
    """Report the progress of the run from the shards that have ended."""
    outputs = [msgspec.json.decode(each.output, type=ShardOutput) for each in ended if each.output]
    context.progress.done = sum(each.done for each in outputs)
    context.progress.failed = sum(each.failed for each in outputs)
    context.progress.report()


# -- one shard -----------------------------------------------------------------------------


async def perform_shard(
    pipelines: PipelineClient, base: EngineContext, journal: Journal, claim: Claim
) -> Outcome:
    """Map the items of the shard. The parent run maps those that are left."""
    given = msgspec.json.decode(claim.input or "", type=ShardInput)
    try:
        whole = RunReader(base.database, given.whole)
        snapshot = await frozen(whole, await _snapshot(base, given))
        store = RunStore(base.database, journal, claim)
        progress = ProgressReporter(claim, snapshot.pipeline_id, ())
        budgets = await budgets_of(base, store, snapshot, given.whole, is_shared=True)
        context = context_of(snapshot, store, pipelines._invoker(), progress, budgets=budgets)
        step = context.nodes[given.node_id]
        assert isinstance(step, MapNode)
        stage = MapStage(context, given.node_id, step, given.end)
        await stage.perform(_items(whole, given))
    except LOST:
        raise
    except Exception as error:
        log.warning("shard %s of run %s stopped: %s", claim.id, given.whole, error)
        failure = judge(error)
        return Outcome(claim, "fail", failure.kind, error=failure.detail)
    done = ShardOutput(context.progress.done, context.progress.failed)
    return Outcome(claim, "complete", output=msgspec.json.encode(done).decode())


async def _snapshot(base: EngineContext, given: ShardInput) -> Snapshot:
    chain = await base.database.read(history.chain, root_id=given.whole)
    if not chain:
        raise RunCancelled(f"run {given.whole} no longer exists, so its shard cannot be executed")
    return snapshots.read(chain[0].input)


async def _items(reader: RunReader, given: ShardInput) -> AsyncIterator[PositionedItem]:
    for key in given.chunks:
        step = await reader.step(key)
        if step is None:
            return  # the run was pruned meanwhile
        for number, item in enumerate(chunk_items(step)):
            yield PositionedItem(step.position + number, item)
