"""The events of a pipeline scheduler for its host: six, as objects and as lines of JSON.

An error of one listener does not disturb the others.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, ClassVar, Literal, TypeAlias, get_args

import msgspec
from msgspec import UNSET, UnsetType

from rota.core.suggest import did_you_mean
from rota.core.time.instants import iso
from rota.errors import UsageError

log = logging.getLogger("rota.pipelines")

Change: TypeAlias = Literal["added", "updated", "removed"]
SchedulerState: TypeAlias = Literal["starting", "running", "stopping", "stopped"]


class SchedulerEvent(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Something happened, at an instant."""

    name: ClassVar[str]
    at: int

    def line(self) -> str:
        """One line of JSON: the name of the event, its time, and its fields."""
        fields = msgspec.to_builtins(self)
        fields["at"] = iso(self.at)
        return msgspec.json.encode({"event": self.name} | fields).decode()


class OfSchedule(SchedulerEvent, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """An event about one schedule."""

    schedule_id: str
    pipeline_id: str


class ExecutionStart(OfSchedule, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """An execution begins, or is tried again."""

    name = "execution:start"
    run_id: str
    trigger: str  # schedule, manual, retry, recovery, backfill
    retry_attempt: int | UnsetType = UNSET


class ExecutionComplete(OfSchedule, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """An execution completed with a result."""

    name = "execution:complete"
    run_id: str
    result: Any
    duration: int  # milliseconds


class ExecutionError(OfSchedule, frozen=True, kw_only=True, rename="camel"):
    """A try failed. `retry_attempt` counts the tries that did, when another follows. `waits`: a
    person has to act, and then the same execution continues."""

    name = "execution:error"
    run_id: str
    error: str
    will_retry: bool
    retry_attempt: int | UnsetType = UNSET
    waits: bool | UnsetType = UNSET


class ExecutionWaiting(OfSchedule, frozen=True, kw_only=True, rename="camel"):
    """An execution waits for its AI provider, or (`reason` is null) does not any more."""

    name = "execution:waiting"
    run_id: str
    reason: str | None


class ScheduleChanged(OfSchedule, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A schedule was added, updated or removed; `problem` reports an edit that is not in force."""

    name = "schedule:changed"
    change: Change
    problem: str | UnsetType = UNSET


class SchedulerStatus(SchedulerEvent, frozen=True, kw_only=True, rename="camel"):
    """The scheduler starts, runs, stops or has stopped."""

    name = "scheduler:status"
    status: SchedulerState


AnyEvent: TypeAlias = (
    ExecutionStart
    | ExecutionComplete
    | ExecutionError
    | ExecutionWaiting
    | ScheduleChanged
    | SchedulerStatus
)
NAMES: tuple[str, ...] = tuple(kind.name for kind in get_args(AnyEvent))
EVERY = "*"
Listener: TypeAlias = Callable[[Any], object]


class Events:
    """The listeners, by event."""

    def __init__(self) -> None:
        self._listeners: dict[str, list[Listener]] = {name: [] for name in (*NAMES, EVERY)}

    def on(self, name: str, listener: Listener) -> None:
        """Call `listener` with every event of this name, or with all for `*`."""
        self._of(name).append(listener)

    def off(self, name: str, listener: Listener) -> None:
        """Do not call `listener` any more."""
        if listener in self._of(name):
            self._of(name).remove(listener)

    def clear(self) -> None:
        """No listener is called any more."""
        for listeners in self._listeners.values():
            listeners.clear()

    def emit(self, event: AnyEvent) -> None:
        """Call the listeners of an event."""
        for listener in [*self._listeners[event.name], *self._listeners[EVERY]]:
            try:
                listener(event)
            except Exception:
                log.exception(
                    "a listener of %s failed; the others are called all the same", event.name
                )

    def _of(self, name: str) -> list[Listener]:
        if name not in self._listeners:
            raise UsageError(
                f"there is no event {name!r}{did_you_mean(name, NAMES)}",
                hint=f"There are: {', '.join(NAMES)}, and * for all.",
            )
        return self._listeners[name]
