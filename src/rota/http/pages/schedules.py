"""The list of schedules: words, the last 20 outcomes, the next firing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rota.client.schedule_pages import LastOutcomes
from rota.client.schedule_view import COUNT_MAX, ListedCounts, ScheduleView
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
    schedule_href,
)
from rota.http.pages.view import SEARCH_FROM, clock_of, link, page
from rota.http.request import Answer, WebRequest
from rota.schedules.preview import zone_of

PAGE_SIZE = 50
LOOK_MAX = 500  # schedules that one search for failures reads
NAMED = 2  # names that a sentence has
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
    is_bad: bool
    has_missed: bool
    zone_next: str


class Listing(NamedTuple):
    """Rows of a page, and the name after which the next one begins."""

    rows: list[ScheduleRow]
    next: str


async def show(request: WebRequest) -> Answer:
    """The page."""
    clock, query = clock_of(request), request.query
    chosen, after, search = query.get("show"), query.get("after"), query.get("q").strip()
    schedules = request.client.schedules
    counts, every = await schedules.count(search=search), await schedules.count()
    listing = await _find(request, chosen, after, search, clock)
    first = listing if not (chosen or after or search) else await _find(request, "", "", "", clock)
    paused = await schedules.list(paused=True, limit=NAMED)
    missed = [row.name for row in first.rows if row.has_missed]
    headline, context = sentences(every, [view.schedule.name for view in paused], missed)
    return page(
        request, "schedules.html", title="Schedules", place="schedules", live=LIVE,
        headline=headline, context=context, total=every.total, rows=listing.rows,
        older=_href(chosen, search, listing.next) if listing.next else "",
        first=_href(chosen, search) if after else "", shown=_shown(listing, counts, chosen),
        chips=_chips(counts, chosen, search), search=search, chosen=chosen,
        is_long=every.total > SEARCH_FROM or bool(search),
    )  # fmt: skip


def _href(chosen: str, search: str, after: str = "") -> str:
    return link("/schedules", show=chosen, q=search, after=after)


async def _find(
    request: WebRequest, chosen: str, after: str, search: str, clock: WallClock
) -> Listing:
    """A page by name. Those that failed lately are looked for among a bounded number."""
    looks_at = LOOK_MAX if chosen == "bad" else PAGE_SIZE
    views = await request.client.schedules.list(
        after=after, search=search, paused=chosen == "paused", limit=looks_at + 1
    )
    views, has_more = views[:looks_at], len(views) > looks_at
    names = [view.schedule.name for view in views]
    known = await request.client.schedules.last_outcomes(names, last=LOOK) if names else {}
    rows = [schedule_row(view, known.get(view.schedule.name, NOTHING), clock) for view in views]
    if chosen == "bad":
        rows = [row for row in rows if row.is_bad]
        if len(rows) > PAGE_SIZE:
            return Listing(rows[:PAGE_SIZE], rows[PAGE_SIZE - 1].name)
    return Listing(rows, names[-1] if has_more else "")


def _shown(listing: Listing, counts: ListedCounts, chosen: str) -> str:
    if chosen == "bad":
        looked = f", searched names up to {clipped(listing.next, 48)}" if listing.next else ""
        return f"{counted(len(listing.rows), 'schedule')} shown, by name{looked}"
    total = counts.paused if chosen == "paused" else counts.total
    return f"{number(len(listing.rows))} of {_up_to(total)} shown, by name"


def _up_to(count: int) -> str:
    return f"{number(count)} or more" if count >= COUNT_MAX else counted(count, "schedule")


def schedule_row(view: ScheduleView, last_outcomes: LastOutcomes, clock: WallClock) -> ScheduleRow:
    """The row of a schedule."""
    row = view.schedule
    outcomes = [outcome_word(outcome.status, outcome.reason) for outcome in last_outcomes.outcomes]
    bars, label = bars_of(outcomes)
    last = last_outcomes.outcomes[-1] if last_outcomes.outcomes else None
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
    usual = None if last_outcomes.usual_s is None else round(last_outcomes.usual_s * SECOND)
    return ScheduleRow(
        name=row.name, href=schedule_href(row.name), words=words_of(view.text, zone),
        zone=zone, bars=bars, bars_label=label, last=state, last_note=note,
        usual=duration(usual), next=None if is_paused else clock.stamp(row.due_at),
        mark="bad" if view.problem or (newest_bad and not is_paused) else "",
        is_bad=bool({*outcomes} & {"failed", "missed"}), has_missed="missed" in outcomes,
        zone_next=_in_zone(row.due_at, zone, clock) if not is_paused else "",
    )  # fmt: skip


def _in_zone(at: int | None, zone: str, clock: WallClock) -> str:
    """The next firing on the schedule's own wall clock, where that is another one."""
    if at is None or zone == clock.zone:
        return ""
    return f"{WallClock(zone, clock.now).day(at)} {city(zone)}"


def _chips(counts: ListedCounts, chosen: str, search: str) -> list[Chip]:
    plus = "+" if counts.total >= COUNT_MAX else ""
    return [
        Chip("All", _href("", search), chosen not in ("bad", "paused"), None,
            f"{number(counts.total)}{plus}"),
        Chip("Failed or missed lately", _href("bad", search), chosen == "bad", STATES["failed"]),
        Chip("Paused", _href("paused", search), chosen == "paused", STATES["paused"],
            f"{number(counts.paused)}{plus}"),
    ]  # fmt: skip


def sentences(
    counts: ListedCounts, paused: Sequence[str], missed: Sequence[str]
) -> tuple[str, str]:
    """The state of the schedules, in one sentence, and what is not as planned. `paused` has the
    first of those that are paused, `missed` those of the first page."""
    if not counts.total:
        return "No schedule yet.", ""
    on = counts.total - counts.paused
    if counts.total == 1:
        head = "It is active." if on else "It is paused."
    elif not counts.paused:
        head = f"All {number(on)} are active."
    else:
        head = f"{number(on)} of {number(counts.total)} are active."
    notes = []
    if paused and counts.total > 1:
        verb = "is" if counts.paused == 1 else "are"
        notes.append(f"{_names(paused, counts.paused)} {verb} paused.")
    if missed:
        notes.append(f"{_names(missed, len(missed))} missed occurrences lately.")
    return head, " ".join(notes)


def _names(names: Sequence[str], count: int) -> str:
    """`a and b`; `a, b and 5 more`."""
    shown = [clipped(name, 48) for name in names[:NAMED]]
    if count > NAMED:
        return f"{', '.join(shown)} and {number(count - NAMED)} more"
    return " and ".join(shown)
