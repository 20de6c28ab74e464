"""One life of a process on virtual time. It ends by a kill at a call of the database, by a graceful
stop, or when nothing is left to do."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Any

from rota import Rota
from rota.errors import StoreUnreachable
from rota.testing import VirtualClock, World, held

VERBS = ("write", "write_brief", "read")


class ProcessLife:
    """The process as the steps of a program see it."""

    def __init__(self, number: int, clock: VirtualClock) -> None:
        self.number = number
        self.clock = clock
        self.is_mortal = False
        self.is_over = False  # nothing that is done from now on has happened
        self.killed = asyncio.Event()
        self._naps: set[asyncio.Event] = set()
        self._others = asyncio.all_tasks()
        self._left = asyncio.Event()

    async def nap(self, us: int) -> None:
        """Take virtual time, in a step."""
        if self.is_over:
            return
        over = asyncio.Event()
        self._naps.add(over)
        try:
            with held():
                await self.clock.wait(over, self.clock.now() + us)
        finally:
            self._naps.discard(over)

    def end(self) -> None:
        """The process is dead: its steps end at once."""
        self.is_over = True
        for nap in self._naps:
            nap.set()

    def kill_at(self, app: Rota, number: int) -> None:
        """Die at the point of this number: before or after a call of the database."""
        self.is_mortal = True
        database, points = app.connection.database, itertools.count(1)
        for verb in VERBS:
            call = getattr(database, verb)
            setattr(database, verb, self._mortal(call, points, number))

    def _mortal(
        self, call: Callable[..., Awaitable[Any]], points: itertools.count[int], number: int
    ) -> Callable[..., Awaitable[Any]]:
        async def mortal(*args: Any, **kwargs: Any) -> Any:
            await self._point(next(points) >= number)
            answer = await call(*args, **kwargs)
            await self._point(next(points) >= number)
            return answer

        return mortal

    async def _point(self, is_last: bool) -> None:
        if self.is_mortal and (is_last or self.is_over):
            self.end()
            self.killed.set()
            await self._left.wait()
            raise StoreUnreachable("the process was killed")

    async def until_killed(self, work: Awaitable[Any]) -> bool:
        """Let the process work. Returns whether it was killed meanwhile."""
        working = asyncio.ensure_future(work)
        dying = asyncio.ensure_future(self.killed.wait())
        await asyncio.wait((working, dying), return_when=asyncio.FIRST_COMPLETED)
        dying.cancel()
        if not self.killed.is_set():
            self.is_mortal = False
            await working
        return self.killed.is_set()

    async def leave(self, world: World) -> None:
        """Clear the remains of a killed process away: nothing is settled or handed over."""
        world.app.runtime = None
        self._left.set()
        while left := {task for task in asyncio.all_tasks() - self._others if not _notifies(task)}:
            for task in left:
                task.cancel()
            await asyncio.wait(left, timeout=0.01)  # one may wait for another


def _notifies(task: asyncio.Task[Any]) -> bool:
    """Whether the connection waits for this task when it is closed."""
    return "notify" in str(getattr(task.get_coro(), "__qualname__", ""))
