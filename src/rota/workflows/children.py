"""Child runs of a workflow: each is started once, and awaited durably without holding a worker.

`AppStarter` makes children of the starts in workflow code.
"""

from __future__ import annotations

import logging
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import Any, TypeVar, cast

import msgspec

from rota.client.caller import current_step
from rota.client.client import Client
from rota.client.handle import RunHandle
from rota.client.start import (
    NO_OPTIONS,
    RunOptions,
    RunStarter,
    Startable,
    WorkflowStart,
    of_another_app,
)
from rota.client.start_many import Item, as_start, items_of
from rota.core import trace_spans
from rota.core.runs.argument_digest import NotComparable, digest_of
from rota.core.runs.failures import describe
from rota.core.runs.ids import created_at_of
from rota.core.runs.lifecycle import Trigger
from rota.core.runs.model import NewRun, Started, StoredStep
from rota.core.runs.stored_errors import end_of, run_failed
from rota.core.time.instants import SECOND, Duration
from rota.core.typed import JsonReader
from rota.engine.wakeups import READY, TIMER
from rota.errors import UnknownRun, UsageError
from rota.store.runs.history import ChainResult
from rota.store.runs.steps import ChildEnd
from rota.workflows.calls import DurableCall
from rota.workflows.workflow_run import WorkflowRun

log = logging.getLogger("rota.app")
R = TypeVar("R")

LOOK_US_MIN, LOOK_US_MAX = SECOND, 60 * SECOND
GONE = "its record was pruned or archived before its result was awaited"
GONE_HINT = "Await a child within `keep_days` of its end, or start it again."
SIBLINGS_MAX = 1000  # children that one poll reads


class StartCall(DurableCall):
    """The start of children: they and the steps that remember them are one transaction."""

    __slots__ = ("children", "digests", "keys", "started")
    kind = "child"

    def __init__(
        self,
        run: WorkflowRun,
        keys: Sequence[str],
        digests: Sequence[int | None],
        children: Sequence[NewRun],
    ) -> None:
        super().__init__(run, keys[-1], None)
        self.keys = keys
        self.digests = digests
        self.children = children
        self.started: Sequence[Started] = ()

    def begin(self) -> None:
        """Start the children."""
        self.is_ending = True  # whether or not the code cancels the call
        self.run.work(self._start())

    async def _start(self) -> None:
        run, journal = self.run, self.run.context.journal
        at = run.calls.expect(self)
        steps = [
            run.records.new_step(key, "child", child_id=child.id, finished_at=at, digest=digest)
            for key, child, digest in zip(self.keys, self.children, self.digests, strict=True)
        ]
        pairs = list(zip(steps, self.children, strict=True))
        if len(pairs) == 1:  # single starts of one moment share a transaction
            self.started = [await journal.record_child(run.claim, *pairs[0])]
        else:
            self.started = await journal.record_children(run.claim, pairs)
        run.new_children |= {child.id for child in self.started if not child.existed}
        run.context.starter.started(delayed=any(c.available_at > at for c in self.children))
        self.record = steps[-1]
        self.is_written = True


async def start_children(
    run: WorkflowRun, workflow: Any, keys: Sequence[str], starts: Sequence[WorkflowStart]
) -> list[str]:
    """Start child runs, each once and under its own key; returns their ids."""
    digests = [_child_digest(workflow, one) for one in starts]
    known = [
        run.ask_call(key, digest, workflow.name, one.args, one.kwargs)
        for key, digest, one in zip(keys, digests, starts, strict=True)
    ]
    fresh = [n for n, step in enumerate(known) if step is None]
    ids = {n: step.child_id or "" for n, step in enumerate(known) if step is not None}
    if fresh:
        made = run.context.starter.new_child
        children = [made(run, workflow, starts[n]) for n in fresh]
        call = StartCall(run, [keys[n] for n in fresh], [digests[n] for n in fresh], children)
        await run.end_of(call)
        ids |= dict(zip(fresh, (one.id for one in call.started), strict=True))
    elif known and (last := known[-1]) is not None:
        await run.end_of(DurableCall(run, last.key, last))
    return [ids[n] for n in range(len(starts))]


def _child_digest(workflow: Any, start: WorkflowStart) -> int | None:
    names, external_id = workflow.signature.names, start.options.external_id
    try:
        digest = digest_of(names, start.args, start.kwargs)
    except NotComparable:
        return None  # nor can it be stored: the start is refused
    return digest if external_id is None else digest_of(names, (external_id, digest), {})


