"""The list of schedules: words, the last 20 outcomes, the next firing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rota.client.schedule_pages import LastOutcomes
from rota.client.schedule_view import ScheduleView
from rota.core.runs.lifecycle import Status
from rota.core.schedules.intent import ENDED
from rota.core.time.instants import SECOND
from rota.http.pages.chart import Bar
from rota.http.pages.occurrence_view import bars_of, outcome_word, words_of
from rota.http.pages.runs import Chip
from rota.http.pages.status import STATES, StatusView, state_of
from rota.http.pages.text import Stamp, WallClock, clipped, counted, duration, segment
from rota.http.pages.view import clock_of, link, page
from rota.http.request import Answer, WebRequest
from rota.schedules.preview import zone_of

PAGE_SIZE = 50
LOOK = 20
LIVE = "schedule run"
NOTHING = LastOutcomes([], None)


@dataclass(frozen=True)
class ScheduleRow:
    """One row of the list."""

    name: str
    href: str
    words: str
    zone: str
    bars: list[Bar]
    bars_label: str
    last: StatusView | None
    last_note: str
    usual: str
    next: Stamp | None
    mark: str
    is_paused: bool
    is_bad: bool
    missed: int


async def show(request: WebRequest) -> Answer:
    """The page."""
    clock, chosen = clock_of(request), request.query.get("show")
    after = request.query.get("after")
    views = await request.client.schedules.list(after=after, limit=PAGE_SIZE + 1)
    has_more, views = len(views) > PAGE_SIZE, views[:PAGE_SIZE]
    names = [view.schedule.name for view in views]
    found = await request.client.schedules.last_outcomes(names, last=LOOK) if names else {}
    rows = [schedule_row(view, found.get(view.schedule.name, NOTHING), clock) for view in views]
    shown = [row for row in rows if _fits(row, chosen)]
    missed = sum(row.missed for row in rows)
    headline, context = sentences(rows, missed)
    older = link("/schedules", after=views[-1].schedule.name, show=chosen) if has_more else ""
    return page(
        request, "schedules.html", title="Schedules", place="schedules", live=LIVE,
        headline=headline, context=context, total=len(rows), rows=shown, older=older,
        shown=counted(len(rows), "schedule"), chips=_chips(rows, chosen),
    )  # fmt: skip


def schedule_row(view: ScheduleView, found: LastOutcomes, clock: WallClock) -> ScheduleRow:
    """The row of a schedule."""
    row = view.schedule
    outcomes = [outcome_word(one.status, one.reason) for one in found.outcomes]
    bars, label = bars_of(outcomes)
    last = found.outcomes[-1] if found.outcomes else None
    state, note = None, ""
    if last is not None:
        state = state_of(last.status, last.reason)
        note = clock.day(last.due_at)
        if last.status == Status.SKIPPED:
            note = f"{note}: {last.reason}"
    zone, is_paused = zone_of(view.intent.spec), row.status == Status.PAUSED
    if is_paused:
        state = STATES["ended" if row.reason in ENDED else "paused"]
        until = "" if row.available_at is None else f", until {clock.day(row.available_at)}"
        note = clipped(f"{row.reason}{until}", 80)
    newest_bad = bool(outcomes) and outcomes[-1] in ("failed", "missed")
    usual = None if found.usual_s is None else round(found.usual_s * SECOND)
    return ScheduleRow(
        name=row.name, href=f"/schedules/{segment(row.name)}", words=words_of(view.text, zone),
        zone=zone, bars=bars, bars_label=label, last=state, last_note=note,
        usual=duration(usual), next=None if is_paused else clock.stamp(row.due_at),
        mark="bad" if view.problem or (newest_bad and not is_paused) else "",
        is_paused=is_paused, is_bad=bool({*outcomes} & {"failed", "missed"}),
        missed=outcomes.count("missed"),
    )  # fmt: skip


def _fits(row: ScheduleRow, chosen: str) -> bool:
    return {"bad": row.is_bad, "paused": row.is_paused}.get(chosen, True)


def _chips(rows: Sequence[ScheduleRow], chosen: str) -> list[Chip]:
    paused, bad = sum(row.is_paused for row in rows), sum(row.is_bad for row in rows)
    return [
        Chip("All", "/schedules", chosen not in ("bad", "paused"), None, str(len(rows))),
        Chip("Failing or missed", "/schedules?show=bad", chosen == "bad", STATES["failed"],
            str(bad)),
        Chip("Paused", "/schedules?show=paused", chosen == "paused", STATES["paused"],
            str(paused)),
    ]  # fmt: skip


def sentences(rows: Sequence[ScheduleRow], missed: int) -> tuple[str, str]:
    """The state of the schedules, in one sentence, and what is not as planned."""
    if not rows:
        return "No schedule yet.", ""
    paused = [row.name for row in rows if row.is_paused]
    firing = len(rows) - len(paused)
    if len(rows) == 1:
        head = "It fires as planned." if firing else "It is paused."
    else:
        whole = "All" if firing == len(rows) else f"{firing} of {len(rows)}"
        head = f"{whole} fire as planned."
    said = []
    if paused and len(rows) > 1:
        said.append(f"{', '.join(paused[:3])}{' and more' if len(paused) > 3 else ''}"
            f" {'is' if len(paused) == 1 else 'are'} paused.")  # fmt: skip
    if missed:
        said.append(f"{counted(missed, 'occurrence')} {'was' if missed == 1 else 'were'} missed.")
    return head, " ".join(said)
