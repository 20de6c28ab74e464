"""Threads of sync handlers. A thread that outlives its time limit cannot be stopped: it no longer
counts against the pool, so that other automations continue, and each automation may leave only a
few of them behind."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import threading
from collections.abc import Callable
from typing import Any

from rota.core.plurals import counted
from rota.errors import RunTimeout

log = logging.getLogger("rota.automations")
# How many hung threads an automation may have; after that its sync handlers are not started.
HUNG_MAX = 3


class HandlerHung(RunTimeout):
    """A sync handler did not end in time, and its thread is still at work."""


class HandlerThread(threading.Thread):
    """The thread of one call of a sync handler."""

    awaited = True  # False once its caller waits no more


class HandlerThreads:
    """Runs sync handlers, a number of them at a time."""

    def __init__(self, count: int) -> None:
        self._slots = asyncio.Semaphore(count)
        self._hung: dict[str, list[str]] = {}  # handlers, by automation

    def hung(self, automation: str) -> list[str]:
        """The handlers of an automation with hanging threads, one for each thread."""
        return self._hung.get(automation, [])

    def hung_text(self, automation: str) -> str:
        """The places at which the threads of an automation hang, as text; empty when none does."""
        names = self.hung(automation)
        if not names:
            return ""
        verb = "hangs" if len(names) == 1 else "hang"
        where = f"process {os.getpid()} on {socket.gethostname()}"
        count = counted(len(names), "thread")
        return f"{count} of {automation} {verb} in {', '.join(dict.fromkeys(names))} ({where})"

    async def run(self, automation: str, handler: str, function: Callable[[], Any]) -> Any:
        """The return value of the function, called in a thread of its own."""
        if len(self.hung(automation)) >= HUNG_MAX:
            raise HandlerHung(
                f"{handler} was not started: {self.hung_text(automation)}",
                hint="Give its calls a timeout, deploy, and restart the worker.",
            )
        await self._slots.acquire()
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[Any] = loop.create_future()
        hangs = is_over = False  # a thread that hangs has given its slot back

        def work() -> None:
            value, error = None, None
            try:
                value = function()
            except BaseException as raised:
                error = raised
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(end, value, error)

        def end(value: Any, error: BaseException | None) -> None:
            nonlocal is_over
            is_over = True
            if hangs:
                self._hung[automation].remove(handler)
                log.warning("a thread of %s, %s has ended after all", automation, handler)
            else:
                self._slots.release()
            if ended.done():
                return
            if error is None:
                ended.set_result(value)
            else:
                ended.set_exception(error)

        thread = HandlerThread(target=work, name=f"rota-{automation}-{handler}", daemon=True)
        thread.start()
        try:
            return await ended
        except asyncio.CancelledError:
            if not is_over:
                hangs = True
                self._hung.setdefault(automation, []).append(handler)
                self._slots.release()
            raise
        finally:
            thread.awaited = False
