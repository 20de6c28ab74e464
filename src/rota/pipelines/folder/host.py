"""The protocol that a pipeline scheduler needs of its app."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rota.engine.runtime import Runtime
    from rota.pipelines.client import PipelineClient


class Engine(Protocol):
    """The protocol that a scheduler needs of an app beside that of every client."""

    runtime: Runtime | None
    pipelines: PipelineClient

    async def start_worker(self) -> None:
        """Execute runs, and fire schedules, in this process."""
        ...

    async def stop_worker(self, timeout_s: float | None = None) -> None:
        """Drain and sign off."""
        ...
