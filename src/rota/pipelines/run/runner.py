"""One run, from its claim to its outcome: makes the context, executes, reports, settles.

The linear form is here, from end to end: input, filter, map, reduce; or a single job.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from functools import partial
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
from rota.errors import BadInput, RotaError, RunTimeout
from rota.notifications import workflow
from rota.pipelines import snapshot as snapshots
from rota.pipelines.definition.model import Filter, Input
from rota.pipelines.definition.sections import MapStep, ReduceStep
from rota.pipelines.definition.sources import StdinSource
from rota.pipelines.outcome import OutcomeWord, PipelineResult
from rota.pipelines.run import conditions, withheld_items
from rota.pipelines.run.context import PipelineContext, ProgressReporter, context_of
from rota.pipelines.run.filter_stage import ask_again, filter_items, sieve_of_filter
from rota.pipelines.run.frozen_models import freeze
from rota.pipelines.run.generated_items import generated
from rota.pipelines.run.graph_runner import GraphRunner
from rota.pipelines.run.inputs import Item, items_of
from rota.pipelines.run.map_stage import linear_map, reader_of
from rota.pipelines.run.model_caller import LOST
from rota.pipelines.run.prompt_builder import PromptBuilder
from rota.pipelines.run.reduce import OUTPUT, AiReduce, put_reply, reduce_by_form, shown
from rota.pipelines.run.results import Source, Spool, outcomes, source_of_map
from rota.pipelines.run.run_budgets import budgets_of, forget
from rota.pipelines.run.run_store import RunReader, RunStore
from rota.pipelines.run.sharding import Sharding, ShardsRunning
from rota.pipelines.run.single_call import call
from rota.pipelines.run.stages import FILTER, INPUT, JOB, REDUCE
from rota.pipelines.run.summary import OUTPUT_CHARS_MAX, result_of, save_results
from rota.pipelines.run.withheld_items import Withheld
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
            stdin=self._pipelines.stdin.pop(self._claim.root_id, None),
        )  # fmt: skip
        if not snapshot.path.is_dir():
            raise BadInput(
                f"the folder {snapshot.folder} of {snapshot.pipeline_id} is not there",
                hint="Put it back, or start the pipeline from where it is now.",
            )
        match snapshot.pipeline.mode:
            case "map-reduce":
                await perform_linear(context, self._sharding())
            case "job":
                await perform_job(context)
            case "graph":
                await GraphRunner(context).perform()

    def _sharding(self) -> Sharding | None:
        """The sharding of the map, if workers on other machines share this database."""
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
        policy = self._options.retry or RetryPolicy()
        return OutcomeMaker(self._base.clock, self._base.ids).failed(
            self._claim, error, policy, output=output
        )


# -- the linear form ---------------------------------------------------------------------------


async def perform_linear(context: PipelineContext, sharding: Sharding | None) -> None:
    """Input, filter, map and reduce. Raises what stopped the run; finished items are recorded."""
    pipeline = context.snapshot.pipeline
    total = await load_input(context)
    held: dict[int, Withheld] = {}
    if pipeline.filter is not None:
        kept = await _filter(context, pipeline.filter, total)
        held = await withheld_items.read(context.run_store, FILTER)
        late = sum(not each.is_failed for each in held.values())
        context.progress.filtered, total = total - kept + late, kept
    assert pipeline.map is not None
    assert pipeline.reduce is not None
    source = source_of_map(context.run_store, context.snapshot, held)
    context.progress.enter("mapping", total=total - len(held))
    shards = await _map(context, pipeline.map, source, total, sharding)
    context.progress.enter("reducing", total=total)
    with Spool() as spool:
        await spool.take(outcomes(source._replace(shards=shards)))
        spool.check()
        await _reduce(context, pipeline.reduce, spool)


async def _filter(context: PipelineContext, section: Filter, total: int) -> int:
    done = await context.run_store.item_list(FILTER)
    if done is None:
        context.progress.enter("filtering", total=total)
        return await filter_items(
            context, FILTER, INPUT, FILTER, sieve_of_filter(context.snapshot, section)
        )
    held = await context.run_store.item_list(FILTER + withheld_items.SUFFIX)
    if held is not None and held.count and held.attempt < context.run_store.claim.attempt:
        context.progress.enter("filtering", total=held.count)
        await ask_again(context, FILTER, FILTER, sieve_of_filter(context.snapshot, section))
    return done.count


async def _map(
    context: PipelineContext, step: MapStep, source: Source, total: int, sharding: Sharding | None
) -> list[RunReader]:
    unasked = sum(each.is_failed for each in source.withheld.values())
    stage = linear_map(context, step, total, failed_before=unasked)
    shards = [] if sharding is None else await sharding.shards_of(context, source.item_list, total)
    await stage.mark(shards)
    items, held = context.run_store.items(source.item_list), source.withheld
    await stage.perform(placed async for placed in items if placed.position not in held)
    return shards


async def _reduce(context: PipelineContext, step: ReduceStep, spool: Spool) -> None:
    if step.type != "ai":
        await reduce_by_form(context, OUTPUT, step.type, spool.outcomes)
        return
    if not spool.tally.processed:
        context.warnings.append("there was nothing to reduce")
        return
    reduce = AiReduce(
        context, REDUCE, PromptBuilder(context.snapshot, REDUCE, step),
        partial(shown, spool.outcomes, failures=step.include_failures), spool.tally.counts,
        step.max_chars,
    )  # fmt: skip
    await put_reply(context, OUTPUT, await reduce.perform())


async def perform_job(context: PipelineContext) -> None:
    """One call; its reply is the result."""
    job = context.snapshot.pipeline.job
    assert job is not None
    context.progress.enter("mapping", total=1)
    asking = PromptBuilder(context.snapshot, JOB, job)
    record = await call(context, JOB, asking.without_item(), reader_of(asking.fields))
    context.progress.done = 1
    await put_reply(context, OUTPUT, record)


async def load_input(context: PipelineContext) -> int:
    """Record the input items, unless an earlier attempt did; returns how many."""
    loaded = await context.run_store.item_list(INPUT)
    if loaded is not None:
        return loaded.count
    context.progress.enter("loading")
    section = context.snapshot.pipeline.input
    assert section is not None, "checked when the pipeline was read"
    return await context.run_store.put_items(INPUT, await _items(context, section))


async def _items(context: PipelineContext, section: Input) -> AsyncIterator[Item]:
    given = context.snapshot.items
    limit = context.snapshot.overrides.limit
    if limit is not None:
        section = msgspec.structs.replace(section, limit=limit)
    if given is None and isinstance(section.source, StdinSource) and context.stdin is None:
        raise BadInput(
            f"{context.snapshot.pipeline_id} reads standard input, and there is none here",
            hint="Run it with `rota pipeline run` and a pipe, or give items at the start.",
        )
    if given is None and section.generate is not None:
        given = await generated(context, "generate", section.generate)
    return items_of(section, context.snapshot.path, given=given, stdin=context.stdin)
