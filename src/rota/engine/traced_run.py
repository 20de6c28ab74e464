"""The performance of a claimed run, inside a span if anything is traced."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence

from rota.core import spans
from rota.core.runs.model import Claim, Outcome, StoredStep
from rota.core.runs.options import StoredRunOptions
from rota.engine.clock import Clock
from rota.engine.executor import Executor


def performed(
    executor: Executor, claim: Claim, steps: Sequence[StoredStep], clock: Clock
) -> Awaitable[Outcome | None]:
    """Execute a run; without a tracer this is the executor's own coroutine."""
    if not spans.is_on():
        return executor.perform(claim, steps)
    return _traced(executor, claim, steps, clock)


async def _traced(
    executor: Executor, claim: Claim, steps: Sequence[StoredStep], clock: Clock
) -> Outcome | None:
    with spans.run(claim, StoredRunOptions.read(claim.options).traceparent, clock.now()) as span:
        outcome = await executor.perform(claim, steps)
        spans.note_outcome(span, outcome)
        return outcome
