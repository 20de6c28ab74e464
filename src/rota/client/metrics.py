"""The state of a store as gauges, for `rota metrics` and other monitors. Only reads.

Open runs are counted exactly. Ended runs are counted over a stated range and up to a stated number
of rows. So a scrape costs the same however long the history is.
"""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING

import msgspec

from rota.client.doctor import absence, served
from rota.client.findings import threads_held
from rota.core.automations.text import Word, word_of
from rota.core.prometheus_text import Metric, MetricSample
from rota.core.runs.filters import KINDS
from rota.core.runs.lifecycle import FINAL, OPEN, Status
from rota.core.runs.model import WorkerRecord
from rota.core.schedules.intent import ENDED, QUARANTINED_REASON
from rota.core.time.instants import DAY, HOUR, SECOND
from rota.settings import Settings
from rota.store import metrics as store
from rota.store.metrics import (
    AutomationCounts,
    Bounds,
    Execution,
    NewestRuns,
    OpenRuns,
    ScheduleCounts,
    ScheduleTime,
)

if TYPE_CHECKING:
    from rota.client.client import Client

NEWEST_US = HOUR
NEWEST_MAX = 100_000
EXECUTIONS_US = DAY
EXECUTIONS_MAX = 10_000
SCHEDULES_MAX = 200

SCHEDULE_STATUSES = ("scheduled", "paused", "ended", "quarantined")

_LAST_DAY = (
    "Counts executions that were due, or started by hand, in the last 24 hours "
    f"(at most the newest {EXECUTIONS_MAX} of all schedules)."
)


class _Result(msgspec.Struct, frozen=True):
    """The counted fields of a pipeline's result."""

    outcome: str
    processed: int = 0
    failed: int = 0
    skipped: int = 0
    filtered: int = 0
    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cost_usd: float = 0.0


async def collect(client: Client) -> list[Metric]:
    """All metrics of the client's namespace; each number has the label `namespace`."""
    now, space = client.clock.now(), client.settings.namespace
    bounds = Bounds(now - NEWEST_US, NEWEST_MAX, now - EXECUTIONS_US, EXECUTIONS_MAX, SCHEDULES_MAX)
    counted = await client.connection.database.read(
        store.count, namespace=space, now=now, bounds=bounds
    )
    disarmed = await client.operations.disarmed()
    found = [
        *_open(counted.open_runs), *_ended(counted.newest, now), *_queues(counted.open_runs, now),
        *_workers(counted.workers, client.settings, now), *_schedules(counted.schedules, now),
        _automations(counted.automations), *_pipelines(counted.executions),
        *_schedule_times(counted.times),
        Metric(
            "rota_build_info", "Always 1. The labels hold the versions of Rota and Python.",
            [MetricSample(1, {"version": version("rota"), "python": platform.python_version()})],
        ),
        Metric("rota_disarmed", "1 while the database is disarmed.", _one(int(bool(disarmed)))),
    ]  # fmt: skip
    return [_placed(metric, space) for metric in found]


def _placed(metric: Metric, space: str) -> Metric:
    samples = [
        MetricSample(one.value, {"namespace": space} | dict(one.labels)) for one in metric.samples
    ]
    return metric._replace(samples=samples)


def _by(names: tuple[str, ...], counts: Mapping[tuple[str, ...], float]) -> list[MetricSample]:
    """One number for each combination of labels, in order."""
    return [MetricSample(counts[key], dict(zip(names, key, strict=True))) for key in sorted(counts)]


def _one(value: float) -> list[MetricSample]:
    return [MetricSample(value)]


def _seconds(since: int | None, now: int) -> float:
    return 0.0 if since is None else max(0, now - since) / SECOND


# -- runs --------------------------------------------------------------------------------------


