"""One run, from its claim to its outcome: sets the context up, executes, reports, settles."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

import msgspec

from rota.core.runs.model import Claim, Outcome
from rota.core.runs.options import StoredRunOptions
from rota.core.runs.retry import RetryPolicy
from rota.core.time.instants import after
from rota.engine.context import EngineContext
from rota.engine.invoke import DeadlinePassed, within
from rota.engine.journal import Journal
from rota.engine.outcome import OutcomeMaker
from rota.errors import BadInput, RotaError, RunTimeout
from rota.notifications import workflow
from rota.pipelines import snapshot as snapshots
from rota.pipelines.outcome import OutcomeWord, PipelineResult
from rota.pipelines.run import conditions
from rota.pipelines.run.context import Cache, PipelineContext, ProgressReporter
from rota.pipelines.run.graph_runner import perform_graph
from rota.pipelines.run.linear_runner import perform_job, perform_linear
from rota.pipelines.run.model_caller import LOST, ModelCaller, ProviderWatch
from rota.pipelines.run.run_store import RunStore
from rota.pipelines.run.sharding import Sharding, ShardsRunning
from rota.pipelines.run.summary import OUTPUT_CHARS_MAX, result_of, save_results, summary_of
from rota.pipelines.snapshot import Snapshot

if TYPE_CHECKING:
    from rota.pipelines.client import PipelineClient


class PipelineRunner:
    """One claim of a pipeline run."""

    def __init__(
        self, pipelines: PipelineClient, base: EngineContext, journal: Journal, claim: Claim
    ) -> None:
        self._pipelines, self._base, self._claim = pipelines, base, claim
        self._journal = journal
        self._run_store = RunStore(base.database, journal, claim)
        self._options = StoredRunOptions.read(claim.options)
        self._asker: ModelCaller | None = None

    async def perform(self) -> Outcome:
        """Execute it; an error of the run is an outcome, one about the claim is raised."""
        try:
            snapshot = self._here(snapshots.read(self._claim.input))
            await self._check_trust(snapshot)
        except RotaError as error:
            return self._failed(error, None)
        held_back = await conditions.decide(self._base, self._claim, snapshot)
        if held_back is not None:
            return held_back
        listeners = self._pipelines.listeners
        progress = ProgressReporter(self._claim, snapshot.pipeline_id, listeners)
        progress.report()
        await workflow.began(self._base, self._claim)
        outcome, word = None, None
        try:
            outcome, word = await self._performed(snapshot, progress)
            return outcome
        finally:
            if outcome is None or outcome.verb != "suspend":
                progress.phase = "ended"
                progress.report(word)

    async def _performed(
        self, snapshot: Snapshot, progress: ProgressReporter
    ) -> tuple[Outcome, OutcomeWord | None]:
        warnings: list[str] = []
        try:
            await self._in_time(self._run(snapshot, progress, warnings), self._limit_us(snapshot))
        except LOST:
            raise
        except ShardsRunning:
            return Outcome(self._claim, "suspend", reason="child"), None
        except Exception as error:
            progress.error = str(error)
            result = await self._result(snapshot, warnings, "failed", progress.error)
            outcome = self._failed(error, result)
            return outcome, None if outcome.retry else "failed"
        result = await self._result(snapshot, warnings)
        reason = "partial" if result.outcome == "partial" else None
        return Outcome(self._claim, "complete", reason, _text(result)), result.outcome

    async def _run(
        self, snapshot: Snapshot, progress: ProgressReporter, warnings: list[str]
    ) -> None:
        context = await self._context(snapshot, progress, warnings)
        match context.snapshot.pipeline.mode:
            case "map-reduce":
                await perform_linear(context, self._parting())
            case "job":
                await perform_job(context)
            case "graph":
                await perform_graph(context)

    async def _context(
        self, snapshot: Snapshot, progress: ProgressReporter, warnings: list[str]
    ) -> PipelineContext:
        asker = ModelCaller(
            self._pipelines._invoker(), self._base.clock, self._run_store.calls,
            snapshot.pipeline.settings.budget, ProviderWatch(self._run_store, progress),
        )  # fmt: skip
        if asker.is_limited and not self._claim.is_fresh:
            asker.spent(await self._run_store.call_totals())
        self._asker = asker
        if not snapshot.place.is_dir():
            raise BadInput(
                f"the folder {snapshot.folder} of {snapshot.pipeline_id} is not there",
                hint="Put it back, or start the pipeline from where it is now.",
            )
        earlier = snapshot.overrides.cache_from
        caches = (Cache(self._run_store.of(earlier)),) if earlier is not None else ()
        stdin = self._pipelines.stdin.pop(self._claim.root_id, None)
        return PipelineContext(
            snapshot, self._run_store, asker, progress, snapshot.place, caches, stdin, warnings
        )

    def _parting(self) -> Sharding | None:
        """Whether others may take part: clients that share this database, on other machines."""
        if not self._pipelines.serves or self._base.database.is_local:
            return None
        return Sharding(self._base, self._journal, self._claim)

    async def _check_trust(self, snapshot: Snapshot) -> None:
        """Also here: files may change after the start, and rows may come from elsewhere too."""
        trust = self._pipelines.trust
        if trust is not None:
            scheduled = self._claim.schedule_id is not None
            await asyncio.to_thread(
                trust.check_run, snapshot.pipeline, snapshot.place, is_scheduled=scheduled
            )

    def _here(self, snapshot: Snapshot) -> Snapshot:
        """With the pipeline's folder as it is on this machine, where it may be elsewhere."""
        known = self._pipelines._folder_of(snapshot.pipeline_id)
        if snapshot.place.is_dir() or known is None or not known.is_dir():
            return snapshot
        return msgspec.structs.replace(snapshot, folder=str(known))

    def _limit_us(self, snapshot: Snapshot) -> int | None:
        """The timeout of the run as a whole: that of its start, or of its file."""
        own_ms = snapshot.pipeline.settings.run_timeout_ms
        return self._options.timeout_us or (None if own_ms is None else own_ms * 1000)

    async def _in_time(self, work: Coroutine[Any, Any, None], limit_us: int | None) -> None:
        """Do it within the timeout, counted from the first claim of the chain."""
        if limit_us is None:
            await work
            return
        try:
            await within(
                asyncio.ensure_future(work),
                self._base.clock,
                after(self._options.begins_at(self._claim.started_at), limit_us),
            )
        except DeadlinePassed:
            raise RunTimeout(
                f"run {self._claim.id} ({self._claim.name}) took longer than {limit_us / 1e6:g} s"
            ) from None

    async def _result(
        self,
        snapshot: Snapshot,
        warnings: list[str],
        outcome: OutcomeWord | None = None,
        error: str | None = None,
    ) -> PipelineResult:
        """The records of the run, and the results file beside the pipeline."""
        found = await summary_of(self._run_store, snapshot, chars_max=OUTPUT_CHARS_MAX)
        ms = (self._base.clock.now() - self._claim.started_at) // 1000
        warnings = [*warnings, *(self._asker.warnings if self._asker else ())]
        result = result_of(
            found, snapshot, outcome=outcome, duration_ms=ms, error=error, warnings=warnings
        )
        name = None
        if snapshot.place.is_dir():
            name = await save_results(
                self._run_store, snapshot, result, run_id=self._claim.root_id,
                started_at=self._claim.started_at, folder=snapshot.place,
            )  # fmt: skip
        return msgspec.structs.replace(result, result_file=name)

    # -- failures --------------------------------------------------------------------------

    def _failed(self, error: Exception, result: PipelineResult | None) -> Outcome:
        output = None if result is None else _text(result)
        policy = self._options.retry or RetryPolicy()
        return OutcomeMaker(self._base.clock, self._base.ids).failed(
            self._claim, error, policy, output=output
        )


def _text(result: PipelineResult) -> str:
    return msgspec.json.encode(result).decode()
