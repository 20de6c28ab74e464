"""Waiting for results: one query for all runs that this process awaits.

A run that ends in this process answers its waiters at once. For runs that end elsewhere, a `done`
wake-up or a poll reads the result; the poll slows down while nothing happens.
"""

from __future__ import annotations

import asyncio
import itertools
import logging

from rota.core.time.instants import SECOND
from rota.engine.clock import Clock
from rota.engine.wakeups import ANY, DONE, Wakeups
from rota.errors import StoreError, UsageError
from rota.store.backend.background import own_context
from rota.store.backend.database import Database
from rota.store.runs import history
from rota.store.runs.history import ChainResult

log = logging.getLogger("rota.results")

POLL_US_MIN, POLL_US_MAX = SECOND // 20, SECOND
PAGE = 1000


class Results:
    """The callers in this process that wait for chains to end."""

    def __init__(self, database: Database, clock: Clock, wakeups: Wakeups) -> None:
        self._database = database
        self._clock = clock
        self._wakeups = wakeups
        # By the root id of the awaited chain.
        self.awaited: dict[str, list[asyncio.Future[ChainResult]]] = {}
        self._look = asyncio.Event()
        self._poller: asyncio.Task[None] | None = None
        wakeups.subscribe(self._notified)

    async def wait(self, root_id: str, *, held: bool = False) -> ChainResult:
        """Wait for the end of the chain; return its result. `held`: a worker of this process
        executes the run at this moment, so a first read could not find its end."""
        future: asyncio.Future[ChainResult] = asyncio.get_running_loop().create_future()
        self.awaited.setdefault(root_id, []).append(future)
        if self._poller is None or self._poller.done():
            self._look.clear()  # the last wait of the poller before set it
            self._poller = asyncio.create_task(self._poll(), context=own_context())
        if not held:
            self._look.set()
        try:
            return await future
        finally:
            self._forget(root_id, future)

    def ended(self, ended: ChainResult) -> None:
        """Answer the callers that wait for this chain."""
        for future in self.awaited.get(ended.root_id, ()):
            if not future.done():
                future.set_result(ended)

    def close(self) -> None:
        """Stop polling. Waiting callers get an error."""
        if self._poller is not None:
            self._poller.cancel()
        for root_id, waiters in self.awaited.items():
            for future in waiters:
                if not future.done():
                    future.set_exception(
                        UsageError(
                            f"the client was closed while a caller waited for run {root_id}",
                            hint="The run is not affected. Keep the client open for its result.",
                        )
                    )

    def _forget(self, root_id: str, future: asyncio.Future[ChainResult]) -> None:
        waiters = self.awaited.get(root_id, [])
        if future in waiters:
            waiters.remove(future)
        if not waiters:
            self.awaited.pop(root_id, None)

    def _notified(self, topic: str) -> None:
        if topic in (DONE, ANY) and self.awaited:
            self._look.set()

    def _some_awaited(self) -> list[str]:
        """One page of the awaited chains; the next call returns the next page."""
        page = list(itertools.islice(self.awaited, PAGE))
        if len(self.awaited) > PAGE:
            for root_id in page:
                self.awaited[root_id] = self.awaited.pop(root_id)
        return page

    async def _poll(self) -> None:
        pause = POLL_US_MIN
        await self._wakeups.listen()
        await self._clock.wait(self._look, self._clock.now() + pause)
        while self.awaited:
            self._look.clear()
            try:
                results = await self._database.read(history.ended, self._some_awaited())
            except StoreError as error:
                log.warning("cannot poll for results, trying again: %s", error)
                results = []
            for ended in results:
                self.ended(ended)
            if len(self.awaited) > PAGE:
                self._look.set()  # the query has not covered the others yet
            pause = POLL_US_MIN if results else min(pause * 2, POLL_US_MAX)
            await self._clock.wait(self._look, self._clock.now() + pause)
