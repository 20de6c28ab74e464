"""Child runs of a workflow: each is started once, and awaited durably without holding a worker.

`AppStarter` makes children of the starts in workflow code.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from rota.client.client import Client
from rota.client.handle import RunHandle
from rota.client.start import NO_OPTIONS, RunOptions, RunStarter, Startable
from rota.client.start_many import Item, as_start, items_of
from rota.core import trace_spans
from rota.core.runs.argument_digest import digest_of
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
from rota.workflows.branches import step_around
from rota.workflows.calls import OWN_CODE
from rota.workflows.raised_failures import note_call
from rota.workflows.results import new_result, record_result, repeat_result
from rota.workflows.workflow_run import WorkflowRun

log = logging.getLogger("rota.app")
R = TypeVar("R")

LOOK_US_MIN, LOOK_US_MAX = SECOND, 60 * SECOND
GONE = "its record was pruned or archived before its result was awaited"
GONE_HINT = "Await a child within `keep_days` of its end, or start it again."
SIBLINGS_MAX = 1000  # children that one poll reads


class _Poll:
    """A read of many children in progress, and its results."""

    def __init__(self) -> None:
        self.over = asyncio.Event()
        self.ends: dict[str, ChildEnd] = {}


class Siblings:
    """Children that were started together; one poll reads up to 1,000 in one transaction."""

    def __init__(self, ids: Sequence[str]) -> None:
        self._unasked = dict.fromkeys(ids)  # the code has not awaited them yet
        self._ended: dict[str, ChildEnd] = {}
        self._polls: dict[str, _Poll] = {}  # in progress, by child

    async def look(self, flow: WorkflowRun, child_id: str) -> ChildEnd:
        """How a child ended, if it has."""
        self._unasked.pop(child_id, None)
        while child_id not in self._ended:
            poll = self._polls.get(child_id)
            if poll is None:
                return await self._read(flow, child_id)
            await poll.over.wait()  # after a poll that was cancelled the next caller reads
            if child_id in poll.ends:
                return poll.ends[child_id]
        return self._ended.pop(child_id)

    async def _read(self, flow: WorkflowRun, child_id: str) -> ChildEnd:
        others = (other for other in self._unasked if other not in self._polls)
        ids = [child_id, *itertools.islice(others, SIBLINGS_MAX - 1)]
        if len(ids) == 1:  # single polls of one moment share a transaction
            return await flow.context.journal.read_child_end(flow.claim, child_id)
        poll = _Poll()
        self._polls |= dict.fromkeys(ids, poll)
        try:
            ends = await flow.context.journal.read_child_ends(flow.claim, ids)
            poll.ends = dict(zip(ids, ends, strict=True))
        finally:
            for sibling in ids:
                del self._polls[sibling]
            poll.over.set()
        # An end is final. A child that is open now may have ended when the code awaits it.
        self._ended |= {
            sibling: end
            for sibling, end in poll.ends.items()
            if end.ended is not None and sibling in self._unasked
        }
        return poll.ends[child_id]


async def start_child(
    flow: WorkflowRun,
    workflow: Any,
    args: Any,
    kwargs: Any,
    options: RunOptions = NO_OPTIONS,
    *,
    explicit: str | None = None,
) -> str:
    """Start a child run, once; returns its id."""
    key = flow.key_for(f"start {workflow.name}", explicit)
    digest = _child_digest(workflow, args, kwargs, options.external_id)
    known = flow.recall_call(key, digest, workflow.name, args, kwargs)
    if known is not None:
        await repeat_result(flow, known)
        assert known.child_id is not None
        return known.child_id
    await flow.permit_new()
    child = flow.context.starter.new_child(flow, workflow, args, kwargs, options)
    async with new_result(flow) as at:
        step = flow.new_step(key, "child", child_id=child.id, finished_at=at, digest=digest)
        started = await flow.ours(flow.context.journal.record_child(flow.claim, step, child))
        flow.remember(step)
        flow.new_children |= _inserted([started])
        flow.context.starter.started(delayed=child.available_at > flow.clock.now())
    return started.id


async def start_children(
    flow: WorkflowRun, workflow: Any, starts: Sequence[tuple[Any, Any, RunOptions]]
) -> list[str]:
    """Start many child runs, each once and under the key it has when started one by one."""
    keys = [flow.key_for(f"start {workflow.name}") for _ in starts]
    digests = [
        _child_digest(workflow, args, kwargs, options.external_id)
        for args, kwargs, options in starts
    ]
    known = [
        flow.recall_call(key, digest, workflow.name, args, kwargs)
        for key, digest, (args, kwargs, _) in zip(keys, digests, starts, strict=True)
    ]
    fresh = [n for n, step in enumerate(known) if step is None]
    ids = {n: step.child_id or "" for n, step in enumerate(known) if step is not None}
    if fresh:
        await flow.permit_new()
        made = flow.context.starter.new_child
        children = [made(flow, workflow, *starts[n]) for n in fresh]
        async with new_result(flow) as at:
            steps = [
                flow.new_step(
                    keys[n], "child", child_id=child.id, finished_at=at, digest=digests[n]
                )
                for n, child in zip(fresh, children, strict=True)
            ]
            pairs = list(zip(steps, children, strict=True))
            started = await flow.ours(flow.context.journal.record_children(flow.claim, pairs))
            for step in steps:
                flow.remember(step)
            flow.new_children |= _inserted(started)
            ids |= dict(zip(fresh, (one.id for one in started), strict=True))
            flow.context.starter.started(delayed=any(c.available_at > at for c in children))
    elif known and (last := known[-1]):
        await repeat_result(flow, last)
    return [ids[n] for n in range(len(starts))]


def _inserted(children: Sequence[Started]) -> set[str]:
    """The ids of children that were not there before."""
    return {child.id for child in children if not child.existed}


def _child_digest(workflow: Any, args: Any, kwargs: Any, external_id: str | None) -> int:
    names = workflow.signature.names
    if external_id is None:
        return digest_of(names, args, kwargs)
    return digest_of(names, (external_id, digest_of(names, args, kwargs)), {})


async def run_child(
    flow: WorkflowRun, workflow: Any, args: Any, kwargs: Any, explicit: str | None = None
) -> Any:
    """Start a child run and wait durably for its result."""
    child_id = await start_child(flow, workflow, args, kwargs, explicit=explicit)
    return await child_result(flow, child_id, workflow.signature.returns)


async def child_result(
    flow: WorkflowRun, child_id: str, returns: JsonReader, siblings: Siblings | None = None
) -> Any:
    """The result of a child run; raises RunFailed when it ended without one."""
    key = f"result {child_id}"
    note_call(flow.branch, key, sys.exception() or flow.handling, is_new=False)
    known = flow.recall(key)
    if known is None or known.status == "waiting":
        await flow.permit_new()
    if known is None and key in flow.failed_before:
        known = await _retry_child(flow, key, child_id)
    if known is None or known.status == "waiting":
        known = await _child_end(flow, key, child_id, siblings or Siblings([]))
    else:
        await repeat_result(flow, known)
    if known.status == "failed":
        failure = run_failed(child_id, known.error)
        flow.fails(key, failure)
        raise failure
    return flow.read_recorded(returns, known, f"the result of run {child_id}")


async def _retry_child(flow: WorkflowRun, key: str, child_id: str) -> StoredStep:
    """Try a child again that ended without a result in an earlier attempt of this run."""
    waiting = flow.new_step(key, "result", status="waiting", child_id=child_id)
    with flow:
        new_id = flow.context.starter.next_attempt_id()
        await flow.ours(flow.context.journal.retry_child(flow.claim, waiting, child_id, new_id))
    flow.remember(waiting)
    flow.context.starter.started()
    return waiting


def _look_again_at(child_id: str, now: int) -> int:
    """The time of the next poll: the older the child is, the longer the pause."""
    age = now - created_at_of(child_id)
    return now + min(max(age // 8, LOOK_US_MIN), LOOK_US_MAX)


async def _awaited(flow: WorkflowRun, key: str, child_id: str, siblings: Siblings) -> ChainResult:
    """Wait until a child has ended, or until its record is gone."""
    if child_id in flow.new_children:
        flow.new_children.discard(child_id)
        # Started a moment ago, it is still open: its end wakes this run when it has suspended.
        if flow.clock.now() - created_at_of(child_id) < LOOK_US_MIN:
            await flow.wait("child", None)
    while True:
        with flow:
            seen = await flow.ours(siblings.look(flow, child_id))
        if seen.ended_with_parent:
            await _retry_child(flow, key, child_id)
            continue
        if seen.ended is not None:
            return seen.ended
        if seen.is_gone:
            gone = describe(UnknownRun(GONE, hint=GONE_HINT))
            return ChainResult(child_id, "failed", None, None, gone)
        # The end of another parent's child wakes only that parent, so poll again.
        look_at = None if seen.is_own else _look_again_at(child_id, flow.clock.now())
        await flow.wait("child", look_at)


async def _child_end(flow: WorkflowRun, key: str, child_id: str, siblings: Siblings) -> StoredStep:
    ended = await _awaited(flow, key, child_id, siblings)
    good = ended.status == "completed"
    error = None if good else end_of(ended.status, ended.reason, ended.error)
    step = flow.new_step(
        key, "result", status="completed" if good else "failed", output=ended.output,
        error=error, child_id=child_id, finished_at=flow.clock.now(),
    )  # fmt: skip
    return await record_result(flow, step)


class ChildHandle(RunHandle[R]):
    """A child run seen from the workflow that started it: awaiting it is durable."""

    def __init__(
        self,
        client: Client,
        run_id: str,
        returns: JsonReader,
        flow: WorkflowRun,
        siblings: Siblings | None = None,
    ) -> None:
        super().__init__(client, run_id, returns, existed=False)
        self._flow = flow
        self._siblings = siblings

    async def result(self, *, timeout: Duration | None = None) -> R:
        """Wait durably; no worker is held meanwhile."""
        if timeout is not None:
            raise UsageError(
                "a child's result takes no timeout", hint="Give the child workflow a timeout."
            )
        returns = self._returns or JsonReader(Any)
        value: R = await child_result(self._flow, self.id, returns, self._siblings)
        return value


OWN_CODE.add(ChildHandle.result.__code__)


class AppStarter(RunStarter):
    """The starts of an app, which knows its workflows."""

    def __init__(self, client: Client, workflows: Mapping[str, Startable[..., Any]]) -> None:
        super().__init__(client, workflows)
        self._warned: set[str] = set()

    async def _start_child(
        self, flow: Any, workflow: Any, args: Any, kwargs: Any, options: RunOptions
    ) -> RunHandle[Any]:
        """A start in a workflow becomes a child, started once."""
        if options.on_conflict != "return":
            raise UsageError(
                "on_conflict cannot be used inside a workflow",
                hint="If the external_id of a child is taken, the child is the run that has it.",
            )
        child_id = await start_child(flow, workflow, args, kwargs, options)
        return ChildHandle(self.client, child_id, workflow.signature.returns, flow)

    async def _start_children(
        self, flow: Any, workflow: Any, items: Iterable[Item], options: RunOptions
    ) -> list[RunHandle[Any]]:
        """One child per item, each started once."""
        starts = items_of(items)
        options.check_many()
        given = [(one.args, one.kwargs, options.for_item(one)) for one in map(as_start, starts)]
        ids = await start_children(flow, workflow, given)
        siblings, returns = Siblings(ids), workflow.signature.returns
        return [ChildHandle(self.client, one, returns, flow, siblings) for one in ids]

    def _warn_in_step(self, name: str) -> None:
        """Warn that a retry of the step starts the run again, once for each step."""
        step = step_around()
        if step is None or step in self._warned:
            return
        self._warned.add(step)
        log.warning(
            "step %s starts %s without an external_id: a retry of the step starts it again. Start "
            "it in the workflow, or give each start an external_id.", step, name,
        )  # fmt: skip

    def new_child(
        self, flow: WorkflowRun, workflow: Any, args: Any, kwargs: Any, options: RunOptions
    ) -> NewRun:
        """A new child run of `flow`. Nothing is written yet."""
        with trace_spans.start(workflow.name):
            fresh = self.new_run(workflow, args, kwargs, options)
        trigger = Trigger.DETACHED if options.detached else Trigger.CHILD
        return msgspec.structs.replace(fresh, parent_id=flow.claim.root_id, trigger=trigger)

    def next_attempt_id(self) -> str:
        """An id for the next attempt of a child."""
        return self.client.ids.make(self.client.clock.now())

    def started(self, *, delayed: bool = False) -> None:
        """Notify workers that there is work, or will be."""
        self.client.connection.wakeups.notify_soon(TIMER if delayed else READY)
