"""Routes of runs and workflows."""

from __future__ import annotations

from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Any, Literal, cast

import msgspec

from rota.client.start import RunOptions, Startable
from rota.client.start_many import Start
from rota.core.json_schema import shape_of
from rota.core.runs.filters import RunSelection
from rota.core.runs.lifecycle import CONTINUED
from rota.core.time.instants import SECOND, patience_micros
from rota.errors import BadInput, UnknownWorkflow
from rota.explain.why import why
from rota.http.fields import CONFLICT, NOT_FOUND, Limit, Reason, RequestFields, Text
from rota.http.request import WebRequest
from rota.http.response_bodies import (
    BulkDocument,
    ListedRun,
    LogDocument,
    ResultDocument,
    RunDocument,
    RunIds,
    RunListDocument,
    StartedRun,
    StepDocument,
    WhyDocument,
    WorkflowDocument,
    document,
    documents,
    run_list,
    stored,
)
from rota.http.route import KEY, PREFIX, RouteReply, route

WAIT_US_MAX = 30 * SECOND
BATCH_MAX = 1_000


class RunSelectionBody(RequestFields, frozen=True, kw_only=True):
    """Filters of runs. `tag` is `key` or `key=value`; `search` is a part of a name, the beginning
    of an external id, or an end of an id."""

    name: Text = ""
    status: Text = ""
    queue: Text = ""
    kind: Text = ""
    tag: Text = ""
    schedule: Text = ""
    external_id: Text = ""
    error: Text = ""
    root_id: Text = ""
    search: Text = ""
    since: datetime | None = None
    until: datetime | None = None

    @property
    def chosen(self) -> RunSelection:
        """The filters as the client takes them."""
        names = RunSelection.__annotations__
        return cast(RunSelection, {name: getattr(self, name) for name in names})


class RunListQuery(RunSelectionBody, frozen=True, kw_only=True):
    """A page of the runs that fit the filters."""

    cursor: Text = ""
    limit: Limit = 50


@route("GET", "/runs", "read", "runs.page", problems=NOT_FOUND)
async def list_runs(request: WebRequest, query: RunListQuery) -> RunListDocument:
    """List runs, newest first. A rare filter looks back as far as `looked_back_to` says."""
    return run_list(await request.client.runs.page(
        after=query.cursor or None, limit=query.limit, **query.chosen
    ))  # fmt: skip


class StartBody(RequestFields, frozen=True):
    """The run to start. `input` holds the arguments by name, `args` those by position; these need
    the code of the workflow on this server."""

    workflow: Text
    input: dict[str, Any] = msgspec.field(default_factory=dict)
    args: list[Any] = msgspec.field(default_factory=list)
    external_id: Text | None = None
    on_conflict: Literal["return", "reject"] = "return"
    queue: Text | None = None
    priority: int | None = None
    delay: Text | None = None
    at: datetime | None = None
    key: Text | None = None
    tags: dict[str, str] | None = None
    retries: Annotated[int, msgspec.Meta(ge=0, le=1_000)] | None = None
    timeout: Text | None = None
    unique_key: Text | None = None

    def options(self, key: str | None) -> RunOptions:
        """The options of the start; an Idempotency-Key is the external id."""
        if key is not None and self.external_id not in (None, key):
            raise BadInput("external_id and Idempotency-Key differ", hint="Give one of them.")
        given = msgspec.structs.asdict(self) | {"external_id": key or self.external_id}
        for name in ("workflow", "input", "args"):
            del given[name]
        return RunOptions(**given)


@route(
    "POST", "/runs", "operate", "start", status=HTTPStatus.CREATED, also=(HTTPStatus.OK,),
    problems=CONFLICT, takes_key=True,
)  # fmt: skip
async def start_run(request: WebRequest, body: StartBody) -> RouteReply[StartedRun]:
    """Start a run."""
    options = body.options(request.headers.get(KEY))
    args = tuple(body.args)
    handle = await request.client.starter.start(body.workflow, args, body.input, options)
    if handle.existed and request.headers.get(KEY) is not None:
        fresh = request.client.starter.new_run(body.workflow, args, body.input, options)
        await same_input(request, handle.id, stored(fresh.input) if fresh.input else {})
    return started(handle.id, existed=handle.existed)


async def same_input(request: WebRequest, run_id: str, given: dict[str, Any]) -> None:
    """Refuse a repeated key with another input."""
    run = await request.client.runs.get(run_id)
    if (stored(run.input) if run.input else {}) != given:
        raise BadInput(
            "the Idempotency-Key was used with another input",
            hint="Use a new key for a new run.", run_id=run_id,
        )  # fmt: skip


def started(run_id: str, *, existed: bool) -> RouteReply[StartedRun]:
    """201 with the address of a new run, 200 for one that was there."""
    status = HTTPStatus.OK if existed else HTTPStatus.CREATED
    headers = {"location": f"{PREFIX}/runs/{run_id}"}
    return RouteReply(StartedRun(run_id, existed), status, headers)


