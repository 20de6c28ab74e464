"""Routes of pipeline runs."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any

import msgspec

from rota.core.pipelines.names import run_name
from rota.core.redaction import shown
from rota.errors import BadInput
from rota.http.fields import CONFLICT, Limit, NamesQuery, PageQuery, RequestFields, Text
from rota.http.request import Download, WebRequest
from rota.http.response_bodies import (
    ApiDocument,
    ListedRun,
    RunListDocument,
    StartedRun,
    document,
    run_list,
)
from rota.http.route import KEY, PREFIX, RouteReply, route
from rota.pipelines.client import KnownPipeline
from rota.pipelines.definition.overrides import adjusted
from rota.pipelines.outcome import CostPage, CostUnit, ItemsPage, PipelineResult, shown_item

After = Annotated[int, msgspec.Meta(ge=0, le=1_000_000_000)]


class PipelineDocument(ApiDocument, frozen=True):
    """A pipeline. `is_here`: its folder is on this server, so that it can be started here."""

    id: str
    is_here: bool
    last_run: ListedRun | None


def _pipeline(known: KnownPipeline) -> PipelineDocument:
    last = None if known.last_run is None else document(ListedRun, known.last_run)
    return PipelineDocument(known.id, known.is_here, last)


@route("GET", "/pipelines", "read", "pipelines.known")
async def list_pipelines(request: WebRequest, query: NamesQuery) -> list[PipelineDocument]:
    """List pipelines with a folder on this server, and those that ran, by name."""
    pipelines = await request.pipelines.known(
        search=query.search, after=query.after, limit=query.limit
    )
    return [_pipeline(pipeline) for pipeline in pipelines]


class DefinitionDocument(ApiDocument, frozen=True):
    """The definition of a pipeline, with its warnings."""

    id: str
    name: str
    description: str | None
    definition: dict[str, Any]
    warnings: list[str]
    etag: str


@route("GET", "/pipelines/{pipeline_id}", "read", "pipelines.load", etag=True)
async def show_pipeline(request: WebRequest, pipeline_id: str) -> RouteReply[DefinitionDocument]:
    """Show the definition of a pipeline that has its folder on this server."""
    client = request.pipelines
    loaded = client.load(client.located(pipeline_id))
    shown_as = DefinitionDocument(
        loaded.pipeline_id, loaded.pipeline.name, loaded.pipeline.description,
        shown(msgspec.to_builtins(loaded.pipeline)), [str(warning) for warning in loaded.warnings],
        f'"{loaded.digest[:32]}"',
    )  # fmt: skip
    return RouteReply(shown_as, headers={"etag": shown_as.etag})


class PipelineStartBody(RequestFields, frozen=True):
    """A run of a pipeline. A dry run asks no model; it answers with a forecast."""

    parameters: dict[str, Any] = msgspec.field(default_factory=dict)
    items: Annotated[list[dict[str, Any]], msgspec.Meta(max_length=10_000)] | None = None
    model: Text | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=1_000_000_000)] | None = None
    parallel: Annotated[int, msgspec.Meta(ge=1, le=1_000)] | None = None
    cache_from: Text | None = None
    queue: Text = "default"
    priority: Annotated[int, msgspec.Meta(ge=-1_000, le=1_000)] = 0
    tags: dict[str, str] | None = None
    dry_run: bool = False


class ForecastDocument(ApiDocument, frozen=True):
    """The estimate of a run. A number that only a run can give is null."""

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


@route(
    "POST", "/pipelines/{pipeline_id}/runs", "operate", "pipelines.start",
    status=HTTPStatus.CREATED, also=(HTTPStatus.OK,), takes_key=True,
)  # fmt: skip
async def start_pipeline(
    request: WebRequest, pipeline_id: str, body: PipelineStartBody
) -> RouteReply[PipelineStarted]:
    """Start a pipeline that has its folder on this server. 200 for a dry run or a known key."""
    client = request.pipelines
    folder = client.located(pipeline_id)
    if body.dry_run:
        if body.items is not None:
            raise BadInput(
                "a dry run reads the items of the pipeline, not those of the request",
                hint="Leave items out; `limit` counts fewer.",
            )
        loaded = adjusted(client.load(folder), limit=body.limit)
        forecast = await client.forecast(loaded, parameters=body.parameters, model=body.model)
        estimate = document(
            ForecastDocument, forecast.total(), items=forecast.items, kept=forecast.kept,
            notes=forecast.notes,
        )  # fmt: skip
        return RouteReply(PipelineStarted(forecast=estimate), HTTPStatus.OK)
    given = msgspec.structs.asdict(body)
    del given["dry_run"]
    handle = await client.start(folder, external_id=request.headers.get(KEY), **given)
    status = HTTPStatus.OK if handle.existed else HTTPStatus.CREATED
    where = {"location": f"{PREFIX}/pipeline-runs/{handle.id}"}
    return RouteReply(PipelineStarted(handle.id, handle.existed), status, where)


class CostQuery(RequestFields, frozen=True):
    """The unit of the shares; `after` is `next` of the page before."""

    by: CostUnit = "model"
    after: After = 0
    limit: Limit = 200


@route("GET", "/pipeline-runs/{run_id}/cost", "read", "pipelines.cost", problems=CONFLICT)
async def show_cost(request: WebRequest, run_id: str, query: CostQuery) -> CostPage:
    """Show calls, tokens and cost of the items of a pipeline run, by model, day or item."""
    return await request.pipelines.cost(run_id, by=query.by, after=query.after, limit=query.limit)


@route("GET", "/pipelines/{pipeline_id}/runs", "read", "runs.page", problems=())
async def list_executions(
    request: WebRequest, pipeline_id: str, query: PageQuery
) -> RunListDocument:
    """List the runs of a pipeline, newest first."""
    return run_list(await request.client.runs.page(
        name=run_name(pipeline_id), after=query.cursor or None, limit=query.limit
    ))  # fmt: skip


@route("GET", "/pipeline-runs/{run_id}", "read", "pipelines.result", problems=CONFLICT)
async def show_execution(request: WebRequest, run_id: str) -> PipelineResult:
    """Show the state or the end of a pipeline run."""
    result = await request.pipelines.result(run_id)
    return msgspec.structs.replace(result, output_fields=shown(result.output_fields))


class ItemsQuery(RequestFields, frozen=True):
    """Which items; `after` is `next` of the page before."""

    status: Text | None = None
    after: After = 0
    limit: Limit = 50


@route("GET", "/pipeline-runs/{run_id}/items", "read", "pipelines.items_page", problems=CONFLICT)
async def list_items(request: WebRequest, run_id: str, query: ItemsQuery) -> ItemsPage:
    """List the items of a pipeline run with their outcomes."""
    listed = await request.pipelines.items_page(
        run_id, after=query.after, limit=query.limit, status=query.status
    )
    return msgspec.structs.replace(listed, items=[shown_item(item) for item in listed.items])


@route(
    "GET", "/pipeline-runs/{run_id}/output", "read", "pipelines.output", problems=CONFLICT,
    media="text/plain",
)  # fmt: skip
async def stream_output(request: WebRequest, run_id: str) -> Download:
    """Stream the output of a pipeline run."""
    client = request.pipelines
    await client.result(run_id)
    return Download(client.output(run_id))


@route(
    "POST", "/pipeline-runs/{run_id}/retry", "operate", "pipelines.retry",
    status=HTTPStatus.CREATED,
)  # fmt: skip
async def retry_execution(request: WebRequest, run_id: str) -> StartedRun:
    """Retry the items that did not succeed."""
    handle = await request.pipelines.retry(run_id)
    return StartedRun(handle.id)
