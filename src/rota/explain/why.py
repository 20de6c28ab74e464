"""`rota why`: finds the schedule, automation or run of a name or id, and has it explained."""

from __future__ import annotations

from datetime import datetime

from rota.client.client import Client
from rota.client.operations import ARM_HINT, disarmed_clause
from rota.core.runs.lifecycle import OPEN, Status
from rota.core.schedules.intent import Policies
from rota.core.time.instants import iso
from rota.errors import UnknownAutomation, UnknownRun, UnknownSchedule, UsageError
from rota.explain.automation import explain_automation
from rota.explain.deleted_schedule import explain_deleted
from rota.explain.run import RunExplainer
from rota.explain.schedule import Explanation, ScheduleExplainer
from rota.explain.skipped import detailed, skip_clause
from rota.schedules.host_zone import host_zone_name
from rota.schedules.preview import zone_of
from rota.schedules.wall_time import to_instant


async def why(
    client: Client,
    name: str,
    *,
    at: datetime | None = None,
    between: tuple[datetime, datetime] | None = None,
) -> Explanation:
    """Why the schedule, automation or run of that name or id did what it did; `at` asks about
    one time of a schedule, `between` about a span of time, both ends included.

    A time without an offset is wall time in the schedule's zone.
    """
    found = await _answer(client, name, at, between)
    disarmed = await client.operations.disarmed()
    if disarmed is None or found.verdict == "disarmed":
        return found
    sentence = f"{found.sentence} The database {disarmed_clause(disarmed)}."
    facts = found.facts | {"disarmed_at": iso(disarmed.at)}
    return found._replace(sentence=sentence, facts=facts, hint=ARM_HINT)


async def _answer(
    client: Client, name: str, at: datetime | None, between: tuple[datetime, datetime] | None
) -> Explanation:
    try:
        shown = await client.schedules.get(name)
    except UnknownSchedule as unknown:
        asked = at or (between[0] if between else None)
        try:
            return await _of_automation(client, name, asked)
        except UnknownAutomation:
            return await _of_run(client, name, asked, unknown)
    explainer = ScheduleExplainer(client, shown)
    if between is None:
        return await explainer.answer(at)
    zone = zone_of(shown.intent.spec)
    return await explainer.over(*(to_instant(one, zone) for one in between))


async def _of_automation(client: Client, name: str, at: datetime | None) -> Explanation:
    found = await explain_automation(client, name)
    if at is not None:
        raise UsageError("a time is only valid for a schedule, not for an automation")
    return Explanation(found.verdict, f"automation {name} {found.clause}.", found.facts, found.hint)


async def _of_run(
    client: Client, run_id: str, at: datetime | None, unknown: UnknownSchedule
) -> Explanation:
    try:
        run = await client.runs.get(run_id)
    except UnknownRun as error:
        if "several" in error.message:
            raise
        return Explanation(*await explain_deleted(client, run_id, unknown))
    if run.kind == "schedule":
        return await _answer(client, run.name, at, None)
    if run.kind == "automation" and run.status in OPEN:
        return await _of_automation(client, run.name, at)
    if at is not None:
        raise UsageError("a time is only valid for a schedule, not for a run")
    if run.status == Status.SKIPPED:
        reason = detailed(skip_clause(run.reason or "", Policies()), run)
        return Explanation("skipped", f"run {run.id} ({run.name}) did not run: {reason}.", {})
    found = await RunExplainer(client, host_zone_name()).of(run)
    last = found.facts["run_id"]
    sentence = f"run {last} ({run.name}) {found.clause}."
    return Explanation(found.verdict, sentence, found.facts, found.hint)
