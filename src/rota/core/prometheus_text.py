"""Numbers in the text format that Prometheus reads (exposition format, version 0.0.4). Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple


class MetricSample(NamedTuple):
    """One number, and what tells it from the others of its metric."""

    value: float
    labels: Mapping[str, str] = {}
    suffix: str = ""  # of a histogram: _bucket, _sum or _count


class Metric(NamedTuple):
    """A name, what it counts, and its numbers. A gauge may go down."""

    name: str
    help: str
    samples: Sequence[MetricSample]
    type: str = "gauge"


def text(metrics: Iterable[Metric]) -> str:
    """The whole document; a metric without numbers is skipped."""
    return "".join(line + "\n" for one in metrics if one.samples for line in _lines(one))


def _lines(metric: Metric) -> Iterable[str]:
    yield f"# HELP {metric.name} {_escaped(metric.help)}"
    yield f"# TYPE {metric.name} {metric.type}"
    for sample in metric.samples:
        yield f"{metric.name}{sample.suffix}{_labels(sample.labels)} {number(sample.value)}"


def _labels(labels: Mapping[str, str]) -> str:
    pairs = ",".join(f'{name}="{quoted(value)}"' for name, value in labels.items())
    return f"{{{pairs}}}" if pairs else ""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n")


def quoted(value: str) -> str:
    """A label's value as written between its quotes."""
    return _escaped(value).replace('"', '\\"')


def number(value: float) -> str:
    """A value as Go reads it back, to the last digit."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("+Inf" if value > 0 else "-Inf")
    return repr(value)
