"""Pipelines: folders with a pipeline.yaml that defines prompts, items and a schedule.

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

_MODULES = {
    "EXIT": "outcome",
    "ItemError": "outcome",
    "ItemOutcome": "outcome",
    "Loaded": "definition.loader",
    "PipelineResult": "outcome",
    "PipelineScheduler": "folder.scheduler",
    "Progress": "outcome",
}


def load(path: Path | str) -> Loaded:
    """Read and check a pipeline; BadPipeline with all its problems."""
    from rota.pipelines.definition.locate import open_pipeline

    return open_pipeline(Path(path))


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


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
