"""The objects that `@app.workflow` makes: the function, its signature and its policies.

Calling one is a plain call anywhere but inside a workflow, where it becomes a child run. `start`
starts a run of a workflow from anywhere.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine, Iterable
from typing import (
    Any,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    TypedDict,
    TypeVar,
    Unpack,
    cast,
    get_args,
    overload,
)

from rota.client import caller
from rota.client.client import Client
from rota.client.handle import RunHandle
from rota.client.start import NO_OPTIONS, RunOptions, Startable, StartOptions
from rota.client.start_many import Item
from rota.core.fingerprint import Scope, fingerprint
from rota.core.runs.names import checked_key, checked_name, checked_priority
from rota.core.runs.retry import RetryPolicy
from rota.core.time.instants import Duration, timeout_micros
from rota.core.typed import Signature
from rota.errors import UsageError
from rota.workflows.children import run_child
from rota.workflows.steps import check_function, wrong_colour
from rota.workflows.workflow_run import current_run

P = ParamSpec("P")
R = TypeVar("R")


# Which workers may continue a run: those of any version of the code, or of the version under which
# it was first claimed.
VersionPolicy = Literal["any", "pinned"]


class WorkflowOptions(TypedDict, total=False):
    """The options of `@app.workflow`."""

    name: str | None
    retries: int | RetryPolicy | None
    timeout: Duration | None
    cleanup: Duration | None
    queue: str
    priority: int
    version: str | None
    version_policy: VersionPolicy


class WorkflowStarter(Generic[P, R]):
    """A workflow with options for its runs: what `workflow.options(...)` returns."""

    __slots__ = ("_options", "_workflow")

    def __init__(self, workflow: Workflow[P, R], options: RunOptions) -> None:
        self._workflow = workflow
        self._options = options

    def start(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, RunHandle[R]]:
        """Start a run with these arguments; durable when awaited."""
        workflow = self._workflow
        called = f"{workflow.name}.start"
        return workflow.client.starter.start(workflow, args, kwargs, self._options, called)

    def start_many(self, items: Iterable[Item]) -> Coroutine[Any, Any, list[RunHandle[R]]]:
        """Start one run per item (a tuple of arguments, or a `Start`), in few commits."""
        workflow = self._workflow
        called = f"{workflow.name}.start_many"
        return workflow.client.starter.start_many(workflow, items, self._options, called)


class Workflow(Startable[P, R]):
    """A registered function with parameters `P`; its runs return `R` and survive crashes.

    It has a `name` and a `kind`, the `function` itself, and `queue`, `priority` and `version` of
    its runs.
    """

    kind = "workflow"

    def __init__(
        self,
        function: Callable[P, Any],
        client: Client,
        *,
        name: str | None = None,
        retries: int | RetryPolicy | None = None,
        timeout: Duration | None = None,
        cleanup: Duration | None = None,
        queue: str = "default",
        priority: int = 0,
        version: str | None = None,
        version_policy: VersionPolicy = "any",
    ) -> None:
        check_function(function, "workflow")
        functools.update_wrapper(cast(Any, self), function)
        self.function = function
        self.name = checked_name(name or function.__name__, "workflow name")
        self.retry = RetryPolicy.of(retries)
        self.timeout_us = None if timeout is None else timeout_micros(timeout)
        self.cleanup_us = 0 if cleanup is None else timeout_micros(cleanup, "cleanup")
        self.queue = checked_name(queue, "queue")
        self.priority = checked_priority(priority)
        self.client = client
        self.signature = Signature(function)
        self.is_async = inspect.iscoroutinefunction(function)
        self.version = version or _fingerprint(function)
        self.has_given_version = version is not None
        self.is_pinned = _checked_policy(version_policy) == "pinned"

    def start(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, RunHandle[R]]:
        """Start a run; it is stored when this returns. Inside a workflow it becomes a child.

        Args:
            args, kwargs: The arguments of the workflow; options go to `options`.

        Returns:
            A handle of the run.

        Raises:
            BadInput: The arguments do not fit the workflow.

        Example:
            run = await fulfil.start("order-7")
        """
        return self.client.starter.start(self, args, kwargs, NO_OPTIONS, f"{self.name}.start")

    def start_many(self, items: Iterable[Item]) -> Coroutine[Any, Any, list[RunHandle[R]]]:
        """Start one run per item, in few commits.

        Args:
            items: Tuples of arguments, or `Start`.

        Returns:
            A handle for each run.
        """
        called = f"{self.name}.start_many"
        return self.client.starter.start_many(self, items, NO_OPTIONS, called)

    def options(self, **options: Unpack[StartOptions]) -> WorkflowStarter[P, R]:
        """Set options of runs.

        Args:
            options: See `StartOptions`.

        Returns:
            An object with `start` and `start_many`.

        Example:
            await fetch.options(queue="slow").start(url)
        """
        return WorkflowStarter(self, RunOptions.of(self.options, options))

    def aio(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        """Call from async and sync workflows alike: a child run.

        Args:
            args, kwargs: The arguments of the workflow.

        Returns:
            The result of the child.
        """
        run = current_run()
        if run is None:
            return self._plain(args, kwargs)
        return run_child(run, self, args, kwargs, called=f"{self.name}.aio")

    async def _plain(self, args: Any, kwargs: Any) -> R:
        self._refuse_in_step()
        value: Any = self.function(*args, **kwargs)
        return cast(R, await value if self.is_async else value)

    def _call(self, args: Any, kwargs: Any, key: str | None = None) -> Any:
        """Inside a workflow: a child run and its result. Elsewhere: a plain call."""
        run = current_run()
        if run is None:
            self._refuse_in_step()
            return self.function(*args, **kwargs)
        if run.in_thread() is self.is_async:
            raise wrong_colour("workflow", self.name, self.is_async)
        if not self.is_async:
            return run.block_on(run_child(run, self, args, kwargs, key, called=self.name))
        return run_child(run, self, args, kwargs, key, called=self.name)

    def _keyed(self, key: str) -> Callable[..., Any]:
        checked_key(str(key), f"the key of workflow {self.name}")
        return lambda *args, **kwargs: self._call(args, kwargs, key)

    def _refuse_in_step(self) -> None:
        step = caller.current_step()
        if step is not None:
            raise UsageError(
                f"workflow {self.name} was called inside step {step.name}, where it is not a "
                "child run",
                hint=f"Call it in the workflow, or start it on its own: `app.start({self.name})`.",
            )

    def __repr__(self) -> str:
        return f"<workflow {self.name}>"


class AsyncWorkflow(Workflow[P, R]):
    """A workflow made of an `async def` function."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        """Inside a workflow: a child run and its result. Elsewhere: a plain call."""
        return cast("Coroutine[Any, Any, R]", self._call(args, kwargs))

    def keyed(self, key: str) -> Callable[P, Coroutine[Any, Any, R]]:
        """The same as a child under an explicit key, for calls in a changing order."""
        return self._keyed(key)


class SyncWorkflow(Workflow[P, R]):
    """A workflow made of a `def` function."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Inside a workflow: a child run and its result. Elsewhere: a plain call."""
        return cast(R, self._call(args, kwargs))

    def keyed(self, key: str) -> Callable[P, R]:
        """The same as a child under an explicit key, for calls in a changing order."""
        return self._keyed(key)


class WorkflowDecorator(Protocol):
    """The decorator that `@app.workflow(...)` with options returns."""

    @overload
    def __call__(  # type: ignore[overload-overlap]  # the first that fits is meant
        self,
        function: Callable[P, Coroutine[Any, Any, R]],
        /,
    ) -> AsyncWorkflow[P, R]: ...

    @overload
    def __call__(self, function: Callable[P, R], /) -> SyncWorkflow[P, R]: ...


def _checked_policy(policy: str) -> str:
    if policy not in get_args(VersionPolicy):
        raise UsageError(
            f"version_policy={policy!r} is not a policy", hint='Write "any" or "pinned".'
        )
    return policy


def _fingerprint(function: Callable[..., Any]) -> str:
    """A version from the function's own code: it shows a change, not what the change means.
    Helpers do not count: after their change, the recorded calls of open runs are still valid."""
    if getattr(function, "__code__", None) is None:
        return "unknown"
    return fingerprint([function], Scope.OWN)[:12]
