"""The state of a run and why: the walk over workers, queue, limits, waits and ends.

Only reads. The answer is a clause that follows "run ID": `waits: no worker serves queue mail`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from rota.client.automation_views import AutomationView
from rota.client.client import Client
from rota.client.doctor import known, live_workers, served
from rota.client.operations import ARM_HINT, disarmed_clause
from rota.core.automations.text import missing_code, refusal
from rota.core.plurals import counted, some
from rota.core.runs import rate_limit
from rota.core.runs.code_versions import NEWER_CODE
from rota.core.runs.end_request import EndRequest
from rota.core.runs.failures import TABLE, Kind, advice
from rota.core.runs.lifecycle import Status
from rota.core.runs.model import Queue, Run, StoredStep, WorkerRecord
from rota.core.runs.progress import described, progress_of
from rota.core.runs.recovery import runs_alone
from rota.core.runs.stored_errors import error_line
from rota.core.time.instants import SECOND, instant, iso, iso_if_known, span
from rota.schedules.preview import wall
from rota.store.pipelines import steps as pipeline_steps
from rota.store.pipelines.steps import ProviderWait
from rota.store.runs import claim
from rota.store.runs import steps as run_steps
from rota.store.schedules import templates as store

RUNNING_LOOK = 1000
# Something other than its own plan keeps such a run from continuing; it also blocks what waits
# behind it.
BLOCKED = frozenset({
    "no_worker", "unknown_workflow", "no_code", "queue_paused", "queue_limit", "key_limit",
    "key_open_limit", "rate_limit", "slots", "needs_person", "waits_signal", "waits_alone",
    "worker_reserved", "disarmed", "newer_code",
})  # fmt: skip


class RunState(NamedTuple):
    """A verdict for machines, a clause for people, and what it rests on."""

    verdict: str
    clause: str
    facts: dict[str, Any]
    hint: str | None = None


def missing_code_state(view: AutomationView) -> RunState | None:
    """Why an automation does not run although workers are running: none of them has its deployed
    code. None if one has it, or if no worker is running."""
    automation, code = view.automation, view.code
    if not code.is_missing:
        return None
    clause = f"waits: {lower_first(missing_code(automation.version, code))}"
    if code.refused is not None:
        clause += f"; {refusal(code.refused)}"
    known_versions = [worker.version for worker in code.others if worker.version is not None]
    hint = f"Restart the workers (`rota up`) with the code of version {automation.version}"
    if known_versions:
        rollback = f"`rota automation rollback {automation.name} {max(known_versions)}`"
        hint += f", or use theirs: {rollback}"
    facts = {
        "version": automation.version,
        "workers": [{"worker": each.worker, "version": each.version} for each in code.others],
        "refused": list(code.refused.problems) if code.refused else [],
    }
    return RunState("no_code", clause, facts, f"{hint}.")


async def latest_notification(client: Client, run: Run, zone: str) -> tuple[str, dict[str, Any]]:
    """The newest notification about what a run waits for: the end of a clause, and the facts. Both
    are empty if no rule wants the kind."""
    found = await client.notifications.latest(run)
    if found is None:
        return "", {}
    one = found.notification
    facts = {"kind": one.kind, "at": iso(one.at), "rules": found.rules}
    clause = f"; notification {one.kind} of {wall(one.at, zone)} {found.receivers}"
    return clause, {"notification": facts}


class RunExplainer:
    """Examines one chain; times are shown in `zone`."""

    def __init__(self, client: Client, zone: str) -> None:
        self._client = client
        self._database = client.connection.database
        self._zone = zone
        self._now = client.clock.now()

    async def of(self, run: Run) -> RunState:
        """The state of the newest attempt of the run's chain."""
        last = await self._client.runs.newest(run.id)
        match last.status:
            case Status.PENDING:
                found = await self._pending(last)
            case Status.SLEEPING:
                found = await self._sleeping(last)
            case Status.RUNNING:
                found = await self._running(last)
            case Status.WAITING:
                found = await self._waiting(last)
            case _:
                found = self._ended(last)
        if not last.is_final and last.kind == "workflow":
            found = await self._with_end(last, found)
        facts = {"run_id": last.id, "status": last.label, "attempt": last.attempt}
        return found._replace(facts=facts | found.facts)

    async def _with_end(self, run: Run, found: RunState) -> RunState:
        """The state, and that the run is about to end or cleans up."""
        for end in await self._database.read(run_steps.ends, root_id=run.segment):
            request = EndRequest.read(end.output)
            facts: dict[str, Any] = {"reason": request.reason, "until": None}
            clause = f"; it is asked to end ({request.reason})"
            if end.finished_at is not None:
                until = request.until(end.finished_at)
                facts["until"] = iso(until)
                clause = f"; it cleans up, at most until {self.at(until)} ({request.reason})"
            return found._replace(clause=found.clause + clause, facts=found.facts | {"end": facts})
        return found

    # -- over ------------------------------------------------------------------------------

    def _ended(self, run: Run) -> RunState:
        took = _span((run.finished_at or 0) - (run.started_at or run.created_at))
        at = self.at(run.finished_at)
        tries = f" on attempt {run.attempt}" if run.attempt > 1 else ""
        facts = {"finished_at": iso_if_known(run.finished_at)}
        retry = advice(run.reason, run.id)
        match run.status:
            case Status.COMPLETED:
                return RunState("completed", f"completed{tries} at {at}, after {took}", facts)
            case Status.FAILED:
                error = error_line(run.error)
                clause = f"failed{tries} at {at}, after {took}: {error}"
                return RunState("failed", clause, facts | {"error": error}, retry)
            case Status.CANCELLED:
                clause = f"was cancelled at {at} ({run.reason})"
                return RunState("cancelled", clause, facts | {"reason": run.reason})
            case Status.CRASHED:
                clause = f"crashed its worker too often and was quarantined at {at} ({run.reason})"
                return RunState("crashed", clause, facts, retry)
        return RunState(str(run.status), f"is {run.label}", facts)

    # -- open ------------------------------------------------------------------------------

    async def _running(self, run: Run) -> RunState:
        facts = {"worker": run.lease_owner, "started_at": iso_if_known(run.started_at)}
        since = f"since {self.at(run.started_at)} ({_span(self._now - (run.started_at or 0))})"
        if run.lease_until is not None and run.lease_until < self._now:
            clause = (
                f"has been running {since}, but worker {run.lease_owner} sends no heartbeat: "
                "another worker will recover the run"
            )
            return RunState("lapsed", clause, facts, "If no other worker is running: `rota up`.")
        if run.kind == "pipeline":
            wait = await self._database.read(pipeline_steps.provider_wait, root_id=run.root_id)
            if wait is not None:
                return self._provider(wait, since, facts)
        clause = f"has been running {since} on worker {run.lease_owner}"
        said, progress = await self._progress(run)
        return RunState("running", clause + said, facts | progress)

    async def _progress(self, run: Run) -> tuple[str, dict[str, Any]]:
        """The end of a clause about the running steps that report progress, and the facts."""
        found = {
            step.key: progress
            for step in await self._client.runs.steps(run)
            if step.status == "waiting" and (progress := progress_of(step)) is not None
        }
        said = [
            f"{key} has done {described(one)} ({_span(self._now - instant(one.at))} ago)"
            for key, one in found.items()
        ]
        facts = {"progress": {key: msgspec.to_builtins(one) for key, one in found.items()}}
        return ("; " + some(said), facts) if found else ("", {})

    def _provider(self, wait: ProviderWait, since: str, facts: dict[str, Any]) -> RunState:
        """It waits for a provider that does not answer its calls."""
        clause = (
            f"has been running {since}, and has been waiting for its AI provider since "
            f"{self.at(wait.since)}: {wait.said}; next try {self._when(wait.until, 'at')}"
        )
        facts = facts | {"provider_said": wait.said, "waits_since": iso_if_known(wait.since)}
        hint = "It continues when the provider answers. `maxRetries` and `maxWaitMs` end the wait."
        return RunState("waits_provider", clause, facts, hint)

    async def _waiting(self, run: Run) -> RunState:
        error = error_line(run.error)
        notified, notified_facts = await latest_notification(self._client, run, self._zone)
        needed = needed_action(run.reason)
        clause = f"waits for an operator ({run.reason}): {needed}; it said {error}{notified}"
        facts = {"reason": run.reason, "error": error} | notified_facts
        return RunState("needs_person", clause, facts, f"Then `rota run retry {run.id}`.")

    async def _sleeping(self, run: Run) -> RunState:
        facts = {"reason": run.reason, "wakes_at": iso_if_known(run.available_at)}
        until, again = (self._when(run.available_at, word) for word in ("until", "at"))
        if run.reason == "turn":
            return await self._queued(run)
        if run.reason == "retry":
            return RunState("retries", f"failed before and tries again {again}", facts)
        if run.reason == "after":
            clause = f"waits for a pipeline that it depends on, and checks again {again}"
            return RunState("waits_after", clause, facts)
        if run.reason == "backfill":
            return RunState("sleeps", "waits for earlier runs of its backfill", facts)
        steps = await self._client.runs.steps(run)
        waiting = [step for step in steps if step.status == "waiting"]
        signals = [signal_of(step) for step in waiting if step.kind == "signal"]
        if signals:
            clause = f"waits for the signal {signals[0]}" + (f", {until}" if until else "")
            hint = f"`rota run signal {run.id} {signals[0]} VALUE`."
            return RunState("waits_signal", clause, facts | {"signals": signals}, hint)
        if run.reason in ("child", "several"):
            ids = await self._open_children(steps)
            if ids:
                clause = f"waits for its child run{'s' if len(ids) > 1 else ''} {some(ids)}"
                return RunState("waits_child", clause, facts | {"children": ids})
        return RunState("sleeps", f"sleeps {until}" if until else "sleeps until woken", facts)

    async def _open_children(self, steps: Sequence[StoredStep]) -> list[str]:
        ids = [step.child_id for step in steps if step.kind == "child" and step.child_id]
        lasts = [await self._client.runs.newest(child_id) for child_id in ids]
        return [last.id for last in lasts if not last.is_final]

    async def _queued(self, run: Run) -> RunState:
        """It waits behind an earlier run of its schedule: which one, and the state of that one."""
        roots = await self._database.read(store.open_roots, [run.schedule_id or ""])
        lasts = [await self._client.runs.newest(root) for root in sorted(set(roots))]
        ahead = [last for last in lasts if last.reason != "turn"]
        facts: dict[str, Any] = {"behind": [last.id for last in ahead]}
        if not ahead:
            hint = "`rota doctor --repair` releases it if it stays so."
            return RunState("waits_behind", "is queued, but no other run is before it", facts, hint)
        head = await self.of(ahead[0])
        facts |= {"head": head.facts["run_id"], "head_verdict": head.verdict}
        clause = f"is queued behind run {ahead[0].id}, which {head.clause}"
        verdict = f"blocked_{head.verdict}" if head.verdict in BLOCKED else "waits_behind"
        return RunState(verdict, clause, facts, head.hint)

    # -- pending ---------------------------------------------------------------------------

    async def _pending(self, run: Run) -> RunState:
        """Nothing is in its way but workers and limits: find which."""
        live = live_workers(await self._client.workers(), self._client.settings, self._now)
        queues = {queue.name: queue for queue in await self._client.queues()}
        limit = queues.get(run.queue)
        since = run.available_at or run.created_at
        facts = {
            "queue": run.queue, "workers_on": len(live), "waits_since": iso_if_known(since),
        }  # fmt: skip
        found = (
            await self._disarmed()
            or await self._no_worker(run, live)
            or (await self._limited(run, limit) if limit is not None else None)
            or self._alone(run)
            or await self._full(run, live)
            or RunState("ready", "is about to be claimed by a worker", {})
        )
        waits = "" if self._now - since < SECOND else f" for {_span(self._now - since)}"
        clause = found.clause.replace("waits:", f"waits{waits}:", 1)
        return found._replace(clause=clause, facts=facts | found.facts)

    async def _disarmed(self) -> RunState | None:
        found = await self._client.operations.disarmed()
        if found is None:
            return None
        return RunState("disarmed", f"waits: the database {disarmed_clause(found)}", {}, ARM_HINT)

    async def _no_worker(self, run: Run, live: Sequence[WorkerRecord]) -> RunState | None:
        if not live:
            return RunState("no_worker", "waits: no worker is running", {}, "Start one: `rota up`.")
        serving = [worker for worker in live if run.queue in served(worker)]
        if not serving:
            clause = f"waits: no worker serves queue {run.queue}"
            return RunState("no_worker", clause, {}, f"Start one: `rota up --queue {run.queue}`.")
        if run.kind == "automation":
            return missing_code_state(await self._client.automations.show(run.name))
        if (found := _version(run, live)) is not None:
            return found
        if not any(run.name in known(worker) for worker in serving):
            clause = f"waits: no worker that serves queue {run.queue} knows {run.kind} {run.name}"
            hint = f"Start a worker with the code of {run.kind} {run.name}: `rota up`."
            return RunState("unknown_workflow", clause, {}, hint)
        return None

    def _alone(self, run: Run) -> RunState | None:
        if not runs_alone(run.recoveries):
            return None
        clause = (
            f"waits: its workers died {run.recoveries} times, so it is executed alone, by a worker "
            "that is idle now"
        )
        hint = (
            "Busy workers pause their claims from time to time; one more `rota up` helps at once."
        )
        return RunState("waits_alone", clause, {"recoveries": run.recoveries}, hint)

    async def _limited(self, run: Run, limit: Queue) -> RunState | None:
        if limit.paused:
            hint = f"`rota queue resume {limit.name}`."
            return RunState("queue_paused", f"waits: queue {limit.name} is paused", {}, hint)
        running = await self._client.runs.list(
            status="running", queue=run.queue, limit=RUNNING_LOOK
        )
        if limit.running_max and len(running) >= limit.running_max:
            clause = (
                f"waits: queue {limit.name} runs {limit.running_max} at the same time, its limit"
            )
            return RunState("queue_limit", clause, {"running_max": limit.running_max})
        same = sum(other.limit_key == run.limit_key for other in running)
        if limit.key_running_max and run.limit_key and same >= limit.key_running_max:
            count = limit.key_running_max
            verb = "is" if count == 1 else "are"
            clause = (
                f"waits: {counted(count, 'run')} of key {run.limit_key} {verb} executing, which is "
                "the limit"
            )
            return RunState("key_limit", clause, {"key_running_max": limit.key_running_max})
        if limit.key_open_max and run.limit_key:
            held = await self._database.read(
                claim.holders, namespace=run.namespace, queue=run.queue, key=run.limit_key
            )
            if len(held) >= limit.key_open_max and run.root_id not in held:
                clause = (
                    f"waits: {limit.key_open_max} of key {run.limit_key} may be open at a time, "
                    f"and {some(held)} {'has' if len(held) == 1 else 'have'} not ended"
                )
                return RunState("key_open_limit", clause, {"holders": held})
        return self._rated(limit)

    def _rated(self, limit: Queue) -> RunState | None:
        if not limit.rate_count or not limit.rate_per_us:
            return None
        rate = rate_limit.Rate(limit.rate_count, limit.rate_per_us)
        if rate_limit.allowed(rate, ready_at=limit.ready_at, now=self._now):
            return None
        free_at = rate_limit.next_free_at(rate, ready_at=limit.ready_at)
        clause = (
            f"waits: queue {limit.name} may start {rate.count} per {span(rate.per_us)}; the next "
            f"one {self._when(free_at, 'at')}"
        )
        return RunState("rate_limit", clause, {"free_at": iso_if_known(free_at)})

    async def _full(self, run: Run, live: Sequence[WorkerRecord]) -> RunState | None:
        running = await self._client.runs.list(status="running", limit=RUNNING_LOOK)
        serving = [worker for worker in live if run.queue in served(worker)]
        held = {w.id: sum(other.lease_owner == w.id for other in running) for w in serving}
        alone = {other.lease_owner: other.id for other in running if runs_alone(other.recoveries)}
        if any(held[worker.id] < worker.slots and worker.id not in alone for worker in serving):
            return None
        if reserved := [alone[worker.id] for worker in serving if worker.id in alone]:
            verb = "is" if len(reserved) == 1 else "are each"
            clause = (
                f"waits: no slot is free while {some(reserved)} {verb} executed alone, after "
                "workers died"
            )
            hint = "Wait, or start another worker."
            return RunState("worker_reserved", clause, {"alone": reserved}, hint)
        count = sum(worker.slots for worker in serving)
        taken = "the only slot" if count == 1 else f"all {count} slots"
        who = "the worker that serves" if len(serving) == 1 else "the workers that serve"
        verb = "is" if count == 1 else "are"
        clause = f"waits: {taken} of {who} queue {run.queue} {verb} taken"
        return RunState("slots", clause, {"slots": count}, "Wait, or start another worker.")

    # -- words -----------------------------------------------------------------------------

    def at(self, instant: int | None) -> str:
        """An instant on the wall."""
        return "an unknown time" if instant is None else wall(instant, self._zone)

    def _when(self, instant: int | None, word: str) -> str:
        if instant is None:
            return ""
        rest = instant - self._now
        return "any moment" if rest < SECOND else f"{word} {self.at(instant)} (in {_span(rest)})"


