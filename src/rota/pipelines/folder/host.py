"""What a scheduler of pipelines needs of the app that performs its runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from rota.pipelines.outcome import Progress

if TYPE_CHECKING:
    from rota.engine.runtime import Runtime
    from rota.pipelines.trust import Trust


class Pipelines(Protocol):
    """What a scheduler needs of `app.pipelines`."""

    trust: Trust | None

    def know(self, pipeline_id: str, folder: Path) -> None:
        """This process may perform runs of the pipeline."""
        ...

    def serve(self) -> None:
        """Take parts of big runs of others too."""
        ...

    def listen(self, callback: Callable[[Progress], object]) -> Callable[[], None]:
        """Be told of progress; returns what ends it."""
        ...


class Engine(Protocol):
    """What a scheduler needs of an app beside what every client has."""

    runtime: Runtime | None
    pipelines: Pipelines

    async def start_worker(self) -> None:
        """Perform runs, and fire schedules, in this process."""
        ...

    async def stop_worker(self, timeout_s: float | None = None) -> None:
        """Drain and sign off."""
        ...