def _open(rows: Sequence[OpenRuns]) -> Iterable[Metric]:
    runs: Counter[tuple[str, ...]] = Counter()
    for status in OPEN:
        runs.update({(kind, status.value): 0 for kind in KINDS})
    waiting: Counter[tuple[str, ...]] = Counter()
    for row in rows:
        runs[row.kind, row.status] += row.run_count
        if row.status == Status.WAITING:
            waiting[row.kind, row.reason] += row.run_count
    text = "All runs that have not ended, by kind and status."
    yield Metric("rota_runs_open", text, _by(("kind", "status"), runs))
    text = "All runs that wait for an operator, by kind and by what they wait for."
    yield Metric("rota_waiting_for_person", text, _by(("kind", "why"), waiting))
    text = "Runs with a lapsed lease that no worker has recovered yet."
    yield Metric("rota_runs_lapsed", text, _one(sum(row.lapsed_count for row in rows)))


def _ended(rows: Sequence[NewestRuns], now: int) -> Iterable[Metric]:
    ended: Counter[tuple[str, ...]] = Counter()
    for row in rows:
        if row.own and row.status in FINAL:
            ended[row.kind, row.status] += row.run_count
    window = NEWEST_US / SECOND
    if sum(row.run_count for row in rows) >= NEWEST_MAX:
        window = _seconds(min(row.oldest_at for row in rows), now)
    yield Metric(
        "rota_runs_ended",
        "Ended runs that were created in the last rota_runs_ended_window_seconds, by kind and "
        "status. Each attempt is a run.",
        _by(("kind", "status"), ended),
    )
    yield Metric(
        "rota_runs_ended_window_seconds",
        "Time that rota_runs_ended covers: an hour, or less if more than "
        f"{NEWEST_MAX} runs were created in that hour.",
        _one(window),
    )


def _queues(rows: Sequence[OpenRuns], now: int) -> Iterable[Metric]:
    pending: Counter[tuple[str, ...]] = Counter()
    oldest: dict[tuple[str, ...], float] = {}
    for row in rows:
        if row.status == Status.PENDING:
            key = (row.queue,)
            pending[key] += row.run_count
            oldest[key] = max(oldest.get(key, 0.0), _seconds(row.oldest_at, now))
    text = "Runs that a worker could claim now, by queue. Empty queues are omitted."
    yield Metric("rota_queue_pending_runs", text, _by(("queue",), pending))
    text = "Time since the oldest claimable run became ready, by queue."
    yield Metric("rota_queue_oldest_pending_seconds", text, _by(("queue",), oldest))


# -- who works, and what makes work --------------------------------------------------------------


def _workers(rows: Sequence[WorkerRecord], settings: Settings, now: int) -> Iterable[Metric]:
    states: Counter[tuple[str, ...]] = Counter({("alive",): 0, ("gone",): 0, ("silent",): 0})
    slots = held = 0
    serving: Counter[tuple[str, ...]] = Counter()
    for row in rows:
        why = absence(row, settings, now)
        if why is None:
            serving.update((queue,) for queue in served(row))
        states[why or "alive",] += 1
        slots += row.slots if why is None else 0
        held += len(threads_held(row)) if why is None else 0
    yield Metric(
        "rota_workers",
        "Workers that have not signed off, by state: alive, silent (no heartbeat) or gone (the "
        "process on this machine has ended).",
        _by(("state",), states),
    )
    text = "Threads of living workers that are held by steps that timed out."
    yield Metric("rota_worker_threads_held", text, _one(held))
    yield Metric("rota_worker_slots", "Slots (concurrency) of all living workers.", _one(slots))
    text = "Living workers that serve a queue, by queue."
    yield Metric("rota_queue_workers", text, _by(("queue",), serving))


def _schedules(rows: Sequence[ScheduleCounts], now: int) -> Iterable[Metric]:
    status_counts: Counter[tuple[str, ...]] = Counter({(word,): 0 for word in SCHEDULE_STATUSES})
    for row in rows:
        status_counts[_schedule_status(row),] += row.schedule_count
    first = min((row.first_at for row in rows if row.first_at is not None), default=None)
    yield Metric(
        "rota_schedules",
        "Schedules by status: scheduled, paused, ended (nothing left to fire) or quarantined "
        "(unreadable).",
        _by(("status",), status_counts),
    )
    text = "Schedules that are due and have not fired yet."
    yield Metric("rota_schedules_overdue", text, _one(sum(row.overdue_count for row in rows)))
    text = "Delay of the most overdue schedule; 0 if none is overdue."
    yield Metric("rota_schedules_overdue_seconds_max", text, _one(_seconds(first, now)))


