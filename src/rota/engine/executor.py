"""The protocol of a kind of work. Workflows, automations and pipelines each bring one executor; the
loops know nothing else of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from rota.core.runs.code_set import CodeSet
from rota.core.runs.model import Claim, Outcome, StoredStep


class Executor(Protocol):
    """Executes runs of one kind."""

    kind: str
    keeps_open_run: bool  # whether its work always has an open run, however often one crashes
    replays: bool  # whether it wants all steps of a run's chain available, to answer from

    @property
    def code(self) -> CodeSet:
        """Runs that it executes only while its code is the deployed one."""
        ...

    def names(self) -> list[str]:
        """The names it can execute, whatever their code."""
        ...

    async def perform(self, claim: Claim, steps: Sequence[StoredStep]) -> Outcome | None:
        """Execute a claimed run, given what its chain has recorded. Raises LeaseLost when it
        learns that the run is no longer ours. None: it has settled the run itself."""
        ...
