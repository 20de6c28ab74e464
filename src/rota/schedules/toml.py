"""Schedules that a project's `rota.toml` declares: their table, checked when it is read.

[schedules.nightly]
workflow = "backup"
when = "30 2 * * *"          # or a list
timezone = "Europe/Berlin"
input = { what = "db" }
overlap = "skip"             # any option of `rota schedule create`
"""

from __future__ import annotations

from datetime import date, datetime, time
from typing import Any, cast

import msgspec

from rota.errors import BadInput, BadSetting, RotaError
from rota.schedules.definition import PolicyOptions, ScheduleOptions, check_declared
from rota.schedules.host_zone import zone_or_host

POLICIES = tuple(PolicyOptions.__annotations__)
# Options for which None means that the table does not name them.
PLAIN = ("gap", "repeat", "queue", "priority", "sub_second", "paused")


class ScheduleTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One `[schedules.NAME]`: the options of `Schedules.create`."""

    workflow: str
    when: str | list[str]
    timezone: str | None = None
    input: dict[str, Any] = {}
    gap: str | None = None
    repeat: str | None = None
    start: Any = None  # a TOML date or time, or text
    end: Any = None
    queue: str | None = None
    priority: int | None = None
    overlap: str | None = None
    missed: str | None = None
    missed_max: int | None = None
    max_delay: str | None = None
    jitter: str | None = None
    max_runs: int | None = None
    pause_after_failures: int | None = None
    retries: int | None = None
    timeout: str | None = None
    grace: str | None = None
    expires_after: str | None = None
    sub_second: bool = False
    paused: bool = False  # only when it is made; later it stays as people left it

    def words(self) -> dict[str, Any]:
        """The arguments of `Schedules.create` beside name, workflow and when."""
        named = {key: getattr(self, key) for key in (*PLAIN, *POLICIES)}
        chosen = {key: value for key, value in named.items() if value is not None}
        bounds = {key: self._bound(key) for key in ("start", "end")}
        return chosen | bounds | {"timezone": self.timezone, "input": self.input}

    def check(self, where: str) -> None:
        """Refuse what can be known to be wrong without the code; `where` names the table."""
        try:
            options = cast("ScheduleOptions", self.words())
            check_declared(self.when, zone_or_host(self.timezone), options)
        except RotaError as error:
            raise BadSetting(f"{where}: {error.message}", hint=error.advice) from error

    def _bound(self, key: str) -> datetime | None:
        """A time without an offset stays so: it is wall time in the zone the schedule has. Words
        such as "tomorrow" are refused: they would mean another day at each deploy."""
        value = getattr(self, key)
        if value is None:
            return None
        if isinstance(value, date) and not isinstance(value, datetime):
            value = datetime.combine(value, time())
        if isinstance(value, datetime):
            return value
        try:
            return datetime.fromisoformat(str(value).strip().replace(" ", "T", 1))
        except ValueError as error:
            raise BadInput(
                f"{key}: {str(value)!r} is not a time with its date",
                hint="Write 2027-03-28 or 2027-03-28T09:00, with an offset as +02:00 or Z, or as "
                "wall time in the schedule's zone.",
            ) from error
