"""The ledger on the page of a schedule: every occurrence, those of a day, or what did not run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from rota.client.schedule_view import ScheduleView
from rota.core.runs.model import Run
from rota.core.time.instants import instant
from rota.core.time.zones import zone_named
from rota.errors import BadInput
from rota.http.pages.occurrence_view import LedgerLine, ledger_line, outcome_of
from rota.http.pages.text import WallClock, counted, schedule_href
from rota.http.pages.view import link
from rota.http.request import WebRequest

SIZE = 20
DAY_SIZE = 200  # occurrences of one day that are shown together
LOOK = 500  # rows of one read for occurrences that did not run
LOOKS_MAX = 4
STEP = timedelta(microseconds=1)


@dataclass(frozen=True)
class Ledger:
    """A page of the ledger."""

    rows: list[LedgerLine]
    line: str
    none: str
    day: str
    is_filtered: bool
    older: str
    older_label: str = "Older"


@dataclass(frozen=True)
class LedgerAddress:
    """The part of the ledger that an address asks for."""

    day: str
    only: str
    start: datetime | None
    end: datetime

    @classmethod
    def of(cls, request: WebRequest, there: WallClock) -> LedgerAddress:
        """From the query string; times are on the schedule's wall clock."""
        query, zone = request.query, zone_named(there.zone)
        day, before = query.get("day"), query.get("before")
        start, end = None, there.local(there.now)
        try:
            if day:
                start = datetime.fromisoformat(day).replace(tzinfo=zone)
                end = start + timedelta(days=1) - STEP
            if before:
                end = datetime.fromisoformat(before) - STEP
                end = end if end.tzinfo else end.replace(tzinfo=zone)
        except (ValueError, OverflowError) as error:
            raise BadInput(f"{before or day!r} is not a day or a time") from error
        return cls(day, query.get("only"), start, end)


async def ledger_of(request: WebRequest, view: ScheduleView, there: WallClock) -> Ledger:
    """The rows that the address asks for."""
    query, name = LedgerAddress.of(request, there), view.schedule.name
    look = _not_run if query.only else _every
    runs, end = await look(request, name, query, there)
    lines = [ledger_line(run, name, view.intent.policies, there) for run in runs]
    older = ""
    if end is not None:
        older = link(schedule_href(name), day=query.day, only=query.only, before=end.isoformat())
    is_filtered = bool(query.day or query.only or request.query.get("before"))
    line, none = counted(len(lines), "row"), "No occurrence is in this part of the ledger."
    if query.only and end is not None:
        looked = f"Looked back to {there.day(instant(end))}."
        line, none = f"{line}. {looked}", f"Everything ran. {looked}"
    elif query.only:
        none = "Everything ran, as far back as occurrences are kept."
    label = "Look further back" if query.only else "Older"
    return Ledger(lines, line, none, query.day, is_filtered, older, label)


def _end_before(run: Run, there: WallClock) -> datetime:
    return there.local(run.due_at or run.created_at)


async def _every(
    request: WebRequest, name: str, query: LedgerAddress, there: WallClock
) -> tuple[Sequence[Run], datetime | None]:
    size = DAY_SIZE if query.day else SIZE
    rows = await request.client.schedules.history(
        name, start=query.start, end=query.end, limit=size
    )
    return rows, _end_before(rows[-1], there) if len(rows) == size else None


async def _not_run(
    request: WebRequest, name: str, query: LedgerAddress, there: WallClock
) -> tuple[Sequence[Run], datetime | None]:
    """Rows without a run. A page looks at a bounded number of rows, and says how far it came."""
    skipped: list[Run] = []
    end = query.end
    for _ in range(LOOKS_MAX):
        rows = await request.client.schedules.history(name, start=query.start, end=end, limit=LOOK)
        for run in rows:
            if outcome_of(run) not in ("fired", "running"):
                skipped.append(run)
                if len(skipped) == SIZE:
                    return skipped, _end_before(run, there)
        if len(rows) < LOOK:
            return skipped, None
        end = _end_before(rows[-1], there) - STEP
    return skipped, end + STEP
