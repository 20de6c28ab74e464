"""Schedules for people: create, change, pause, resume, trigger, backfill, preview, history, why.

One method per verb; CLI, HTTP and Python all call these. A schedule is addressed by its name.
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from types import EllipsisType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from rota.core.describe import describe
from rota.core.instants import Duration, instant, micros, moment
from rota.core.lifecycle import Status, Trigger
from rota.core.model import Run, Schedule
from rota.core.recurrence import (
    Written,
    between,
    count_between,
    next_after,
    notes,
    parse,
)
from rota.core.retry import RetryPolicy
from rota.core.schedule import Intent, Missed, Overlap, Policies, jitter_us
from rota.core.timing import Spec
from rota.engine.wakeups import READY, SCHEDULE
from rota.errors import BadSchedule, UnknownSchedule, UsageError, WrongState
from rota.hostzone import host_zone_name
from rota.retiming import Retiming
from rota.starting import Options, Startable
from rota.store import schedules as store
from rota.store.database import Tx

if TYPE_CHECKING:
    from rota.client import Client

T = TypeVar("T")
When = Written | Iterable[Written]
PREVIEW_MAX = 1000
BACKFILL_MAX = 100_000
# An edit that makes more than this due at once must be confirmed.
BURST = 1


class Occurrence(NamedTuple):
    """One future occurrence: nominal and effective instant, with remarks about the clock."""

    schedule: str
    due_at: datetime
    runs_at: datetime
    notes: list[str]


class Shown(NamedTuple):
    """A schedule with what it means."""

    schedule: Schedule
    intent: Intent
    text: str


class Backfill(NamedTuple):
    """What a backfill does, or would do: occurrences in the range and runs started."""

    occurrence_count: int
    run_ids: list[str]


def policies(
    *,
    overlap: str = "queue",
    missed: str = "run",
    missed_max: int = 100,
    max_delay: Duration | None = None,
    jitter: Duration = 0,
    max_runs: int | None = None,
    pause_after_failures: int | None = None,
    retries: int | RetryPolicy | None = None,
    timeout: Duration | None = None,
) -> Policies:
    """Policies from the words people use."""
    try:
        return Policies(
            overlap=Overlap(overlap),
            missed=Missed(missed),
            missed_max=missed_max,
            delay_us_max=None if max_delay is None else micros(max_delay),
            jitter_us=micros(jitter),
            runs_max=max_runs,
            failures_max=pause_after_failures,
            retry=None if retries is None else RetryPolicy.of(retries),
            timeout_us=None if timeout is None else micros(timeout),
        )
    except ValueError as error:
        raise BadSchedule(
            str(error),
            hint=f"overlap: {', '.join(Overlap)}; missed: {', '.join(Missed)}.",
        ) from error


class Schedules:
    """The schedules of one namespace."""

    def __init__(self, client: Client) -> None:
        self._client = client

    # -- making ----------------------------------------------------------------------------

    async def create(
        self,
        name: str,
        workflow: Startable | str,
        when: When,
        *,
        args: Sequence[Any] = (),
        input: dict[str, Any] | None = None,  # noqa: A002
        zone: str | None = None,
        gap: str = "auto",
        repeat: str = "auto",
        start: datetime | None = None,
        end: datetime | None = None,
        queue: str | None = None,
        priority: int | None = None,
        owner: str = "operator",
        origin: str | None = None,
        replace: bool = False,
        paused: bool = False,
        sub_second: bool = False,
        **words: Any,
    ) -> Shown:
        """Make a schedule. A taken name is an error, or with `replace` its new definition."""
        now = self._client.clock.now()
        rules = policies(**words)
        spec = parse(
            when, zone=zone or host_zone_name(), now=now, gap=gap, repeat=repeat,
            start_at=None if start is None else instant(start),
            end_at=None if end is None else instant(end), sub_second=sub_second,
        )  # fmt: skip
        options = _options(rules)._replace(queue=queue, priority=priority)
        run = self._client.new_run(workflow, tuple(args), dict(input or {}), options)
        intent = Intent(run.name, spec, written(when), rules, owner, origin)
        if owner == "code":
            said = (_as_written(intent), rules, run.name, run.input, run.queue, run.priority)
            mark = hashlib.sha256(msgspec.json.encode(said)).hexdigest()[:16]
            intent = msgspec.structs.replace(intent, declared=mark)
        fresh = self._fresh(name, intent, run.queue, run.priority, now, paused)
        fresh = msgspec.structs.replace(fresh, input=run.input, options=run.options)
        if not await self._client.database.write(store.put, fresh, trigger="manual", now=now):
            if not replace:
                raise BadSchedule(
                    f"there is a schedule {name!r} already",
                    hint="Use another name, update it, or create it with replace.",
                )
            await self._change(name, lambda old: _redefined(old, fresh, intent))
        self._client.wakeups.tell(SCHEDULE)
        return await self.get(name)

    def _fresh(
        self, name: str, intent: Intent, queue: str, priority: int, now: int, paused: bool
    ) -> Schedule:
        due_at = next_after(intent.spec, now)
        if due_at is None:
            raise BadSchedule(f"{intent.text!r} has no occurrence in the future")
        text = msgspec.json.encode(intent).decode()
        at = due_at + jitter_us(name, intent.policies)
        return Schedule(
            self._client.ids.make(now), self._client.settings.namespace, name, queue, priority,
            Status.PAUSED if paused else Status.SCHEDULED, "created paused" if paused else None,
            None if paused else at, due_at, intent.text, text, None, None, now,
        )  # fmt: skip

    # -- finding ---------------------------------------------------------------------------

    async def get(self, name: str) -> Shown:
        """One schedule."""
        found = await self._client.database.read(
            store.find, namespace=self._client.settings.namespace, name=name
        )
        if found is None:
            raise await self._unknown(name)
        return _shown(found)

    async def list(self, *, after: str = "", limit: int = 1000) -> Sequence[Shown]:
        """Schedules by name; a page at a time."""
        rows = await self._client.database.read(
            store.listing, namespace=self._client.settings.namespace, after=after, limit=limit
        )
        return [_shown(row) for row in rows]

    async def preview(self, name: str, count: int = 5) -> Sequence[Occurrence]:
        """The next occurrences of a schedule, with remarks about daylight saving."""
        shown = await self.get(name)
        return next_of(name, shown.intent, self._client.clock.now(), count)

    async def upcoming(self, *, within: Duration = "1d", limit: int = 50) -> Sequence[Occurrence]:
        """What fires next, across all schedules."""
        now = self._client.clock.now()
        until = now + micros(within)
        rows = await self._client.database.read(
            store.soonest, namespace=self._client.settings.namespace, until=until, limit=limit
        )
        found: list[Occurrence] = []
        for row in rows:
            intent = store.read_intent(row.spec)
            found += [
                one for one in next_of(row.name, intent, now, limit) if one.due_at <= moment(until)
            ]
        return sorted(found, key=lambda one: one.runs_at)[:limit]

    async def history(
        self, name: str, *, limit: int = 50, start: datetime | None = None,
        end: datetime | None = None,
    ) -> Sequence[Run]:  # fmt: skip
        """The ledger: every occurrence with its outcome, newest first."""
        shown = await self.get(name)
        return await self._client.database.read(
            store.ledger, shown.schedule.id, limit=limit,
            from_at=0 if start is None else instant(start),
            to_at=0 if end is None else instant(end),
        )  # fmt: skip

    # -- steering --------------------------------------------------------------------------

    async def pause(self, name: str, *, note: str = "", until: datetime | None = None) -> Shown:
        """Stop firing; runs already born are left alone. `until` resumes by itself."""
        until_at = None if until is None else instant(until)
        if until_at is not None and until_at <= self._client.clock.now():
            raise BadSchedule(f"{until} is in the past")

        def rest(old: Schedule) -> Schedule:
            return msgspec.structs.replace(
                old, status=Status.PAUSED, reason=note or "by request", available_at=until_at
            )

        return await self._change(name, rest)

    async def resume(self, name: str, *, catch_up: bool = False) -> Shown:
        """Fire again, from the next occurrence; `catch_up` owes what was missed since the pause."""
        now = self._client.clock.now()

        def wake(old: Schedule) -> Schedule:
            if old.status != Status.PAUSED:
                raise WrongState(f"schedule {name} is not paused")
            fresh = store.resumed(old, store.read_intent(old.spec), now=now, catch_up=catch_up)
            if fresh.status == Status.PAUSED:
                raise WrongState(f"schedule {name} has no further occurrence; update it first")
            return fresh

        return await self._change(name, wake)

    async def update(
        self,
        name: str,
        *,
        when: When | None = None,
        zone: str | None = None,
        gap: str | None = None,
        repeat: str | None = None,
        start: datetime | EllipsisType | None = ...,
        end: datetime | EllipsisType | None = ...,
        input: dict[str, Any] | None = None,  # noqa: A002
        queue: str | None = None,
        priority: int | None = None,
        confirm: bool = False,
        sub_second: bool = False,
        **words: Any,
    ) -> Shown:
        """Change any part; what is not named stays, and None takes a bound away. What an edit
        would release at once is refused unless confirmed."""
        now = self._client.clock.now()
        timing = Retiming(when, zone, gap, repeat, start, end, sub_second)

        def edit(old: Schedule) -> Schedule:
            edited = _edited(store.read_intent(old.spec), timing, words, now)
            fresh = _rescheduled(old, edited, now, confirm)
            if {"retries", "timeout"} & words.keys():
                fresh = msgspec.structs.replace(fresh, options=_options(edited.policies).stored())
            if input is not None:
                run = self._client.new_run(edited.workflow, (), input, Options())
                fresh = msgspec.structs.replace(fresh, input=run.input)
            return msgspec.structs.replace(
                fresh, queue=queue or fresh.queue,
                priority=fresh.priority if priority is None else priority,
            )  # fmt: skip

        return await self._change(name, edit)

    async def delete(self, name: str) -> None:
        """Remove a schedule. The runs it fired stay."""
        shown = await self.get(name)
        now = self._client.clock.now()
        await self._client.database.write(store.delete, shown.schedule.id, now=now)
        self._client.wakeups.tell(READY)
        self._client.wakeups.tell(SCHEDULE)

    async def trigger(self, name: str) -> str:
        """Run it now, beside its schedule, which does not move; returns the run's id."""
        shown = await self.get(name)
        now = self._client.clock.now()
        row = store.extra_row(
            shown.schedule, shown.intent, id=self._client.ids.make(now), available_at=now,
            trigger=Trigger.MANUAL,
        )  # fmt: skip
        [run_id] = await self._client.database.write(store.add_runs, [row], now=now)
        self._client.wakeups.tell(READY)
        return run_id

    async def backfill(
        self, name: str, start: datetime, end: datetime, *, parallel: int = 1, dry_run: bool = False
    ) -> Backfill:
        """Run the occurrences of a past range that have no run yet, `parallel` at a time."""
        shown = await self.get(name)
        if parallel < 1:
            raise BadSchedule(f"parallel={parallel} lets nothing run")
        first, last = instant(start) - 1, instant(end)
        now = self._client.clock.now()
        if last <= first or last > now:
            raise BadSchedule("a backfill needs a range in the past, from before to")
        count = count_between(shown.intent.spec, first, last)
        if dry_run or count == 0:
            return Backfill(count, [])
        if count > BACKFILL_MAX:
            raise BadSchedule(
                f"the range holds {count:,} occurrences; at most {BACKFILL_MAX:,} are run at once",
                hint="Backfill in smaller parts.",
            )
        dues = between(shown.intent.spec, first, last, limit=BACKFILL_MAX)
        ids = self._client.ids.take(now, len(dues))
        rows = [
            store.extra_row(
                shown.schedule, shown.intent, id=run_id, due_at=due, trigger=Trigger.BACKFILL,
                status=Status.PENDING if place < parallel else Status.SLEEPING,
                reason=None if place < parallel else "backfill",
                available_at=now if place < parallel else None,
            )
            for place, (run_id, due) in enumerate(zip(ids, dues, strict=True))
        ]  # fmt: skip
        born = await self._client.database.write(store.add_runs, rows, now=now)
        self._client.wakeups.tell(READY)
        return Backfill(count, born)

    async def _change(self, name: str, edit: Callable[[Schedule], Schedule]) -> Shown:
        """Read, edit and write one schedule in one transaction."""
        namespace = self._client.settings.namespace
        now = self._client.clock.now()

        async def apply(tx: Tx) -> Schedule | None:
            old = await store.find(tx, namespace=namespace, name=name, lock=True)
            if old is None:
                return None
            return await store.replace(
                tx, old, edit(old), now=now, new_id=self._client.ids.make(now)
            )

        changed = await self._client.database.write(apply)
        if changed is None:
            raise await self._unknown(name)
        self._client.wakeups.tell(SCHEDULE)
        return _shown(changed)

    async def _unknown(self, name: str) -> UnknownSchedule:
        names = [shown.schedule.name for shown in await self.list()]
        near = difflib.get_close_matches(name, names, 3, 0.5)
        hint = f"Did you mean {', '.join(near)}?" if near else None
        return UnknownSchedule(f"there is no schedule {name!r}", hint=hint, name=name)


