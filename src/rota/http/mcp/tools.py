"""The tools of the MCP server: routes of the API under the names that an assistant sees.

No tool approves, rejects or resolves: a person does that, on the page that `answer_page` names."""

from __future__ import annotations

from collections import Counter

from rota.explain.why import why
from rota.http.mcp.tool import McpTool
from rota.http.request import WebRequest
from rota.http.response_bodies import ApiDocument, WhyDocument
from rota.http.route import route
from rota.http.routes import automations, pipelines, runs, schedules, system
from rota.http.routes.schedules import WhyQuery
from rota.http.routes.system import QueueDocument, RecentDocument, WithinQuery


@route("GET", "/why/{name}", "read", "why")
async def explain(request: WebRequest, name: str, query: WhyQuery) -> WhyDocument:
    """Explain why a schedule, automation or run did or did not run. `at` asks about one time."""
    return WhyDocument(*await why(request.client, name, at=query.at))


class OverviewDocument(ApiDocument, frozen=True):
    """The state of everything, in short."""

    counts: RecentDocument
    needs_attention: int
    workers: dict[str, int]
    queues: list[QueueDocument]


@route("GET", "/overview", "read", "overview.counts")
async def overview(request: WebRequest, query: WithinQuery) -> OverviewDocument:
    """Show runs by status, what waits for an operator, workers by state, and queues."""
    states = Counter(worker.state for worker in await request.client.overview.workers())
    return OverviewDocument(
        await system.count_runs.function(request, query),
        len(await request.client.overview.attention()),
        dict(states),
        await system.list_queues.function(request),
    )


class AnswerPage(ApiDocument, frozen=True):
    """The place at which a person answers."""

    url: str
    sentence: str


@route("GET", "/answer-page/{name}", "read", "automations.show")
async def answer_page(request: WebRequest, name: str) -> AnswerPage:
    """Name the page where a person approves, rejects or resolves what an automation waits for."""
    view = await request.client.automations.show(name)
    return AnswerPage(f"{request.site.url}/automations/{name}", view.sentence)


TOOLS: tuple[McpTool, ...] = (
    McpTool("needs_attention", system.list_attention),
    McpTool("overview", overview),
    McpTool("list_runs", runs.list_runs),
    McpTool("show_run", runs.show_run, "Show a run: state, input, output, error."),
    McpTool("run_steps", runs.list_steps),
    McpTool("run_logs", runs.list_logs),
    McpTool("why", explain),
    McpTool("list_schedules", schedules.list_schedules),
    McpTool("upcoming", schedules.list_upcoming),
    McpTool("occurrences", schedules.list_occurrences),
    McpTool("list_automations", automations.list_automations),
    McpTool("show_automation", automations.show_automation),
    McpTool("answer_page", answer_page),
    McpTool("pipeline_results", pipelines.show_execution),
    McpTool("pipeline_items", pipelines.list_items),
    McpTool("cost", pipelines.show_cost),
    McpTool("list_workers", system.list_workers),
    McpTool("list_queues", system.list_queues),
    McpTool("health", system.examine_store),
    McpTool("trigger_schedule", schedules.trigger_schedule),
    McpTool("pause_schedule", schedules.pause_schedule),
    McpTool("resume_schedule", schedules.resume_schedule),
    McpTool("pause_automation", automations.pause_automation),
    McpTool("resume_automation", automations.resume_automation),
    McpTool("run_automation", automations.run_automation),
    McpTool("retry_run", runs.retry_run),
    McpTool("cancel_run", runs.cancel_run, destroys=True),
    McpTool("retry_failed_items", pipelines.retry_execution),
)


def tools_for(*, writes: bool) -> dict[str, McpTool]:
    """The tools by name; those that change something only where that is allowed."""
    return {tool.name: tool for tool in TOOLS if writes or not tool.writes}
