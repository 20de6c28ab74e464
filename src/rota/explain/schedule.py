"""Why did it run, or not? Walks spec, zone, bounds, ledger, pause, policies, queue and workers.

One question, one sentence, and the facts it rests on. Only reads; the state of a run after its
creation is for `run`.
"""

from __future__ import annotations

import re
import shlex
from datetime import datetime
from typing import Any, NamedTuple

from rota.client.client import Client
from rota.client.doctor import live_workers
from rota.client.operations import ARM_HINT, disarmed_clause
from rota.client.schedule_view import ScheduleView
from rota.core.runs.lifecycle import Status, Trigger
from rota.core.runs.model import Run
from rota.core.runs.stored_errors import error_line
from rota.core.schedules.firing_plan import jitter_us
from rota.core.schedules.intent import QUARANTINED_REASON
from rota.core.time.instants import DAY, MINUTE, SECOND, iso, iso_if_known, moment, span
from rota.core.time.recurrence import count_between, next_after, notes, previous_before
from rota.explain.run import BLOCKED, RunExplainer, RunState
from rota.explain.skipped import detailed, missed_words, skip_clause, tally
from rota.schedules.preview import wall, zone_of
from rota.schedules.wall_time import Moment
from rota.store.schedules import outcomes

LEDGER_LOOK = 50
SPAN_LOOK = 10_000
_FAILURES = re.compile(r"failed \d+ times in a row")


class Explanation(NamedTuple):
    """A verdict for machines, one sentence for people, the facts, and what to do about it."""

    verdict: str
    sentence: str
    facts: dict[str, Any]
    hint: str | None = None


# The surfaces read the ledger by these: they may not import the store.
range_of = outcomes.read_range
pause_of = outcomes.read_pause


