"""The protocol of an executor: workflows, automations and pipelines each have one."""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Sequence
from typing import Protocol

from rota.core import trace_spans
from rota.core.runs.model import Claim, Outcome, StoredStep
from rota.core.runs.options import StoredRunOptions
from rota.core.runs.worker_code import CodeSet
from rota.engine.clock import Clock


class Executor(Protocol):
    """Executes runs of one kind."""

    kind: str
    keeps_open_run: bool  # whether its work always has an open run, however often one crashes
    replays: bool  # whether it wants all steps of a run's chain available, to answer from

    @property
    def code(self) -> CodeSet:
        """Runs that it executes only while its code is the deployed one."""
        ...

    @property
    def names(self) -> Collection[str]:
        """The names it can execute now, in any version of their code."""
        ...

    async def perform(self, claim: Claim, steps: Sequence[StoredStep]) -> Outcome | None:
        """Execute a claimed run, given the recorded steps of its chain. Raises LeaseLost if another
        worker owns the run. Returns None if the executor has settled the run itself."""
        ...


def performed(
    executor: Executor, claim: Claim, steps: Sequence[StoredStep], clock: Clock
) -> Awaitable[Outcome | None]:
    """Execute a run; without a tracer this is the executor's own coroutine."""
    if not trace_spans.is_on():
        return executor.perform(claim, steps)
    return _traced(executor, claim, steps, clock)


async def _traced(
    executor: Executor, claim: Claim, steps: Sequence[StoredStep], clock: Clock
) -> Outcome | None:
    with trace_spans.run(
        claim, StoredRunOptions.read(claim.options).traceparent, clock.now()
    ) as span:
        outcome = await executor.perform(claim, steps)
        trace_spans.note_outcome(span, outcome)
        return outcome