def run_child(
    run: WorkflowRun,
    workflow: Any,
    args: Any,
    kwargs: Any,
    explicit: str | None = None,
    *,
    called: str,
) -> Coroutine[Any, Any, Any]:
    """Start a child run and wait durably for its result."""
    _refuse_foreign(run, workflow)
    key = run.key_for(f"start {workflow.name}", explicit)

    async def result() -> Any:
        start = WorkflowStart(args, kwargs, NO_OPTIONS)
        [child_id] = await start_children(run, workflow, [key], [start])
        return await child_result(run, child_id, workflow.signature.returns)

    return run.noted(called, result)


def _refuse_foreign(run: WorkflowRun, workflow: Startable[..., Any]) -> None:
    """Refuse a workflow of another app: the child would start in the database of this one."""
    if workflow.client is not run.context.starter.client:
        raise of_another_app(workflow.name)


async def child_result(run: WorkflowRun, child_id: str, returns: JsonReader) -> Any:
    """The result of a child run; raises RunFailed when it ended without one."""
    key = run.key_of_result(child_id)
    ended = await run.end_of(ResultCall(run, key, run.records.replay.ask(key), child_id))
    if ended.status == "failed":
        failure = run_failed(child_id, ended.error)
        run.fails(key, failure)
        raise failure
    return run.read_recorded(returns, ended, f"the result of run {child_id}")


