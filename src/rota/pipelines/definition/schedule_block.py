"""The schedule block of a pipeline.yaml, and the intent that it becomes."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal, NamedTuple

import msgspec

from rota.core.pipelines.names import KIND
from rota.core.runs.retry import RetryPolicy
from rota.core.schedules.intent import (
    Intent,
    Missed,
    Overlap,
    Policies,
)
from rota.core.time.instants import instant
from rota.core.time.recurrence import parse
from rota.core.time.zones import zone_named
from rota.errors import BadSchedule
from rota.net.subprocesses import PassEnv
from rota.notifications.receivers import Notify
from rota.pipelines.definition.sections import Natural, Positive, Section
from rota.schedules.definition import policies

Meta = msgspec.Meta
RETRY_DELAY_S_MAX = 24 * 3600.0


class RetryPolicyBlock(Section, frozen=True, kw_only=True):
    """Retries of a failed execution."""

    max_retries: Annotated[Natural, Meta(description="Retries after the first attempt.")] = 3
    retry_delay_ms: Annotated[
        Natural, Meta(description="Milliseconds before the first retry; doubles each time.")
    ] = 60_000


class Window(Section, frozen=True, kw_only=True):
    """Limits of an execution's time."""

    max_delay_minutes: Annotated[
        Annotated[float, Meta(ge=0)] | None,
        Meta(description="Skip an execution that is later than this."),
    ] = None


class Condition(Section, frozen=True, kw_only=True):
    """Conditions of an execution. If one is not met, Rota skips it, and the history says why."""

    file_exists: Annotated[str | list[str] | None, Meta(description="Files that must exist.")] = (
        msgspec.field(default=None, name="file_exists")
    )
    file_missing: Annotated[
        str | list[str] | None, Meta(description="Files that must not exist.")
    ] = msgspec.field(default=None, name="file_missing")
    command: Annotated[
        str | None, Meta(description="A command that must end with exit code 0.")
    ] = None
    pass_env: PassEnv = msgspec.field(default_factory=list)


class ScheduleBlock(Section, frozen=True, kw_only=True):
    """When a pipeline runs by itself."""

    cron: Annotated[
        str,
        Meta(
            min_length=1,
            description="Cron with 5 or 6 fields, @daily, an interval (15m), or words.",
        ),
    ]
    timezone: Annotated[
        str | None, Meta(description="An IANA name; otherwise the zone of the machine.")
    ] = None
    enabled: Annotated[bool, Meta(description="Whether the schedule is active.")] = True
    start_paused: Annotated[
        bool, Meta(description="Whether a machine that sees it first waits for `resume`.")
    ] = False
    retry_policy: Annotated[
        RetryPolicyBlock, Meta(description="Retries of a failed execution.")
    ] = RetryPolicyBlock()
    missed_execution: Annotated[
        Missed, Meta(description="Executions missed while nothing ran: the latest, none, or all.")
    ] = Missed.RUN
    window: Annotated[Window, Meta(description="Limits of an execution's time.")] = Window()
    overlap: Annotated[
        Overlap, Meta(description="Policy while the previous execution has not ended.")
    ] = Overlap.QUEUE
    jitter: Annotated[
        str | None, Meta(description='Delay each start by a fixed part of this time, such as "5m".')
    ] = None
    grace: Annotated[
        str | None, Meta(description='Delay that still counts as on time; default "30s".')
    ] = None
    expires_after: Annotated[
        str | None, Meta(description="Skip an execution that begins later than this.")
    ] = None
    start: Annotated[str | None, Meta(description="Nothing runs before this time.")] = None
    end: Annotated[str | None, Meta(description="Nothing runs after this time.")] = None
    max_runs: Annotated[Positive | None, Meta(description="Stop after this many executions.")] = (
        None
    )
    pause_after_failures: Annotated[
        Positive | None, Meta(description="Pause after this many failures in a row.")
    ] = None
    after: Annotated[
        str | list[str],
        Meta(description="Pipelines (their folders' names) that must have completed first."),
    ] = msgspec.field(default_factory=list)
    reuse: Annotated[
        Literal["last"] | None,
        Meta(description="last: answers of earlier runs are reused where the call is the same."),
    ] = None
    condition: Annotated[Condition | None, Meta(description="Conditions of an execution.")] = None
    notify: Annotated[Notify | None, Meta(description="Receivers of messages.")] = None
    gap: Annotated[
        Literal["auto", "next", "skip"],
        Meta(description="A wall time that the clock skips (DST): see the page about cron."),
    ] = "auto"
    repeat: Annotated[
        Literal["auto", "first", "second", "both"],
        Meta(description="A wall time that comes twice (DST): see the page about cron."),
    ] = "auto"

    @property
    def after_ids(self) -> list[str]:
        """The pipelines before this one."""
        return [self.after] if isinstance(self.after, str) else list(self.after)


class Timed(NamedTuple):
    """A schedule block as the scheduler takes it."""

    intent: Intent
    enabled: bool
    start_paused: bool


def timed(block: ScheduleBlock, *, workflow: str, host_zone: str) -> Timed:
    """The intent of a schedule block, or BadSchedule or UnknownZone with its problem.

    The same file means the same intent whenever it is read: intervals count from the epoch (or from
    `start`), and times in the past are not an error.
    """
    zone = host_zone if block.timezone is None else block.timezone
    zone_named(zone)
    spec = parse(
        block.cron, zone=zone, now=0, gap=block.gap, repeat=block.repeat,
        start_at=bound("start", block.start, zone), end_at=bound("end", block.end, zone),
    )  # fmt: skip
    intent = Intent(
        workflow=workflow, spec=spec, text=block.cron, policies=policies_of(block), kind=KIND
    )
    return Timed(intent, block.enabled, block.start_paused)


def policies_of(block: ScheduleBlock) -> Policies:
    """Everything but the times."""
    delay = block.window.max_delay_minutes
    common = policies(
        grace=block.grace or "30s", expires_after=block.expires_after, jitter=block.jitter or 0,
        max_delay=None if delay is None else delay * 60,
    )  # fmt: skip
    return msgspec.structs.replace(
        common,
        overlap=block.overlap,
        missed=block.missed_execution,
        runs_max=block.max_runs,
        failures_max=block.pause_after_failures,
        retry=RetryPolicy(
            attempts=1 + block.retry_policy.max_retries,
            delay_s=block.retry_policy.retry_delay_ms / 1000,
            factor=2.0,
            delay_s_max=max(RETRY_DELAY_S_MAX, block.retry_policy.retry_delay_ms / 1000),
        ),
    )


def bound(key: str, text: str | None, zone: str) -> int | None:
    """The instant of `start` or `end`; without an offset it is wall time in the zone."""
    if text is None:
        return None
    try:
        read = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise BadSchedule(
            f"{key}: {text!r} is not a time", hint="Write 2027-03-28T09:00 or 2027-03-28."
        ) from error
    return instant(read if read.tzinfo else read.replace(tzinfo=zone_named(zone)))
