"""The runs of one namespace: `app.runs` finds, awaits and changes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

from msgspec.structs import replace

from rota.client.bulk import BulkVerbs, checked_grace
from rota.client.caller import refuse_in_workflow
from rota.client.handle import RunHandle, wait_for_end
from rota.client.start import P, R, Startable
from rota.core import typed
from rota.core.pipelines.item_chunks import readable
from rota.core.runs.lifecycle import Status, Trigger, allowed
from rota.core.runs.model import NewRun, Run, StoredStep
from rota.core.runs.names import checked_key, checked_name
from rota.core.runs.options import StoredRunOptions
from rota.core.suggest import suggestion
from rota.core.time.instants import Duration
from rota.engine.wakeups import READY
from rota.errors import BadInput, UnknownWorkflow, WrongState
from rota.store.runs import history, signals, steps
from rota.store.runs.history import ChainResult, Ready
from rota.store.runs.manual_retry import resolve_run, retry_chain


class Runs(BulkVerbs):
    """The runs of one namespace. A run id is whole, or the part of one that fits one run only."""

    # -- finding ---------------------------------------------------------------------------

    @overload
    def handle(
        self, run_id: str, workflow: Startable[P, R], *, existed: bool = False
    ) -> RunHandle[R]: ...

    @overload
    def handle(
        self, run_id: str, workflow: object = None, *, existed: bool = False
    ) -> RunHandle[Any]: ...

    def handle(self, run_id: str, workflow: Any = None, *, existed: bool = False) -> RunHandle[Any]:
        """Return the handle of a run, as `start` does. Nothing is read.

        Args:
            run_id: The id of the run.
            workflow: The registered workflow; the handle then returns its result type.
            existed: The value of `existed` of the handle.

        Returns:
            A handle. Without a workflow its result consists of plain JSON types.

        Example:
            order = await app.runs.handle(run_id, fulfil).result(timeout="1m")
        """
        signature: typed.Signature | None = getattr(workflow, "signature", None)
        return RunHandle(self._client, run_id, signature.returns if signature else None, existed)

    async def chain(self, run_id: str) -> list[Run]:
        """Return every attempt of a run, first to last: retries, recoveries and continuations
        included.

        Args:
            run_id: The id of any attempt.

        Raises:
            UnknownRun: No run has this id.
            WrongState: The id is that of a schedule.

        Example:
            attempts = await app.runs.chain(run.id)
        """
        run = await self.get(run_id)
        if run.kind == "schedule":
            run = await self._own(run_id)
        attempts = await self._database.read(history.chain, root_id=run.root_id)
        if not attempts:  # pruned or archived a moment ago: the error says which
            await self.get(run.id)
        return attempts

    async def steps(self, run_id: str | Run) -> list[StoredStep]:
        """Return the recorded steps of a run, in order: those of its segment.

        Args:
            run_id: The id of any attempt. The first one names the chain: its newest segment. A
                `Run` (of `chain`) names its own segment.

        Raises:
            UnknownRun: No run has this id.

        Example:
            keys = [step.key for step in await app.runs.steps(run.id)]
        """
        segment = await self._segment(run_id)
        found = await self._database.read(steps.load, [segment])
        return [readable(step) for step in found[segment]]

    async def counts(self) -> dict[str, int]:
        """Return the number of runs of each status.

        Example:
            waiting = (await app.runs.counts()).get("waiting", 0)
        """
        return await self._database.read(history.counts, namespace=self._namespace)

    async def ready(self) -> Sequence[Ready]:
        """Return what could be claimed now, by queue and name.

        Example:
            backlog = sum(row.run_count for row in await app.runs.ready())
        """
        return await self._database.read(history.ready, namespace=self._namespace)

    # -- awaiting and changing -------------------------------------------------------------

    async def wait(self, run_id: str, *, timeout: Duration | None = None) -> ChainResult:
        """Wait until a run has ended, its retries and continuations included.

        Args:
            run_id: The id of any attempt.
            timeout: The longest wait; 0 checks once, None waits without limit.

        Returns:
            Status, reason, output and error of the last attempt.

        Raises:
            TimeoutError: The run has not ended in time.
            UnknownRun: No run has this id.

        Example:
            ended = await app.runs.wait(run.id, timeout="5m")
        """
        return await wait_for_end(self._client, run_id, timeout)

    async def cancel(
        self, run_id: str, *, reason: str = "by request", grace: Duration | None = None
    ) -> Sequence[str]:
        """Cancel a run and its children. In a workflow, call it in a step.

        Args:
            run_id: The id of any attempt.
            reason: Why; it is stored with the run.
            grace: The time that the code has to clean up, from the moment when it gets
                `rota.Cancelled`; without it, the run ends at once, and so does one that is
                cleaning up.

        Returns:
            The ids of the cancelled runs; with a grace, also that of the run that will end.

        Raises:
            WrongState: The run has ended, or belongs to a schedule or an automation.
            UnknownRun: No run has this id.

        Example:
            await app.runs.cancel(run.id, reason="the customer withdrew")
        """
        refuse_in_workflow("cancel")
        checked_key(reason, "reason")
        grace_us = checked_grace(grace)
        run = await self._own(run_id)
        ids = await self._cancel([run.root_id], reason, grace_us)
        if not ids:
            last = await self.newest(run.id)
            raise WrongState(f"run {last.id} is {last.label}; there is nothing to cancel")
        return ids

    async def retry(self, run_id: str) -> RunHandle[Any]:
        """Retry a run that has failed or waits for an operator, after its last finished step.

        In a workflow, call it in a step.

        Args:
            run_id: The id of any attempt.

        Returns:
            A handle of the run.

        Raises:
            WrongState: The run is open, completed, or belongs to a schedule or an automation.
            UnknownRun: No run has this id.

        Example:
            run = await app.runs.retry(run.id)
        """
        refuse_in_workflow("retry")
        await self._own(run_id)
        last = await self.newest(run_id)
        now = self._now()
        if allowed("resolve", Status(last.status)):
            await self._wakeups.write((READY,), resolve_run, last.id, now=now)
        elif not await self._wakeups.write(
            (READY,), retry_chain, last.root_id, self._client.ids.make(now), now=now
        ):
            raise WrongState(f"run {last.id} is {last.label}; there is nothing to retry")
        return self.handle(last.root_id, self._known(last.name))

    async def signal(self, run_id: str, name: str, value: Any = None) -> None:
        """Send a signal to a run. It is kept until the run waits for it.

        In a workflow, call it in a step.

        Args:
            run_id: The id of any attempt.
            name: The name that the workflow gives to `wait_for`.
            value: The result of `wait_for`; any JSON value.

        Raises:
            WrongState: The run has ended, or belongs to a schedule or an automation.
            UnknownRun: No run has this id.

        Example:
            await app.runs.signal(run.id, "verdict", "approved")
        """
        refuse_in_workflow("signal")
        checked_name(name, "signal name")
        run = await self._own(run_id)
        last = await self.newest(run.id)
        if last.is_final:
            raise WrongState(f"run {last.id} is {last.label}; it cannot receive a signal")
        now = self._now()
        body = self._json(value, f"signal {name}")
        await self._wakeups.write(
            (READY,), signals.send_signal, signal_id=self._client.ids.make(now),
            root_id=run.root_id, name=name, body=body, now=now,
        )  # fmt: skip

    async def fork(
        self, run_id: str, *, from_step: str, external_id: str | None = None
    ) -> RunHandle[Any]:
        """Start a new run with the input and the first steps of another.

        In a workflow, call it in a step.

        Args:
            run_id: The id of any attempt. The first one names the chain: its newest segment.
            from_step: The key of the first step to execute again; see `steps`.
            external_id: A second fork with this external id returns the first one.

        Returns:
            A handle of the new run.

        Raises:
            BadInput: The run has recorded no such step.
            WrongState: The run is one of a pipeline, a schedule or an automation.
            UnknownRun: No run has this id.

        Example:
            fork = await app.runs.fork(run.id, from_step="charge")
        """
        refuse_in_workflow("fork")
        if external_id is not None:
            checked_key(external_id, "external_id")
        run = await self._own(run_id)
        if run.id == run.root_id:
            run = await self.newest(run.id)
        if run.kind == "pipeline":
            raise WrongState(
                f"{run_id} is a run of {run.name}; a pipeline run is not forked",
                hint="Start the pipeline again with cache_from, which reuses equal results.",
            )
        recorded = {step.key: step for step in await self.steps(run)}
        if from_step not in recorded:
            raise BadInput(
                f"run {run.id} has recorded no step {from_step!r}",
                hint=suggestion(from_step, recorded, f"It has: {', '.join(recorded)}."),
            )
        now = self._now()
        fresh = NewRun(
            id=self._client.ids.make(now), namespace=run.namespace, name=run.name,
            available_at=now, input=run.input, kind=run.kind, queue=run.queue,
            priority=run.priority, trigger=Trigger.FORK, limit_key=run.limit_key,
            version=run.version, tags=run.tags, options=_seeded(run), external_id=external_id,
        )  # fmt: skip
        started = await self._wakeups.write(
            (READY,), steps.fork, fresh, from_root=run.segment,
            position=recorded[from_step].position, now=now,
        )  # fmt: skip
        return self.handle(started.id, self._known(run.name), existed=started.existed)

    async def _own(self, run_id: str) -> Run:
        """A run that these verbs may change: schedules and automations have their own."""
        run = await self.get(run_id)
        if run.kind == "automation":
            raise WrongState(
                f"{run_id} is a run of the automation {run.name}",
                hint=f"Use `rota automation` and its name, {run.name}.",
            )
        if run.kind == "schedule":
            raise WrongState(
                f"{run_id} is the schedule {run.name}, not a run",
                hint=f"Use `rota schedule` and its name, {run.name}.",
            )
        return run

    def _known(self, name: str) -> Startable[..., Any] | None:
        """The registered workflow, if it is known here; changing a run needs no code."""
        try:
            return self._client.starter.workflow_named(name)
        except UnknownWorkflow:
            return None


def _seeded(run: Run) -> str | None:
    """The options of a fork: it draws the random values that its origin drew."""
    kept = StoredRunOptions.read(run.options)
    return replace(kept, began_at=None, seed=kept.seed or run.segment).text()
