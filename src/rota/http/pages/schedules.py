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
from rota.http.pages.text import (
    Stamp,
    WallClock,
    city,
    clipped,
    counted,
    duration,
    number,
    segment,
)
from rota.http.pages.view import clock_of, link, page
from rota.http.request import Answer, WebRequest
from rota.schedules.preview import zone_of

PAGE_SIZE = 50
SCHEDULES_MAX = 1_000
SEARCH_FROM = 8  # fewer fit on the screen
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
    has_missed: bool
    zone_next: str


async def show(request: WebRequest) -> Answer:
    """The page."""
    clock, query = clock_of(request), request.query
    chosen, after, search = query.get("show"), query.get("after"), query.get("q").strip()
    views = await request.client.schedules.list(limit=SCHEDULES_MAX)
    names = [view.schedule.name for view in views]
    found = await request.client.schedules.last_outcomes(names, last=LOOK) if names else {}
    rows = [schedule_row(view, found.get(view.schedule.name, NOTHING), clock) for view in views]
    named = [row for row in rows if search.lower() in row.name.lower()]
    shown = [row for row in named if _fits(row, chosen)]
    rest = [row for row in shown if row.name > after] if after else shown
    headline, context = sentences(rows)
    older = ""
    if len(rest) > PAGE_SIZE:
        older = link("/schedules", after=rest[PAGE_SIZE - 1].name, show=chosen, q=search)
    return page(
        request, "schedules.html", title="Schedules", place="schedules", live=LIVE,
        headline=headline, context=context, total=len(rows), rows=rest[:PAGE_SIZE], older=older,
        first=link("/schedules", show=chosen, q=search) if after else "",
        shown=_shown(rest, shown), chips=_chips(named, chosen, search), search=search,
        chosen=chosen, is_long=len(rows) > SEARCH_FROM or bool(search),
    )  # fmt: skip


def _shown(rest: Sequence[ScheduleRow], all_rows: Sequence[ScheduleRow]) -> str:
    count = min(PAGE_SIZE, len(rest))
    return f"{number(count)} of {counted(len(all_rows), 'schedule')} shown, by name"


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
        has_missed="missed" in outcomes,
        zone_next=_in_zone(row.due_at, zone, clock) if not is_paused else "",
    )  # fmt: skip


def _in_zone(at: int | None, zone: str, clock: WallClock) -> str:
    """The next firing on the schedule's own wall, where that is another one."""
    if at is None or zone == clock.zone:
        return ""
    return f"{WallClock(zone, clock.now).day(at)} {city(zone)}"


def _fits(row: ScheduleRow, chosen: str) -> bool:
    return {"bad": row.is_bad, "paused": row.is_paused}.get(chosen, True)


def _chips(rows: Sequence[ScheduleRow], chosen: str, search: str) -> list[Chip]:
    paused, bad = sum(row.is_paused for row in rows), sum(row.is_bad for row in rows)
    return [
        Chip("All", link("/schedules", q=search), chosen not in ("bad", "paused"), None,
            number(len(rows))),
        Chip("Failed or missed lately", link("/schedules", show="bad", q=search), chosen == "bad",
            STATES["failed"], number(bad)),
        Chip("Paused", link("/schedules", show="paused", q=search), chosen == "paused",
            STATES["paused"], number(paused)),
    ]  # fmt: skip


def sentences(rows: Sequence[ScheduleRow]) -> tuple[str, str]:
    """The state of the schedules, in one sentence, and what is not as planned."""
    if not rows:
        return "No schedule yet.", ""
    paused = [row.name for row in rows if row.is_paused]
    missed = [row.name for row in rows if row.has_missed]
    on = len(rows) - len(paused)
    if len(rows) == 1:
        head = "It is on." if on else "It is paused."
    else:
        all_on = on == len(rows)
        head = f"All {number(on)} are on." if all_on else f"{number(on)} of {len(rows):,} are on."
    said = []
    if paused and len(rows) > 1:
        said.append(f"{_names(paused)} {'is' if len(paused) == 1 else 'are'} paused.")
    if missed:
        said.append(f"{_names(missed)} missed occurrences lately.")
    return head, " ".join(said)


def _names(names: Sequence[str]) -> str:
    """`a and b`; `a, b and 5 more`."""
    shown = [clipped(name, 48) for name in names[:2]]
    if len(names) > 2:
        return f"{', '.join(shown)} and {number(len(names) - 2)} more"
    return " and ".join(shown)
