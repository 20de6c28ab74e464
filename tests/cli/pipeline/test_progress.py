"""The progress of a pipeline: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import io
import sys
from typing import Any

import pytest

from rota.cli.pipeline import progress
from rota.cli.pipeline.progress import Meter, Throughput, money, seconds
from rota.pipelines.outcome import Progress


class Screen(io.StringIO):
    """A terminal that remembers."""

    def isatty(self) -> bool:
        return True


class Watch:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    """The clock of the module."""
    watch = Watch()
    monkeypatch.setattr(progress, "time", watch)
    return watch


def news(phase: str = "mapping", **more: Any) -> Progress:
    """The state of a run."""
    return Progress(run_id="r", root_id="r", pipeline_id="demo", phase=phase, **more)


def test_a_bar_shows_counts_cost_and_time_left(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("COLUMNS", "120")
    meter = Meter()
    meter.report(news(total=100))
    watch.now_s += 10
    meter.report(news(total=100, done=50, failed=2, filtered=7, calls=51, cost_usd=0.1234))
    shown = screen.getvalue().rpartition("\r\x1b[2K")[2]
    assert shown == (
        "[############............]  50% mapping 50/100, 7 filtered out, 2 failed, $0.1234, "
        "about 10s left"
    )
    meter.end()
    assert screen.getvalue().endswith("\r\x1b[2K")


@pytest.mark.parametrize("columns", [20, 40, 60])
def test_a_bar_never_breaks_into_two_lines(
    watch: Watch, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("COLUMNS", str(columns))
    meter = Meter()
    meter.report(news(total=100))
    watch.now_s += 10
    meter.report(news(total=100, done=52, failed=12, calls=50, cost_usd=1.5))
    for picture in screen.getvalue().split("\r\x1b[2K"):
        assert len(picture) <= max(columns, 21)


def test_a_bar_is_not_drawn_more_often_than_eyes_can_see(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    meter = Meter()
    for done in range(1000):
        watch.now_s += 0.001
        meter.report(news(total=1000, done=done))
    assert screen.getvalue().count("\r") <= 12


def test_elsewhere_a_line_comes_with_a_new_phase_and_every_ten_seconds(
    watch: Watch, capsys: pytest.CaptureFixture[str]
) -> None:
    meter = Meter()
    meter.report(news("begun"))
    meter.report(news("loading"))
    meter.report(news(total=300))
    for done in range(1, 251):
        watch.now_s += 0.125
        meter.report(news(total=300, done=done, calls=done))
    meter.report(news("reducing", total=300, done=250))
    meter.report(news("ended"))
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "demo: mapping 16/300, $0.0000, about 36s left",
        "demo: mapping 96/300, $0.0000, about 26s left",
        "demo: mapping 176/300, $0.0000, about 16s left",
        "demo: reducing, 31s",
    ]


def test_quiet_is_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    meter = Meter(quiet=True)
    meter.report(news("mapping", total=3))
    assert capsys.readouterr() == ("", "")


def test_what_an_earlier_attempt_did_does_not_make_the_rest_look_quick() -> None:
    pace = Throughput()
    pace.see(news(total=1000, done=900), 0.0)
    now = news(total=1000, done=910)
    pace.see(now, 20.0)
    assert pace.left_s(now, 20.0) == pytest.approx(180.0)
    assert pace.left_s(news(total=1000, done=901), 20.0) is None
    assert pace.left_s(news(total=None, done=950), 20.0) is None


@pytest.mark.parametrize(("cost", "text"), [(0, "$0.0000"), (0.01234, "$0.0123"), (12.3, "$12.30")])
def test_money_has_the_digits_that_matter(cost: float, text: str) -> None:
    assert money(cost) == text


@pytest.mark.parametrize(("took", "text"), [(0.2, "1s"), (61, "1m1s"), (3600, "1h")])
def test_time_left_is_in_whole_seconds(took: float, text: str) -> None:
    assert seconds(took) == text


def test_a_wait_for_the_provider_is_reported_at_once_then_now_and_then(
    watch: Watch, capsys: pytest.CaptureFixture[str]
) -> None:
    meter = Meter()
    meter.report(news(total=9))
    meter.report(news(total=9, waiting="openai cannot be reached; next try in 30 s"))
    assert capsys.readouterr().err == (
        "demo: waiting for the provider: openai cannot be reached; next try in 30 s\n"
    )
    watch.now_s += 1
    meter.report(news(total=9, waiting="openai cannot be reached; next try in 29 s"))
    assert "waiting" not in capsys.readouterr().err
    watch.now_s += 10
    meter.report(news(total=9, waiting="openai cannot be reached; next try in 60 s"))
    assert "next try in 60 s" in capsys.readouterr().err
    meter.report(news(total=9, done=1))
    assert "demo: the provider answers again\n" in capsys.readouterr().err


def test_quiet_says_nothing_about_waits(watch: Watch, capsys: pytest.CaptureFixture[str]) -> None:
    Meter(quiet=True).report(news(total=9, waiting="openai cannot be reached"))
    assert capsys.readouterr().err == ""