def written(when: When) -> str:
    """What somebody wrote, as text to show back."""
    if isinstance(when, str):
        return when
    if isinstance(when, datetime):
        return when.isoformat()
    if isinstance(when, Iterable):
        return "; ".join(written(one) for one in when)
    return str(when)


def next_of(name: str, intent: Intent, now: int, count: int) -> list[Occurrence]:
    """The next `count` occurrences from `now`."""
    spread = jitter_us(name, intent.policies)
    if intent.policies.runs_max is not None:
        count = min(count, intent.policies.runs_max - intent.fired_count)
    found: list[Occurrence] = []
    at = next_after(intent.spec, now)
    while at is not None and len(found) < min(count, PREVIEW_MAX):
        found.append(Occurrence(name, moment(at), moment(at + spread), notes(intent.spec, at)))
        at = next_after(intent.spec, at)
    return found


def _shown(schedule: Schedule) -> Shown:
    try:
        intent = store.read_intent(schedule.spec)
        return Shown(schedule, intent, describe(intent.spec))
    except (msgspec.MsgspecError, UsageError) as error:  # a poison row is shown, not hidden
        nothing = Intent("?", Spec(()), schedule.cron_expr or "?")
        return Shown(schedule, nothing, f"cannot be read: {error}")


def _options(rules: Policies) -> Options:
    timeout = None if rules.timeout_us is None else rules.timeout_us / 1e6
    return Options(retries=rules.retry, timeout=timeout)


