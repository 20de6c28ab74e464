"""How far a run is, on stderr: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import shutil
import sys
import time

import click

from rota.cli import render
from rota.core.time.instants import SECOND, span
from rota.pipelines.outcome import Progress

DRAW_S = 0.1  # between two pictures of the bar
LINE_S = 10.0  # between two plain lines
LINES_AFTER_S = 2.0  # a shorter one needs none
COUNTED = ("filtering", "mapping", "node")  # phases that go over items one by one
BAR_WIDTH = 24
LEFT_AFTER = 3  # items that must have ended before a time left is guessed
CLEAR = "\r\x1b[2K"


class Meter:
    """Shows the progress of a run: a bar on a terminal, otherwise a line from time to time."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._is_bar = sys.stderr.isatty()
        self._quiet = quiet
        self._shown_at = 0.0
        self._phase: tuple[str, str | None] | None = None
        self._pace = Throughput()
        self._last: Progress | None = None
        self._drawn = False
        self._waiting_at: float | None = None  # when a wait was last reported

    def report(self, progress: Progress) -> None:
        """Take the progress; show it when the time has come."""
        now = time.monotonic()
        self._last = progress
        self._report_wait(progress, now)
        self._pace.see(progress, now)
        changed = (progress.phase, progress.node) != self._phase
        wait = DRAW_S if self._is_bar else LINE_S
        if self._quiet or progress.phase in ("begun", "ended"):
            return
        if not changed and now - self._shown_at < wait:
            return
        if not self._is_bar and self._pace.age_s(now) < LINES_AFTER_S:
            return
        self._phase, self._shown_at = (progress.phase, progress.node), now
        if self._is_bar:
            self._draw(progress, now)
        else:
            parts = ", ".join(self._parts(progress, now))
            click.echo(f"{render.clean(progress.pipeline_id)}: {parts}", err=True)

    def _report_wait(self, progress: Progress, now: float) -> None:
        """A line when the run begins to wait for its provider, now and then, and at the end."""
        name = render.clean(progress.pipeline_id)
        if progress.waiting is None:
            if self._waiting_at is not None and progress.phase != "ended":
                self._waiting_at = None
                self._note(f"{name}: the provider answers again")
        elif self._waiting_at is None or now - self._waiting_at >= LINE_S:
            self._waiting_at = now
            self._note(f"{name}: waiting for the provider: {render.clean(progress.waiting)}")

    def _note(self, text: str) -> None:
        if not self._quiet:
            self.say(text)

    def refresh(self) -> None:
        """Draw the bar again, so that its time moves while nothing else does."""
        if self._drawn and self._last is not None and self._last.phase != "ended":
            self._draw(self._last, time.monotonic())

    def say(self, text: str) -> None:
        """A line of its own, above the bar."""
        self.clear()
        click.echo(text, err=True)
        self.refresh()

    def clear(self) -> None:
        """Take the bar away."""
        if self._drawn:
            sys.stderr.write(CLEAR)
            sys.stderr.flush()

    def end(self) -> None:
        """The end of the reports."""
        self.clear()
        self._drawn = False
        self._quiet = True

    def _draw(self, progress: Progress, now: float) -> None:
        parts = self._parts(progress, now)
        columns = max(20, shutil.get_terminal_size().columns - 1)
        bar = f"{_bar(progress)} " if _is_counted(progress) else ""
        line = f"{bar}{', '.join(parts)}"
        if len(line) > columns:
            line = render.short(", ".join(parts), columns)
        sys.stderr.write(CLEAR + line)
        sys.stderr.flush()
        self._drawn = True

    def _parts(self, progress: Progress, now: float) -> list[str]:
        """`mapping 520/1000`, `3 failed`, `$0.0421`, `about 1m20s left`."""
        what = render.clean(progress.node or progress.phase)
        parts = [f"{what} {progress.done}/{progress.total}" if _is_counted(progress) else what]
        if progress.filtered:
            parts.append(f"{progress.filtered} filtered out")
        if progress.failed:
            parts.append(f"{progress.failed} failed")
        if progress.calls:
            parts.append(f"{money(progress.cost_usd)}")
        left = self._pace.left_s(progress, now)
        if left is not None:
            parts.append(f"about {seconds(left)} left")
        else:
            parts.append(seconds(self._pace.age_s(now)))
        return parts


class Throughput:
    """How fast items end, counted from when this process began with them."""

    def __init__(self) -> None:
        self._began_at: float | None = None
        self._stage: tuple[str, str | None] | None = None
        self._from: tuple[float, int] = (0.0, 0)

    def see(self, progress: Progress, now: float) -> None:
        """Take the progress at a time."""
        if self._began_at is None:
            self._began_at = now
        stage = (progress.phase, progress.node)
        if stage != self._stage:  # what an earlier attempt has done took no time now
            self._stage, self._from = stage, (now, progress.done)

    def age_s(self, now: float) -> float:
        """The time since the first progress."""
        return 0.0 if self._began_at is None else now - self._began_at

    def left_s(self, progress: Progress, now: float) -> float | None:
        """The time until all items of this stage have ended; None if it is too early to know."""
        began, count = self._from
        done = progress.done
        if progress.total is None or done - count < LEFT_AFTER or done >= progress.total:
            return None
        return (now - began) / (done - count) * (progress.total - done)


def _is_counted(progress: Progress) -> bool:
    return bool(progress.total) and progress.phase in COUNTED


def _bar(progress: Progress) -> str:
    total = progress.total or 1
    share = min(1.0, progress.done / total)
    full = round(share * BAR_WIDTH)
    return f"[{'#' * full}{'.' * (BAR_WIDTH - full)}] {int(share * 100):3d}%"


def money(cost_usd: float) -> str:
    """Dollars, with the digits that matter for small sums."""
    return f"${cost_usd:.4f}" if cost_usd < 10 else f"${cost_usd:.2f}"


def seconds(duration_s: float) -> str:
    """Whole seconds, minutes, hours."""
    return span(max(1, round(duration_s)) * SECOND)
