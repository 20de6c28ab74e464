"""Routes of pipeline runs."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from rota.core.redaction import shown
from rota.http.document import document, documents, written
from rota.http.documents import ListedRun, RunListDocument, StartedRun
from rota.http.fields import NOT_FOUND, STEERED, Limit, PageQuery, Text
from rota.http.pipeline_documents import (
    DefinitionDocument,
    ForecastDocument,
    PipelineDocument,
    PipelineStarted,
)
from rota.http.request import Download, WebRequest
from rota.http.route import KEY, PREFIX, Route, RouteReply, route
from rota.pipelines.client import KnownPipeline, PipelineClient
from rota.pipelines.outcome import CostPage, CostUnit, ItemsPage, PipelineResult, shown_item

if TYPE_CHECKING:
    from rota.client.client import Client
    from rota.pipelines.preview.dry_run import Forecast

PREFIX_OF_RUNS = "pipeline:"
After = Annotated[int, msgspec.Meta(ge=0, le=1_000_000_000)]


def pipelines_of(client: Client) -> PipelineClient:
    """The pipelines of an app; a bare client knows no folders, but reads every run."""
    own = getattr(client, "pipelines", None)
    return own if isinstance(own, PipelineClient) else PipelineClient(client)


def _pipeline(known: KnownPipeline) -> PipelineDocument:
    last = None if known.last_run is None else document(ListedRun, known.last_run)
    return PipelineDocument(known.id, known.is_here, last)


class PipelinesQuery(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A page of pipelines; `search` is a part of the name, `after` the last name of the page
    before."""

    search: Text = ""
    after: Text = ""
    limit: Limit = 200


@route("GET", "/pipelines", "read", "pipelines.known")
async def list_pipelines(request: WebRequest, query: PipelinesQuery) -> list[PipelineDocument]:
    """List pipelines with a folder on this server, and those that ran, by name."""
    found = await pipelines_of(request.client).known(
        search=query.search, after=query.after, limit=query.limit
    )
    return [_pipeline(one) for one in found]


@route("GET", "/pipelines/{pipeline_id}", "read", "pipelines.load", problems=NOT_FOUND, etag=True)
async def show_pipeline(request: WebRequest, pipeline_id: str) -> RouteReply[DefinitionDocument]:
    """Show the definition of a pipeline that has its folder on this server."""
    client = pipelines_of(request.client)
    loaded = client.load(client.located(pipeline_id))
    shown_as = DefinitionDocument(
        loaded.pipeline_id, loaded.pipeline.name, loaded.pipeline.description,
        shown(msgspec.to_builtins(loaded.pipeline)), [str(one) for one in loaded.warnings],
        f'"{loaded.digest[:32]}"',
    )  # fmt: skip
    return RouteReply(shown_as, headers={"etag": shown_as.etag})


class PipelineStartBody(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A run of a pipeline. A dry run asks no model; it answers with a forecast."""

    parameters: dict[str, Any] = {}
    items: Annotated[list[dict[str, Any]], msgspec.Meta(max_length=10_000)] | None = None
    model: Text | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=1_000_000_000)] | None = None
    parallel: Annotated[int, msgspec.Meta(ge=1, le=1_000)] | None = None
    cache_from: Text | None = None
    queue: Text = "default"
    priority: Annotated[int, msgspec.Meta(ge=-1_000, le=1_000)] = 0
    tags: dict[str, str] | None = None
    dry_run: bool = False


@route(
    "POST", "/pipelines/{pipeline_id}/runs", "operate", "pipelines.start",
    status=HTTPStatus.CREATED, also=(HTTPStatus.OK,), problems=STEERED, takes_key=True,
)  # fmt: skip
async def start_pipeline(
    request: WebRequest, pipeline_id: str, body: PipelineStartBody
) -> RouteReply[PipelineStarted]:
    """Start a pipeline that has its folder on this server. 200 for a dry run or a known key."""
    client = pipelines_of(request.client)
    folder = client.located(pipeline_id)
    if body.dry_run:
        found = await client.forecast(folder, parameters=body.parameters, model=body.model)
        return RouteReply(PipelineStarted(forecast=_forecast(found)), HTTPStatus.OK)
    handle = await client.start(
        folder, parameters=body.parameters, items=body.items, model=body.model, limit=body.limit,
        parallel=body.parallel, cache_from=body.cache_from, queue=body.queue,
        priority=body.priority, tags=body.tags, external_id=request.headers.get(KEY),
    )  # fmt: skip
    status = HTTPStatus.OK if handle.existed else HTTPStatus.CREATED
    where = {"location": f"{PREFIX}/pipeline-runs/{handle.id}"}
    return RouteReply(PipelineStarted(handle.id, handle.existed), status, where)


def _forecast(found: Forecast) -> ForecastDocument:
    total = found.total()
    return ForecastDocument(
        found.items, found.kept, total.calls, total.tokens_in, total.tokens_out, total.cost_usd,
        found.notes,
    )  # fmt: skip


class CostQuery(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Shares by what; `after` is `next` of the page before."""

    by: CostUnit = "model"
    after: After = 0
    limit: Limit = 200


@route("GET", "/pipeline-runs/{run_id}/cost", "read", "pipelines.cost", problems=STEERED)
async def show_cost(request: WebRequest, run_id: str, query: CostQuery) -> CostPage:
    """Show calls, tokens and cost of the items of a pipeline run, by model, day or item."""
    return await pipelines_of(request.client).cost(
        run_id, by=query.by, after=query.after, limit=query.limit
    )


@route("GET", "/pipelines/{pipeline_id}/runs", "read", "runs.page")
async def list_executions(
    request: WebRequest, pipeline_id: str, query: PageQuery
) -> RunListDocument:
    """List the runs of a pipeline, newest first."""
    found = await request.client.runs.page(
        name=f"{PREFIX_OF_RUNS}{pipeline_id}", after=query.cursor or None, limit=query.limit
    )
    return RunListDocument(
        documents(ListedRun, found.runs), found.next, written(found.looked_back_to)
    )


@route("GET", "/pipeline-runs/{run_id}", "read", "pipelines.result", problems=STEERED)
async def show_execution(request: WebRequest, run_id: str) -> PipelineResult:
    """Show the state or the end of a pipeline run."""
    found = await pipelines_of(request.client).result(run_id)
    return msgspec.structs.replace(found, output_fields=shown(found.output_fields))


class ItemsQuery(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Which items; `after` is `next` of the page before."""

    status: Text | None = None
    after: After = 0
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
    list_pipelines, show_pipeline, start_pipeline, list_executions, show_execution, list_items,
    show_cost, stream_output, retry_execution,
)  # fmt: skip
