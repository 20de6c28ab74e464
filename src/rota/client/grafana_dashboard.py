"""A dashboard for Grafana, as one table of panels: `rota metrics --grafana` prints it as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

ROW_HEIGHT, PANEL_HEIGHT, WIDTH, COLUMNS = 1, 7, 24, 3
SPACE = 'namespace=~"$namespace"'
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}


class DashboardPanel(NamedTuple):
    """One panel: a title, queries by their legends, and a unit."""

    title: str
    queries: dict[str, str]
    unit: str = "short"
    kind: str = "timeseries"


def _gauge(metric: str) -> str:
    return f"{metric}{{{SPACE}}}"


def _sum(metric: str, by: str) -> str:
    return f"sum by ({by}) ({_gauge(metric)})"


def _rate(metric: str, by: str) -> str:
    return f"sum by ({by}) (rate({metric}{{{SPACE}}}[$__rate_interval]))"


def _unscoped_rate(metric: str, by: str) -> str:
    """The same for a metric of processes, which has no namespace."""
    return f"sum by ({by}) (rate({metric}[$__rate_interval]))"


def _quantile(part: float, metric: str, by: str, filters: str = SPACE) -> str:
    rate = f"rate({metric}_bucket{{{filters}}}[$__rate_interval])"
    return f"histogram_quantile({part:g}, sum by ({by}, le) ({rate}))"


def _quantiles(high: float, metric: str, by: str, legend: str = "") -> dict[str, str]:
    return {f"p{100 * part:g}{legend}": _quantile(part, metric, by) for part in (0.5, high)}


ROWS: dict[str, tuple[DashboardPanel, ...]] = {
    "Health": (
        DashboardPanel("Workers", {"{{state}}": _gauge("rota_workers")}, kind="stat"),
        DashboardPanel(
            "Waiting for an operator", {"{{why}}": _sum("rota_waiting_for_person", "why")},
            kind="stat",
        ),
        DashboardPanel(
            "Lapsed leases, disarmed, versions",
            {
                "lapsed": _gauge("rota_runs_lapsed"),
                "disarmed": _gauge("rota_disarmed"),
                "version {{version}}": f"count by (version) ({_gauge('rota_build_info')})",
            },
            kind="stat",
        ),
    ),
    "Runs": (
        DashboardPanel(
            "Ended per second", {"{{status}}": _rate("rota_runs_finished_total", "status")}, "ops"
        ),
        DashboardPanel(
            "Duration", _quantiles(0.95, "rota_run_seconds", "kind", " {{kind}}"), "s"
        ),
        DashboardPanel("Open runs", {"{{status}}": _sum("rota_runs_open", "status")}),
        DashboardPanel(
            "Ended in the last hour, as stored", {"{{status}}": _sum("rota_runs_ended", "status")}
        ),
        DashboardPanel(
            "Recovered from dead workers", {"": _rate("rota_runs_recovered_total", "namespace")},
            "ops",
        ),
        DashboardPanel(
            "Workers blocked by workflow code",
            {"{{name}}": _rate("rota_workflow_blocks_total", "name")}, "ops",
        ),
    ),
    "Schedules": (
        DashboardPanel(
            "Lateness of firing",
            _quantiles(0.99, "rota_schedule_lateness_seconds", "namespace"), "s",
        ),
        DashboardPanel(
            "Skipped, by reason", {"{{reason}}": _rate("rota_schedule_skipped_total", "reason")},
            "ops",
        ),
        DashboardPanel(
            "Overdue",
            {
                "schedules": _gauge("rota_schedules_overdue"),
                "seconds at most": _gauge("rota_schedules_overdue_seconds_max"),
            },
        ),
        DashboardPanel(
            "Next due",
            {"{{schedule}}": f"{_gauge('rota_schedule_next_due_timestamp_seconds')} - time()"}, "s",
        ),
        DashboardPanel(
            "Since the last occurrence",
            {"{{schedule}}": f"time() - {_gauge('rota_schedule_last_fired_timestamp_seconds')}"},
            "s",
        ),
        DashboardPanel("Schedules", {"{{status}}": _gauge("rota_schedules")}, kind="stat"),
    ),
    "Queues and workers": (
        DashboardPanel("Pending", {"{{queue}}": _gauge("rota_queue_pending_runs")}),
        DashboardPanel(
            "Oldest pending", {"{{queue}}": _gauge("rota_queue_oldest_pending_seconds")}, "s"
        ),
        DashboardPanel(
            "Ready until claimed",
            _quantiles(0.99, "rota_run_wait_seconds", "kind", " {{kind}}"), "s",
        ),
        DashboardPanel("Workers by queue", {"{{queue}}": _gauge("rota_queue_workers")}),
        DashboardPanel("Slots", {"slots": _gauge("rota_worker_slots")}, kind="stat"),
    ),
    "Automations and pipelines": (
        DashboardPanel("Automations", {"{{word}}": _gauge("rota_automations")}),
        DashboardPanel(
            "Changes by tools",
            {"{{tool}} {{outcome}}": _rate("rota_mutations_total", "tool, outcome")}, "ops",
        ),
        DashboardPanel(
            "Pipelines in 24 hours",
            {"{{schedule}} {{outcome}}": _gauge("rota_pipeline_executions")},
        ),
        DashboardPanel(
            "Items in 24 hours", {"{{outcome}}": _sum("rota_pipeline_items", "outcome")}
        ),
    ),
    "Language models": (
        DashboardPanel(
            "Cost per hour",
            {"{{model}}": "sum by (model) (increase(rota_ai_cost_dollars_total[1h]))"},
            "currencyUSD",
        ),
        DashboardPanel(
            "Tokens per second",
            {"{{model}} {{direction}}": _unscoped_rate("rota_ai_tokens_total", "model, direction")},
        ),
        DashboardPanel(
            "Cost of pipelines in 24 hours", {"{{schedule}}": _gauge("rota_pipeline_cost_dollars")},
            "currencyUSD",
        ),
    ),
    "Database and HTTP": (
        DashboardPanel(
            "Calls of the database, p99",
            {"{{op}}": _quantile(0.99, "rota_store_seconds", "op", "")}, "s",
        ),
        DashboardPanel(
            "Errors of the database",
            {"{{code}}": _unscoped_rate("rota_store_errors_total", "code")}, "ops",
        ),
        DashboardPanel(
            "Requests", {"{{status}}": _unscoped_rate("rota_http_requests_total", "status")},
            "reqps",
        ),
        DashboardPanel(
            "Answers, p95", {"{{route}}": _quantile(0.95, "rota_http_seconds", "route", "")}, "s"
        ),
        DashboardPanel("Open streams", {"{{instance}}": "sum by (instance) (rota_streams)"}),
    ),
}  # fmt: skip


def _panels() -> Iterator[dict[str, Any]]:
    number, y = 0, 0
    width = WIDTH // COLUMNS
    for row_title, panels in ROWS.items():
        number += 1
        position = {"h": ROW_HEIGHT, "w": WIDTH, "x": 0, "y": y}
        yield {"id": number, "type": "row", "title": row_title, "gridPos": position, "panels": []}
        y += ROW_HEIGHT
        for index, panel in enumerate(panels):
            number += 1
            line, column = divmod(index, COLUMNS)
            yield {
                "id": number, "type": panel.kind, "title": panel.title, "datasource": _SOURCE,
                "gridPos": {
                    "h": PANEL_HEIGHT, "w": width, "x": column * width, "y": y + line * PANEL_HEIGHT
                },
                "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
                "targets": [
                    {"refId": chr(65 + n), "expr": expr, "legendFormat": legend,
                     "datasource": _SOURCE}
                    for n, (legend, expr) in enumerate(panel.queries.items())
                ],
            }  # fmt: skip
        y += PANEL_HEIGHT * -(-len(panels) // COLUMNS)


def document() -> dict[str, Any]:
    """The dashboard as Grafana imports it."""
    chosen = {
        "name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus",
    }  # fmt: skip
    spaces = {
        "name": "namespace", "type": "query", "datasource": _SOURCE, "multi": True,
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
