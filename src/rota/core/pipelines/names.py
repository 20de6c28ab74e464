"""The names of pipeline runs: one prefix keeps them apart from names of workflows. Pure."""

from __future__ import annotations

KIND = "pipeline"
PREFIX = "pipeline:"


def run_name(pipeline_id: str) -> str:
    """The name of the runs of a pipeline."""
    return PREFIX + pipeline_id


def pipeline_id_of(name: str) -> str:
    """The pipeline of a run of that name."""
    return name.removeprefix(PREFIX)