class ScheduleExplainer:
    """An examination of one schedule."""

    def __init__(self, client: Client, shown: ScheduleView) -> None:
        self._client = client
        self._database = client.connection.database
        self._now = client.clock.now()
        self._row = shown.schedule
        self._intent = shown.intent
        self._spec = shown.intent.spec
        self._policies = shown.intent.policies
        self._zone = zone_of(self._spec)
        self._name = shown.schedule.name
        self._problem = shown.problem
        self._remark: str | None = None
        self._facts: dict[str, Any] = {
            "schedule": self._name,
            "workflow": shown.intent.workflow,
            "when": shown.text,
            "timezone": self._zone,
            "status": shown.schedule.label,
            "queue": shown.schedule.queue,
            "next_at": iso_if_known(shown.schedule.due_at),
        }

    async def answer(self, at: datetime | None) -> Explanation:
        """The whole walk."""
        if at is None:
            return await self._lately()
        if self._problem is not None:  # its times are not known any more
            return self._rests()
        asked = Moment(self._spec, self._zone, at)
        self._remark = asked.remark
        self._facts["asked_at"] = iso(asked.first_at)
        found = await self._at(asked)
        if asked.remark is None or asked.left_out:
            return found
        facts = found.facts | {"clock": asked.remark}
        return found._replace(sentence=f"{asked.remark}: {found.sentence}", facts=facts)

    async def over(self, first_at: int, last_at: int) -> Explanation:
        """The outcomes of the occurrences of a span."""
        if self._problem is not None:
            return self._rests()
        self._facts |= {"from_at": iso(first_at), "to_at": iso(last_at)}
        rows = await self._database.read(
            outcomes.history, self._row.id, from_at=first_at, to_at=last_at, limit=SPAN_LOOK
        )
        is_cut = len(rows) == SPAN_LOOK
        beyond = await self._database.read(outcomes.range_over, self._row.id, at=last_at)
        if beyond is not None and beyond.id not in {row.id for row in rows}:
            rows.append(beyond)
        if not rows:
            return await self._empty(first_at, last_at)
        counts, newest = tally(rows, self._spec, self._policies, first_at, last_at)
        if sum(counts.values()) == 1:
            return await self._outcome(next(iter(newest.values())))
        parts = [f"{count} {what}{_failure(newest[what])}" for what, count in counts.most_common()]
        due_at = self._row.due_at
        owed = count_between(self._spec, due_at - 1, min(last_at, self._now)) if due_at else 0
        if owed and due_at and due_at <= last_at and self._row.status == Status.SCHEDULED:
            parts.append(f"{owed} not fired yet")
        text = f"from {self._wall(first_at)} to {self._wall(last_at)}: {', '.join(parts)}"
        if is_cut:
            text = f"{text}; only the newest {SPAN_LOOK:,} are counted"
        return self._say("span", text, outcomes=dict(counts), unfired=owed)

    async def _empty(self, first_at: int, last_at: int) -> Explanation:
        """A span without a record."""
        due_at = next_after(self._spec, first_at - 1)
        if due_at is not None and due_at <= last_at:
            return await self._due(due_at)
        nearest, facts = self._nearest(first_at)
        span_text = f"from {self._wall(first_at)} to {self._wall(last_at)}"
        return self._say("no_occurrence", f"has no occurrence {span_text}: {nearest}", **facts)

    async def _at(self, asked: Moment) -> Explanation:
        for first, last in asked.spans:
            row = await self._recorded(first, last)
            if row is not None:
                return await self._outcome(row)
        due_at = asked.occurrence(jitter_us(self._name, self._policies))
        if due_at is None:
            return self._no_occurrence(asked)
        return await self._due(due_at)

    async def _recorded(self, first: int, last: int) -> Run | None:
        rows = await self._database.read(
            outcomes.ledger, self._row.id, from_at=first, to_at=last, limit=LEDGER_LOOK
        )
        return rows[-1] if rows else None

    async def _lately(self) -> Explanation:
        """Without a time: what it did last, or what keeps it from doing anything."""
        if self._row.status == Status.PAUSED or self._problem is not None:
            return await self._rests_after(self._rests())
        if self._row.due_at is not None and self._row.due_at <= self._now:
            return await self._due(self._row.due_at)
        last = await self._last()
        if last is not None:
            found = await self._outcome(last)
            return found._replace(sentence=f"{found.sentence[:-1]}; next: {self._next()}.")
        created = self._wall(self._row.created_at)
        return self._say(
            "not_yet", f"has not been due yet: it was created {created}; first: {self._next()}"
        )

    async def _last(self) -> Run | None:
        """The newest row of the ledger."""
        rows = await self._database.read(outcomes.ledger, self._row.id, to_at=self._now, limit=1)
        return rows[0] if rows else None

    async def _rests_after(self, rests: Explanation) -> Explanation:
        """Why it rests, with the outcome that made it rest: the last of one that has ended, the
        failure of one that paused itself."""
        failed = rests.verdict == "paused" and _FAILURES.fullmatch(self._row.reason or "")
        last = await self._last() if failed or rests.verdict == "ended" else None
        if last is None:
            return rests
        found = await self._outcome(last)
        sentence = f"{rests.sentence[:-1]}; it {found.sentence.removeprefix(f'{self._name} ')}"
        facts = found.facts | rests.facts | {"last_verdict": found.verdict}
        return rests._replace(sentence=sentence, facts=facts)

    def _next(self) -> str:
        due_at = self._row.due_at
        return "never" if due_at is None else f"{self._wall(due_at)} (in {self._in(due_at)})"

    # -- it has a record -------------------------------------------------------------------

    async def _outcome(self, row: Run) -> Explanation:
        facts = {"due_at": iso_if_known(row.due_at), "trigger": row.trigger}
        if row.status == Status.SKIPPED:
            return await self._skipped(row, facts)
        found = await RunExplainer(self._client, self._zone).of(row)
        how = self._fired(row)
        run_id = found.facts["run_id"]
        sentence = f"{how}, and run {run_id} {found.clause}"
        return self._say(f"fired_{found.verdict}", sentence, found.hint, **facts, **found.facts)

    def _fired(self, row: Run) -> str:
        due_at = row.due_at or row.created_at
        when = self._wall(due_at)
        if row.trigger == Trigger.MANUAL:
            return f"was run by hand at {when}"
        if row.trigger == Trigger.BACKFILL:
            return f"was backfilled for {when}, requested at {self._wall(row.created_at)}"
        nominal = due_at + jitter_us(self._name, self._policies)
        late = row.created_at - nominal
        if late > self._policies.on_time_us:
            return f"fired for {when}, {span(late)} late"
        remarks = [note for note in notes(self._spec, due_at) if note != self._remark]
        moved = f" ({'; '.join(remarks)})" if remarks else ""
        return f"fired at {when}{moved}"

    async def _skipped(self, row: Run, facts: dict[str, Any]) -> Explanation:
        reason = row.reason or "skipped"
        first, last, count = range_of(row)
        clause = detailed(skip_clause(reason, self._policies), row)
        pause = pause_of(row)
        into: RunState | None = None
        if reason == "merged":
            into, into_text = await self._merged_into(row)
            clause += into_text
        elif pause is not None:
            clause += f" since {self._wall(pause.paused_at)} ({pause.note})"
            facts |= {"paused_at": iso(pause.paused_at), "note": pause.note}
        if count == 1:
            sentence = f"did not run at {self._wall(last)}: {clause}"
        else:
            between = f"{self._wall(first)} to {self._wall(last)}"
            sentence = f"did not run {count} times from {between}: {clause}"
        facts |= {"reason": reason, "from_at": iso(first), "to_at": iso(last), "count": count}
        hint = self._backfill(first, last, count)
        if into is None:
            return self._say("skipped", sentence, hint, **facts)
        facts |= {"into": into.facts["run_id"]} | {
            key: into.facts[key] for key in ("behind", "head", "head_verdict") if key in into.facts
        }
        blocked = into.verdict.startswith("blocked_") or into.verdict in BLOCKED
        if not blocked:
            return self._say("merged", sentence, hint, **facts)
        cause = into.facts.get("head_verdict", into.verdict)
        return self._say(f"blocked_{cause}", sentence, into.hint, **facts)

    def _backfill(self, first: int, last: int, count: int) -> str:
        """The command that runs what was skipped. Both ends belong to the range."""
        begin, end = moment(first), moment(-(-last // SECOND) * SECOND)  # whole seconds
        what = f"--from {begin:%Y-%m-%dT%H:%M:%SZ} --to {end:%Y-%m-%dT%H:%M:%SZ}"
        them = "it" if count == 1 else "them"
        return f"To run {them} now: `rota schedule backfill {shlex.quote(self._name)} {what}`."

    async def _merged_into(self, row: Run) -> tuple[RunState | None, str]:
        """The run that waited when this one came, and the present state of that one."""
        rows = await self._database.read(
            outcomes.ledger, self._row.id, to_at=(row.due_at or 1) - 1, limit=LEDGER_LOOK
        )
        for earlier in rows:
            if earlier.status != Status.SKIPPED and earlier.trigger == Trigger.SCHEDULE:
                found = await RunExplainer(self._client, self._zone).of(earlier)
                what = f"run {earlier.id}, for {self._wall(earlier.due_at or 0)}"
                return found, f" ({what}), which {found.clause}"
        return None, ""

    # -- it should have been, or will be ---------------------------------------------------

    async def _due(self, due_at: int) -> Explanation:
        """An occurrence without a record."""
        self._facts["due_at"] = iso(due_at)
        covering = await self._database.read(outcomes.range_over, self._row.id, at=due_at)
        if covering is not None:
            return await self._skipped(covering, {"due_at": iso(due_at)})
        if due_at > self._now:
            return self._future(due_at)
        if due_at < self._row.created_at:
            made = self._wall(self._row.created_at)
            text = f"did not run at {self._wall(due_at)}: it was created only at {made}"
            return self._say("not_made_yet", text)
        if self._row.due_at is not None and due_at < self._row.due_at:
            return self._no_record(due_at)
        if self._row.status == Status.PAUSED:
            return self._rests()
        return await self._unfired(due_at)

    def _no_record(self, due_at: int) -> Explanation:
        days = self._client.settings.keep_days
        if days and self._now - due_at > days * DAY:
            text = f"had an occurrence at {self._wall(due_at)}, but records are kept {days:g} days"
            return self._say("pruned", text)
        if due_at < self._intent.since_at:
            since = self._wall(self._intent.changed_at or self._intent.since_at)
            text = f"did not run at {self._wall(due_at)}: its timing was changed at {since}"
            since_at = iso(self._intent.changed_at or self._intent.since_at)
            return self._say("other_times", text, since_at=since_at)
        text = (
            f"did not run at {self._wall(due_at)}: it was paused then, or its definition was "
            "another one; no occurrence was recorded"
        )
        return self._say("unrecorded", text)

    async def _unfired(self, due_at: int) -> Explanation:
        at = self._row.available_at or due_at
        if at > self._now:
            text = (
                f"was due at {self._wall(due_at)}; its jitter moves it to {self._wall(at)} "
                f"(in {self._in(at)})"
            )
            return self._say("jitter", text, runs_at=iso(at))
        since = f"has been due since {self._wall(due_at)} ({span(self._now - due_at)})"
        disarmed = await self._client.operations.disarmed()
        if disarmed is not None:
            text = f"{since}, but the database {disarmed_clause(disarmed)}"
            return self._say("disarmed", text, ARM_HINT, disarmed_at=iso(disarmed.at))
        live = live_workers(await self._client.workers(), self._client.settings, self._now)
        if not live:
            text = f"{since}, but no worker is running to fire it"
            hint = f"Start one: `rota up`; {missed_words(self._policies)}."
            return self._say("no_worker", text, hint, workers_on=0)
        text = f"{since} and fires any moment"
        return self._say("due", text, workers_on=len(live))

    def _future(self, due_at: int) -> Explanation:
        when = f"{self._wall(due_at)} (in {self._in(due_at)})"
        if self._row.status == Status.PAUSED:
            until = self._row.available_at
            if until is None or until > due_at:
                rests = self._rests()
                return rests._replace(
                    sentence=f"{rests.sentence[:-1]}, so it will not run at {when} unless resumed."
                )
        limit = self._policies.runs_max
        ahead = count_between(self._spec, self._now, due_at)
        if limit is not None and self._intent.fired_count + ahead > limit:
            text = f"will not run at {when}: all its {limit} runs will be done by then"
            return self._say("ended", text)
        spread = jitter_us(self._name, self._policies)
        moved = f", {span(spread)} later by its jitter" if spread else ""
        return self._say("future", f"will run at {when}{moved}", runs_at=iso(due_at + spread))

    def _rests(self) -> Explanation:
        """Paused, quarantined or at its end."""
        reason, until = self._row.reason or "", self._row.available_at
        paused = self._row.status == Status.PAUSED
        resume = f"`rota schedule resume {self._name}`."
        repair = f"Fix it: `rota schedule update {self._name}` with what is wrong."
        if paused and reason.startswith(QUARANTINED_REASON):
            hint = repair if self._problem else f"Fix it, then {resume}"
            return self._say("quarantined", f"is {reason}", hint, note=reason)
        if not paused:
            return self._say("unreadable", f"cannot be read any more: {self._problem}", repair)
        since_at = self._intent.paused_at
        began = f" since {self._wall(since_at)}" if since_at else ""
        facts = {"note": reason, "since": iso_if_known(since_at or None)}
        if self._row.due_at is None:
            hint = (
                f"Continue it: `rota schedule update {self._name}` with a later end or more runs."
            )
            return self._say("ended", f"has ended{began}: {reason}", hint, **facts)
        left_out = self._row.due_at
        if left_out <= self._now:
            first = f"the first occurrence it skipped was {self._wall(left_out)}"
        else:
            first = f"it has skipped nothing yet; the next occurrence is {self._wall(left_out)}"
        ends = f" until {self._wall(until)}" if until is not None else ""
        text = f"is paused{began}{ends} ({reason}): {first}"
        hint = repair if self._problem else f"To continue: {resume}"
        return self._say("paused", text, hint, **facts, until=iso_if_known(until))

    # -- it has no occurrence then ---------------------------------------------------------

    def _no_occurrence(self, asked: Moment) -> Explanation:
        at = asked.first_at
        start, end = self._spec.start_at, self._spec.end_at
        if start is not None and at < start:
            text = f"does not run at {self._wall(at)}: it starts only at {self._wall(start)}"
            return self._say("before_start", text, start_at=iso(start))
        if end is not None and at > end:
            text = f"does not run at {self._wall(at)}: it ended at {self._wall(end)}"
            return self._say("after_end", text, end_at=iso(end))
        if asked.left_out:
            verb = "did not run" if at <= self._now else "will not run"
            return self._say("gap", f"{verb}: {asked.remark}", clock=asked.remark)
        nearest, facts = self._nearest(at)
        # In a gap the asked time is on no wall; the instant behind it shows another one.
        shown = asked.written if asked.in_gap else self._wall(at)
        return self._say("no_occurrence", f"does not run at {shown}: {nearest}", **facts)

    def _nearest(self, at: int) -> tuple[str, dict[str, Any]]:
        before, after = previous_before(self._spec, at), next_after(self._spec, at)
        near = [
            f"{self._wall(one)} ({word})"
            for one, word in ((before, "before"), (after, "after"))
            if one is not None
        ]
        facts = {"before_at": iso_if_known(before), "after_at": iso_if_known(after)}
        text = f"the nearest occurrences are {' and '.join(near)}"
        made_at = self._row.created_at
        if before is not None and before < made_at:
            text += f"; it was created only at {self._wall(made_at)}"
        return text, facts

    # -- words -----------------------------------------------------------------------------

    def _say(self, verdict: str, text: str, hint: str | None = None, **facts: Any) -> Explanation:
        return Explanation(verdict, f"{self._name} {text}.", self._facts | facts, hint)

    def _wall(self, at: int) -> str:
        return wall(at, self._zone)

    def _in(self, at: int) -> str:
        rest = at - self._now
        return span(rest // SECOND * SECOND if rest > MINUTE else max(rest, SECOND))


def _failure(row: Run) -> str:
    """The newest run that ended badly, and its error."""
    if row.status not in (Status.FAILED, Status.CRASHED):
        return ""
    return f" (run {row.id}: {error_line(row.error)})" if row.error else f" (run {row.id})"
