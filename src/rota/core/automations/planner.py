"""Which handler of an automation runs next, and when the next one is due. Pure.

Consumers go before producers: existing work is done before more is taken in. Among consumers
the one with the oldest pending event goes first, among producers the most overdue.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from rota.core.runs.lifecycle import Trigger
from rota.core.time.instants import instant
from rota.errors import BadInput


class DeployedHandler(msgspec.Struct, frozen=True, gc=False):
    """A deployed handler and what it waits for. Field order is the column order of its query."""

    name: str
    kind: str  # producer | consumer
    position: int
    digest: str
    spec: str | None
    written: str | None
    next_run_at: int | None
    queued_at: int | None
    last_run_at: int | None
    wake_at: int | None
    marked: int  # how often something gave it reason to look
    cleared: int  # how many of these it has seen to the end
    state: str | None

    @property
    def is_dirty(self) -> bool:
        """Whether something has happened that it has not looked at."""
        return self.marked > self.cleared


class PlannedHandler(NamedTuple):
    """A handler to run, and why."""

    name: str
    cause: str


class NextWork(NamedTuple):
    """When an automation next has work, and why; `at` None: only an event can tell."""

    at: int | None
    cause: str


def choose(
    handlers: Sequence[DeployedHandler], oldest: Mapping[str, str], *, now: int
) -> PlannedHandler | None:
    """The handler to run now. `oldest` has the id of each consumer's oldest pending event."""
    ready: list[tuple[tuple[Any, ...], PlannedHandler]] = []
    for one in handlers:
        due = due_of(one)
        if due is None or (due.at is not None and due.at > now):
            continue
        if one.kind == "consumer":
            order = (0, one.name not in oldest, oldest.get(one.name, ""), one.position)
        else:
            order = (1, False, f"{due.at or 0:020d}", one.position)
        ready.append((order, PlannedHandler(one.name, due.cause)))
    return min(ready)[1] if ready else None


def due_consumer_count(handlers: Sequence[DeployedHandler], *, now: int) -> int:
    """The number of consumers that are due now. Their oldest events decide between several."""
    dues = [due_of(one) for one in handlers if one.kind == "consumer"]
    return sum(due is not None and (due.at is None or due.at <= now) for due in dues)


def due_of(handler: DeployedHandler) -> NextWork | None:
    """When this handler is due; None when nothing but an event can make it so."""
    if handler.kind == "consumer":
        if handler.is_dirty:
            return NextWork(0, Trigger.EVENT)
        return None if handler.wake_at is None else NextWork(handler.wake_at, Trigger.WAKE)
    if handler.queued_at is not None:
        overdue = min(handler.queued_at, handler.next_run_at or handler.queued_at)
        return NextWork(overdue, Trigger.MANUAL)
    return None if handler.next_run_at is None else NextWork(handler.next_run_at, Trigger.SCHEDULE)


def next_due(handlers: Sequence[DeployedHandler]) -> NextWork:
    """When the automation next has work."""
    dues = [due for one in handlers if (due := due_of(one)) is not None]
    return min(dues, key=lambda due: due.at or 0, default=NextWork(None, Trigger.EVENT))


class Wake(NamedTuple):
    """A wake time a handler asked for, as the host allows it, and what was changed about it."""

    at: int | None
    remark: str | None = None


def clamp_wake(asked: object, *, now: int, least_us: int, most_us: int) -> Wake:
    """Not sooner than `least_us`, not later than `most_us` from now; an invalid time is ignored."""
    if asked is None:
        return Wake(None)
    try:
        at = _instant(asked)
    except (ValueError, OverflowError, BadInput) as error:
        return Wake(None, f"wake_at={asked!r} was ignored: {error}")
    if at < now + least_us:
        return Wake(now + least_us, f"wake_at={asked!s} is too soon; moved to the earliest allowed")
    if at > now + most_us:
        return Wake(now + most_us, f"wake_at={asked!s} is too far; moved to the latest allowed")
    return Wake(at)


def _instant(asked: object) -> int:
    if isinstance(asked, str):
        asked = datetime.fromisoformat(asked)
    if isinstance(asked, datetime):
        return instant(asked)
    raise ValueError("it is neither an aware datetime nor ISO 8601 text")
