"""The executor of pipelines: it executes a claimed run and returns how to settle it.

Light on purpose: the code that executes a pipeline is loaded with the first one.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rota.core.pipelines.names import KIND, run_name
from rota.core.runs.model import Claim, Outcome, StoredStep
from rota.core.runs.worker_code import NO_CODE
from rota.engine.journal import PASSING

log = logging.getLogger("rota.pipelines")
# Stored names: a shard was called a part.
PART_NAME, PART_QUEUE = run_name("/part"), "pipeline-parts"

if TYPE_CHECKING:
    from rota.engine.context import EngineContext
    from rota.engine.journal import Journal
    from rota.pipelines.client import PipelineClient


class PipelineExecutor:
    """Executes runs of the pipelines that this process knows, and shards of any big run."""

    kind = KIND
    keeps_open_run = False
    code = NO_CODE

    def __init__(self, pipelines: PipelineClient, base: EngineContext, journal: Journal) -> None:
        self._pipelines = pipelines
        self.names = pipelines.run_names
        self._base = base
        self._journal = journal

    def needs_records(self, claim: Claim) -> bool:
        """Never: it reads the records that it needs."""
        return False

    async def tidy(self) -> None:
        """Nothing: it keeps no runs in memory."""

    def look_again(self, claim: Claim) -> None:
        """Nothing to do: requests to end gracefully are for workflows."""

    async def perform(self, claim: Claim, steps: Sequence[StoredStep]) -> Outcome | None:
        """Execute a run to its end, its suspension or its failure."""
        from rota.pipelines.run.runner import PipelineRunner
        from rota.pipelines.run.sharding import perform_shard

        try:
            if claim.name == PART_NAME:
                return await perform_shard(self._pipelines, self._base, self._journal, claim)
            return await PipelineRunner(self._pipelines, self._base, self._journal, claim).perform()
        except PASSING as error:  # it continues from what is recorded when the database is back
            log.warning("pipeline run %s is released: %s", claim.id, error)
            return Outcome(claim, "release")
