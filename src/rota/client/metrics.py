"""The state of a store as gauges, for `rota metrics` and other monitors. Only reads.

Open runs are counted exactly. Ended runs are counted over a stated range and up to a stated number
of rows. So a scrape costs the same however long the history is.
"""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from rota.client.doctor import absence, served
from rota.core.automations.text import Word, word_of
from rota.core.prometheus_text import Metric, MetricSample
from rota.core.runs.filters import KINDS
from rota.core.runs.lifecycle import FINAL, OPEN, Status
from rota.core.schedules.intent import ENDED, QUARANTINED_REASON
from rota.core.time.instants import DAY, HOUR, SECOND
from rota.settings import Settings
from rota.store import metrics as store
from rota.store.metrics import Bounds, Counted, Execution, ScheduleCounts, ScheduleTime

if TYPE_CHECKING:
    from rota.client.client import Client

NEWEST_US = HOUR
NEWEST_MAX = 100_000
EXECUTIONS_US = DAY
EXECUTIONS_MAX = 10_000
SCHEDULES_MAX = 200

SCHEDULE_STATUSES = ("scheduled", "paused", "ended", "quarantined")

_PIPELINES = (
    "of pipeline executions that were due, or started by hand, in the last 24 hours "
    f"(of all schedules, the newest {EXECUTIONS_MAX})"
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


class MetricsRead(NamedTuple):
    """The counts, their time and their namespace."""

    counted: Counted
    settings: Settings
    now: int


async def collect(client: Client) -> list[Metric]:
    """All metrics of the client's namespace; each number has the label `namespace`."""
    now, space = client.clock.now(), client.settings.namespace
    bounds = Bounds(now - NEWEST_US, NEWEST_MAX, now - EXECUTIONS_US, EXECUTIONS_MAX, SCHEDULES_MAX)
    counted = await client.connection.database.read(
        store.count, namespace=space, now=now, bounds=bounds
    )
    reading = MetricsRead(counted, client.settings, now)
    disarmed = await client.operations.disarmed()
    found = [
        *_open(reading), *_ended(reading), *_queues(reading), *_workers(reading),
        *_schedules(reading), _automations(reading), *_pipelines(counted.executions),
        *_schedule_times(counted.times), _build(),
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


def _open(reading: MetricsRead) -> Iterable[Metric]:
    rows = reading.counted.open_runs
    runs: Counter[tuple[str, ...]] = Counter()
    for status in OPEN:
        runs.update({(kind, status.value): 0 for kind in KINDS})
    waiting: Counter[tuple[str, ...]] = Counter()
    for row in rows:
        runs[row.kind, row.status] += row.run_count
        if row.status == Status.WAITING:
            waiting[row.kind, row.reason] += row.run_count
    yield Metric(
        "rota_runs_open",
        "Runs that have not ended, all of them, by kind and status.",
        _by(("kind", "status"), runs),
    )
    yield Metric(
        "rota_waiting_for_person",
        "Runs that wait for a person, all of them, by kind and by what they wait for.",
        _by(("kind", "why"), waiting),
    )
    yield Metric(
        "rota_runs_lapsed",
        "Runs with an expired lease that no worker has taken over yet.",
        _one(sum(row.lapsed_count for row in rows)),
    )


def _ended(reading: MetricsRead) -> Iterable[Metric]:
    rows = reading.counted.newest
    ended: Counter[tuple[str, ...]] = Counter()
    for row in rows:
        if row.own and row.status in FINAL:
            ended[row.kind, row.status] += row.run_count
    window = NEWEST_US / SECOND
    if sum(row.run_count for row in rows) >= NEWEST_MAX:
        window = _seconds(min(row.oldest_at for row in rows), reading.now)
    yield Metric(
        "rota_runs_ended",
        "Runs that were created within rota_runs_ended_window_seconds and have ended, by kind and "
        "status; each attempt is a run. One that was created earlier is not counted.",
        _by(("kind", "status"), ended),
    )
    yield Metric(
        "rota_runs_ended_window_seconds",
        f"How far back rota_runs_ended reaches: an hour, or less where more than {NEWEST_MAX} runs "
        "were created in it.",
        _one(window),
    )


def _queues(reading: MetricsRead) -> Iterable[Metric]:
    pending: Counter[tuple[str, ...]] = Counter()
    oldest: dict[tuple[str, ...], float] = {}
    for row in reading.counted.open_runs:
        if row.status == Status.PENDING:
            key = (row.queue,)
            pending[key] += row.run_count
            oldest[key] = max(oldest.get(key, 0.0), _seconds(row.oldest_at, reading.now))
    yield Metric(
        "rota_queue_pending_runs",
        "Runs that a worker could take now, by queue; a queue in which nothing waits is skipped.",
        _by(("queue",), pending),
    )
    yield Metric(
        "rota_queue_oldest_pending_seconds",
        "For how long the oldest run that a worker could take has been ready, by queue.",
        _by(("queue",), oldest),
    )


# -- who works, and what makes work --------------------------------------------------------------


def _workers(reading: MetricsRead) -> Iterable[Metric]:
    states: Counter[tuple[str, ...]] = Counter({("alive",): 0, ("gone",): 0, ("silent",): 0})
    slots = 0
    serving: Counter[tuple[str, ...]] = Counter()
    for row in reading.counted.workers:
        why = absence(row, reading.settings, reading.now)
        if why is None:
            serving.update((queue,) for queue in served(row))
        states[why or "alive",] += 1
        slots += row.slots if why is None else 0
    yield Metric(
        "rota_workers",
        "Workers that have not signed off: alive, silent (no heartbeat), or gone (their process on "
        "this machine is).",
        _by(("state",), states),
    )
    yield Metric("rota_worker_slots", "Runs that the living workers can hold.", _one(slots))
    yield Metric(
        "rota_queue_workers", "Living workers by queue that they serve.", _by(("queue",), serving)
    )


def _schedules(reading: MetricsRead) -> Iterable[Metric]:
    rows = reading.counted.schedules
    status_counts: Counter[tuple[str, ...]] = Counter({(word,): 0 for word in SCHEDULE_STATUSES})
    for row in rows:
        status_counts[_schedule_status(row),] += row.schedule_count
    first = min((row.first_at for row in rows if row.first_at is not None), default=None)
    yield Metric(
        "rota_schedules",
        "Schedules: scheduled, paused, ended (nothing left to fire), or quarantined (unreadable).",
        _by(("status",), status_counts),
    )
    yield Metric(
        "rota_schedules_overdue",
        "Schedules that are due and that no scheduler has fired yet.",
        _one(sum(row.overdue_count for row in rows)),
    )
    yield Metric(
        "rota_schedules_overdue_seconds_max",
        "How late the latest of the overdue schedules is; 0 when none is.",
        _one(_seconds(first, reading.now)),
    )


def _schedule_times(rows: Iterable[ScheduleTime]) -> Iterable[Metric]:
    """Instants, not ages: an age that is no longer updated would look healthy."""
    fired: dict[tuple[str, ...], float] = {
        (row.name,): row.fired_at / SECOND for row in rows if row.fired_at is not None
    }
    due: dict[tuple[str, ...], float] = {(row.name,): row.due_at / SECOND for row in rows}
    bound = f"of the {SCHEDULES_MAX} schedules that are due next"
    yield Metric(
        "rota_schedule_last_fired_timestamp_seconds",
        f"The last occurrence that was fired, in Unix time, {bound}.",
        _by(("schedule",), fired),
    )
    yield Metric(
        "rota_schedule_next_due_timestamp_seconds",
        f"When it is due next, in Unix time, {bound}.",
        _by(("schedule",), due),
    )


def _build() -> Metric:
    labels = {"version": version("rota"), "python": platform.python_version()}
    one = [MetricSample(1, labels)]
    return Metric("rota_build_info", "Always 1; the labels hold the versions.", one)


def _schedule_status(row: ScheduleCounts) -> str:
    reason = row.reason or ""
    if reason.startswith(QUARANTINED_REASON):
        return "quarantined"
    return "ended" if row.status == Status.PAUSED and reason in ENDED else row.status


def _automations(reading: MetricsRead) -> Metric:
    words: Counter[tuple[str, ...]] = Counter({(word.value,): 0 for word in Word})
    for row in reading.counted.automations:
        words[word_of(row.status, row.run_status, row.run_reason).value,] += row.automation_count
    return Metric(
        "rota_automations",
        "Automations by the word that `rota automation list` has for them.",
        _by(("word",), words),
    )


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
    yield Metric(
        "rota_pipeline_executions",
        f"How many, by schedule and outcome (open: not ended), {_PIPELINES}.",
        _by(("schedule", "outcome"), executions),
    )
    recorded = f"as recorded in the results {_PIPELINES}."
    yield Metric(
        "rota_pipeline_items", f"Items by what became of them, {recorded}",
        _by(("schedule", "outcome"), items),
    )  # fmt: skip
    yield Metric(
        "rota_pipeline_calls", f"Calls of language models, {recorded}", _by(("schedule",), calls)
    )
    yield Metric(
        "rota_pipeline_tokens", f"Tokens in and out, {recorded}",
        _by(("schedule", "direction"), tokens),
    )  # fmt: skip
    yield Metric(
        "rota_pipeline_cost_dollars",
        f"Cost of the calls with a known price, {recorded}",
        _by(("schedule",), dollars),
    )


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
