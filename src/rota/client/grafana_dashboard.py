"""A dashboard for Grafana, as one table of panels: `rota metrics --grafana` prints it as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

ROW_HEIGHT, PANEL_HEIGHT, WIDTH, COLUMNS = 1, 7, 24, 3
SPACE = 'namespace=~"$namespace"'


class DashboardPanel(NamedTuple):
    """One panel: a title, queries with their legends, and a unit."""

    title: str
    queries: tuple[tuple[str, str], ...]
    unit: str = "short"
    kind: str = "timeseries"


def _rate(metric: str, by: str) -> str:
    return f"sum by ({by}) (rate({metric}{{{SPACE}}}[$__rate_interval]))"


def _quantile(part: float, metric: str, by: str, filters: str = SPACE) -> str:
    rate = f"rate({metric}_bucket{{{filters}}}[$__rate_interval])"
    return f"histogram_quantile({part:g}, sum by ({by}, le) ({rate}))"


ROWS: dict[str, tuple[DashboardPanel, ...]] = {
    "Health": (
        DashboardPanel("Workers", ((f"rota_workers{{{SPACE}}}", "{{state}}"),), kind="stat"),
        DashboardPanel(
            "Waiting for an operator",
            ((f"sum by (why) (rota_waiting_for_person{{{SPACE}}})", "{{why}}"),), kind="stat",
        ),
        DashboardPanel(
            "Lapsed leases, disarmed, versions",
            (
                (f"rota_runs_lapsed{{{SPACE}}}", "lapsed"),
                (f"rota_disarmed{{{SPACE}}}", "disarmed"),
                (f"count by (version) (rota_build_info{{{SPACE}}})", "version {{version}}"),
            ),
            kind="stat",
        ),
    ),
    "Runs": (
        DashboardPanel(
            "Ended per second", ((_rate("rota_runs_finished_total", "status"), "{{status}}"),),
            "ops",
        ),
        DashboardPanel(
            "Duration", tuple(
                (_quantile(part, "rota_run_seconds", "kind"), f"p{100 * part:g} {{{{kind}}}}")
                for part in (0.5, 0.95)
            ),
            "s",
        ),
        DashboardPanel(
            "Open runs", ((f"sum by (status) (rota_runs_open{{{SPACE}}})", "{{status}}"),)
        ),
        DashboardPanel(
            "Ended in the last hour, as stored",
            ((f"sum by (status) (rota_runs_ended{{{SPACE}}})", "{{status}}"),),
        ),
        DashboardPanel(
            "Recovered from dead workers", ((_rate("rota_runs_recovered_total", "namespace"), ""),),
            "ops",
        ),
    ),
    "Schedules": (
        DashboardPanel(
            "Lateness of firing", tuple(
                (_quantile(part, "rota_schedule_lateness_seconds", "namespace"), f"p{100 * part:g}")
                for part in (0.5, 0.99)
            ),
            "s",
        ),
        DashboardPanel(
            "Skipped, by reason", ((_rate("rota_schedule_skipped_total", "reason"), "{{reason}}"),),
            "ops",
        ),
        DashboardPanel(
            "Overdue",
            (
                (f"rota_schedules_overdue{{{SPACE}}}", "schedules"),
                (f"rota_schedules_overdue_seconds_max{{{SPACE}}}", "seconds at most"),
            ),
        ),
        DashboardPanel(
            "Next due",
            ((f"rota_schedule_next_due_timestamp_seconds{{{SPACE}}} - time()", "{{schedule}}"),),
            "s",
        ),
        DashboardPanel(
            "Since the last occurrence",
            ((f"time() - rota_schedule_last_fired_timestamp_seconds{{{SPACE}}}", "{{schedule}}"),),
            "s",
        ),
        DashboardPanel("Schedules", ((f"rota_schedules{{{SPACE}}}", "{{status}}"),), kind="stat"),
    ),
    "Queues and workers": (
        DashboardPanel("Pending", ((f"rota_queue_pending_runs{{{SPACE}}}", "{{queue}}"),)),
        DashboardPanel(
            "Oldest pending", ((f"rota_queue_oldest_pending_seconds{{{SPACE}}}", "{{queue}}"),), "s"
        ),
        DashboardPanel(
            "Ready until claimed", tuple(
                (_quantile(part, "rota_run_wait_seconds", "kind"), f"p{100 * part:g} {{{{kind}}}}")
                for part in (0.5, 0.99)
            ),
            "s",
        ),
        DashboardPanel("Workers by queue", ((f"rota_queue_workers{{{SPACE}}}", "{{queue}}"),)),
        DashboardPanel("Slots", ((f"rota_worker_slots{{{SPACE}}}", "slots"),), kind="stat"),
    ),
    "Automations and pipelines": (
        DashboardPanel("Automations", ((f"rota_automations{{{SPACE}}}", "{{word}}"),)),
        DashboardPanel(
            "Changes by tools",
            ((_rate("rota_mutations_total", "tool, outcome"), "{{tool}} {{outcome}}"),), "ops",
        ),
        DashboardPanel(
            "Pipelines in 24 hours",
            ((f"rota_pipeline_executions{{{SPACE}}}", "{{schedule}} {{outcome}}"),),
        ),
        DashboardPanel(
            "Items in 24 hours",
            ((f"sum by (outcome) (rota_pipeline_items{{{SPACE}}})", "{{outcome}}"),),
        ),
    ),
    "Language models": (
        DashboardPanel(
            "Cost per hour",
            (("sum by (model) (increase(rota_ai_cost_dollars_total[1h]))", "{{model}}"),),
            "currencyUSD",
        ),
        DashboardPanel(
            "Tokens per second",
            (
                ("sum by (model, direction) (rate(rota_ai_tokens_total[$__rate_interval]))",
                 "{{model}} {{direction}}"),
            ),
        ),
        DashboardPanel(
            "Cost of pipelines in 24 hours",
            ((f"rota_pipeline_cost_dollars{{{SPACE}}}", "{{schedule}}"),), "currencyUSD",
        ),
    ),
    "Database and HTTP": (
        DashboardPanel(
            "Calls of the database, p99",
            ((_quantile(0.99, "rota_store_seconds", "op", ""), "{{op}}"),), "s",
        ),
        DashboardPanel(
            "Errors of the database",
            (("sum by (code) (rate(rota_store_errors_total[$__rate_interval]))", "{{code}}"),),
            "ops",
        ),
        DashboardPanel(
            "Requests",
            (("sum by (status) (rate(rota_http_requests_total[$__rate_interval]))", "{{status}}"),),
            "reqps",
        ),
        DashboardPanel(
            "Answers, p95", ((_quantile(0.95, "rota_http_seconds", "route", ""), "{{route}}"),), "s"
        ),
        DashboardPanel("Open streams", (("sum by (instance) (rota_streams)", "{{instance}}"),)),
    ),
}  # fmt: skip


def _panels() -> Iterator[dict[str, Any]]:
    number, y = 0, 0
    source = {"type": "prometheus", "uid": "${datasource}"}
    for row, panels in ROWS.items():
        number += 1
        place = {"h": ROW_HEIGHT, "w": WIDTH, "x": 0, "y": y}
        yield {"id": number, "type": "row", "title": row, "gridPos": place, "panels": []}
        y += ROW_HEIGHT
        for at, panel in enumerate(panels):
            number += 1
            width = WIDTH // COLUMNS
            line, column = divmod(at, COLUMNS)
            yield {
                "id": number, "type": panel.kind, "title": panel.title, "datasource": source,
                "gridPos": {
                    "h": PANEL_HEIGHT, "w": width, "x": column * width, "y": y + line * PANEL_HEIGHT
                },
                "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
                "targets": [
                    {"refId": chr(65 + n), "expr": expr, "legendFormat": legend,
                     "datasource": source}
                    for n, (expr, legend) in enumerate(panel.queries)
                ],
            }  # fmt: skip
        y += PANEL_HEIGHT * -(-len(panels) // COLUMNS)


def document() -> dict[str, Any]:
    """The dashboard as Grafana imports it."""
    source = {"type": "prometheus", "uid": "${datasource}"}
    chosen = {
        "name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus",
    }  # fmt: skip
    spaces = {
        "name": "namespace", "type": "query", "datasource": source, "multi": True,
        "includeAll": True, "query": "label_values(rota_build_info, namespace)", "refresh": 2,
    }  # fmt: skip
    return {
        "title": "Rota", "uid": "rota", "schemaVersion": 39, "tags": ["rota"], "editable": True,
        "time": {"from": "now-6h", "to": "now"}, "refresh": "30s",
        "templating": {"list": [chosen, spaces]}, "panels": list(_panels()),
    }  # fmt: skip


def as_json() -> str:
    """The file."""
    return json.dumps(document(), indent=2) + "\n"
