"""The Prometheus text format: whatever the labels hold, a strict reader gets it back."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rota.core.process_metrics import HistogramMetric
from rota.core.prometheus_text import (
    OPEN_END,
    Metric,
    MetricSample,
    number,
    openmetrics,
    quoted,
    text,
    wants_openmetrics,
)
from tests.kit.prometheus_parser import parse, parse_open

TEXTS = st.text(st.characters(codec="utf-8"), max_size=30)
# Characters that an escape could trip over, in every order.
TRICKY = st.text(st.sampled_from('\\"\nn{},=# \r\u2028é'), max_size=12)


@given(TEXTS | TRICKY, TEXTS | TRICKY, st.floats() | st.integers(-(2**53), 2**53))
@example("\\n", '"', 0)
@example("\\", '\\"', math.inf)
def test_any_label_help_and_number_is_read_back(label: str, says: str, value: float) -> None:
    samples = [MetricSample(value, {"a": label, "b": "x"}), MetricSample(1)]
    [(name, family)] = parse(text([Metric("rota_x", says, samples)])).items()
    assert (name, family.help, family.type) == ("rota_x", says, "gauge")
    read = family.samples[("a", label), ("b", "x")]
    assert read == value or (math.isnan(read) and math.isnan(value))
    assert family.samples[()] == 1


@given(st.lists(TEXTS | TRICKY, unique=True, max_size=6))
def test_different_labels_stay_different(labels: list[str]) -> None:
    samples = [MetricSample(n, {"a": label}) for n, label in enumerate(labels)]
    found = parse(text([Metric("rota_x", "x", samples)]))
    if labels:
        assert found["rota_x"].samples == {(("a", one),): n for n, one in enumerate(labels)}


def test_the_text_is_as_the_format_has_it() -> None:
    metric = Metric(
        "rota_x", "one\\two\nthree", [MetricSample(3, {"a": 'q"\\\n'}), MetricSample(0.25)]
    )
    assert text([metric, Metric("rota_empty", "left out", [])]) == (
        "# HELP rota_x one\\\\two\\nthree\n"
        "# TYPE rota_x gauge\n"
        'rota_x{a="q\\"\\\\\\n"} 3\n'
        "rota_x 0.25\n"
    )
    assert text([]) == ""


@pytest.mark.parametrize(
    ("value", "written"),
    [(0, "0"), (1.5, "1.5"), (1e300, "1e+300"), (math.nan, "NaN"), (math.inf, "+Inf"),
     (-math.inf, "-Inf"), (2**62, "4611686018427387904")],
)  # fmt: skip
def test_a_number_is_written_as_go_reads_it(value: float, written: str) -> None:
    assert number(value) == written


def test_quotes_backslashes_and_ends_of_lines_are_escaped() -> None:
    assert quoted('a\\b"c\nd\te') == 'a\\\\b\\"c\\nd\te'


@pytest.mark.parametrize(
    "broken",
    ["rota_x 1\n", "# HELP x y\n# TYPE x gauge\nx 1", '# HELP x y\n# TYPE x gauge\nx{a="b"c"} 1\n',
     "# HELP x y\n# TYPE x gauge\nx one\n", '# HELP x y\n# TYPE x gauge\nx{a="\\t"} 1\n',
     "# HELP x y\n# TYPE x gauge\nx 1\nx 2\n"],
)  # fmt: skip
def test_the_reader_is_strict(broken: str) -> None:
    with pytest.raises(AssertionError):
        parse(broken)


def test_openmetrics_names_families_without_the_suffixes_of_samples() -> None:
    hits = Metric("hits_total", 'A "quoted" help.', [MetricSample(3, {"code": "a"})], "counter")
    cost = Metric("cost_dollars_total", "Cost.", [MetricSample(0.5)], "counter")
    build = Metric("x_build_info", "Always 1.", [MetricSample(1, {"version": "1"})])
    meter = HistogramMetric("took_seconds", "How long.", ("op",), (0.5, 1))
    meter.observe(0.7, "read")
    metrics = [hits, cost, build, Metric("old_seconds", "Age.", [MetricSample(7)]), meter.metric()]
    written = openmetrics([*metrics, Metric("none", "No numbers.", [])]) + OPEN_END
    found = parse_open(written)
    assert {name: family.type for name, family in found.items()} == {
        "hits": "counter", "cost_dollars": "counter", "x_build": "info", "old_seconds": "gauge",
        "took_seconds": "histogram",
    }  # fmt: skip
    assert found["hits"].help == 'A "quoted" help.'
    assert found["hits"].at(__name__="hits_total", code="a") == 3
    assert found["took_seconds"].at(le="1.0") == 1
    for unit in ("# UNIT took_seconds seconds\n", "# UNIT cost_dollars dollars\n"):
        assert unit in written
    assert "# UNIT hits" not in written


PROMETHEUS_2 = (
    "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;"
    "q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)


@pytest.mark.parametrize(
    ("accept", "is_open"),
    [
        (PROMETHEUS_2, True),
        ("application/openmetrics-text", True),
        ("Application/OpenMetrics-Text; Version=1.0.0", True),
        ("application/openmetrics-text;version=2.0.0", False),
        ("application/openmetrics-text;q=0.2, text/plain", False),
        ("application/openmetrics-text;q=0", False),
        ("application/openmetrics-text;q=x", False),
        ("text/html,*/*;q=0.8", False),
        ("", False),
    ],
)
def test_the_accept_header_chooses_the_format(accept: str, is_open: bool) -> None:
    assert wants_openmetrics(accept) is is_open
