"""Pipelines: folders with a pipeline.yaml that say what to ask about which items, and when.

    from rota.pipelines import load

    ref = await app.pipelines.start(load("pipelines/daily-report"))
    result = await ref.result()          # a PipelineResult

The names here load on first use.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rota.pipelines.definition.loader import Loaded
    from rota.pipelines.folder.scheduler import PipelineScheduler
    from rota.pipelines.outcome import EXIT, ItemError, ItemOutcome, PipelineResult, Progress

_ROOMS = {
    "EXIT": "outcome",
    "ItemError": "outcome",
    "ItemOutcome": "outcome",
    "Loaded": "definition.loader",
    "PipelineResult": "outcome",
    "PipelineScheduler": "folder.scheduler",
    "Progress": "outcome",
}


def load(path: Path | str) -> Loaded:
    """Read and check a pipeline; BadPipeline with everything that is wrong with it."""
    from rota.engine.clock import SystemClock
    from rota.pipelines.definition.loader import read_pipeline

    return read_pipeline(Path(path), now=SystemClock().now())


def __getattr__(name: str) -> Any:
    if name not in _ROOMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_ROOMS[name]}"), name)


__all__ = [
    "EXIT",
    "ItemError",
    "ItemOutcome",
    "Loaded",
    "PipelineResult",
    "PipelineScheduler",
    "Progress",
    "load",
]
