"""One run, from its claim to its outcome: makes the context, executes, reports, settles."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

import msgspec

from rota.core.runs.model import Claim, Outcome
from rota.core.runs.options import StoredRunOptions
from rota.core.runs.retry import RetryPolicy
from rota.core.time.instants import after
from rota.core.typed import json_text
from rota.engine.context import EngineContext
from rota.engine.invoke import DeadlinePassed, within
from rota.engine.journal import Journal
from rota.engine.outcome import OutcomeMaker
from rota.errors import BadInput, BadSetting, MissingExtra, RotaError, RunTimeout
from rota.notifications import workflow
from rota.pipelines import snapshot as snapshots
from rota.pipelines.outcome import OutcomeWord, PipelineResult
from rota.pipelines.run import conditions
from rota.pipelines.run.context import PipelineContext, ProgressReporter, context_of
from rota.pipelines.run.frozen_models import freeze
from rota.pipelines.run.graph_runner import GraphRunner
from rota.pipelines.run.model_caller import LOST
from rota.pipelines.run.run_budgets import budgets_of, forget
from rota.pipelines.run.run_store import RunStore
from rota.pipelines.run.sharding import Sharding, ShardsRunning
from rota.pipelines.run.summary import OUTPUT_CHARS_MAX, result_of, save_results
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
        self._context: PipelineContext | None = None

    async def perform(self) -> Outcome:
        """Execute it; an error of the run is an outcome, one about the claim is raised."""
        try:
            snapshot = self._here(snapshots.read(self._claim.input))
            await self._check_trust(snapshot)
        except RotaError as error:
            return self._failed(error, None)
        if self._claim.schedule_id is not None:
            held_back = await conditions.decide(self._base, self._claim, snapshot)
            if held_back is not None:
                return held_back
            await workflow.began(self._base, self._claim)
        progress = ProgressReporter(self._claim, snapshot.pipeline_id, self._pipelines.listeners)
        progress.report()
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
        try:
            await self._in_time(self._run(snapshot, progress), self._limit_us(snapshot))
        except LOST:
            raise
        except ShardsRunning:
            return Outcome(self._claim, "suspend", reason="child"), None
        except Exception as error:
            progress.error = error.explained if isinstance(error, RotaError) else str(error)
            result = await self._result(snapshot, "failed", progress.error)
            outcome = self._failed(error, result)
            return outcome, None if outcome.retry else "failed"
        result = await self._result(snapshot)
        reason = "partial" if result.outcome == "partial" else None
        return Outcome(self._claim, "complete", reason, json_text(result)), result.outcome

    async def _run(self, snapshot: Snapshot, progress: ProgressReporter) -> None:
        ai = self._pipelines._invoker()
        snapshot = await freeze(self._run_store, snapshot, self._pipelines._client, ai)
        budgets = await budgets_of(
            self._base, self._run_store, snapshot, self._claim.root_id, is_shared=self._may_share
        )
        context = self._context = context_of(
            snapshot, self._run_store, ai, progress, budgets=budgets,
            stdin=self._pipelines.stdin.pop(self._claim.root_id, None), sharding=self._sharding(),
        )  # fmt: skip
        if not snapshot.path.is_dir():
            raise BadInput(
                f"the folder {snapshot.folder} of {snapshot.pipeline_id} is not there",
                hint="Put it back, or start the pipeline from where it is now.",
            )
        await GraphRunner(context).perform()

    def _sharding(self) -> Sharding | None:
        """The sharding of maps, if workers on other machines share this database."""
        return Sharding(self._base, self._journal, self._claim) if self._may_share else None

    @property
    def _may_share(self) -> bool:
        return self._pipelines.serves and not self._base.database.is_local

    async def _check_trust(self, snapshot: Snapshot) -> None:
        """Check the trust again: the files, or the run's row, may have changed since the start."""
        trust = self._pipelines.trust
        if trust is not None:
            scheduled = self._claim.schedule_id is not None
            await asyncio.to_thread(
                trust.check_run, snapshot.pipeline, snapshot.path, is_scheduled=scheduled
            )

    def _here(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot with the folder of the pipeline on this machine."""
        known = self._pipelines._folders.get(snapshot.pipeline_id)
        if snapshot.path.is_dir() or known is None or not known.is_dir():
            return snapshot
        return msgspec.structs.replace(snapshot, folder=str(known))

    def _limit_us(self, snapshot: Snapshot) -> int | None:
        """The timeout of the run as a whole: that of its start, or of its file."""
        own_ms = snapshot.pipeline.settings.run_timeout_ms
        return self._options.timeout_us or (None if own_ms is None else own_ms * 1000)

    async def _in_time(self, work: Coroutine[Any, Any, None], limit_us: int | None) -> None:
        """Await the work within the timeout, counted from the first claim of the chain."""
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
                f"run {self._claim.id} ({self._claim.name}) took longer than {limit_us / 1e6:g} s",
                hint="Raise `settings.runTimeoutMs`, or give `--timeout`.",
            ) from None

    async def _result(
        self,
        snapshot: Snapshot,
        outcome: OutcomeWord | None = None,
        error: str | None = None,
    ) -> PipelineResult:
        """Summarise the records of the run, and write the results file beside the pipeline."""
        context = self._context
        if self._may_share and snapshot.pipeline.settings.budget is not None:
            await forget(self._base.database, self._run_store)
        if context is not None:
            snapshot = context.snapshot  # with the models of the run, which content keys hold
        result = await result_of(
            self._run_store, snapshot, chars_max=OUTPUT_CHARS_MAX, outcome=outcome, error=error,
            duration_ms=(self._base.clock.now() - self._claim.started_at) // 1000,
            warnings=[*context.warnings, *context.asker.warnings] if context is not None else [],
        )  # fmt: skip
        name = None
        if snapshot.path.is_dir():
            name = await save_results(
                self._run_store, snapshot, result, run_id=self._claim.root_id,
                started_at=self._claim.started_at, folder=snapshot.path,
            )  # fmt: skip
        return msgspec.structs.replace(result, result_file=name)

    # -- failures --------------------------------------------------------------------------

    def _failed(self, error: Exception, result: PipelineResult | None) -> Outcome:
        output = None if result is None else json_text(result)
        # Another attempt does not change the settings.
        is_setting = isinstance(error, BadSetting | MissingExtra)
        policy = (None if is_setting else self._options.retry) or RetryPolicy()
        return OutcomeMaker(self._base.clock, self._base.ids).failed(
            self._claim, error, policy, output=output
        )