class BatchItem(RequestFields, frozen=True):
    """One run of a batch."""

    input: dict[str, Any] = msgspec.field(default_factory=dict)
    external_id: Text | None = None
    key: Text | None = None


class BatchBody(RequestFields, frozen=True):
    """Many runs of one workflow. All are checked before the first one starts."""

    workflow: Text
    items: Annotated[list[BatchItem], msgspec.Meta(min_length=1, max_length=BATCH_MAX)]
    queue: Text | None = None
    priority: int | None = None
    delay: Text | None = None
    tags: dict[str, str] | None = None


@route(
    "POST", "/runs/batch", "operate", "start_many", status=HTTPStatus.CREATED,
    also=(HTTPStatus.OK,), problems=NOT_FOUND, takes_key=True,
)  # fmt: skip
async def start_batch(request: WebRequest, body: BatchBody) -> RouteReply[list[StartedRun]]:
    """Start many runs of one workflow. 200 when all of them were there already."""
    options = RunOptions(queue=body.queue, priority=body.priority, delay=body.delay, tags=body.tags)
    key = request.headers.get(KEY)
    items = [
        Start((), item.input, item.external_id or (key and f"{key}#{number}"), item.key)
        for number, item in enumerate(body.items)
    ]
    handles = await request.client.starter.start_many(body.workflow, items, options)
    if key is not None:
        for handle, item in zip(handles, body.items, strict=True):
            if handle.existed:
                await same_input(request, handle.id, item.input)
    existed = all(handle.existed for handle in handles)
    status = HTTPStatus.OK if existed else HTTPStatus.CREATED
    return RouteReply([StartedRun(handle.id, handle.existed) for handle in handles], status)


@route("GET", "/runs/{run_id}", "read", "runs.get")
async def show_run(request: WebRequest, run_id: str) -> RunDocument:
    """Show a run; one that continued as new: the newest run of its chain.

    A part of the id is enough if it fits one run only.
    """
    run = await request.client.runs.get(run_id)
    if run.reason == CONTINUED:
        run = await request.client.runs.newest(run.id)
    return document(RunDocument, run)


@route("GET", "/runs/{run_id}/attempts", "read", "runs.chain", problems=CONFLICT)
async def list_attempts(request: WebRequest, run_id: str) -> list[RunDocument]:
    """List every attempt of a run, first to last."""
    return documents(RunDocument, await request.client.runs.chain(run_id))


class StepsQuery(RequestFields, frozen=True):
    """A page of steps; `after` is the key of the last step of the page before."""

    after: Text = ""
    limit: Limit = 200


@route("GET", "/runs/{run_id}/steps", "read", "runs.steps_page")
async def list_steps(request: WebRequest, run_id: str, query: StepsQuery) -> list[StepDocument]:
    """List the recorded steps of a run, in order."""
    steps = await request.client.runs.steps_page(run_id, after=query.after, limit=query.limit)
    return [StepDocument.of(step) for step in steps]


class LogQuery(RequestFields, frozen=True):
    """A page of log lines."""

    after: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = 0
    limit: Limit = 200


@route("GET", "/runs/{run_id}/logs", "read", "runs.logs")
async def list_logs(request: WebRequest, run_id: str, query: LogQuery) -> list[LogDocument]:
    """List the log lines of an attempt, oldest first."""
    entries = await request.client.runs.logs(run_id, after=query.after, limit=query.limit)
    return documents(LogDocument, entries)


class ChildrenQuery(RequestFields, frozen=True):
    """A page of children."""

    after: Text = ""
    limit: Limit = 100


@route("GET", "/runs/{run_id}/children", "read", "runs.children")
async def list_children(request: WebRequest, run_id: str, query: ChildrenQuery) -> list[ListedRun]:
    """List the runs that a run started as its children, oldest first."""
    children = await request.client.runs.children(run_id, after=query.after, limit=query.limit)
    return documents(ListedRun, children)


@route("GET", "/runs/{run_id}/why", "read", "why")
async def explain_run(request: WebRequest, run_id: str) -> WhyDocument:
    """Explain why a run runs, waits or ended."""
    run = await request.client.runs.get(run_id)
    return WhyDocument(*await why(request.client, run.id))


class WaitQuery(RequestFields, frozen=True):
    """How long to wait, at most 30s."""

    wait: Text = "0s"


@route(
    "GET", "/runs/{run_id}/result", "read", "runs.wait", also=(HTTPStatus.ACCEPTED,), limit_s=35.0,
)  # fmt: skip
async def run_result(
    request: WebRequest, run_id: str, query: WaitQuery
) -> RouteReply[ResultDocument]:
    """Wait for the result of a run. 202 while it has not ended."""
    limit_us = min(patience_micros(query.wait), WAIT_US_MAX)
    run = await request.client.runs.get(run_id)
    try:
        ended = await request.client.runs.wait(run.id, timeout=limit_us / SECOND)
    except TimeoutError:
        return RouteReply(ResultDocument(run.id, False), HTTPStatus.ACCEPTED)
    return RouteReply(document(ResultDocument, ended, id=run.id, is_over=True))


