"""Schedules for people: create, change, pause, resume, trigger, backfill, preview, history, why.

One method per verb; CLI, HTTP and Python all call these. A schedule is addressed by its name.
"""

from __future__ import annotations

from collections.abc import Callable
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
from rota.core.runs.model import Schedule, Started
from rota.core.runs.names import checked_key, checked_name
from rota.core.schedules.intent import RUNS_DONE, read_intent
from rota.core.suggest import check_options
from rota.core.time.instants import instant, iso
from rota.core.time.recurrence import between, count_between, previous_before
from rota.engine.wakeups import READY, SCHEDULE
from rota.errors import BadSchedule, WrongState
from rota.schedules import definition
from rota.schedules.definition import (
    LOST,
    Edit,
    PolicyOptions,
    ScheduleDefinition,
    ScheduleOptions,
    arguments,
    chosen_policies,
    policies,
)
from rota.schedules.edit import Retiming, When
from rota.schedules.host_zone import host_zone_name
from rota.schedules.overrides import checked_fields, run_options
from rota.store.backend.database import Tx
from rota.store.schedules import templates as store

BACKFILL_MAX = 100_000


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
        timezone: str | None = None,
        owner: str = "operator",
        origin: str | None = None,
        replace: bool = False,
        if_match: str | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> ScheduleView:
        """Create a schedule that an operator owns.

        Args:
            name: Its name, unique in the namespace.
            workflow: The workflow to run, or its name.
            when: Cron, an interval, a time or English; a list is one schedule.
            timezone: An IANA name. A new schedule without one gets that of this machine.
            owner, origin: Who declares it; for Rota's own use.
            replace: Redefine an existing schedule instead of raising an error. It stays paused or
                active; `paused=True` pauses it, and `paused=False` is refused if it is paused.
            if_match: With `replace`, only if the schedule still has this `etag`.
            options: Arguments (`args`, `input`), limits and policies; see `ScheduleOptions`.

        Returns:
            The schedule.

        Raises:
            BadSchedule: The name is taken, or `when` cannot be read.
            UnknownZone: There is no such time zone.
            BadInput: The arguments do not fit the workflow.

        Example:
            await app.schedules.create(
                "nightly", backup, "30 2 * * *", timezone="Europe/Berlin", max_delay="2h"
            )
        """
        check_options(options, ScheduleOptions, self.create)
        refuse_in_workflow("schedules.create")
        checked_name(name, "schedule name")
        now = self._now()
        rules = policies(**chosen_policies(options))
        shared = msgspec.structs.replace(
            run_options(rules), queue=options.get("queue"), priority=options.get("priority")
        )
        run = self._client.starter.new_run(workflow, *arguments(options), shared)
        declared = ScheduleDefinition(
            name, when, timezone, host_zone_name(), options.get("gap", "auto"),
            options.get("repeat", "auto"), options.get("start"), options.get("end"),
            options.get("sub_second", False), rules, run, owner, origin,
            options.get("paused"),
        )  # fmt: skip
        zone = declared.host_zone if timezone is None else timezone
        fresh = declared.made(zone, schedule_id=self._client.ids.make(now), now=now)
        if if_match is not None or not await self._database.write(
            store.put, fresh, trigger="manual", now=now
        ):
            if not replace:
                raise BadSchedule(
                    f"there is a schedule {name!r} already",
                    hint=f"Use another name, or change it with `rota schedule update {name}`.",
                )
            await self._change(
                name, lambda old: definition.redefined(old, declared, now=now), if_match=if_match
            )
        await self._wakeups.announce(SCHEDULE)
        return await self.get(name)

    # -- commands --------------------------------------------------------------------------

    async def pause(
        self, name: str, *, note: str = "", until: datetime | None = None
    ) -> ScheduleView:
        """Pause a schedule. Runs already created continue.

        Args:
            name: The schedule.
            note: Why; it is shown while the schedule is paused.
            until: When it resumes by itself.

        Returns:
            The paused schedule.

        Raises:
            BadSchedule: `until` is in the past.
            UnknownSchedule: There is no schedule of that name.
        """
        if note:
            checked_key(note, "note")
        now = self._now()
        until_at = None if until is None else instant(until)
        if until_at is not None and until_at <= now:
            raise BadSchedule(
                f"the pause would end at {iso(until_at)}, which is in the past",
                hint="Give a later time, or none to pause until an operator resumes it.",
            )

        return await self._change(
            name, lambda old: definition.paused(old, now=now, note=note, until_at=until_at)
        )

    async def resume(self, name: str, *, catch_up: bool = False) -> ScheduleView:
        """Resume a paused schedule.

        Args:
            name: The schedule.
            catch_up: Treat the occurrences during the pause as missed, instead of skipping them.

        Returns:
            The schedule.

        Raises:
            WrongState: It is not paused, or has no further occurrence.
            UnknownSchedule: There is no schedule of that name.
        """
        now = self._now()

        def wake(old: Schedule) -> Schedule:
            if old.status != Status.PAUSED:
                raise WrongState(f"schedule {name} is not paused")
            view = evaluable(view_of(old))
            fresh = store.resumed(old, view.intent, now=now, catch_up=catch_up)
            if fresh.reason == RUNS_DONE:
                raise WrongState(
                    f"schedule {name} has fired all its runs ({view.intent.policies.runs_max})",
                    hint=f"Raise the limit: `rota schedule update {name} --max-runs N`.",
                )
            if fresh.status == Status.PAUSED:
                raise _no_further_occurrence(name)
            return fresh

        # A pause stays after its time until it is ended; an operator may still end it.
        changed = await self._change(name, wake, ends_pause=False)
        if changed.schedule.status == Status.PAUSED:
            # The clock was set back: all occurrences after it have an outcome already.
            raise _no_further_occurrence(name)
        return changed

    async def update(
        self,
        name: str,
        *,
        when: When | None = None,
        workflow: Startable[..., Any] | str | None = None,
        timezone: str | None = None,
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
        **policies: Unpack[PolicyOptions],
    ) -> ScheduleView:
        """Change a schedule. Fields that are not named stay; None clears a limit.

        Args:
            name: The schedule.
            when, workflow, timezone: Another timing, workflow or time zone.
            gap, repeat: Rules for daylight saving.
            start, end: No occurrence outside of these times; None clears them.
            input, queue, priority: Other arguments (all of them), queue or priority.
            if_match: Only if it still has this `etag`.
            confirm, sub_second: Accept missed occurrences at once, or several a second.
            policies: See `PolicyOptions`.

        Returns:
            The changed schedule.

        Raises:
            BadSchedule: A value is wrong, missed occurrences would run at once, or `workflow` is
                given for the schedule of a pipeline.
            UnknownSchedule: There is no schedule of that name; or ChangedSince by `if_match`.
        """
        check_options(policies, PolicyOptions, self.update)
        RunOptions(queue=queue or None, priority=priority).check()
        now = self._now()
        target = workflow if workflow is None or isinstance(workflow, str) else workflow.name
        timing = Retiming(when, timezone, gap, repeat, start, end, sub_second)
        change = Edit(timing, policies, target, confirm)
        # Arguments belong to their workflow: an operator's workflow keeps the operator's.
        given = workflow if input is None else input
        row = {"workflow": workflow, "input": given, "queue": queue, "priority": priority}
        fields = change.fields | {key for key, value in row.items() if value is not None}

        def edit(old: Schedule) -> Schedule:
            fresh, edited = change.of(old, now)
            if {"retries", "timeout"} & policies.keys():
                options = run_options(edited.policies).stored()
                fresh = msgspec.structs.replace(fresh, options=options)
            if input is not None or workflow is not None:
                stored = msgspec.json.decode(old.input or "{}")
                given = stored if input is None else self._restored(input, stored)
                new_run = self._client.starter.new_run
                run = new_run(workflow or edited.workflow, (), given, NO_OPTIONS)
                fresh = msgspec.structs.replace(fresh, input=run.input)
            urgency = fresh.priority if priority is None else priority
            fresh = msgspec.structs.replace(fresh, queue=queue or fresh.queue, priority=urgency)
            return definition.with_changes_noted(old, fresh, fields)

        changed = await self._change(name, edit, if_match=if_match)
        # Another overlap policy may have released a run.
        await self._wakeups.announce(READY)
        return changed

    async def reset(self, name: str, *fields: str, confirm: bool = False) -> ScheduleView:
        """Restore the declared values of a schedule that code, `rota.toml` or a pipeline declares.

        Args:
            name: The schedule.
            fields: Names of options of `create`; without any, all of them.
            confirm: Accept that missed occurrences run at once.

        Returns:
            The schedule.

        Raises:
            BadInput: A field does not exist.
            BadSchedule: Missed occurrences would run at once.
            UnknownSchedule: There is no schedule of that name.
        """
        now = self._now()
        chosen = checked_fields(fields)

        def restore(old: Schedule) -> Schedule:
            evaluable(view_of(old))
            return definition.reset(old, chosen, now, confirm=confirm)

        changed = await self._change(name, restore)
        # Another overlap policy may have released a run.
        await self._wakeups.announce(READY)
        return changed

    async def _forget_declaration(self, name: str) -> None:
        """Forget the declaration that was ignored in favour of this schedule: it is gone."""

        def edit(old: Schedule) -> Schedule:
            intent = msgspec.structs.replace(read_intent(old.spec), ignored=None)
            return msgspec.structs.replace(old, spec=store.stored(intent), parent_id=intent.origin)

        await self._change(name, edit)

    async def delete(self, name: str, *, if_match: str | None = None) -> None:
        """Delete a schedule. Its runs stay.

        Args:
            name: The schedule.
            if_match: Only if the schedule still has this `etag`.

        Raises:
            ChangedSince: It has another etag.
            UnknownSchedule: There is no schedule of that name.
        """
        refuse_in_workflow("schedules.delete")
        checked_name(name, "schedule name")
        namespace, now = self._namespace, self._now()

        async def remove(tx: Tx) -> bool:
            old = await store.find(tx, namespace=namespace, name=name, lock=True)
            if old is not None:
                check_match(old, if_match)
                await store.delete(tx, old.id, now=now)
            return old is not None

        if not await self._database.write(remove):
            raise await self._unknown(name)
        await self._wakeups.announce(READY, SCHEDULE)

    async def trigger(self, name: str, *, input: dict[str, Any] | None = None) -> str:  # noqa: A002
        """Run the workflow of a schedule now. The next occurrence does not move.

        Args:
            name: The schedule.
            input: Arguments of this run, instead of the schedule's.

        Returns:
            The id of the run.

        Raises:
            UnknownSchedule: There is no schedule of that name.
        """
        return (await self.trigger_once(name, None, input=input)).id

    async def trigger_once(
        self,
        name: str,
        external_id: str | None,
        *,
        input: dict[str, Any] | None = None,  # noqa: A002
    ) -> Started:
        """Trigger a schedule once for an external id.

        Args:
            name: The schedule.
            external_id: A second call with this id returns the first run.
            input: Arguments that replace those of the schedule.

        Returns:
            The run, and whether it existed.
        """
        refuse_in_workflow("schedules.trigger")
        RunOptions(external_id=external_id).check()
        view = await self.get(name)
        if view.intent.workflow == LOST:
            evaluable(view)
        template, workflow = view.schedule, view.intent.workflow
        body = template.input
        if input is not None:
            given = self._restored(input, msgspec.json.decode(body or "{}"))
            body = self._client.starter.new_run(workflow, (), given, NO_OPTIONS).input
        asked = RunOptions(
            external_id=external_id, queue=template.queue, priority=template.priority
        )
        run = msgspec.structs.replace(
            self._client.starter.encoded_run(workflow, body, asked),
            kind=view.intent.kind, trigger=Trigger.MANUAL, schedule_id=template.id,
            options=store.with_previous(template.options, template.started_at),
        )  # fmt: skip
        return await self._client.starter.send(run)

    async def backfill(
        self, name: str, start: datetime, end: datetime, *, parallel: int = 1, dry_run: bool = False
    ) -> Backfill:
        """Run past occurrences that have no run yet.

        Args:
            name: The schedule.
            start: Begin of the range.
            end: End of the range, not in the future.
            parallel: How many run at the same time.
            dry_run: Start nothing, and count what would run.

        Returns:
            The runs, or their count.

        Raises:
            BadSchedule: The range is wrong, or holds more than 100,000 occurrences.
            UnknownSchedule: There is no schedule of that name.
        """
        view = evaluable(await self.get(name))
        if parallel < 1:
            raise BadSchedule(f"parallel={parallel} allows no run", hint="Give 1 or more.")
        first, last = instant(start) - 1, instant(end)
        now = self._now()
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
        count = count_between(view.intent.spec, first, last)
        if count > BACKFILL_MAX:
            raise BadSchedule(
                f"the range holds {count:,} occurrences; at most {BACKFILL_MAX:,} are run at once",
                hint="Backfill in smaller parts.",
            )
        if count == 0:
            return Backfill(0, 0, [])
        dues = between(view.intent.spec, first, last, limit=BACKFILL_MAX)
        if dry_run:
            taken = await self._database.read(
                store.fired_between, view.schedule.id, from_at=dues[0], to_at=dues[-1]
            )
            return Backfill(count, len(set(dues) - taken), [])
        refuse_in_workflow("schedules.backfill")
        earlier = [previous_before(view.intent.spec, dues[0]), *dues]
        ids = self._client.ids.take(now, len(dues))
        rows = [
            store.extra_row(
                view.schedule, view.intent, id=run_id, due_at=due, trigger=Trigger.BACKFILL,
                status=Status.SLEEPING, reason="backfill", previous_at=earlier[index],
            )
            for index, (run_id, due) in enumerate(zip(ids, dues, strict=True))
        ]  # fmt: skip
        created = await self._database.write(store.backfill, rows, parallel=parallel, now=now)
        await self._wakeups.announce(READY)
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
        namespace = self._namespace
        now = self._now()
        new_ids = self._client.ids.endless(now)

        async def apply(tx: Tx) -> Schedule | None:
            old = await store.find(tx, namespace=namespace, name=name, lock=True)
            if old is None:
                return None
            check_match(old, if_match)
            if ends_pause:
                old = await store.end_pause(tx, old, now=now, new_ids=new_ids)
            return await store.replace(tx, old, edit(old), now=now, new_ids=new_ids)

        changed = await self._database.write(apply)
        if changed is None:
            raise await self._unknown(name)
        await self._wakeups.announce(SCHEDULE)
        return view_of(changed)

    def _restored(self, given: dict[str, Any], stored: Any) -> dict[str, Any]:
        return dict(Redactor(self._client.settings.secret_fields).restored(given, stored))


def _no_further_occurrence(name: str) -> WrongState:
    return WrongState(
        f"schedule {name} has no further occurrence",
        hint=f"Give it a new time or a later end: `rota schedule update {name}`.",
    )
