"""Runs that wait and keep their code in memory: a claim of this worker continues them at once.

A warm run is only an optimisation: everything that it knows is recorded. It is dropped when there
are too many, when the process needs too much memory, or when another claim came in between; then
the next claim replays it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from itertools import islice

from rota.core.runs.model import Claim
from rota.workflows.workflow_run import WorkflowRun

log = logging.getLogger("rota.workflows")

# Runs that one heartbeat looks at.
LOOK_AT = 500
# Looking at the memory costs a system call: not at every suspension.
LOOK_EVERY = 64


class WarmRuns:
    """The warm runs of one worker, the least recently used first."""

    def __init__(self, most: int, memory_mb: int, memory_now: Callable[[], int]) -> None:
        self._most = most
        self._bytes_max = memory_mb * 2**20
        self._memory_now = memory_now
        self._runs: OrderedDict[str, WorkflowRun] = OrderedDict()
        self._kept = 0
        self._closing: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._runs)

    def has(self, claim: Claim) -> bool:
        """Whether this claim continues a warm run. The claim before it must be the one under which
        the run came to rest: each claim counts, so no other worker can have recorded anything."""
        run = self._runs.get(claim.id)
        return run is not None and run.claim.claim_count == claim.claim_count - 1

    def take(self, claim: Claim) -> WorkflowRun | None:
        """The warm run of this claim; None if the claim has to replay it."""
        is_current = self.has(claim)
        run = self._runs.pop(claim.id, None)
        if run is None or is_current:
            return run
        self._drop(run)
        return None

    def keep(self, run: WorkflowRun) -> bool:
        """Keep a run that has come to rest. False if this worker keeps none."""
        if not self._most:
            return False
        self._runs[run.claim.id] = run
        self._kept += 1
        over = len(self._runs) - self._most
        if self._kept % LOOK_EVERY == 0 and self._memory_now() > self._bytes_max:
            over = max(over, len(self._runs) // 8 + 1)
        for _ in range(over):
            self._drop(self._runs.popitem(last=False)[1])
        return True

    def oldest(self, most: int) -> list[WorkflowRun]:
        """The least recently used runs."""
        return list(islice(self._runs.values(), most))

    def drop_stale(self, looked_at: Sequence[WorkflowRun], claims: Mapping[str, int]) -> None:
        """Drop those of these runs that do not wait for the next claim of this worker: `claims`
        has the numbers of claims of those that wait."""
        for run in looked_at:
            run_id = run.claim.id
            is_stale = claims.get(run_id) != run.claim.claim_count
            if is_stale and self._runs.get(run_id) is run:
                self._drop(self._runs.pop(run_id))

    async def close(self) -> None:
        """Drop all."""
        while self._runs:
            self._drop(self._runs.popitem()[1])
        if self._closing:
            await asyncio.wait(self._closing)

    def _drop(self, run: WorkflowRun) -> None:
        task = asyncio.get_running_loop().create_task(run.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
