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
    # Whether a crashed run always gets a successor, even after `recoveries_max` (then it waits for
    # an operator).
    keeps_open_run: bool

    @property
    def code(self) -> CodeSet:
        """Its code set: it executes these names only while the deployed code is the same."""
        ...

    @property
    def names(self) -> Collection[str]:
        """The names it can execute now, in any version of their code."""
        ...

    def needs_records(self, claim: Claim) -> bool:
        """Whether the worker has to load the recorded steps of the chain first."""
        ...

    async def tidy(self) -> None:
        """Drop what it keeps in memory of runs that this worker cannot continue. Each heartbeat
        calls this."""
        ...

    async def perform(self, claim: Claim, steps: Sequence[StoredStep]) -> Outcome | None:
        """Execute a claimed run, given the recorded steps of its chain. Raises LeaseLost if another
        worker owns the run. Returns None if the executor has settled the run itself."""
        ...

    def look_again(self, claim: Claim) -> None:
        """Something was recorded from outside for a run that it executes, or has executed."""
        ...


async def traced(work: Awaitable[Outcome | None], claim: Claim, clock: Clock) -> Outcome | None:
    """Execute a run within a span."""
    with trace_spans.run(
        claim, StoredRunOptions.read(claim.options).traceparent, clock.now()
    ) as span:
        outcome = await work
        trace_spans.note_outcome(span, outcome)
        return outcome
