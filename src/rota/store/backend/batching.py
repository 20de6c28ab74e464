"""Gathers waiting requests into one call: requests during a call share the next one.

This is what turns many small durable writes into few commits, on both databases.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, Protocol, TypeVar

from rota.store.backend.background import own_context

I = TypeVar("I")  # noqa: E741
O = TypeVar("O")  # noqa: E741
O_contra = TypeVar("O_contra", contravariant=True)

BATCH_MAX = 1000


class Receiver(Protocol[O_contra]):
    """The receiver of the answer to one item: a future, or an object that needs no future."""

    def done(self) -> bool:
        """Whether the answer is not needed any more."""
        ...

    def set_result(self, answer: O_contra, /) -> None:
        """Take the answer."""
        ...

    def set_exception(self, error: Exception, /) -> None:
        """Take the error that came instead."""
        ...


class Batch(Generic[I, O]):
    """Collects items and sends them together; each caller gets its own answer."""

    def __init__(
        self, send: Callable[[Sequence[I]], Awaitable[Sequence[O]]], most: int = BATCH_MAX
    ) -> None:
        self._send = send
        self._most = most
        self._waiting: list[tuple[I, Receiver[O]]] = []
        self._sending = False

    def put(self, item: I) -> Awaitable[O]:
        """The answer for `item`, once it is written."""
        if not self._sending:
            return self._lead(item)
        # Not `loop.create_future()`, which adds a call to the same at every step of every run.
        future: asyncio.Future[O] = asyncio.Future()
        self._waiting.append((item, future))
        return future

    def put_for(self, receiver: Receiver[O], item: I) -> Awaitable[O] | None:
        """Let the receiver have the answer. If no batch is under way, the caller leads one: it
        awaits the answer that this returns, and passes it on."""
        if not self._sending:
            return self._lead(item)
        self._waiting.append((item, receiver))
        return None

    def gather(self, item: I) -> asyncio.Future[O]:
        """The same, sent later: calls of one iteration of the event loop share a batch."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[O] = loop.create_future()
        self._waiting.append((item, future))
        if not self._sending:
            self._sending = True
            self._follow = loop.create_task(self._drain(), context=own_context())
        return future

    async def _lead(self, item: I) -> O:
        """The first caller sends its item at once."""
        if self._sending:  # another coroutine was awaited before this one
            return await self.put(item)
        self._sending = True
        try:
            return (await self._send([item]))[0]
        finally:
            if self._waiting:
                # In a context of its own: it works for all, not for the first caller.
                work = self._drain()
                loop = asyncio.get_running_loop()
                self._follow = loop.create_task(work, context=own_context())
            else:
                self._sending = False

    async def _drain(self) -> None:
        try:
            while self._waiting:
                group = self._waiting[: self._most]
                del self._waiting[: self._most]
                await self._send_group(group)
        finally:
            self._sending = False

    async def _send_group(self, group: list[tuple[I, Receiver[O]]]) -> None:
        try:
            answers = await self._send([item for item, _ in group])
            if len(answers) != len(group):
                raise RuntimeError(f"{len(group)} items were sent, {len(answers)} answered")
        except Exception as error:
            if len(group) == 1:
                _fail(group[0][1], error)
                return
            for one in group:  # one bad item must not fail its neighbours
                await self._send_group([one])
            return
        for (_, future), answer in zip(group, answers, strict=True):
            if not future.done():
                future.set_result(answer)


def _fail(future: Receiver[O], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