def _edited(intent: Intent, timing: Retiming, words: dict[str, Any], now: int) -> Intent:
    return msgspec.structs.replace(
        intent,
        spec=timing.of(intent, now),
        text=intent.text if timing.when is None else written(timing.when),
        policies=_merged(intent.policies, words),
    )


def _merged(old: Policies, words: dict[str, Any]) -> Policies:
    if not words:
        return old
    named = {
        "overlap": "overlap", "missed": "missed", "missed_max": "missed_max",
        "max_delay": "delay_us_max", "jitter": "jitter_us", "max_runs": "runs_max",
        "pause_after_failures": "failures_max", "retries": "retry", "timeout": "timeout_us",
    }  # fmt: skip
    fresh = policies(**words)
    changes = {named[word]: getattr(fresh, named[word]) for word in words}
    return msgspec.structs.replace(old, **changes)


def _redefined(old: Schedule, fresh: Schedule, intent: Intent) -> Schedule:
    """A new definition under an old name: same id and history; a pause by a person stays, and a
    timing that is written as before goes on as before (an interval keeps its anchor)."""
    try:
        before = store.read_intent(old.spec)
    except msgspec.MsgspecError:  # a poison row is mended by its new definition
        return msgspec.structs.replace(fresh, id=old.id, created_at=old.created_at)
    if intent.owner == "code" and (before.owner != "code" or before.declared == intent.declared):
        # A person's schedule is not the code's to change, and a person's edit of the code's
        # schedule outlives a deploy that says what the last one said.
        return old
    same = _as_written(before) == _as_written(intent)
    kept = msgspec.structs.replace(
        intent, fired_count=before.fired_count, spec=before.spec if same else intent.spec
    )
    due_at = old.due_at if same else fresh.due_at
    paused = old.status == Status.PAUSED
    at = (
        old.available_at
        if paused or due_at is None
        else due_at + jitter_us(old.name, kept.policies)
    )
    return msgspec.structs.replace(
        fresh, id=old.id, status=old.status, reason=old.reason, created_at=old.created_at,
        spec=msgspec.json.encode(kept).decode(), due_at=due_at, available_at=at,
    )  # fmt: skip


