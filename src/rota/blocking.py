"""Rota from sync code: a client that blocks, and blocking forms of the primitives of workflows.

`BlockingClient` runs the async client on a thread of its own; any number of threads may use it at
the same time. `sleep`, `wait_for`, `now` and `block_on` are for sync workflows, where they are
durable like their async namesakes.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from concurrent.futures import CancelledError
from datetime import datetime
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, TypeVarTuple, Unpack, overload

from rota.client.client import Client
from rota.client.connection import never_delete, running_loop
from rota.client.handle import RunHandle
from rota.client.run_pages import RunFilters
from rota.client.start import NO_OPTIONS, P, R, RunOptions, Startable, StartOptions
from rota.client.start_many import Item
from rota.core.runs.model import Run
from rota.core.time.instants import Duration
from rota.errors import UsageError
from rota.settings import Settings
from rota.workflows import free_steps, primitives
from rota.workflows.free_steps import AdHocOptions
from rota.workflows.workflow_run import current_run

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

CLOSE_S = 1.0  # the time for calls of other threads to end by themselves
_clients: weakref.WeakSet[BlockingClient] = weakref.WeakSet()


os.register_at_fork(after_in_child=lambda: list(map(BlockingClient._after_fork, _clients)))


class BlockingRun(Generic[R]):
    """A run that was started, for sync code; its result is an `R`. `id` names the whole chain."""

    def __init__(self, client: BlockingClient, ref: RunHandle[R]) -> None:
        self.id = ref.id
        self.existed = ref.existed
        self._client = client
        self._ref = ref

    def result(self, *, timeout: Duration | None = None) -> R:
        """Wait for the result.

        Args:
            timeout: The most seconds to wait.

        Returns:
            The result of the workflow.

        Raises:
            RunFailed: There is none; also RunCancelled and RunCrashed.
        """
        return self._client.call(lambda _: self._ref.result(timeout=timeout))

    def status(self) -> str:
        """Status and reason of the newest attempt."""
        return self._client.call(lambda _: self._ref.status())

    def cancel(self, *, reason: str = "by request", grace: Duration | None = None) -> None:
        """Cancel the run and its children.

        Args:
            reason: Shown with the run.
            grace: The time that its code has to clean up.
        """
        self._client.call(lambda _: self._ref.cancel(reason=reason, grace=grace))

    def signal(self, name: str, value: Any = None) -> None:
        """Send the run a signal.

        Args:
            name: The name of the signal.
            value: Any JSON value.
        """
        self._client.call(lambda _: self._ref.signal(name, value))

    def __repr__(self) -> str:
        return f"<run {self.id}>"


class BlockingStarter:
    """Starts runs from sync code, all with the same options: what `options(...)` returns."""

    def __init__(self, client: BlockingClient, options: RunOptions = NO_OPTIONS) -> None:
        self._client = client
        self._given = options

    @overload
    def start(
        self, workflow: Startable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> BlockingRun[R]: ...

    @overload
    def start(self, workflow: str, /, *args: Any, **kwargs: Any) -> BlockingRun[Any]: ...

    def start(
        self, workflow: Startable[..., Any] | str, /, *args: Any, **kwargs: Any
    ) -> BlockingRun[Any]:
        """Start a run; it is stored when this returns.

        Args:
            workflow: A registered workflow, or the name of one.
            args, kwargs: The arguments of the workflow; options go to `options`.

        Returns:
            A handle of the run.

        Raises:
            BadInput: The arguments do not fit the workflow.

        Example:
            run = client.start("fulfil", "order-7")
        """
        client, options = self._client, self._given
        definition = client.definition(workflow)
        ref = client.call(lambda inner: inner.starter.start(definition, args, kwargs, options))
        return BlockingRun(client, ref)

    @overload
    def start_many(
        self, workflow: Startable[P, R], items: Iterable[Item], /
    ) -> Sequence[BlockingRun[R]]: ...

    @overload
    def start_many(self, workflow: str, items: Iterable[Item], /) -> Sequence[BlockingRun[Any]]: ...

    def start_many(
        self, workflow: Startable[..., Any] | str, items: Iterable[Item], /
    ) -> Sequence[BlockingRun[Any]]:
        """Start one run per item, in few commits.

        Args:
            workflow: A registered workflow, or the name of one.
            items: Tuples of arguments, or `Start`.

        Returns:
            A handle for each run.
        """
        client, options = self._client, self._given
        definition = client.definition(workflow)
        refs = client.call(lambda inner: inner.starter.start_many(definition, items, options))
        return [BlockingRun(client, ref) for ref in refs]


class BlockingRuns:
    """`app.runs` for sync code: finds, awaits and changes runs."""

    def __init__(self, client: BlockingClient) -> None:
        self._client = client

    def result(self, run_id: str, *, timeout: Duration | None = None) -> Any:
        """Wait for the result of a run, as plain JSON types.

        Args:
            run_id: The id of any attempt.
            timeout: The most seconds to wait.

        Returns:
            The result.
        """
        return self._client.call(lambda client: client.runs.handle(run_id).result(timeout=timeout))

    def get(self, run_id: str) -> Run:
        """Return one run; see `Runs.get`.

        Args:
            run_id: The id of any attempt.
        """
        return self._client.call(lambda client: client.runs.get(run_id))

    def list(self, **filters: Unpack[RunFilters]) -> Sequence[Run]:
        """Return runs, newest first; see `Runs.list`.

        Args:
            filters: As in `Runs.list`.
        """
        return self._client.call(lambda client: client.runs.list(**filters))

    def cancel(
        self, run_id: str, *, reason: str = "by request", grace: Duration | None = None
    ) -> Sequence[str]:
        """Cancel a run and its children; see `Runs.cancel`.

        Args:
            run_id: The id of any attempt.
            reason: Shown with the run.
            grace: The time that its code has to clean up.

        Returns:
            The ids of the cancelled runs.
        """
        return self._client.call(
            lambda client: client.runs.cancel(run_id, reason=reason, grace=grace)
        )

    def retry(self, run_id: str) -> BlockingRun[Any]:
        """Retry a run after its last finished step; see `Runs.retry`.

        Args:
            run_id: The id of any attempt.

        Returns:
            A handle of the new attempt.
        """
        client = self._client
        return BlockingRun(client, client.call(lambda inner: inner.runs.retry(run_id)))

    def signal(self, run_id: str, name: str, value: Any = None) -> None:
        """Send a signal to a run; see `Runs.signal`.

        Args:
            run_id: The id of any attempt.
            name: The name of the signal.
            value: Any JSON value.
        """
        self._client.call(lambda client: client.runs.signal(run_id, name, value))


class BlockingClient(BlockingStarter):
    """Starts, finds, awaits and changes runs from sync code and from any thread.

    Give it a database URL, or an app; of the app it uses the URL, settings and workflow names. It
    executes no runs itself. Close it, or use it as a context manager.
    """

    def __init__(
        self,
        database: str | Client,
        *,
        settings: Settings | None = None,
        migrate: bool | None = None,
    ) -> None:
        super().__init__(self)
        self._app: Client | None = None
        if isinstance(database, Client):
            self._app = database
            settings = settings or database.settings
            migrate = database.migrates if migrate is None else migrate
            database = database.url
        self.runs = BlockingRuns(self)
        self._async = Client(database, settings=settings, migrate=migrate)
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._closed = False
        _clients.add(self)

    def _after_fork(self) -> None:
        """Begin again in a forked child, where neither the thread nor its lock's owner exists."""
        never_delete(self._loop, self._thread)
        self._lock = threading.Lock()
        self._loop = self._thread = None
        self._async._leave_home()

    # -- the thread ------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self._opened()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def call(self, ask: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
        """Call a method of the async client, and wait for its answer.

        Args:
            ask: A function that gets the client and returns an awaitable.

        Returns:
            The answer.
        """
        if current_run() is not None:
            raise UsageError(
                "a blocking client was used in a workflow, where every replay would repeat the "
                "call",
                hint="Use it in a step; in the workflow, call child workflows or `block_on`.",
            )
        loop = self._opened()
        try:
            return self._wait(ask(self._async), loop)
        except CancelledError:
            if not self._closed:
                raise
            raise UsageError(
                "this client was closed while it was in use", hint="Close it after its last call."
            ) from None

    def close(self) -> None:
        """Disconnect and end the thread. May be called twice."""
        with self._lock:
            self._closed = True
            loop, self._loop = self._loop, None
        if loop is None or self._thread is None:
            return
        self._wait(self._leave(), loop)
        loop.call_soon_threadsafe(loop.stop)
        self._thread.join()
        loop.close()

    def _opened(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._closed:
                raise UsageError("this client is closed", hint="Make a new one.")
            if self._loop is None:
                self._loop = self._open()
            return self._loop

    def _open(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, name="rota-blocking", daemon=True)
        thread.start()
        try:
            self._wait(self._connect(), loop)
        except BaseException:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()
            raise
        self._thread = thread
        return loop

    async def _leave(self) -> None:
        """Disconnect, and end the calls of other threads: none would get an answer."""
        await self._async.close()
        calls = asyncio.all_tasks() - {asyncio.current_task()}
        if calls:
            _, calls = await asyncio.wait(calls, timeout=CLOSE_S)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)

    async def _connect(self) -> None:
        await self._async.connect()
        await self._async.connection.wakeups.listen()

    @staticmethod
    def _wait(work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> T:
        # An empty context: the work on that loop belongs to no workflow or step of the caller.
        future = contextvars.Context().run(asyncio.run_coroutine_threadsafe, work, loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # Ctrl-C here ends the work on the other thread too
            raise

    # -- verbs -----------------------------------------------------------------------------

    def options(self, **options: Unpack[StartOptions]) -> BlockingStarter:
        """Set options of runs.

        Args:
            options: See `StartOptions`.

        Returns:
            An object with `start` and `start_many`.

        Example:
            client.options(queue="slow").start("fetch", url)
        """
        return BlockingStarter(self, RunOptions.of(self.options, options))

    def definition(self, workflow: Startable[..., Any] | str) -> Startable[..., Any] | str:
        """The registered workflow, if the app of this client has one of that name.

        Args:
            workflow: A workflow, or its name.
        """
        if self._app is None or not isinstance(workflow, str):
            return workflow
        return self._app.starter.workflow_named(workflow) or workflow


# -- for sync workflows ------------------------------------------------------------------------


def block_on(work: Awaitable[T]) -> T:
    """Await anything durable in a sync workflow.

    It runs on the event loop of this workflow's worker; outside of workflows, on one of its own.

    Args:
        work: An awaitable, such as a start of a child.

    Returns:
        Its result.

    Raises:
        UsageError: Async code calls it.

    Example:
        block_on(child.start(7))
    """

    async def awaited() -> T:
        return await work

    flow = current_run()
    if flow is not None and flow.in_thread():
        answer: T = flow.block_on(awaited())
        return answer
    if flow is None and running_loop() is None:
        return asyncio.run(awaited())
    if isinstance(work, Coroutine):
        work.close()
    raise UsageError(
        "a function of rota.blocking was called in async code, which it would block",
        hint="Await the function of the same name in `rota` (for block_on: await its argument).",
    )


def sleep(duration: Duration) -> None:
    """Sleep durably: no worker is held, and a restart does not start the sleep again.

    Args:
        duration: A duration; see the top of the page.
    """
    block_on(primitives.sleep(duration))


def wait_for(name: str, *, timeout: Duration | None = None, type: Any = Any) -> Any:  # noqa: A002
    """Wait durably for the next signal of that name.

    Args:
        name: The name of the signal.
        timeout: The longest wait.
        type: The type of its value.

    Returns:
        The value of the signal.

    Raises:
        TimeoutError: None came in time.
    """
    return block_on(primitives.wait_for(name, timeout=timeout, type=type))


def now() -> datetime:
    """The current time, the same at every replay."""
    return block_on(primitives.now())


def patched(name: str) -> bool:
    """Return whether to take the new path of code that changed; see `rota.patched`.

    Args:
        name: The name of the change.
    """
    return bool(primitives.patched(name))


@overload
def run_step(
    name: str, function: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs
) -> R: ...


@overload
def run_step(name: str, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...


@overload
def run_step(
    name: str, function: Callable[[*Ts], R], /, *args: *Ts, **options: Unpack[AdHocOptions]
) -> R: ...


def run_step(  # type: ignore[misc]  # mypy cannot match *Ts with *args: Any
    name: str, function: Callable[..., Any], /, *args: Any, **kwargs: Any
) -> Any:
    """Call any function as a step; see `rota.run_step`.

    Args:
        name: The name of the step.
        function: A function, sync or async.
        args, kwargs: Its arguments; `retries` and `timeout` are options of the step.

    Returns:
        The result of the function.
    """
    return block_on(free_steps.run_step(name, function, *args, **kwargs))
