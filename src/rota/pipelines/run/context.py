"""The context of every stage of a run: definition, run store, model caller, and listeners."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import IO, TYPE_CHECKING, NamedTuple

from rota.ai.base import Invoker
from rota.ai.budget import Budget
from rota.core.runs.model import Claim, StoredStep
from rota.pipelines.definition.nodes import Node
from rota.pipelines.outcome import OutcomeWord, Progress, UsageSum
from rota.pipelines.run.model_caller import ModelCaller, ProviderWatch
from rota.pipelines.run.run_store import (
    ItemRecord,
    RunReader,
    RunStore,
    content_of,
    stage_prefix,
)
from rota.pipelines.snapshot import Snapshot

if TYPE_CHECKING:
    from rota.pipelines.run.sharding import Sharding

log = logging.getLogger("rota.pipelines")
Listener = Callable[[Progress], object]


class RunUsage:
    """The usage of the run in this process, shared by the reporters of its nodes."""

    def __init__(self) -> None:
        self.spent = UsageSum()
        self.waiting: str | None = None  # why calls wait for their provider
        self.filtered = 0  # items that a filter dropped before a model was asked about them


class ProgressReporter:
    """Counts, and reports to listeners. The failure of a listener is logged; the run continues."""

    def __init__(self, claim: Claim, pipeline_id: str, listeners: Iterable[Listener]) -> None:
        self._claim = claim
        self._pipeline_id = pipeline_id
        self._listeners = listeners
        self.phase, self.node = "begun", ""
        self.error: str | None = None  # why this attempt failed
        self.total: int | None = None
        self.done = self.failed = self.running = 0
        self.usage = RunUsage()

    def enter(self, phase: str, *, total: int | None = None, node: str = "") -> None:
        """A new phase, with its own counts."""
        self.phase, self.node, self.total = phase, node, total
        self.done = self.failed = self.running = 0
        self.report()

    def apart(self, phase: str, node: str, total: int | None) -> ProgressReporter:
        """A reporter for a node, beside others that count at the same time."""
        own = ProgressReporter(self._claim, self._pipeline_id, self._listeners)
        own.usage = self.usage
        own.enter(phase, total=total, node=node)
        return own

    def count(self, record: ItemRecord) -> None:
        """Add the usage of one step."""
        self.usage.spent += record

    def wait_for(self, reason: str | None) -> None:
        """Report that the run waits for its provider; None: it waits no longer."""
        self.usage.waiting = reason
        self.report()

    def report(self, outcome: OutcomeWord | None = None) -> None:
        """Send the state of the run to the listeners."""
        listeners = list(self._listeners)
        if not listeners:
            return
        spent = self.usage.spent
        progress = Progress(
            run_id=self._claim.id, root_id=self._claim.root_id, pipeline_id=self._pipeline_id,
            phase=self.phase, node=self.node or None, total=self.total, done=self.done,
            failed=self.failed, filtered=self.usage.filtered, running=self.running,
            calls=spent.calls, tokens=spent.tokens, cost_usd=spent.cost_usd, outcome=outcome,
            waiting=self.usage.waiting, error=self.error,
            schedule_id=self._claim.schedule_id, trigger=self._claim.trigger,
            attempt=self._claim.attempt,
        )  # fmt: skip
        for listener in listeners:
            try:
                listener(progress)
            except Exception:
                log.exception("a listener of pipelines failed")


class Cache:
    """Results by content: of an earlier run, or of earlier attempts of this one."""

    def __init__(self, reader: RunReader) -> None:
        self.reader = reader
        self._stages: dict[str, dict[str, list[str]]] = {}  # keys by content
        self._lock = asyncio.Lock()

    async def find(self, stage: str, key: str) -> StoredStep | None:
        """A step of the same content as that of this key, or None; the key's own comes first."""
        async with self._lock:  # the first reader reads for all
            if stage not in self._stages:
                self._stages[stage] = await self._read(stage)
        known = self._stages[stage].get(content_of(key))
        if not known:
            return None
        return await self.reader.step(key if key in known else known[-1])

    async def _read(self, stage: str) -> dict[str, list[str]]:
        keys: dict[str, list[str]] = {}
        async for step in self.reader.keys(stage_prefix(stage)):
            if step.status == "completed":
                keys.setdefault(content_of(step.key), []).append(step.key)
        return keys


class PipelineContext(NamedTuple):
    """One run being executed."""

    snapshot: Snapshot
    run_store: RunStore
    asker: ModelCaller
    progress: ProgressReporter
    caches: tuple[Cache, ...]
    stdin: IO[bytes] | None
    warnings: list[str]
    nodes: dict[str, Node]
    sharding: Sharding | None = None


def context_of(
    snapshot: Snapshot,
    run_store: RunStore,
    ai: Invoker,
    progress: ProgressReporter,
    *,
    budgets: Sequence[Budget] = (),
    stdin: IO[bytes] | None = None,
    sharding: Sharding | None = None,
) -> PipelineContext:
    """The context of a run, or of a shard of one."""
    watch = ProviderWatch(run_store, progress)
    asker = ModelCaller(ai, run_store.clock, run_store.calls, budgets, watch)
    earlier = snapshot.overrides.cache_from
    roots = snapshot.reused if earlier is None else (earlier, *snapshot.reused)
    caches = tuple(Cache(run_store.of(root)) for root in roots)
    return PipelineContext(
        snapshot, run_store, asker, progress, caches, stdin, [], snapshot.nodes, sharding
    )
