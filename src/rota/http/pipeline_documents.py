"""The bodies of answers about pipelines."""

from __future__ import annotations

from typing import Any

from rota.http.document import ApiDocument
from rota.http.documents import ListedRun


class PipelineDocument(ApiDocument, frozen=True):
    """A pipeline. `is_here`: its folder is on this server, so that it can be started here."""

    id: str
    is_here: bool
    last_run: ListedRun | None


class DefinitionDocument(ApiDocument, frozen=True):
    """The definition of a pipeline, with what is odd about it."""

    id: str
    name: str
    description: str | None
    definition: dict[str, Any]
    warnings: list[str]
    etag: str


class ForecastDocument(ApiDocument, frozen=True):
    """The estimate of a run. A number that only the run can tell is null."""

    items: int | None
    kept: int | None
    calls: int
    tokens_in: int
    tokens_out: int
    cost_usd: float | None
    notes: list[str]


class PipelineStarted(ApiDocument, frozen=True):
    """The run that was started, or the forecast of a dry run."""

    id: str | None = None
    existed: bool = False
    forecast: ForecastDocument | None = None