def _schedule_times(rows: Iterable[ScheduleTime]) -> Iterable[Metric]:
    """Instants, not ages: an age that is no longer updated would look healthy."""
    fired: dict[tuple[str, ...], float] = {
        (row.name,): row.fired_at / SECOND for row in rows if row.fired_at is not None
    }
    due: dict[tuple[str, ...], float] = {(row.name,): row.due_at / SECOND for row in rows}
    bound = f"for the {SCHEDULES_MAX} schedules that are due next"
    text = f"Unix time of the last fired occurrence, {bound}."
    yield Metric("rota_schedule_last_fired_timestamp_seconds", text, _by(("schedule",), fired))
    text = f"Unix time of the next occurrence, {bound}."
    yield Metric("rota_schedule_next_due_timestamp_seconds", text, _by(("schedule",), due))


def _schedule_status(row: ScheduleCounts) -> str:
    reason = row.reason or ""
    if reason.startswith(QUARANTINED_REASON):
        return "quarantined"
    return "ended" if row.status == Status.PAUSED and reason in ENDED else row.status


def _automations(rows: Sequence[AutomationCounts]) -> Metric:
    words: Counter[tuple[str, ...]] = Counter({(word.value,): 0 for word in Word})
    for row in rows:
        words[word_of(row.status, row.run_status, row.run_reason).value,] += row.automation_count
    text = "Automations by state, as `rota automation list` shows it."
    return Metric("rota_automations", text, _by(("word",), words))


# -- pipelines ---------------------------------------------------------------------------------


def _pipelines(rows: Iterable[Execution]) -> Iterable[Metric]:
    executions: Counter[tuple[str, ...]] = Counter()
    items: Counter[tuple[str, ...]] = Counter()
    calls: Counter[tuple[str, ...]] = Counter()
    tokens: Counter[tuple[str, ...]] = Counter()
    dollars: dict[tuple[str, ...], float] = {}
    for row in rows:
        name, result = row.schedule, _result(row)
        executions[name, result.outcome] += 1
        for outcome in ("processed", "failed", "skipped", "filtered"):
            items[name, outcome] += getattr(result, outcome)
        calls[name,] += result.calls
        tokens[name, "in"] += result.tokens_in
        tokens[name, "out"] += result.tokens_out
        dollars[name,] = dollars.get((name,), 0.0) + result.cost_usd
    results = f"from stored results. {_LAST_DAY}"
    text = f"Pipeline executions by schedule and outcome (open: not ended). {_LAST_DAY}"
    yield Metric("rota_pipeline_executions", text, _by(("schedule", "outcome"), executions))
    text = f"Items of pipelines by outcome, {results}"
    yield Metric("rota_pipeline_items", text, _by(("schedule", "outcome"), items))
    text = f"Language model calls of pipelines, {results}"
    yield Metric("rota_pipeline_calls", text, _by(("schedule",), calls))
    text = f"Tokens of pipelines in and out, {results}"
    yield Metric("rota_pipeline_tokens", text, _by(("schedule", "direction"), tokens))
    text = f"Cost of pipeline calls with a known price, {results}"
    yield Metric("rota_pipeline_cost_dollars", text, _by(("schedule",), dollars))


def _result(row: Execution) -> _Result:
    """The summary of an execution; one without a result has only its status."""
    if row.status not in FINAL:
        return _Result("open")
    if row.output is None:
        return _Result(row.status)
    try:
        return msgspec.json.decode(row.output, type=_Result)
    except (msgspec.DecodeError, RecursionError):  # one odd row must not hide the others
        return _Result(row.status)
