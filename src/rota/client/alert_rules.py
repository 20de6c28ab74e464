"""Alert rules for Prometheus, as one table: `rota metrics --alerts` prints it as YAML."""

from __future__ import annotations

from typing import Any, NamedTuple

import yaml


class AlertRule(NamedTuple):
    """One rule: when it fires, after how long, for whom, and what to do."""

    name: str
    expr: str
    lasts: str
    severity: str  # `page` wakes a person, `ticket` waits for the morning
    summary: str
    action: str


RULES: tuple[AlertRule, ...] = (
    AlertRule(
        "RotaNoWorker",
        "rota_queue_pending_runs > 0 unless on (namespace, queue) rota_queue_workers > 0",
        "2m", "page", "Runs wait in queue {{ $labels.queue }}, and no worker serves it.",
        "Start a worker: rota up --queue {{ $labels.queue }}",
    ),
    AlertRule(
        "RotaRunsWaitTooLong", "rota_queue_oldest_pending_seconds > 300", "5m", "page",
        "A run in queue {{ $labels.queue }} has been ready for {{ $value }} s.",
        "rota doctor; add workers or slots",
    ),
    AlertRule(
        "RotaClaimLatency",
        "histogram_quantile(0.99, sum by (namespace, kind, le) "
        "(rate(rota_run_wait_seconds_bucket[10m]))) > 5",
        "10m", "page", "1 of 100 runs waits more than 5 s for a worker.",
        "rota queue list; add workers or slots",
    ),
    AlertRule(
        "RotaScheduleOverdue", "rota_schedules_overdue_seconds_max > 60", "2m", "page",
        "A schedule is {{ $value }} s late: no process fires it.",
        "rota why NAME; rota worker list",
    ),
    AlertRule(
        "RotaScheduleSilent",
        "time() - rota_schedule_next_due_timestamp_seconds > 300",
        "5m", "page", "Schedule {{ $labels.schedule }} was due and has not fired.",
        "rota why {{ $labels.schedule }}",
    ),
    AlertRule(
        "RotaLeasesLapsed", "rota_runs_lapsed > 0", "5m", "page",
        "Runs of a dead worker wait for another worker.", "rota worker list; start a worker",
    ),
    AlertRule(
        "RotaRunsFail",
        'sum by (namespace, kind, name) (increase(rota_runs_finished_total{status=~"failed|crashed"'
        "}[15m])) / sum by (namespace, kind, name) (increase(rota_runs_finished_total[15m])) > 0.05"
        " and sum by (namespace, kind, name) (increase(rota_runs_finished_total[15m])) > 10",
        "5m", "ticket", "More than 5 % of the runs of {{ $labels.name }} fail.",
        "rota run list --name {{ $labels.name }} --status failed",
    ),
    AlertRule(
        "RotaBacklogGrows",
        "deriv(rota_queue_pending_runs[30m]) > 0 and rota_queue_pending_runs > 100",
        "30m", "ticket", "The backlog of queue {{ $labels.queue }} grows.", "Add workers or slots",
    ),
    AlertRule(
        "RotaUnknownOutcome", 'rota_waiting_for_person{why="reconciliation"} > 0', "5m", "page",
        "It is unknown whether a change happened.",
        "rota automation list; rota automation show NAME lists the answers",
    ),
    AlertRule(
        "RotaPersonNeeded", "sum by (namespace, why) (rota_waiting_for_person) > 0", "4h", "ticket",
        "Runs have waited for an operator for hours: {{ $labels.why }}.", "Open the dashboard",
    ),
    AlertRule(
        "RotaQuarantinedSchedule", 'rota_schedules{status="quarantined"} > 0', "5m", "ticket",
        "A schedule cannot be read and is paused.", "rota schedule list",
    ),
    AlertRule(
        "RotaModelCost", "sum (increase(rota_ai_cost_dollars_total[1h])) > {budget}", "0m",
        "ticket", "Language models cost {{ $value }} dollars in an hour.",
        "rota pipeline history; set a budget in the pipeline",
    ),
    AlertRule(
        "RotaStoreErrors", "sum by (instance, code) (increase(rota_store_errors_total[5m])) > 0",
        "2m", "page", "The database refuses calls: {{ $labels.code }}.",
        "rota doctor; docs/reference/errors.md explains the code",
    ),
    AlertRule(
        "RotaDisarmed", "rota_disarmed == 1", "1h", "ticket", "The database is disarmed.",
        "rota arm, if this database is the one in use",
    ),
    AlertRule(
        "RotaNothingScraped", "absent(rota_build_info)", "5m", "page",
        "Prometheus sees no process of Rota.", "rota worker list; check the scrape targets",
    ),
)  # fmt: skip


def document(budget: float) -> dict[str, Any]:
    """The rules as the file of Prometheus has them."""
    rules = [
        {
            "alert": one.name,
            "expr": one.expr.replace("{budget}", f"{budget:g}"),
            "for": one.lasts,
            "labels": {"severity": one.severity},
            "annotations": {"summary": one.summary, "action": one.action},
        }
        for one in RULES
    ]
    return {"groups": [{"name": "rota", "rules": rules}]}


def as_yaml(budget: float) -> str:
    """The file."""
    text: str = yaml.safe_dump(document(budget), sort_keys=False, allow_unicode=True, width=100)
    return text
