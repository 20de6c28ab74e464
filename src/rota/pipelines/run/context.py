"""The context of every stage of a run: definition, run store, model caller, and listeners."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO, NamedTuple

from rota.core.runs.model import Claim
from rota.pipelines.outcome import OutcomeWord, Progress
from rota.pipelines.run.model_caller import ModelCaller
from rota.pipelines.run.run_store import (
    ItemRecord,
    RunReader,
    RunStore,
    content_of,
    record_of,
    stage_prefix,
)
from rota.pipelines.snapshot import Snapshot

log = logging.getLogger("rota.pipelines")
Listener = Callable[[Progress], object]


class RunUsage:
    """The amounts that this process has spent on the run."""

    def __init__(self) -> None:
        self.calls = self.tokens = 0
        self.cost_usd = 0.0
        self.waiting: str | None = None  # for a provider

    def add(self, record: ItemRecord) -> None:
        """One more step."""
        self.calls += record.calls
        self.tokens += record.tokens_in + record.tokens_out
        self.cost_usd += record.cost_usd or 0.0


class ProgressReporter:
    """Counts, and reports to listeners. A listener that fails is logged; the run continues."""

    def __init__(self, claim: Claim, pipeline_id: str, listeners: Iterable[Listener]) -> None:
        self._claim = claim
        self._pipeline_id = pipeline_id
        self._listeners = listeners
        self.phase, self.node = "begun", ""
        self.error: str | None = None  # why this attempt failed
        self.total: int | None = None
        self.done = self.failed = self.filtered = self.running = 0
        self.usage = RunUsage()

    def enter(self, phase: str, *, total: int | None = None, node: str = "") -> None:
        """A new phase, with its own counts."""
        self.phase, self.node, self.total = phase, node, total
        self.done = self.failed = self.running = 0
        self.report()

    def apart(self, node: str, total: int | None) -> ProgressReporter:
        """A reporter for a node, beside others that count at the same time."""
        own = ProgressReporter(self._claim, self._pipeline_id, self._listeners)
        own.usage = self.usage
        own.enter("node", total=total, node=node)
        return own

    def count(self, record: ItemRecord) -> None:
        """The cost of a call."""
        self.usage.add(record)

    def wait_for(self, said: str | None) -> None:
        """The run waits for its provider; None: it does not any more."""
        self.usage.waiting = said
        self.report()

    def report(self, outcome: OutcomeWord | None = None) -> None:
        """Say the state of the run."""
        listeners = list(self._listeners)
        if not listeners:
            return
        progress = Progress(
            run_id=self._claim.id, root_id=self._claim.root_id, pipeline_id=self._pipeline_id,
            phase=self.phase, node=self.node or None, total=self.total, done=self.done,
            failed=self.failed, filtered=self.filtered, running=self.running,
            calls=self.usage.calls, tokens=self.usage.tokens, cost_usd=self.usage.cost_usd,
            outcome=outcome, waiting=self.usage.waiting, error=self.error,
            schedule_id=self._claim.schedule_id, trigger=self._claim.trigger,
            attempt=self._claim.attempt,
        )  # fmt: skip
        for listener in listeners:
            try:
                listener(progress)
            except Exception:
                log.exception("a listener of pipelines failed")


class Hit(NamedTuple):
    """A result of equal content, and the step it was found at."""

    key: str
    record: ItemRecord


class Cache:
    """Results by content: of an earlier run, or of earlier attempts of this one."""

    def __init__(self, reader: RunReader) -> None:
        self.reader = reader
        self._stages: dict[str, dict[str, list[str]]] = {}  # keys by content
        self._lock = asyncio.Lock()

    async def find(self, stage: str, key: str) -> Hit | None:
        """A result of the same content as that of this key, or None; the key's own comes first."""
        async with self._lock:  # the first reader reads for all
            if stage not in self._stages:
                self._stages[stage] = await self._read(stage)
        known = self._stages[stage].get(content_of(key), [])
        found = key if key in known else known[-1] if known else None
        step_found = None if found is None else await self.reader.step(found)
        if found is None or step_found is None:
            return None
        return Hit(found, record_of(step_found))

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
    place: Path
    caches: tuple[Cache, ...]
    stdin: IO[bytes] | None
    warnings: list[str]