def _look_again_at(child_id: str, now: int) -> int:
    """The time of the next poll: the older the child is, the longer the pause."""
    age = now - created_at_of(child_id)
    return now + min(max(age // 8, LOOK_US_MIN), LOOK_US_MAX)


class ResultCall(DurableCall):
    """A wait for the result of a child."""

    __slots__ = ("child_id",)
    what = "child"
    kind = "result"

    def __init__(
        self, run: WorkflowRun, key: str, record: StoredStep | None, child_id: str
    ) -> None:
        super().__init__(run, key, record)
        self.child_id = child_id

    def new_record(self, **fields: Any) -> StoredStep:
        """A record of this call, at its position."""
        return super().new_record(child_id=self.child_id, **fields)

    def begin(self) -> None:
        """Look whether the child has ended, unless it was started a moment ago: its end wakes the
        run when it has left its slot."""
        run = self.run
        if self.child_id in run.new_children:
            run.new_children.discard(self.child_id)
            if run.clock.now() - created_at_of(self.child_id) < LOOK_US_MIN:
                run.calls.wait(self, None)
                return
        if run.child_reads is None:
            run.child_reads = []
            run.work(_look_at_children(run))
        run.child_reads.append(self)

    def end(self, seen: ChildEnd) -> StoredStep | None:
        """The record of the end of the child; None while it is open."""
        ended = seen.ended
        if ended is None and seen.is_gone:
            gone = describe(UnknownRun(GONE, hint=GONE_HINT))
            ended = ChainResult(self.child_id, "failed", None, None, gone)
        if ended is None:
            return None
        good = ended.status == "completed"
        return self.new_record(
            status="completed" if good else "failed", output=ended.output,
            error=None if good else end_of(ended.status, ended.reason, ended.error),
        )  # fmt: skip


async def _look_at_children(run: WorkflowRun) -> None:
    """Read how the children ended that the run waits for, many in one transaction."""
    calls, run.child_reads = run.child_reads or [], None
    for first in range(0, len(calls), SIBLINGS_MAX):
        await _look_at(run, calls[first : first + SIBLINGS_MAX])


async def _look_at(run: WorkflowRun, calls: Sequence[ResultCall]) -> None:
    journal = run.context.journal
    again = [
        call
        for call in calls
        if call.record is None and call.key in run.records.replay.failed_before
    ]
    for call in again:
        await _retry_child(run, call)
    ids = [call.child_id for call in calls]
    if len(ids) == 1:  # single reads of one moment share a transaction
        ends = [await journal.read_child_end(run.claim, ids[0])]
    else:
        ends = await journal.read_child_ends(run.claim, ids)
    ended = []
    for call, seen in zip(calls, ends, strict=True):
        if call.is_withdrawn:
            continue
        if seen.ended_with_parent:
            await _retry_child(run, call)
            run.calls.wait(call, None)
        elif (step := call.end(seen)) is not None:
            ended.append((call, step))
        else:
            # The end of another parent's child wakes only that parent, so poll again.
            now = run.clock.now()
            run.calls.wait(call, None if seen.is_own else _look_again_at(call.child_id, now))
    await run.calls.complete_written(ended)


async def _retry_child(run: WorkflowRun, call: ResultCall) -> None:
    """Try a child again that ended without a result in an earlier attempt of this run."""
    call.record = call.new_record(status="waiting")
    new_id = run.context.starter.next_attempt_id()
    await run.context.journal.retry_child(run.claim, call.record, call.child_id, new_id)
    run.context.starter.started()


class ChildHandle(RunHandle[R]):
    """A child run seen from the workflow that started it: awaiting it is durable."""

    def __init__(
        self,
        client: Client,
        run_id: str,
        returns: JsonReader,
        run: WorkflowRun,
    ) -> None:
        super().__init__(client, run_id, returns, existed=False)
        self._run = run

    async def result(self, *, timeout: Duration | None = None) -> R:
        """Wait durably; no worker is held meanwhile."""
        if timeout is not None:
            raise UsageError(
                "a child's result takes no timeout", hint="Give the child workflow a timeout."
            )
        returns = self._returns or JsonReader(Any)
        value: R = await child_result(self._run, self.id, returns)
        return value


class AppStarter(RunStarter):
    """The starts of an app, which knows its workflows."""

    def __init__(self, client: Client, workflows: Mapping[str, Startable[..., Any]]) -> None:
        super().__init__(client, workflows)
        self._warned: set[str] = set()

    def _start_child(
        self, run: Any, workflow: Any, start: WorkflowStart, called: str
    ) -> Coroutine[Any, Any, RunHandle[Any]]:
        """A start in a workflow becomes a child, started once."""
        _refuse_foreign(run, workflow)
        if start.options.on_conflict != "return":
            raise UsageError(
                "on_conflict cannot be used inside a workflow",
                hint="If the external_id of a child is taken, the child is the run that has it.",
            )
        key = run.key_for(f"start {workflow.name}")

        async def begun() -> RunHandle[Any]:
            [child_id] = await start_children(run, workflow, [key], [start])
            return ChildHandle(self.client, child_id, workflow.signature.returns, run)

        return cast("Coroutine[Any, Any, RunHandle[Any]]", run.noted(called, begun))

    def _start_children(
        self, run: Any, workflow: Any, items: Iterable[Item], options: RunOptions, called: str
    ) -> Coroutine[Any, Any, list[RunHandle[Any]]]:
        """One child per item, each started once."""
        _refuse_foreign(run, workflow)
        starts = [as_start(one) for one in items_of(items)]
        options.check_many()
        given = [WorkflowStart(one.args, one.kwargs, options.for_item(one)) for one in starts]
        keys = [run.key_for(f"start {workflow.name}") for _ in given]

        async def begun() -> list[RunHandle[Any]]:
            ids = await start_children(run, workflow, keys, given)
            returns = workflow.signature.returns
            return [ChildHandle(self.client, one, returns, run) for one in ids]

        return cast("Coroutine[Any, Any, list[RunHandle[Any]]]", run.noted(called, begun))

    def _warn_in_step(self, name: str) -> None:
        """Warn that a retry of the step starts the run again, once for each step."""
        step = current_step()
        if step is None or step.name in self._warned:
            return
        self._warned.add(step.name)
        log.warning(
            "step %s starts %s without an external_id: a retry of the step starts it again. Start "
            "it in the workflow, or give each start an external_id.", step.name, name,
        )  # fmt: skip

    def new_child(self, run: WorkflowRun, workflow: Any, start: WorkflowStart) -> NewRun:
        """A new child run of `run`. Nothing is written yet."""
        with trace_spans.start(workflow.name):
            fresh = self.new_run(workflow, start.args, start.kwargs, start.options)
        trigger = Trigger.DETACHED if start.options.detached else Trigger.CHILD
        return msgspec.structs.replace(fresh, parent_id=run.claim.root_id, trigger=trigger)

    def next_attempt_id(self) -> str:
        """An id for the next attempt of a child."""
        return self.client.ids.make(self.client.clock.now())

    def started(self, *, delayed: bool = False) -> None:
        """Notify workers that there is work, or will be."""
        self.client.connection.wakeups.notify_soon(TIMER if delayed else READY)
