"""The threads of sync steps.

Python cannot end a thread. A step that timed out, or was cancelled, leaves its thread behind until
its function returns. Another thread replaces it, up to as many again as the worker has.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import logging
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rota.core.user_code import in_its_thread

log = logging.getLogger("rota.engine")


class ThreadCall(asyncio.Future[Any]):
    """A call of a sync function in one of the threads."""

    def __init__(self, name: str, function: Callable[[], Any]) -> None:
        super().__init__()
        self.name = name
        self.function = function
        self.context = contextvars.copy_context()
        self.has_begun = False


class StepThreads:
    """Calls sync functions in threads, and knows which threads are left behind."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._threads_max = 2 * threads
        self._pool = ThreadPoolExecutor(self._threads_max, thread_name_prefix="rota-step")
        self._waiting: deque[ThreadCall] = deque()
        self._running: dict[ThreadCall, None] = {}
        self._held: dict[ThreadCall, None] = {}

    @property
    def held(self) -> Sequence[str]:
        """The steps that timed out or were cancelled, and still hold their threads."""
        return [call.name for call in self._held]

    def begin(self, name: str, function: Callable[[], Any]) -> ThreadCall:
        """Call a function as soon as a thread is free. If the call is cancelled, its thread is
        left behind."""
        call = ThreadCall(name, function)
        self._waiting.append(call)
        call.add_done_callback(self._is_done)
        self._begin_waiting()
        return call

    def obstacle(self, call: ThreadCall) -> str | None:
        """The reason why a call has not begun; None if it has."""
        if call.has_begun:
            return None
        in_use, held = len(self._running), len(self._held)
        if not held:
            return f"all {in_use} threads are executing other steps"
        says = f"all {in_use} threads are" if held == in_use else f"{held} of {in_use} threads are"
        return f"{says} held by steps that timed out: {named(self.held)}"

    def close(self) -> None:
        """Begin no more calls; threads that hang are left behind."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _begin_waiting(self) -> None:
        loop = asyncio.get_running_loop()
        while (
            self._waiting
            and len(self._running) < self._threads_max
            and len(self._running) - len(self._held) < self._threads
        ):
            call = self._waiting.popleft()
            if call.done():
                continue
            call.has_begun = True
            self._running[call] = None
            work = loop.run_in_executor(self._pool, call.context.run, in_its_thread, call.function)
            work.add_done_callback(functools.partial(self._ended, call))

    def _is_done(self, call: asyncio.Future[Any]) -> None:
        """A call that is done while its thread runs was cancelled."""
        assert isinstance(call, ThreadCall)
        if call not in self._running:
            return
        self._held[call] = None
        log.warning(
            "step %s timed out or was cancelled, and its thread still runs: Python cannot end it. "
            "%d of at most %d threads are held so. Give the calls that the step makes timeouts of "
            "their own.", call.name, len(self._held), self._threads_max,
        )  # fmt: skip
        self._begin_waiting()

    def _ended(self, call: ThreadCall, work: asyncio.Future[Any]) -> None:
        """The function has returned or raised."""
        self._running.pop(call, None)
        self._held.pop(call, None)
        error = None if work.cancelled() else work.exception()
        if call.done():
            pass  # it was left behind
        elif work.cancelled():
            call.cancel()
        elif error is not None:
            call.set_exception(error)
        else:
            call.set_result(work.result())
        self._begin_waiting()


def named(names: Sequence[str]) -> str:
    """Names with their numbers: `fetch (3), send`."""
    counts = Counter(names)
    return ", ".join(name if n == 1 else f"{name} ({n})" for name, n in sorted(counts.items()))