def _version(run: Run, live: Sequence[WorkerRecord]) -> RunState | None:
    """It waits for a worker with another version of the code."""
    others = sorted({worker.version for worker in live})
    facts: dict[str, Any] = {"workers": others}
    if run.reason == NEWER_CODE:
        refused = (run.refused_versions or "").split()
        clause = (
            f"waits: newer code recorded calls that version {some(refused)} does not make, so a "
            f"worker with newer code has to continue it ({some(others)} online)"
        )
        hint = "Without one it fails as stranded, after an hour at the latest."
        return RunState("newer_code", clause, facts | {"refused": refused}, hint)
    if run.pinned_version is None or run.pinned_version in others:
        return None
    clause = (
        f"waits: it is pinned to version {run.pinned_version} of the code, which no running worker "
        "has"
    )
    hint = (
        f"Start a worker with that code. To move it to the code of today: `rota run cancel "
        f"{run.id}`, then `rota run retry {run.id}`."
    )
    return RunState("no_code", clause, facts | {"pinned_version": run.pinned_version}, hint)


def needed_action(reason: str | None) -> str:
    """The action of an operator for a run that waits for this reason."""
    kinds = {kind.value: kind for kind in Kind}
    return TABLE[kinds[reason]].action if reason in kinds else "see its error, then decide"


def signal_of(step: StoredStep) -> str:
    """The name of the signal that a step waits for."""
    return step.key.removeprefix("wait ").rpartition("#")[0]


def lower_first(sentence: str) -> str:
    """A sentence as the end of another one."""
    return sentence[:1].lower() + sentence[1:]


def _span(duration_us: int) -> str:
    duration = max(0, duration_us)
    return span(duration // SECOND * SECOND if duration > SECOND else duration)
