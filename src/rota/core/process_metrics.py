"""Counters and histograms of this process: the table of all of them, and how they count.

They begin at zero with the process and only grow. `rota.client.metrics` has the state of the store.
Pure but for the numbers themselves; nothing here reads a clock.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from rota.core.prometheus_text import Metric, MetricSample

# A label that names user code has at most so many values; the rest share one.
VALUES_MAX = 200
OTHER = "other"
CAPPED = frozenset({"name", "schedule", "tool", "model", "op"})

SECONDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 3600)
STORE_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25, 1, 5)


class ProcessMetric:
    """A metric of the process: its name, its help and its labels."""

    kind = ""

    def __init__(self, name: str, help_text: str, labels: Sequence[str]) -> None:
        self.name = name
        self.help = help_text
        self.labels = tuple(labels)
        self._capped_at = tuple(n for n, label in enumerate(labels) if label in CAPPED)
        self._known: dict[int, set[str]] = {index: set() for index in self._capped_at}

    def _capped(self, key: tuple[str, ...]) -> tuple[str, ...]:
        """The key with names beyond the cap replaced; called once for each new key."""
        capped = list(key)
        for index in self._capped_at:
            known = self._known[index]
            if key[index] not in known and len(known) >= VALUES_MAX:
                capped[index] = OTHER
            else:
                known.add(key[index])
        return tuple(capped)

    def _labelled(self, key: tuple[str, ...]) -> dict[str, str]:
        return dict(zip(self.labels, key, strict=True))

    def metric(self) -> Metric:
        """Its numbers now."""
        raise NotImplementedError


class CounterMetric(ProcessMetric):
    """A number that grows."""

    kind = "counter"

    def __init__(self, name: str, help_text: str, labels: Sequence[str]) -> None:
        super().__init__(name, help_text, labels)
        self._values: dict[tuple[str, ...], float] = {}

    def add(self, *key: str, by: float = 1) -> None:
        """Count, under these values of the labels."""
        values = self._values
        if key not in values:
            key = self._capped(key)
        values[key] = values.get(key, 0) + by

    def value(self, *key: str) -> float:
        """The number under these values."""
        return self._values.get(key, 0)

    def metric(self) -> Metric:
        """Its numbers now."""
        samples = [
            MetricSample(value, self._labelled(key)) for key, value in sorted(self._values.items())
        ]
        return Metric(self.name, self.help, samples, self.kind)


class HistogramMetric(ProcessMetric):
    """How values are distributed."""

    kind = "histogram"

    def __init__(
        self, name: str, help_text: str, labels: Sequence[str], bounds: Sequence[float] = SECONDS
    ) -> None:
        super().__init__(name, help_text, labels)
        self.bounds = tuple(bounds)
        self._counts: dict[tuple[str, ...], list[int]] = {}
        self._sums: dict[tuple[str, ...], float] = {}

    def observe(self, value: float, *key: str) -> None:
        """Count one value, under these values of the labels."""
        counts = self._counts.get(key)
        if counts is None:
            key, counts = self._added(key)
        counts[bisect_left(self.bounds, value)] += 1
        self._sums[key] += value

    def observe_all(self, values: Sequence[float], *key: str) -> None:
        """Count many values, under the same values of the labels."""
        counts = self._counts.get(key)
        if counts is None:
            key, counts = self._added(key)
        for value in values:
            counts[bisect_left(self.bounds, value)] += 1
        self._sums[key] += sum(values)

    def _added(self, key: tuple[str, ...]) -> tuple[tuple[str, ...], list[int]]:
        key = self._capped(key)
        self._sums.setdefault(key, 0.0)
        return key, self._counts.setdefault(key, [0] * (len(self.bounds) + 1))

    def count(self, *key: str) -> int:
        """How many values were counted under these values of the labels."""
        return sum(self._counts.get(key, ()))

    def metric(self) -> Metric:
        """Its numbers now."""
        samples: list[MetricSample] = []
        for key, counts in sorted(self._counts.items()):
            labels, total = self._labelled(key), 0
            for bound, count in zip((*self.bounds, None), counts, strict=True):
                total += count
                le = "+Inf" if bound is None else repr(float(bound))  # as OpenMetrics requires it
                samples.append(MetricSample(total, {**labels, "le": le}, "_bucket"))
            samples.append(MetricSample(self._sums[key], labels, "_sum"))
            samples.append(MetricSample(total, labels, "_count"))
        return Metric(self.name, self.help, samples, self.kind)


_RUN = ("namespace", "kind", "name")

RUNS_FINISHED = CounterMetric(
    "rota_runs_finished_total",
    "Runs that this process ended, by status. Each attempt is a run.",
    (*_RUN, "status"),
)
RUN_SECONDS = HistogramMetric(
    "rota_run_seconds", "Time from the first claim of a run to its end, waits included.", _RUN
)
RUN_WAIT_SECONDS = HistogramMetric(
    "rota_run_wait_seconds", "Time that a ready run waited until a worker claimed it.", _RUN
)
WORKFLOW_BLOCKS = CounterMetric(
    "rota_workflow_blocks_total",
    "Times that code of a workflow blocked its worker for a second.",
    ("namespace", "name"),
)
RUNS_RECOVERED = CounterMetric(
    "rota_runs_recovered_total",
    "Runs of dead workers that this process recovered.",
    ("namespace",),
)
SCHEDULE_LATENESS = HistogramMetric(
    "rota_schedule_lateness_seconds",
    "Time from the due time of an occurrence until this process fired it.",
    ("namespace", "schedule"),
)
SCHEDULE_SKIPPED = CounterMetric(
    "rota_schedule_skipped_total",
    "Occurrences that this process skipped, by reason.",
    ("namespace", "schedule", "reason"),
)
MUTATIONS = CounterMetric(
    "rota_mutations_total",
    "Side effects of automations by tool and outcome, after each call and each reconcile.",
    ("namespace", "tool", "outcome"),
)
AI_TOKENS = CounterMetric(
    "rota_ai_tokens_total", "Tokens of answered language model calls.", ("model", "direction")
)
AI_COST = CounterMetric(
    "rota_ai_cost_dollars_total",
    "Cost of answered language model calls with a known price.",
    ("model",),
)
HTTP_REQUESTS = CounterMetric(
    "rota_http_requests_total", "Answered HTTP requests by route and status.", ("route", "status")
)
HTTP_SECONDS = HistogramMetric(
    "rota_http_seconds",
    "Time from an HTTP request to its response; for streams, to its first byte.",
    ("route",),
)
STORE_SECONDS_METRIC = HistogramMetric(
    "rota_store_seconds", "Duration of database calls, by store function.", ("op",), STORE_SECONDS
)
STORE_ERRORS = CounterMetric(
    "rota_store_errors_total", "Failed database calls, by error code.", ("code",)
)

PROCESS_METRICS = tuple(one for one in [*vars().values()] if isinstance(one, ProcessMetric))


def process_metrics() -> list[Metric]:
    """The numbers of every counter and histogram."""
    return [one.metric() for one in PROCESS_METRICS]
