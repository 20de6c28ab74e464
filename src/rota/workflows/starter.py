"""Starts runs of an app. In a workflow, a start becomes a child, started once, awaited durably."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from rota.client.client import Client
from rota.client.handle import RunHandle
from rota.client.start import (
    Item,
    RunOptions,
    RunStarter,
    Startable,
    as_start,
    items_of,
)
from rota.core import trace_spans
from rota.core.runs.lifecycle import Trigger
from rota.core.runs.model import NewRun
from rota.core.suggest import suggestion
from rota.core.time.instants import Duration
from rota.core.typed import JsonReader
from rota.engine.wakeups import READY, TIMER
from rota.errors import UnknownWorkflow, UsageError
from rota.workflows.branches import step_around
from rota.workflows.calls import OWN_CODE
from rota.workflows.children import Siblings, child_result, start_child, start_children
from rota.workflows.definition import Workflow
from rota.workflows.workflow_run import WorkflowRun, current_run

log = logging.getLogger("rota.app")
R = TypeVar("R")


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

    def __init__(self, client: Client, workflows: Mapping[str, Workflow[..., Any]]) -> None:
        super().__init__(client)
        self._workflows = workflows
        self._warned: set[str] = set()

    def workflow_named(self, name: str) -> Workflow[..., Any]:
        """The registered workflow of that name, or an error with the nearest names."""
        if name not in self._workflows:
            names = sorted(self._workflows)
            hint = suggestion(name, names, f"Known: {', '.join(names) or 'none'}.")
            raise UnknownWorkflow(f"there is no workflow {name!r}", hint=hint, name=name)
        return self._workflows[name]

    async def _start_inside(
        self,
        workflow: Startable[..., Any] | str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        options: RunOptions,
    ) -> RunHandle[Any] | None:
        """A start in a workflow becomes a child, started once."""
        flow = current_run()
        if flow is None:
            if options.external_id is None:
                self._warn_in_step(workflow)
            return None
        target = self.workflow_named(workflow) if isinstance(workflow, str) else workflow
        if options.on_conflict != "return":
            raise UsageError(
                "on_conflict cannot be used inside a workflow",
                hint="If the external_id of a child is taken, the child is the run that has it.",
            )
        child_id = await start_child(flow, target, args, kwargs, options)
        return ChildHandle(self._client, child_id, target.signature.returns, flow)

    def _warn_in_step(self, workflow: Any) -> None:
        """Warn that a retry of the step starts the run again, once for each step."""
        step = step_around()
        if step is None or step in self._warned:
            return
        self._warned.add(step)
        name = getattr(workflow, "name", workflow)
        log.warning(
            "step %s starts %s without an external_id: a retry of the step starts it again. Start "
            "it in the workflow, or give each start an external_id.", step, name,
        )  # fmt: skip

    async def start_many(
        self, workflow: Startable[..., Any] | str, items: Iterable[Item], options: RunOptions
    ) -> list[RunHandle[Any]]:
        """Start one run per item. Inside a workflow they become children, each started once."""
        flow, items = current_run(), items_of(items)
        if flow is None:
            in_step = step_around() is not None
            if in_step and any(as_start(one).external_id is None for one in items):
                self._warn_in_step(workflow)
            return await super().start_many(workflow, items, options)
        options.check_many()
        target = self.workflow_named(workflow) if isinstance(workflow, str) else workflow
        starts = [(one.args, one.kwargs, options.for_item(one)) for one in map(as_start, items)]
        ids = await start_children(flow, target, starts)
        siblings, returns = Siblings(ids), target.signature.returns
        return [ChildHandle(self._client, one, returns, flow, siblings) for one in ids]

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
        return self._client.ids.make(self._client.clock.now())

    def started(self, *, delayed: bool = False) -> None:
        """Notify workers that there is work, or will be."""
        self._client.connection.wakeups.notify_soon(TIMER if delayed else READY)
