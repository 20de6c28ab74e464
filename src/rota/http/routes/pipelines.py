"""Routes of pipeline runs."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated

import msgspec

from rota.core.redaction import shown
from rota.http.document import documents
from rota.http.documents import ListedRun, StartedRun
from rota.http.request import Download, WebRequest
from rota.http.route import Route, route
from rota.http.routes.runs import STEERED, Limit, Text
from rota.pipelines.client import PipelineClient
from rota.pipelines.outcome import ItemsPage, PipelineResult, shown_item

if TYPE_CHECKING:
    from rota.client.client import Client

PREFIX_OF_RUNS = "pipeline:"


def pipelines_of(client: Client) -> PipelineClient:
    """The pipelines of an app; a bare client knows no folders, but reads every run."""
    own = getattr(client, "pipelines", None)
    return own if isinstance(own, PipelineClient) else PipelineClient(client)


class ExecutionsQuery(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """How many runs."""

    limit: Limit = 50


@route("GET", "/pipelines/{pipeline_id}/runs", "read", "runs.page")
async def list_executions(
    request: WebRequest, pipeline_id: str, query: ExecutionsQuery
) -> list[ListedRun]:
    """List the runs of a pipeline, newest first."""
    found = await request.client.runs.list(name=f"{PREFIX_OF_RUNS}{pipeline_id}", limit=query.limit)
    return documents(ListedRun, found)


@route("GET", "/pipeline-runs/{run_id}", "read", "pipelines.result", problems=STEERED)
async def show_execution(request: WebRequest, run_id: str) -> PipelineResult:
    """Show the state or the end of a pipeline run."""
    found = await pipelines_of(request.client).result(run_id)
    return msgspec.structs.replace(found, output_fields=shown(found.output_fields))


class ItemsQuery(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Which items; `after` is `next` of the page before."""

    status: Text | None = None
    after: Annotated[int, msgspec.Meta(ge=0, le=1_000_000_000)] = 0
    limit: Limit = 50


@route("GET", "/pipeline-runs/{run_id}/items", "read", "pipelines.items_page", problems=STEERED)
async def list_items(request: WebRequest, run_id: str, query: ItemsQuery) -> ItemsPage:
    """List the items of a pipeline run with what became of them."""
    found = await pipelines_of(request.client).items_page(
        run_id, after=query.after, limit=query.limit, status=query.status
    )
    return msgspec.structs.replace(found, items=[shown_item(one) for one in found.items])


@route(
    "GET", "/pipeline-runs/{run_id}/output", "read", "pipelines.output", problems=STEERED,
    media="text/plain",
)  # fmt: skip
async def stream_output(request: WebRequest, run_id: str) -> Download:
    """Stream the output of a pipeline run."""
    client = pipelines_of(request.client)
    await client.result(run_id)
    return Download(client.output(run_id))


@route(
    "POST", "/pipeline-runs/{run_id}/retry", "operate", "pipelines.retry",
    status=HTTPStatus.CREATED, problems=STEERED,
)  # fmt: skip
async def retry_execution(request: WebRequest, run_id: str) -> StartedRun:
    """Try the items again that did not succeed."""
    handle = await pipelines_of(request.client).retry(run_id)
    return StartedRun(handle.id)


ROUTES: tuple[Route, ...] = (
    list_executions, show_execution, list_items, stream_output, retry_execution,
)  # fmt: skip
