"""Why an automation runs, or does not: its pause, the person it waits for, its retries, its worker,
and the events it left where they are.

Only reads. The answer is a clause that follows "automation NAME".
"""

from __future__ import annotations

import msgspec

from rota.client.automation_views import AutomationView
from rota.client.client import Client
from rota.core.automations.graph import AutomationGraph
from rota.core.automations.planner import DeployedHandler, due_of
from rota.core.automations.text import RETRIED
from rota.core.runs.lifecycle import Status
from rota.core.runs.model import Run
from rota.core.time.instants import iso, iso_if_known, span
from rota.explain.run import (
    RunExplainer,
    RunState,
    latest_notification,
    lower_first,
    missing_code_state,
)
from rota.schedules.host_zone import host_zone_name
from rota.schedules.preview import wall

_GRAPH = msgspec.json.Decoder(AutomationGraph)


async def explain_automation(client: Client, name: str) -> RunState:
    """Why the automation does what it does, or UnknownAutomation."""
    view = await client.automations.show(name)
    found = await _AutomationExplainer(client, view).answer()
    facts = {
        "automation": name, "status": view.status, "pending": view.pending,
        "run_id": view.open_run.id if view.open_run else None,
        "next_at": iso_if_known(view.open_run.available_at if view.open_run else None),
    }  # fmt: skip
    return found._replace(facts=facts | found.facts)


class _AutomationExplainer:
    def __init__(self, client: Client, view: AutomationView) -> None:
        self._client = client
        self._view = view
        self._name = view.automation.name
        self._now = client.clock.now()
        self._zone = host_zone_name()

    async def answer(self) -> RunState:
        status, open_run = self._view.automation.status, self._view.open_run
        resume = f"`rota automation resume {self._name}`."
        if status == "archived":
            return RunState("archived", "does not run: it is archived", {}, resume)
        if open_run is not None and open_run.status == Status.WAITING:
            return await self._asks(open_run)
        if status == "paused" and (open_run is None or open_run.status != Status.RUNNING):
            return RunState("paused", "does not run: it was paused", {}, resume)
        if open_run is None:
            clause = "has no open run: none followed its last run"
            return RunState("no_turn", clause, {}, resume)
        missing_code = missing_code_state(self._view)
        if open_run.status != Status.RUNNING and missing_code is not None:
            return missing_code
        if open_run.status in (Status.PENDING, Status.RUNNING):
            return await RunExplainer(self._client, self._zone).of(open_run)
        if open_run.reason in ("reconciliation", *RETRIED):
            return self._tries(open_run.reason, open_run.available_at or self._now)
        return await self._rests()

    async def _asks(self, open_run: Run) -> RunState:
        actions = ", ".join(self._view.said.actions)
        hint = f"Cleared by: {actions}. See `rota automation show {self._name}`."
        notified, notified_facts = await latest_notification(self._client, open_run, self._zone)
        clause = f"waits for an operator: {lower_first(self._view.sentence)}{notified}"
        facts = {"reason": open_run.reason or ""} | notified_facts
        return RunState("needs_person", clause, facts, hint)

    def _tries(self, reason: str, at: int) -> RunState:
        when = self._when(at)
        if reason == "reconciliation":
            clause = f"finds out whether a change happened; next check {when}"
            hint = (
                f"If you know whether the change happened: `rota automation show {self._name}` "
                "lists the answers."
            )
            return RunState("reconciles", clause, {"reason": reason}, hint)
        _, colon, error = self._view.sentence.partition(": ")
        because = f"{colon}{error}" if error else ""
        outage = self._view.automation.outage
        if outage is not None:
            tries = "1 try" if outage.tries == 1 else f"{outage.tries} tries"
            since = wall(outage.since, self._zone)
            clause = f"has been waiting for {outage.of} since {since} ({tries}), "
            facts = {"reason": reason, "waits_for": outage.of, "since": iso(outage.since)}
            hint = f"If it answers again: `rota automation show {self._name}` lists the answers."
            return RunState("outage", f"{clause}and tries again {when}{because}", facts, hint)
        count = self._view.automation.failures
        times = "once" if count == 1 else f"{count} times in a row"
        clause = f"failed {times} and tries again {when}{because}"
        return RunState("retries", clause, {"reason": reason, "failures": count})

    async def _rests(self) -> RunState:
        """Nothing is due. Pending events that no consumer took are named, because an operator may
        look for them."""
        left = await self._left_alone()
        upcoming = self._next()
        if left:
            return RunState("left_alone", f"{'; '.join(left)}; {upcoming}", {})
        ran = [one.last_run_at for one in self._view.handlers if one.last_run_at is not None]
        last = f"; it last ran at {wall(max(ran), self._zone)}" if ran else ""
        return RunState("idle", f"has nothing to do{last}; {upcoming}", {})

    async def _left_alone(self) -> list[str]:
        [newest, *_] = await self._client.automations.versions(self._name, limit=1)
        graph = _GRAPH.decode(newest.graph)
        handlers = {one.name: one for one in self._view.handlers}
        clauses = []
        for topic, count in sorted(self._view.pending.items()):
            reader = handlers.get(graph.consumer_of(topic) or "")
            events = f"{count} event{'s' if count > 1 else ''} of topic {topic}"
            if reader is None and topic in graph.dead_letters:
                letters = "a dead letter" if count == 1 else f"{count} dead letters"
                clauses.append(f"keeps {letters} in topic {topic} for you to check")
            elif reader is None:
                clauses.append(f"keeps {events}, which has no reader any more")
            elif reader.last_run_at is not None:
                at = wall(reader.last_run_at, self._zone)
                clauses.append(f"keeps {events}: {reader.name} ran at {at} and took none of them")
        return clauses

    def _next(self) -> str:
        timed: list[tuple[int, DeployedHandler]] = []
        for one in self._view.handlers:
            due = due_of(one)
            if due is not None and due.at is not None:
                timed.append((due.at, one))
        if not timed:
            return "next: when an event comes"
        at, handler = min(timed, key=lambda item: item[0])
        return f"next: {handler.kind} {handler.name} {self._when(at)}"

    def _when(self, at: int) -> str:
        ahead = at - self._now
        return f"at {wall(at, self._zone)}" + (f" (in {span(ahead)})" if ahead > 0 else "")
