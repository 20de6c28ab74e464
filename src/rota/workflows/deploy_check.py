"""Replays stored runs against the code of a project, before it is deployed. Nothing is executed or
written: a replay ends where new work would begin."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from rota.client.client import Client
from rota.core.redaction import without_secrets
from rota.core.runs.failures import message_of
from rota.core.runs.lifecycle import Status
from rota.core.runs.model import Claim, Run, StoredStep
from rota.core.runs.options import StoredRunOptions
from rota.engine import run_log
from rota.engine.journal import Journal, Written
from rota.engine.step_threads import StepThreads
from rota.errors import ContinueAsNew, RotaError, Stranded, UnknownWorkflow, UsageError
from rota.store.runs import steps
from rota.workflows.children import AppStarter
from rota.workflows.definition import Workflow
from rota.workflows.open_calls import OpenCalls
from rota.workflows.run_context import ReadyRuns, Rest, WorkflowContext
from rota.workflows.workflow_run import WorkflowRun

OPEN = (Status.PENDING, Status.RUNNING, Status.SLEEPING, Status.WAITING)
PAGE = 200


class DeployProblem(NamedTuple):
    """A run that this code cannot continue. `verdict` is stranded, fails or unknown_workflow."""

    run_id: str
    workflow: str
    status: str
    verdict: str
    call: str | None  # the first recorded call that the code does not repeat
    message: str


class DeployReport(NamedTuple):
    """The result of a check: how many runs were replayed, and those with a problem."""

    open_runs: int
    finished_runs: int
    problems: list[DeployProblem]


class _ReplayedCalls(OpenCalls):
    """Calls that never begin: the run waits for them."""

    __slots__ = ()

    def begin_fresh(self) -> None:
        fresh, self._fresh = self._fresh, []
        for call in fresh:
            self.waits.add(call, None)


class _ReplayedRun(WorkflowRun):
    """A run that rests where new work would begin, and records nothing."""

    __slots__ = ()
    calls_type = _ReplayedCalls


class _ReadOnlyJournal(Journal):
    """Forgets what the code learns at once, and refuses every other record: no call begins."""

    async def put(self, _: Claim, __: Sequence[StoredStep]) -> Written:
        return True

    async def _send(self, *_: object) -> Any:
        raise UsageError("a check of a deploy writes nothing")

    async def _send_children(self, *_: object) -> Any:
        await self._send()

    async def _send_child_queries(self, *_: object) -> Any:
        await self._send()


class DeployCheck:
    """Replays runs of one app against its code."""

    def __init__(
        self, client: Client, workflows: Mapping[str, Workflow[..., Any]], starter: AppStarter
    ) -> None:
        self._client = client
        self._workflows = workflows
        self._starter = starter
        self._database = client.connection.database

    async def report(self, *, workflow: str | None, sample: int) -> DeployReport:
        """Replay every open run, and the newest completed runs of each workflow."""
        if workflow is not None and workflow not in self._workflows:
            raise UnknownWorkflow(f"this code has no workflow {workflow}")
        threads = ThreadPoolExecutor(1, thread_name_prefix="rota-check")
        try:
            open_runs = [one async for one in self._open(workflow)]
            finished = [one async for one in self._finished(workflow, sample)]
            problems = await self._replayed([*open_runs, *finished], threads)
        finally:
            threads.shutdown(wait=False, cancel_futures=True)
        return DeployReport(len(open_runs), len(finished), problems)

    async def _open(self, workflow: str | None) -> AsyncIterator[str]:
        filters: dict[str, Any] = {"kind": "workflow"} | ({"name": workflow} if workflow else {})
        for status in OPEN:
            before = ""
            while rows := await self._client.runs.list(
                status=status, limit=PAGE, before=before, **filters
            ):
                for row in rows:
                    yield row.id
                before = rows[-1].id

    async def _finished(self, workflow: str | None, sample: int) -> AsyncIterator[str]:
        for name in [workflow] if workflow else sorted(self._workflows):
            if sample > 0:
                filters: dict[str, Any] = {"name": name, "status": Status.COMPLETED}
                for row in await self._client.runs.list(limit=sample, **filters):
                    yield row.id

    async def _replayed(
        self, run_ids: Sequence[str], threads: ThreadPoolExecutor
    ) -> list[DeployProblem]:
        loop = asyncio.get_running_loop()
        clock, settings = self._client.clock, self._client.settings
        context = WorkflowContext(
            ReadyRuns(loop), _ReadOnlyJournal(self._database, clock), clock, StepThreads(1),
            self._starter, settings.payload_bytes_max, loop, set(), lambda: False,
        )  # fmt: skip
        problems = []
        for run_id in dict.fromkeys(run_ids):
            run = await self._client.runs.get(run_id)
            recorded = await self._database.read(steps.load, [run.segment])
            problem = await self._problem(context, threads, run, recorded[run.segment])
            if problem is not None:
                problems.append(problem)
        context.ready_runs.close()
        return problems

    async def _problem(
        self,
        context: WorkflowContext,
        threads: ThreadPoolExecutor,
        run: Run,
        recorded: Sequence[StoredStep],
    ) -> DeployProblem | None:
        workflow = self._workflows.get(run.name)
        if workflow is None:
            return _problem_of(run, "unknown_workflow", "this code has no workflow of this name")
        claim = _claim_of(run)
        if secret_fields := self._client.settings.secret_fields:
            run_log.hide_secrets(claim, recorded, secret_fields)
        try:
            await _replay(context, threads, workflow, claim, recorded)
        except Stranded as error:
            return _problem_of(run, "stranded", error.message, error.facts.get("steps"))
        except (KeyboardInterrupt, SystemExit):
            raise
        except RotaError as error:
            return _problem_of(run, "fails", error.message)
        except (ContinueAsNew, asyncio.CancelledError):
            return None  # it continues as new, or has cleaned up
        except BaseException as error:
            return _problem_of(run, "fails", f"{type(error).__name__}: {message_of(error)}")
        return None


async def _replay(
    context: WorkflowContext,
    threads: ThreadPoolExecutor,
    workflow: Workflow[..., Any],
    claim: Claim,
    recorded: Sequence[StoredStep],
) -> None:
    """Replay one run to its end, or to where new work would begin. Raises what it runs into."""
    options = StoredRunOptions.read(claim.options)
    arguments = workflow.signature.read(claim.input, what="the input")
    run = _ReplayedRun(
        context, claim, recorded, began_at=options.begins_at(claim.started_at), seed=options.seed
    )
    try:
        if workflow.is_async:
            run.begin(workflow.function(**arguments))
        else:
            run.begin_in_thread(threads, lambda: workflow.function(**arguments))
        rest = await run.until_rest()
        if run.refusal is not None:
            raise run.refusal
        if rest is Rest.ENDED:
            if (problem := run.records.replay.omitted()) is not None:
                raise problem
            assert run.end is not None
            run.end.result()
    finally:
        await run.close()


def _claim_of(run: Run) -> Claim:
    """The claim of a worker that would continue the run now."""
    values = {name: getattr(run, name) for name in Claim.__struct_fields__}
    values |= {"lease_owner": "", "started_at": run.started_at or run.created_at}
    return Claim(**values)


def _problem_of(run: Run, verdict: str, message: str, calls: object = None) -> DeployProblem:
    call = str(calls[0]) if isinstance(calls, list) and calls else None
    return DeployProblem(run.id, run.name, run.label, verdict, call, without_secrets(message))