def _as_written(intent: Intent) -> tuple[Any, ...]:
    spec = intent.spec
    rules = [(timing.zone, timing.gap, timing.repeat) for timing in spec.timings]
    return intent.text, rules, spec.start_at, spec.end_at


def _rescheduled(old: Schedule, intent: Intent, now: int, confirm: bool) -> Schedule:
    due_at = next_after(intent.spec, now)
    if due_at is None:
        raise BadSchedule("the new timing has no occurrence in the future")
    owed = 0
    if old.status == Status.SCHEDULED and old.due_at is not None and old.due_at <= now:
        owed = count_between(intent.spec, old.due_at - 1, now)
    if owed > BURST and not confirm:
        raise BadSchedule(
            f"this edit would release {owed} missed occurrences at once",
            hint="Confirm it, or pause and resume the schedule, which skips them.",
        )
    if owed and old.due_at is not None:  # what is owed stays owed
        due_at = next_after(intent.spec, old.due_at - 1) or due_at
    paused = old.status == Status.PAUSED
    at = due_at + jitter_us(old.name, intent.policies)
    return msgspec.structs.replace(
        old, spec=msgspec.json.encode(intent).decode(), cron_expr=intent.text, due_at=due_at,
        available_at=old.available_at if paused else at,
    )  # fmt: skip
