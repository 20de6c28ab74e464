"""Counters and histograms: what a strict reader sees, and bounds on names of user code."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rota.core import process_metrics
from rota.core.process_metrics import OTHER, SECONDS, VALUES_MAX, CounterMetric, HistogramMetric
from rota.core.prometheus_text import text
from tests.kit.prometheus_parser import parse


def test_a_counter_adds_up_by_its_labels() -> None:
    counter = CounterMetric("x_total", "X.", ("kind", "status"))
    counter.add("a", "ok")
    counter.add("a", "ok", by=2.5)
    counter.add("b", "bad")
    family = parse(text([counter.metric()]))["x_total"]
    assert family.type == "counter"
    assert family.samples == {
        (("kind", "a"), ("status", "ok")): 3.5, (("kind", "b"), ("status", "bad")): 1
    }  # fmt: skip


@given(st.lists(st.floats(0, 5000) | st.sampled_from(SECONDS), min_size=1, max_size=50))
def test_a_histogram_counts_every_value_once_and_its_buckets_grow(values: list[float]) -> None:
    histogram = HistogramMetric("x_seconds", "X.", ("kind",))
    for value in values[:25]:
        histogram.observe(value, "a")
    histogram.observe_all(values[25:], "a")
    family = parse(text([histogram.metric()]))["x_seconds"]
    at = {dict(key).get("le", dict(key)["__name__"]): n for key, n in family.samples.items()}
    for bound in histogram.bounds:
        assert at[repr(float(bound))] == sum(value <= bound for value in values)
    assert at["+Inf"] == at["x_seconds_count"] == len(values)
    assert abs(at["x_seconds_sum"] - sum(values)) < 1e-6 * max(1, sum(values))


def test_names_beyond_the_cap_share_one_value() -> None:
    counter = CounterMetric("x_total", "X.", ("name", "status"))
    for number in range(VALUES_MAX + 50):
        counter.add(f"flow-{number}", "ok")
    counter.add("flow-0", "failed")  # known: another status of it is not another name
    assert len(counter.metric().samples) == VALUES_MAX + 2
    assert counter.value(OTHER, "ok") == 50
    assert counter.value("flow-0", "failed") == 1


def test_every_meter_is_in_the_table_and_has_a_name_of_its_kind() -> None:
    found = {
        one
        for one in vars(process_metrics).values()
        if isinstance(one, process_metrics.ProcessMetric)
    }
    assert found == set(process_metrics.PROCESS_METRICS)
    for one in process_metrics.PROCESS_METRICS:
        assert one.name.endswith("_total" if one.kind == "counter" else "_seconds")
        assert one.help.endswith(".")
