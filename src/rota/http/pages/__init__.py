"""The dashboard: one file per page, listed in `PAGES`."""

from __future__ import annotations

from dataclasses import replace

from rota.http.pages import (
    automation,
    automations,
    bulk,
    login,
    overview,
    pipeline_run,
    pipelines,
    run,
    runs,
    schedule,
    schedule_edit,
    schedules,
    workers,
)
from rota.http.pages.attention import count_attention
from rota.http.pages.problem import problem_page
from rota.http.request import Answer, WebRequest
from rota.http.router import Page, PageHandler

__all__ = ["PAGES", "problem_page"]


def _counted(page: Page) -> Page:
    """The same page with the count of what waits in its navigation."""
    if page.role == "open" or page.path == "/":
        return page  # it has no navigation, or it counts by itself
    handler: PageHandler = page.handler

    async def counted(request: WebRequest) -> Answer:
        if page.method == "GET":
            await count_attention(request)
            return await handler(request)
        try:
            return await handler(request)
        finally:
            # The action may have changed what waits: the next page counts again.
            request.site.attention = (float("-inf"), request.site.attention[1])

    return replace(page, handler=counted)


_PAGES: tuple[Page, ...] = (
    Page("GET", "/", "read", overview.show),
    Page("GET", "/login", "open", login.show),
    Page("POST", "/login", "open", login.enter),
    Page("GET", "/find", "read", runs.find),
    Page("GET", "/runs", "read", runs.show),
    Page("POST", "/runs", "operate", runs.start),
    Page("GET", "/runs/new", "operate", runs.new),
    Page("GET", "/runs/bulk", "operate", bulk.show),
    Page("POST", "/runs/bulk", "operate", bulk.act_on),
    Page("GET", "/runs/{run_id}", "read", run.show),
    Page("POST", "/runs/{run_id}/retry", "operate", run.retry),
    Page("POST", "/runs/{run_id}/cancel", "operate", run.cancel),
    Page("POST", "/runs/{run_id}/signal", "operate", run.signal),
    Page("GET", "/schedules", "read", schedules.show),
    Page("POST", "/schedules", "operate", schedule_edit.create),
    Page("GET", "/schedules/new", "operate", schedule_edit.new),
    Page("POST", "/schedules/preview", "operate", schedule_edit.preview),
    Page("GET", "/schedules/{name}", "read", schedule.show),
    Page("POST", "/schedules/{name}", "operate", schedule_edit.save),
    Page("GET", "/schedules/{name}/edit", "operate", schedule_edit.edit),
    Page("POST", "/schedules/{name}/preview", "operate", schedule_edit.preview),
    Page("POST", "/schedules/{name}/pause", "operate", schedule.pause),
    Page("POST", "/schedules/{name}/resume", "operate", schedule.resume),
    Page("POST", "/schedules/{name}/trigger", "operate", schedule.trigger),
    Page("POST", "/schedules/{name}/backfill", "operate", schedule.backfill),
    Page("POST", "/schedules/{name}/reset", "operate", schedule.reset),
    Page("GET", "/automations", "read", automations.show),
    Page("GET", "/automations/{name}", "read", automation.show),
    Page("POST", "/automations/{name}/answer", "operate", automation.answer),
    Page("POST", "/automations/{name}/pause", "operate", automation.pause),
    Page("POST", "/automations/{name}/resume", "operate", automation.resume),
    Page("POST", "/automations/{name}/run", "operate", automation.run_now),
    Page("POST", "/automations/{name}/skip", "operate", automation.skip),
    Page("GET", "/pipelines", "read", pipelines.show),
    Page("GET", "/pipeline-runs/{run_id}", "read", pipeline_run.show),
    Page("GET", "/pipeline-runs/{run_id}/output", "read", pipeline_run.output),
    Page("POST", "/pipeline-runs/{run_id}/retry", "operate", pipeline_run.retry),
    Page("POST", "/pipeline-runs/{run_id}/cancel", "operate", pipeline_run.cancel),
    Page("GET", "/workers", "read", workers.show),
    Page("POST", "/queues/{name}/pause", "operate", workers.pause),
    Page("POST", "/queues/{name}/resume", "operate", workers.resume),
)

PAGES: tuple[Page, ...] = tuple(_counted(page) for page in _PAGES)