class CancelBody(RequestFields, frozen=True):
    """Why the run is cancelled. With a `grace`, its code may clean up for that time."""

    reason: Reason = "by request"
    grace: Text | None = None


@route("POST", "/runs/{run_id}/cancel", "operate", "runs.cancel")
async def cancel_run(request: WebRequest, run_id: str, body: CancelBody) -> RunIds:
    """Cancel a run and its children."""
    ids = await request.client.runs.cancel(run_id, reason=body.reason, grace=body.grace)
    return RunIds(list(ids))


class RetryBody(RequestFields, frozen=True):
    """`expected` is the id of the attempt that was looked at. If it was retried in the meantime,
    the answer is that retry, and nothing happens."""

    expected: Text | None = None


@route(
    "POST", "/runs/{run_id}/retry", "operate", "runs.retry", status=HTTPStatus.CREATED,
    also=(HTTPStatus.OK,),
)  # fmt: skip
async def retry_run(request: WebRequest, run_id: str, body: RetryBody) -> RouteReply[StartedRun]:
    """Retry a run from its last finished step."""
    if body.expected is not None:
        attempts = await request.client.runs.chain(run_id)
        if body.expected not in [run.id for run in attempts]:
            raise BadInput(
                f"{body.expected!r} is not an attempt of run {run_id}",
                hint="Give the whole id of the attempt that you have seen.",
            )
        for run in attempts:
            if run.retry_of == body.expected:
                return started(run.id, existed=True)
    handle = await request.client.runs.retry(run_id)
    newest = await request.client.runs.newest(handle.id)
    return started(newest.id, existed=False)


class ForkBody(RequestFields, frozen=True):
    """The point at which the new run begins."""

    from_step: Text


@route(
    "POST", "/runs/{run_id}/fork", "operate", "runs.fork", status=HTTPStatus.CREATED,
    also=(HTTPStatus.OK,), takes_key=True,
)  # fmt: skip
async def fork_run(request: WebRequest, run_id: str, body: ForkBody) -> RouteReply[StartedRun]:
    """Start a new run with the same input that keeps the steps before a given one."""
    handle = await request.client.runs.fork(
        run_id, from_step=body.from_step, external_id=request.headers.get(KEY)
    )
    return started(handle.id, existed=handle.existed)


class SignalBody(RequestFields, frozen=True):
    """The value of the signal."""

    value: Any = None


@route(
    "POST", "/runs/{run_id}/signals/{name}", "operate", "runs.signal",
    status=HTTPStatus.ACCEPTED,
)  # fmt: skip
async def signal_run(request: WebRequest, run_id: str, name: str, body: SignalBody) -> None:
    """Send a signal to a run."""
    await request.client.runs.signal(run_id, name, body.value)


class ActionBody(RequestFields, frozen=True):
    """The action on the runs of a filter. A dry run counts; its count is `expected_count`."""

    verb: Literal["retry", "cancel"]
    filter: RunSelectionBody = RunSelectionBody()
    expected_count: Annotated[int, msgspec.Meta(ge=0, le=BATCH_MAX)] | None = None
    dry_run: bool = False
    reason: Reason = "by request"
    grace: Text | None = None


@route(
    "POST", "/runs/actions", "operate", "runs.apply", status=HTTPStatus.ACCEPTED,
    also=(HTTPStatus.OK,), problems=CONFLICT, audits_body=True,
)  # fmt: skip
async def act_on_runs(request: WebRequest, body: ActionBody) -> RouteReply[BulkDocument]:
    """Retry or cancel up to 1,000 runs by filter. 200 for a dry run."""
    done = await request.client.runs.apply(
        body.verb, dry_run=body.dry_run, expected_count=body.expected_count, reason=body.reason,
        grace=body.grace, **body.filter.chosen,
    )  # fmt: skip
    status = HTTPStatus.OK if body.dry_run else HTTPStatus.ACCEPTED
    return RouteReply(document(BulkDocument, done), status)


# -- workflows ---------------------------------------------------------------------------------


@route("GET", "/workflows", "read", "workflows")
async def list_workflows(request: WebRequest) -> list[WorkflowDocument]:
    """List the workflows that the code of this server registers."""
    known: dict[str, Startable[..., Any]] = getattr(request.client, "workflows", {})
    return [workflow_document(known[name], with_schema=False) for name in sorted(known)]


@route("GET", "/workflows/{name}", "read", "workflows")
async def show_workflow(request: WebRequest, name: str) -> WorkflowDocument:
    """Show a workflow with the JSON Schema of its input."""
    workflow = request.client.starter.workflow_named(name)
    if workflow is None:
        raise UnknownWorkflow(f"the code of {name!r} is not known to this server")
    return workflow_document(workflow, with_schema=True)


def workflow_document(workflow: Startable[..., Any], *, with_schema: bool) -> WorkflowDocument:
    """A workflow for a page or a program."""
    schema = shape_of(workflow.signature.arguments) if with_schema else None
    return document(WorkflowDocument, workflow, input_schema=schema)
