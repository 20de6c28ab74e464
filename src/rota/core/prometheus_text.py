"""Numbers in the text formats that Prometheus reads: its own (version 0.0.4), and OpenMetrics
(version 1.0.0), if the `Accept` header of a scrape prefers that. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

MEDIA = "text/plain; version=0.0.4; charset=utf-8"
OPEN_MEDIA = "application/openmetrics-text; version=1.0.0; charset=utf-8"
OPEN_END = "# EOF\n"
_OPEN_VERSIONS = ("", "1.0.0", "0.0.1")
_UNITS = ("seconds", "dollars")


class MetricSample(NamedTuple):
    """One number, and the labels that distinguish it within its metric."""

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
    yield from _sample_lines(metric)


def _sample_lines(metric: Metric) -> Iterable[str]:
    for sample in metric.samples:
        yield f"{metric.name}{sample.suffix}{_labels(sample.labels)} {number(sample.value)}"


def openmetrics(metrics: Iterable[Metric]) -> str:
    """The same in the format of OpenMetrics, without the line that ends a document."""
    return "".join(line + "\n" for one in metrics if one.samples for line in _open_lines(one))


def _open_lines(metric: Metric) -> Iterable[str]:
    """The name of a family has no suffix of its samples: `x_total` is a sample of the counter x."""
    is_info = metric.type == "gauge" and metric.name.endswith("_info")
    kind = "info" if is_info else metric.type
    family = metric.name.removesuffix({"counter": "_total", "info": "_info"}.get(kind, ""))
    yield f"# TYPE {family} {kind}"
    unit = family.rpartition("_")[2]
    if unit in _UNITS:
        yield f"# UNIT {family} {unit}"
    yield f"# HELP {family} {quoted(metric.help)}"
    yield from _sample_lines(metric)


def wants_openmetrics(accept: str) -> bool:
    """Whether an `Accept` header asks for OpenMetrics at least as much as for plain text."""
    weights = {"application/openmetrics-text": 0.0, "text/plain": 0.0}
    for part in accept.split(","):
        media, *parameters = (text.strip().lower() for text in part.split(";"))
        given = dict(text.partition("=")[::2] for text in parameters)
        if media not in weights or (
            media != "text/plain" and given.get("version", "").strip('"') not in _OPEN_VERSIONS
        ):
            continue
        weights[media] = max(weights[media], _weight(given.get("q", "1")))
    asked, plain = weights.values()
    return asked > 0 and asked >= plain


def _weight(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        return 0.0
    return found if 0 <= found <= 1 else 0.0


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
