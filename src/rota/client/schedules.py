"""Schedules for people: create, change, pause, resume, trigger, backfill, preview, history, why.

One method per verb; CLI, HTTP and Python all call these. A schedule is addressed by its name.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from types import EllipsisType
from typing import Any, NamedTuple, Unpack

import msgspec

from rota.client.caller import refuse_in_workflow
from rota.client.schedule_pages import SchedulePages
from rota.client.schedule_view import ScheduleView, check_match, evaluable, view_of
from rota.client.start import NO_OPTIONS, RunOptions, Startable
from rota.core.redaction import Redactor
from rota.core.runs.lifecycle import Status, Trigger
from rota.core.runs.model import NewRun, Run, Schedule, Started
from rota.core.runs.names import checked_key, checked_name
from rota.core.schedules.intent import RUNS_DONE, Intent, jitter_us
from rota.core.suggest import check_options, suggestion
from rota.core.time.instants import Duration, instant, iso, micros, moment
from rota.core.time.recurrence import (
    Spec,
    between,
    count_between,
    next_after,
    notes,
    previous_before,
)
from rota.engine.wakeups import READY, SCHEDULE
from rota.errors import BadSchedule, UnknownSchedule, WrongState
from rota.schedules import definition
from rota.schedules.definition import (
    LOST,
    Edit,
    PolicyOptions,
    ScheduleDefinition,
    ScheduleOptions,
    When,
    chosen_policies,
    policies,
)
from rota.schedules.edit import Retiming
from rota.schedules.host_zone import host_zone_name
from rota.schedules.overrides import checked_fields, run_options
from rota.store.backend.database import Tx
from rota.store.runs.start import start_runs
from rota.store.schedules import templates as store

PREVIEW_MAX = 1000
BACKFILL_MAX = 100_000


class Occurrence(NamedTuple):
    """One future occurrence: nominal and effective instant, with remarks about the clock."""

    schedule: str
    due_at: datetime
    runs_at: datetime
    notes: list[str]


class Backfill(NamedTuple):
    """The effect of a backfill, done or planned: occurrences in the range, those of them without a
    run, and the runs started."""

    occurrence_count: int
    run_count: int
    run_ids: list[str]


class Schedules(SchedulePages):
    """The schedules of one namespace."""

    # -- making ----------------------------------------------------------------------------

    async def create(
        self,
        name: str,
        workflow: Startable[..., Any] | str,
        when: When,
        *,
        zone: str | None = None,
        owner: str = "operator",
        origin: str | None = None,
        replace: bool = False,
        if_match: str | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> ScheduleView:
        """Make a schedule. A taken name is an error, or with `replace` its new definition; with
        `if_match` only if the schedule still has this `etag`.

        Without a zone a new schedule gets this machine's, and one that exists keeps its own.
        `args` and `input` are the workflow's arguments. Options: see `ScheduleOptions`.
        """
        check_options(options, ScheduleOptions, self.create)
        refuse_in_workflow("schedules.create")
        checked_name(name, "schedule name")
        now = self._client.clock.now()
        rules = policies(**chosen_policies(options))
        shared = msgspec.structs.replace(
            run_options(rules), queue=options.get("queue"), priority=options.get("priority")
        )
        args, named = tuple(options.get("args", ())), dict(options.get("input") or {})
        run = self._client.new_run(workflow, args, named, shared)
        told = ScheduleDefinition(
            name, when, zone, host_zone_name(), options.get("gap", "auto"),
            options.get("repeat", "auto"), options.get("start"), options.get("end"),
            options.get("sub_second", False), rules, run, owner, origin,
            options.get("paused", False),
        )  # fmt: skip
        fresh = told.made(zone or told.host_zone, schedule_id=self._client.ids.make(now), now=now)
        if if_match is not None or not await self._client.database.write(
            store.put, fresh, trigger="manual", now=now
        ):
            if not replace:
                raise BadSchedule(
                    f"there is a schedule {name!r} already",
                    hint="Use another name, update it, or create it with replace.",
                )
            await self._change(
                name, lambda old: definition.redefined(old, told, now=now), if_match=if_match
            )
        await self._client.wakeups.announce(SCHEDULE)
        return await self.get(name)

    # -- finding ---------------------------------------------------------------------------

    async def get(self, name: str) -> ScheduleView:
        """One schedule."""
        checked_name(name, "schedule name")
        found = await self._client.database.read(
            store.find, namespace=self._client.settings.namespace, name=name
        )
        if found is None:
            raise await self._unknown(name)
        return view_of(found)

    async def list(self, *, after: str = "", limit: int = 1000) -> Sequence[ScheduleView]:
        """Schedules by name; a page at a time."""
        rows = await self._client.database.read(
            store.listing, namespace=self._client.settings.namespace, after=after, limit=limit
        )
        return [view_of(row) for row in rows]

    async def declared_by(self, origins: Sequence[str]) -> Sequence[ScheduleView]:
        """The schedules that these programs declare, or have declared, by name."""
        rows = await self._client.database.read(
            store.declared_by, namespace=self._client.settings.namespace, origins=origins
        )
        return [view_of(row) for row in rows]

    async def origins_in(self, package: str) -> Sequence[str]:
        """The modules of a package that declare schedules, or have declared."""
        return await self._client.database.read(
            store.origins_in, namespace=self._client.settings.namespace, package=package
        )

    async def preview(self, name: str, count: int = 5) -> Sequence[Occurrence]:
        """The next occurrences of a schedule, with remarks about daylight saving."""
        shown = evaluable(await self.get(name))
        return next_of(name, shown.intent, self._client.clock.now(), count)

    async def upcoming(self, *, within: Duration = "1d", limit: int = 50) -> Sequence[Occurrence]:
        """The next occurrences, across all schedules; an overdue one counts from its next time
        on."""
        now = self._client.clock.now()
        until = now + micros(within)
        rows = await self._client.database.read(
            store.soonest, namespace=self._client.settings.namespace, now=now, until=until,
            limit=limit,
        )  # fmt: skip
        streams = [_ahead(row, now, until) for row in rows]
        soonest = itertools.islice(heapq.merge(*streams, key=lambda one: one[0]), limit)
        return [
            Occurrence(name, moment(due_at), moment(at), notes(spec, due_at))
            for at, name, due_at, spec in soonest
        ]

    async def history(
        self, name: str, *, limit: int = 50, start: datetime | None = None,
        end: datetime | None = None,
    ) -> Sequence[Run]:  # fmt: skip
        """The ledger: every occurrence with its outcome, newest first.

        A row has the id, trigger and start of the first attempt, and the status, result and end
        of the newest one: how the occurrence ended, after all retries and recoveries."""
        shown = await self.get(name)
        return await self._client.database.read(
            store.history, shown.schedule.id, limit=limit,
            from_at=0 if start is None else instant(start),
            to_at=0 if end is None else instant(end),
        )  # fmt: skip

    # -- steering --------------------------------------------------------------------------

    async def pause(
        self, name: str, *, note: str = "", until: datetime | None = None
    ) -> ScheduleView:
        """Stop firing; runs already created are left alone. `until` resumes by itself."""
        if note:
            checked_key(note, "note")
        now = self._client.clock.now()
        until_at = None if until is None else instant(until)
        if until_at is not None and until_at <= now:
            raise BadSchedule(
                f"the pause would end at {iso(until_at)}, which is in the past",
                hint="Give a later time, or none to pause until an operator resumes it.",
            )

        def rest(old: Schedule) -> Schedule:
            intent, problem = definition.found(old)
            since = intent.paused_at if old.status == Status.PAUSED and intent.paused_at else now
            spec = definition.stored(msgspec.structs.replace(intent, paused_at=since))
            return msgspec.structs.replace(
                old, status=Status.PAUSED, reason=note or "by request", available_at=until_at,
                spec=old.spec if problem else spec,
            )  # fmt: skip

        return await self._change(name, rest)

    async def resume(self, name: str, *, catch_up: bool = False) -> ScheduleView:
        """Fire again, from the next occurrence; `catch_up` owes what was missed since the pause."""
        now = self._client.clock.now()

        def wake(old: Schedule) -> Schedule:
            if old.status != Status.PAUSED:
                raise WrongState(f"schedule {name} is not paused")
            shown = evaluable(view_of(old))
            fresh = store.resumed(old, shown.intent, now=now, catch_up=catch_up)
            if fresh.reason == RUNS_DONE:
                raise WrongState(f"schedule {name} has done all its runs; raise its max runs first")
            if fresh.status == Status.PAUSED:
                raise WrongState(f"schedule {name} has no further occurrence; update it first")
            return fresh

        # A pause stays after its time until it is ended; an operator may still end it.
        return await self._change(name, wake, ends_pause=False)

    async def update(
        self,
        name: str,
        *,
        when: When | None = None,
        workflow: Startable[..., Any] | str | None = None,
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
        if_match: str | None = None,
        **words: Unpack[PolicyOptions],
    ) -> ScheduleView:
        """Change any part; an option that is not named stays, and None takes a bound away. An edit
        that would release occurrences at once is refused unless confirmed. A schedule that has
        ended continues when the edit gives it more, and an unreadable one is fixed. With
        `if_match` a schedule that no longer has this `etag` stays as it is: ChangedSince."""
        check_options(words, PolicyOptions, self.update)
        RunOptions(queue=queue or None, priority=priority).check()
        now = self._client.clock.now()
        target = None if workflow is None or isinstance(workflow, str) else workflow.name
        change = Edit(
            Retiming(when, zone, gap, repeat, start, end, sub_second), words,
            target or (workflow if isinstance(workflow, str) else None), confirm,
        )  # fmt: skip
        # Arguments belong to their workflow: an operator's workflow keeps the operator's.
        given = workflow if input is None else input
        row = {"workflow": workflow, "input": given, "queue": queue, "priority": priority}
        fields = change.fields | {key for key, value in row.items() if value is not None}

        def edit(old: Schedule) -> Schedule:
            fresh, edited = change.of(old, now)
            if {"retries", "timeout"} & words.keys():
                options = run_options(edited.policies).stored()
                fresh = msgspec.structs.replace(fresh, options=options)
            if input is not None or workflow is not None:
                stored = msgspec.json.decode(old.input or "{}")
                given = stored if input is None else self._restored(input, stored)
                run = self._client.new_run(workflow or edited.workflow, (), given, NO_OPTIONS)
                fresh = msgspec.structs.replace(fresh, input=run.input)
            fresh = msgspec.structs.replace(
                fresh, queue=queue or fresh.queue,
                priority=fresh.priority if priority is None else priority,
            )  # fmt: skip
            return definition.with_changes_noted(old, fresh, fields)

        changed = await self._change(name, edit, if_match=if_match)
        self._client.wakeups.notify_soon(READY)  # Another overlap policy may have released a run.
        return changed

    async def reset(self, name: str, *fields: str, confirm: bool = False) -> ScheduleView:
        """Restore the code's values of some fields, or of all, in a schedule that code declares.

        Fields have the names of the options of `create`. A reset that would make missed
        occurrences due at once is refused unless confirmed."""
        now = self._client.clock.now()
        chosen = checked_fields(fields)

        def restore(old: Schedule) -> Schedule:
            evaluable(view_of(old))
            return definition.reset(old, chosen, now, confirm=confirm)

        changed = await self._change(name, restore)
        self._client.wakeups.notify_soon(READY)  # Another overlap policy may have released a run.
        return changed

    async def forget_declaration(self, name: str) -> None:
        """A declaration that was ignored in favour of this schedule is no more."""

        def edit(old: Schedule) -> Schedule:
            intent = msgspec.structs.replace(store.read_intent(old.spec), ignored=None)
            return msgspec.structs.replace(
                old, spec=definition.stored(intent), parent_id=intent.origin
            )

        await self._change(name, edit)

    async def delete(self, name: str, *, if_match: str | None = None) -> None:
        """Remove a schedule, with `if_match` only if it still has this `etag`. The runs it fired
        stay."""
        refuse_in_workflow("schedules.delete")
        checked_name(name, "schedule name")
        namespace, now = self._client.settings.namespace, self._client.clock.now()

        async def remove(tx: Tx) -> bool:
            old = await store.find(tx, namespace=namespace, name=name, lock=True)
            if old is not None:
                check_match(old, if_match)
                await store.delete(tx, old.id, now=now)
            return old is not None

        if not await self._client.database.write(remove):
            raise await self._unknown(name)
        await self._client.wakeups.announce(READY, SCHEDULE)

    async def trigger(self, name: str, *, input: dict[str, Any] | None = None) -> str:  # noqa: A002
        """Run it now, beside its schedule, which does not move; returns the run's id. `input`
        replaces the schedule's arguments for this run."""
        return (await self.trigger_once(name, None, input=input)).id

    async def trigger_once(
        self,
        name: str,
        external_id: str | None,
        *,
        input: dict[str, Any] | None = None,  # noqa: A002
    ) -> Started:
        """The same, once: a second call with this external id answers with the first run."""
        refuse_in_workflow("schedules.trigger")
        RunOptions(external_id=external_id).check()
        shown = await self.get(name)
        if shown.intent.workflow == LOST:
            evaluable(shown)
        now = self._client.clock.now()
        template, workflow = shown.schedule, shown.intent.workflow
        body = template.input
        if input is not None:
            given = self._restored(input, msgspec.json.decode(body or "{}"))
            body = self._client.new_run(workflow, (), given, NO_OPTIONS).input
        row = NewRun(
            id=self._client.ids.make(now), namespace=template.namespace, name=workflow,
            available_at=now, input=body, queue=template.queue, priority=template.priority,
            kind="pipeline" if workflow.startswith("pipeline:") else "workflow",
            trigger=Trigger.MANUAL, schedule_id=template.id, external_id=external_id,
            options=store.with_previous(template.options, template.started_at),
        )  # fmt: skip
        [started] = await self._client.database.write(start_runs, [row], now=now)
        await self._client.wakeups.announce(READY)
        return started

    async def backfill(
        self, name: str, start: datetime, end: datetime, *, parallel: int = 1, dry_run: bool = False
    ) -> Backfill:
        """Run the occurrences of a past range that have no run yet, `parallel` at a time.

        A dry run starts nothing and counts what would run; it refuses what a run would refuse."""
        shown = evaluable(await self.get(name))
        if parallel < 1:
            raise BadSchedule(f"parallel={parallel} lets nothing run", hint="Give 1 or more.")
        first, last = instant(start) - 1, instant(end)
        now = self._client.clock.now()
        if last <= first:
            raise BadSchedule(
                f"the range ends ({iso(last)}) before it begins ({iso(first + 1)})",
                hint="Swap the two times.",
            )
        if last > now:
            raise BadSchedule(
                f"the range ends ({iso(last)}) in the future; it is {iso(now)}",
                hint="A backfill runs past occurrences: end the range now or earlier.",
            )
        count = count_between(shown.intent.spec, first, last)
        if count > BACKFILL_MAX:
            raise BadSchedule(
                f"the range holds {count:,} occurrences; at most {BACKFILL_MAX:,} are run at once",
                hint="Backfill in smaller parts.",
            )
        if count == 0:
            return Backfill(0, 0, [])
        dues = between(shown.intent.spec, first, last, limit=BACKFILL_MAX)
        if dry_run:
            taken = await self._client.database.read(
                store.fired_between, shown.schedule.id, from_at=dues[0], to_at=dues[-1]
            )
            return Backfill(count, len(set(dues) - taken), [])
        refuse_in_workflow("schedules.backfill")
        earlier = [previous_before(shown.intent.spec, dues[0]), *dues]
        ids = self._client.ids.take(now, len(dues))
        rows = [
            store.extra_row(
                shown.schedule, shown.intent, id=run_id, due_at=due, trigger=Trigger.BACKFILL,
                status=Status.SLEEPING, reason="backfill", previous_at=earlier[place],
            )
            for place, (run_id, due) in enumerate(zip(ids, dues, strict=True))
        ]  # fmt: skip
        created = await self._client.database.write(
            store.backfill, rows, parallel=parallel, now=now
        )
        await self._client.wakeups.announce(READY)
        return Backfill(count, len(created), created)

    async def _change(
        self,
        name: str,
        edit: Callable[[Schedule], Schedule],
        *,
        ends_pause: bool = True,
        if_match: str | None = None,
    ) -> ScheduleView:
        """Read, edit and write one schedule in one transaction."""
        refuse_in_workflow("a change of a schedule")
        checked_name(name, "schedule name")
        namespace = self._client.settings.namespace
        now = self._client.clock.now()

        async def apply(tx: Tx) -> Schedule | None:
            old = await store.find(tx, namespace=namespace, name=name, lock=True)
            if old is None:
                return None
            check_match(old, if_match)
            if ends_pause:
                old = await store.end_pause(tx, old, now=now, new_id=self._client.ids.make(now))
            return await store.replace(
                tx, old, edit(old), now=now, new_id=self._client.ids.make(now)
            )

        changed = await self._client.database.write(apply)
        if changed is None:
            raise await self._unknown(name)
        await self._client.wakeups.announce(SCHEDULE)
        return view_of(changed)

    def _restored(self, given: dict[str, Any], stored: Any) -> dict[str, Any]:
        return dict(Redactor(self._client.settings.secret_fields).restored(given, stored))

    async def _unknown(self, name: str) -> UnknownSchedule:
        names = [shown.schedule.name for shown in await self.list()]
        hint = suggestion(name, names)
        return UnknownSchedule(f"there is no schedule {name!r}", hint=hint, name=name)


def _ahead(row: Schedule, now: int, until: int) -> Iterator[tuple[int, str, int, Spec]]:
    """The occurrences of a schedule that fire after now: effective instant, name, nominal instant
    and spec. One that cannot be read has none: it is quarantined when it is due."""
    intent, problem = definition.found(row)
    if problem is not None:
        return
    spread = jitter_us(row.name, intent.policies)
    left = intent.runs_left
    due_at = row.due_at
    if due_at is not None and due_at + spread <= now:  # overdue: it fires any moment
        due_at, left = next_after(intent.spec, now - spread), left - 1
    while due_at is not None and due_at + spread <= until and left > 0:
        yield due_at + spread, row.name, due_at, intent.spec
        due_at, left = next_after(intent.spec, due_at), left - 1


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
