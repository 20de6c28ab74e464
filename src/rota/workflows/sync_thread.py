"""The thread of a sync workflow. Its durable calls run one at a time on the loop of the run."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor as Threads
from concurrent.futures import Future as Reply
from typing import TYPE_CHECKING, Any

from rota.client import caller
from rota.engine.invoke import in_thread

if TYPE_CHECKING:
    from rota.workflows.workflow_run import WorkflowRun


class SyncThread:
    """The thread, and the call that it waits for."""

    __slots__ = ("_call", "_host_thread", "_reply", "_run", "end", "handling")

    def __init__(self, run: WorkflowRun) -> None:
        self._run = run
        self._host_thread = threading.get_ident()
        self._call: asyncio.Task[Any] | None = None
        self._reply: Reply[Any] | None = None
        self.end: asyncio.Future[Any] | None = None
        self.handling: BaseException | None = None  # by the code that makes the call

    def start(self, threads: Threads, work: Callable[[], Any]) -> None:
        """Begin the code."""

        def in_the_thread() -> Any:
            caller.enter_thread(self._run)
            try:
                return work()
            finally:
                caller.enter_thread(None)

        self.end = in_thread(threads, in_the_thread)
        self.end.add_done_callback(lambda _: self._run.proceed_soon())

    def is_here(self) -> bool:
        """Whether this thread is the caller."""
        return threading.get_ident() != self._host_thread

    def is_at_work(self) -> bool:
        """Whether the thread is at work, or has to be answered: nothing is delivered meanwhile."""
        return self._call is None or self._call.done()

    @property
    def call(self) -> asyncio.Task[Any] | None:
        """The call that the thread waits for."""
        return self._call

    def block_on(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run `work` on the loop of the run and wait for it, from the thread."""
        reply: Reply[Any] = Reply()
        handling = sys.exception()  # the loop has an exception state of its own
        self._run.host.call_soon_threadsafe(self._begin_call, work, reply, handling)
        return reply.result()

    def _begin_call(
        self, work: Coroutine[Any, Any, Any], reply: Reply[Any], handling: BaseException | None
    ) -> None:
        run = self._run
        if (gone := run.gone()) is not None:
            work.close()
            reply.set_exception(gone)
            return
        self.handling = handling
        self._reply = reply
        self._call = run.loop.create_main(work, run.name)
        run.proceed_soon()

    def answer(self) -> None:
        """Answer the call if it has ended: the thread continues, and nothing else."""
        task, reply = self._call, self._reply
        if task is None or reply is None:
            return
        self._call = self._reply = self.handling = None
        try:
            value = task.result()
        except BaseException as error:  # a cancellation keeps its class
            reply.set_exception(error)
        else:
            reply.set_result(value)

    def drop(self, error: BaseException) -> None:
        """End the code: its call raises this, and so does each later one."""
        if self._reply is not None:
            self._reply.set_exception(error)
            self._reply = None
        if self.end is not None:
            self.end.add_done_callback(_retrieve)


def _retrieve(task: asyncio.Future[Any]) -> None:
    if not task.cancelled():
        task.exception()
