"""The composition root: a database URL and settings become client, engine and executors.

`Rota` is a client that also knows user code: it registers workflows, steps and queues, and
`async with app:` executes them in this process.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar, Unpack, overload

from rota import settings as settings_
from rota.automations.declare import DeclaresAutomations
from rota.automations.deploy import AppAutomations
from rota.automations.executor import AutomationExecutor
from rota.client.client import Client
from rota.client.connection import SharedUse
from rota.client.inbound_webhook import DeclaresWebhooks, WebhookTable
from rota.core.runs.model import Queue
from rota.core.runs.names import checked_name
from rota.core.runs.queue_options import QueueOptions, stored_queue
from rota.core.suggest import check_options
from rota.engine.clock import Clock
from rota.engine.context import EngineContext
from rota.engine.executor import Executor
from rota.engine.interpreter_settings import own_process
from rota.engine.journal import Journal
from rota.engine.notification_loop import DELIVERY, QUEUE, SLOTS
from rota.engine.runtime import Runtime
from rota.engine.slots import QueueSlots
from rota.errors import UsageError
from rota.notifications import delivery
from rota.notifications import workflow as notify
from rota.notifications.declare import DeclaresNotifications
from rota.notifications.registry import AppNotifications
from rota.pipelines.client import PipelineClient, PipelineWorker
from rota.pipelines.executor import PART_QUEUE, PipelineExecutor
from rota.schedules.apply import DeclaredSchedules, origin_of
from rota.schedules.definition import ScheduleOptions, check_declared
from rota.schedules.edit import When
from rota.schedules.host_zone import zone_or_host
from rota.settings import SettingOptions, Settings
from rota.workflows.children import AppStarter
from rota.workflows.code_version import version_of
from rota.workflows.definition import (
    AsyncWorkflow,
    SyncWorkflow,
    Workflow,
    WorkflowDecorator,
    WorkflowOptions,
)
from rota.workflows.deploy_check import DeployCheck, DeployReport
from rota.workflows.executor import WorkflowExecutor
from rota.workflows.steps import Step, StepOptions
from rota.workflows.workflow_run import is_replay

P = ParamSpec("P")
R = TypeVar("R")
W = TypeVar("W", bound=Workflow[..., Any])


# All kinds, also those that this process does not execute: it recovers them all the same.
KEPT_KINDS = frozenset(
    executor.kind
    for executor in (WorkflowExecutor, AutomationExecutor, PipelineExecutor)
    if executor.keeps_open_run
)


class Rota(DeclaresAutomations, DeclaresNotifications, DeclaresWebhooks, Client):
    """An application: its workflows, its database, and a worker for them."""

    def __init__(
        self,
        url: str = "sqlite:///rota.db",
        *,
        settings: Settings | None = None,
        clock: Clock | None = None,
        migrate: bool | None = None,
        **overrides: Unpack[SettingOptions],
    ) -> None:
        if settings is None:
            # The environment of a deployment overrides the code.
            values = {**overrides} | settings_.from_environment(os.environ)
            settings = settings_.load(values, source="settings")
        elif overrides:
            raise UsageError("give settings or single values, not both")
        super().__init__(url, settings=settings, clock=clock, migrate=migrate)
        self.workflows: dict[str, Workflow[..., Any]] = {}
        self.starter: AppStarter = AppStarter(self, self.workflows)
        self._steps: set[str] = set()
        self.automations: AppAutomations = AppAutomations(self)
        self.notifications: AppNotifications = AppNotifications(self)
        register_notifications = functools.partial(notify.install, self, self.step, self.workflow)
        self.pipelines = PipelineClient(
            self, PipelineWorker(self.start_worker, self.stop_worker, register_notifications)
        )
        self.webhooks: dict[str, WebhookTable] = {}
        self._queues: dict[str, tuple[int, Queue]] = {}
        self._weights: dict[str, int | None] = {}
        self.declared = DeclaredSchedules(self, self.workflows)
        self._executor: WorkflowExecutor | None = None
        self.runtime: Runtime | None = None
        self._working = SharedUse(
            self.start_worker, self.stop_worker, lambda: self.runtime is not None
        )

    # -- declaring -------------------------------------------------------------------------

    @overload
    def workflow(  # type: ignore[overload-overlap]  # the first that fits is meant
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncWorkflow[P, R]: ...

    @overload
    def workflow(self, function: Callable[P, R], /) -> SyncWorkflow[P, R]: ...

    @overload
    def workflow(
        self, function: None = None, /, **options: Unpack[WorkflowOptions]
    ) -> WorkflowDecorator: ...

    def workflow(self, function: Any = None, /, **options: Unpack[WorkflowOptions]) -> Any:
        """Register a function, sync or async, as a workflow.

        Args:
            function: The function; without one, `workflow` is a decorator with options.
            options: See `WorkflowOptions`. `retries` are further attempts of the whole run, each
                resuming after its last finished step. `timeout` is one deadline for the run with
                its sleeps, retries and recoveries, counted from its first claim. `cleanup` is
                the time that its code has to clean up after that deadline.

        Returns:
            A `Workflow`, or a decorator that makes one.

        Raises:
            UsageError: The name is taken.

        Example:
            @app.workflow(retries=2, timeout="1h")
            async def fulfil(order: str) -> str: ...
        """

        check_options(options, WorkflowOptions, self.workflow)

        def register(function: Callable[..., Any]) -> Workflow[..., Any]:
            kind = AsyncWorkflow if inspect.iscoroutinefunction(function) else SyncWorkflow
            workflow: Workflow[..., Any] = kind(function, self, **options)
            if workflow.name in self.workflows or workflow.name in self.automations.declared:
                raise UsageError(
                    f"workflow {workflow.name} is registered twice",
                    hint='Give one of them another name: @app.workflow(name="…").',
                )
            self.workflows[workflow.name] = workflow
            self._queues.setdefault(workflow.queue, self._plain_queue(workflow.queue))
            return workflow

        return register if function is None else register(function)

    @overload
    def step(self, function: Callable[P, R], /) -> Step[P, R]: ...

    @overload
    def step(
        self, function: None = None, /, **options: Unpack[StepOptions]
    ) -> Callable[[Callable[P, R]], Step[P, R]]: ...

    def step(self, function: Any = None, /, **options: Unpack[StepOptions]) -> Any:
        """Make a function a step: in a workflow its result is recorded and not computed again.

        Args:
            function: The function; without one, `step` is a decorator with options.
            options: See `StepOptions`. A replay with other arguments than the recorded ones stops
                the run, unless `check_arguments=False`.

        Returns:
            A `Step`, or a decorator that makes one.

        Raises:
            UsageError: The name is taken.

        Example:
            @app.step(retries=5, timeout="30s")
            async def charge(order: str) -> str: ...
        """

        check_options(options, StepOptions, self.step)

        def make(function: Callable[P, R]) -> Step[P, R]:
            step = Step(function, **options)
            if step.is_ad_hoc:
                return step  # every execution of the workflow makes it again
            if step.name in self._steps:
                raise UsageError(
                    f"step {step.name} is registered twice",
                    hint='Give one of them another name: @app.step(name="…").',
                )
            self._steps.add(step.name)
            return step

        return make if function is None else make(function)

    def schedule(
        self,
        when: When,
        *,
        name: str | None = None,
        timezone: str | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> Callable[[W], W]:
        """Declare a schedule for a workflow. A worker applies it when it starts.

        A schedule that changed is updated; a pause by a person stays.

        Args:
            when: A cron expression, a phrase such as "every weekday at 9", or a list of these.
            name: The name of the schedule; without one, that of the workflow.
            timezone: An IANA name; without one, that of this machine.
            options: See `ScheduleOptions`.

        Returns:
            A decorator.

        Raises:
            BadSchedule: The expression or a policy cannot be read.
            UsageError: The name is taken, or the decorator is below `@app.workflow`.

        Example:
            @app.schedule("0 9 * * MON-FRI", timezone="America/New_York")
            @app.workflow
            async def report() -> None: ...
        """
        check_options(options, ScheduleOptions, self.schedule)

        def declare(workflow: W) -> W:
            if not isinstance(workflow, Workflow):
                raise UsageError(
                    "@app.schedule is below @app.workflow",
                    hint="Write @app.schedule above @app.workflow.",
                )
            given = name or workflow.name
            check_declared(when, zone_or_host(timezone), options)
            self.declared.add(given, workflow, when, {"timezone": timezone, **options})
            return workflow

        return declare

    def queue(self, name: str, **limits: Unpack[QueueOptions]) -> None:
        """Declare a queue and its limits.

        Args:
            name: The queue.
            limits: See `QueueOptions`. `worker_concurrency` and `weight` count in this process, the
                others across all workers.

        Raises:
            UsageError: A limit is wrong, or limits contradict each other.

        Example:
            app.queue("mail", concurrency=5, rate=(100, "1m"))
        """
        check_options(limits, QueueOptions, self.queue)
        stored = stored_queue(self.settings.namespace, name, limits)
        self._queues[name] = (limits.get("worker_concurrency") or self.settings.slots, stored)
        self._weights[name] = limits.get("weight")

    def _plain_queue(self, name: str) -> tuple[int, Queue]:
        return self.settings.slots, Queue(self.settings.namespace, checked_name(name, "queue"))

    # -- running ---------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self._enter()
        try:
            await self._working.enter()
        except BaseException:
            await self._connected.leave()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            await self._working.leave()
        finally:
            await self._connected.leave()

    @contextlib.asynccontextmanager
    async def connected(self) -> AsyncIterator[Self]:
        """Only the client: runs are started and watched here, executed elsewhere.

        Blocks of one app may be nested and may overlap: they share a connection, which the last one
        closes. An open app stays as it is, with its worker."""
        await self._enter()
        try:
            yield self
        finally:
            await self._connected.leave()

    async def start_worker(
        self, queues: Sequence[str] | None = None, *, fires: bool = True
    ) -> None:
        """Connect and execute runs in this process until `stop_worker` or `close`.

        Args:
            queues: The queues to serve; without any, all that the app declares.
            fires: Whether this process fires schedules as well.

        Raises:
            UsageError: The app has a worker already.

        Example:
            await app.start_worker(["mail"])
        """
        await self.connect()
        if self.runtime is not None:
            raise UsageError(
                "the app has a worker already, and one process needs no second one",
                hint="Leave this call out, or call `await app.stop_worker()` before it.",
            )
        try:
            runtime = self._make_runtime(queues, fires=fires)
            await self._deploy()
            await runtime.start()
        except BaseException:
            await self.stop_worker(0)
            raise

    async def _deploy(self) -> None:
        """Bring the declarations of this program into the database."""
        await self.declared.apply()
        await self.notifications.declared.deploy(
            self, {origin_of(one) for one in self.workflows.values()}
        )
        await self.automations.deploy_all()

    def _make_runtime(self, queues: Sequence[str] | None = None, *, fires: bool = True) -> Runtime:
        """The engine for this app; its loops do not run yet."""
        opened = self.connection
        context = EngineContext(
            opened.database, self.clock, self.settings, opened.wakeups, opened.results, self.ids,
            KEPT_KINDS,
        )  # fmt: skip
        journal = Journal(opened.database, self.clock)
        if self.notifications.declared and DELIVERY not in self.workflows:
            delivery.install(self.notifications.declared, self.clock, self.step, self.workflow)
        version = version_of(self.workflows, self.settings.code_version)
        self._executor = WorkflowExecutor(
            self.workflows,
            journal,
            self.settings,
            self.ids,
            self.starter,
            version,
            lambda: self.is_draining,
        )
        executors: list[Executor] = [self._executor]
        if self.automations.declared:
            self.automations.executor = AutomationExecutor(self.automations.declared, context)
            executors.append(self.automations.executor)
        executors.append(PipelineExecutor(self.pipelines, context, journal))
        declared = self._queues or {"default": self._plain_queue("default")}
        if self.pipelines.serves:  # one shard at a time, so that `parallel` holds on each machine
            declared = {**declared, PART_QUEUE: (1, Queue(self.settings.namespace, PART_QUEUE))}
        chosen = {name: declared.get(name, self._plain_queue(name)) for name in queues or declared}
        notifies = bool(self.notifications.declared) or self.pipelines.serves
        if notifies:
            chosen[QUEUE] = (SLOTS, Queue(self.settings.namespace, QUEUE))
        self.runtime = Runtime(
            context, executors,
            [
                QueueSlots(name, slots, weight=self._weights.get(name))
                for name, (slots, _) in chosen.items()
            ],
            [limits for _, limits in declared.values()],
            version, fires=fires, notifies=notifies, is_replay=is_replay,
            code=self._executor.in_progress, held_threads=self._executor.held_threads,
        )  # fmt: skip
        self.connection.worker = self.runtime.worker
        return self.runtime

    async def check_deploy(self, *, workflow: str | None = None, sample: int = 20) -> DeployReport:
        """Replay stored runs against this code. No step is executed, and nothing is written.

        Args:
            workflow: Check the runs of this workflow only.
            sample: The number of completed runs of each workflow that are replayed as well.

        Returns:
            How many runs were replayed, and those that this code cannot continue.

        Raises:
            UnknownWorkflow: This code has no such workflow.

        Example:
            assert not (await app.check_deploy()).problems
        """
        return await DeployCheck(self, self.workflows, self.starter).report(
            workflow=workflow, sample=sample
        )

    async def stop_worker(self, timeout_s: float | None = None) -> None:
        """Stop claiming and wait for the runs of this process.

        Args:
            timeout_s: The longest wait; runs that have not ended go to another worker.
        """
        self._working.is_ours = False
        if self.runtime is not None:
            await self.runtime.stop(timeout_s)
            self.runtime = self.connection.worker = None
        if self._executor is not None:
            await self._executor.close()
            self._executor = None
        self.automations.executor = None
        await self.pipelines.close()

    def _leave_home(self) -> None:
        """Drop what a fork or a closed event loop has left behind; its loops no longer run."""
        super()._leave_home()
        self._working.forget()
        self.runtime = self.connection.worker = None
        self._executor = None
        self.automations.executor = None

    async def close(self) -> None:
        """Stop the worker, if any, and disconnect."""
        if self.connection.is_elsewhere:
            self._leave_home()
        await self.stop_worker()
        await super().close()

    async def run_forever(self, stop: asyncio.Event, queues: Sequence[str] | None = None) -> None:
        """Run a worker until `stop` is set, then drain.

        Args:
            stop: Set it to end the worker.
            queues: The queues to serve; without any, all that the app declares.
        """
        with self.own_process():
            await self.start_worker(queues)
            try:
                await stop.wait()
            finally:
                await self.close()

    def own_process(self) -> contextlib.AbstractContextManager[None]:
        """Tune the interpreter while a process does nothing but work; `run_forever` does so."""
        return own_process(uses_threads=self.url.startswith("sqlite:"))

    def healthy(self) -> bool:
        """Whether the worker's event loop responds; True without a worker."""
        return self.runtime is None or self.runtime.maintenance.is_healthy()

    @property
    def is_draining(self) -> bool:
        """Whether the worker of this process is draining: it finishes its runs and claims no new
        ones."""
        return self.runtime is not None and self.runtime.is_stopping
