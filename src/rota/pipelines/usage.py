"""Usage of executions: calls, tokens and dollars, for one run and for a schedule as a whole.

The result of a run holds the usage of all its attempts. The usage of a run without a result (it is
in progress, was cancelled, or crashed for good) is the sum of its recorded calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from rota.pipelines.outcome import PipelineResult, UsageSum
from rota.store.schedules import attempts as executions

if TYPE_CHECKING:
    from rota.client.client import Client

EXECUTIONS_MAX = 10_000


class PipelineUsage(UsageSum, frozen=True, kw_only=True):
    """A sum of executions. Calls without a known price are `unpriced_calls`."""

    executions: int = 0
    unpriced_calls: int = 0


async def of_run(client: Client, run_id: str) -> PipelineUsage:
    """The usage of one run, with all its attempts."""
    from rota.pipelines.run import result_reader

    return taken(await result_reader.result(client, run_id))


async def of_schedule(client: Client, name: str) -> PipelineUsage:
    """The usage of a schedule's executions; of a long history, the newest `EXECUTIONS_MAX`."""
    shown = await client.schedules.get(name)
    chains = await client.connection.database.read(
        executions.latest, shown.schedule.id, limit=EXECUTIONS_MAX
    )
    total = PipelineUsage()
    for attempts in chains:
        last = attempts[-1]
        if last.output is not None:
            total += taken(msgspec.json.decode(last.output, type=PipelineResult))
        else:
            total += await of_run(client, last.root_id)
    return total


def taken(result: PipelineResult) -> PipelineUsage:
    """The usage of one result."""
    return PipelineUsage(executions=1) + result
