"""The order in which results reach the code of a workflow with branches.

A replay has every recorded result at once. Code that sees which branch was first (`asyncio.wait`,
`asyncio.as_completed`, a list that branches share) would take another path than the first time. So
results of branches are delivered one at a time, in the order of their `finished_at`, at the first
execution and at every replay. The next follows when the code has had time to react to the last.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Iterable
from typing import TYPE_CHECKING

from rota.core.runs.model import StoredStep

if TYPE_CHECKING:
    from rota.workflows.branches import Branch
    from rota.workflows.workflow_run import WorkflowRun

# Iterations of the event loop that the code gets to react to a result. Each level of branches adds
# three, because asyncio needs up to three to pass a result to the parent task.
CHECKS = 5
CHECKS_PER_LEVEL = 3


class Completion:
    """A result on its way to the code."""

    __slots__ = ("_order", "at", "future", "group", "is_dropped", "is_written")

    def __init__(self, order: CompletionOrder, at: int, group: object) -> None:
        self._order = order
        self.at = at
        self.group = group  # the gather that takes it; None if user code can see when it arrives
        self.is_written = self.is_dropped = False
        self.future: asyncio.Future[None] | None = None

    def drop(self) -> None:
        """Expect it no longer: it was not written, or its task was cancelled."""
        self._order.drop(self)

    async def deliver(self) -> None:
        """Return when it is the turn of this result, which is recorded now."""
        await self._order.deliver(self)


class CompletionOrder:
    """The results of one run that are on their way, the earliest first."""

    def __init__(self, flow: WorkflowRun, recorded: Iterable[StoredStep]) -> None:
        newest = max((step.finished_at or 0 for step in recorded), default=0)
        self._loop = flow.context.loop
        self._clock = flow.clock
        self._was_killed = flow.claim.claim_count == 1  # a recovered run is a new row
        self._newest = self._last_at = newest  # when the newest result was recorded
        self._coming: list[tuple[int, int, int, Completion]] = []  # at, position, number
        self._count = 0
        self._checks = CHECKS
        self._checking = False
        self._settled = newest == 0  # whether the code has reacted to the last result
        self._last_group: object = None
        self._repeating = False
        self.calls = 0  # that the code has made

    def expect(
        self, branch: Branch, at: int | None = None, position: int = 0, *, failed: bool = False
    ) -> Completion:
        """Expect a result that was recorded at an instant, or that will be recorded as of now. No
        later one is delivered before it."""
        if at is None:
            at = self.next_at()
        self._checks = max(self._checks, CHECKS + CHECKS_PER_LEVEL * branch.path.count("."))
        # The first failure ends a gather.
        completion = Completion(self, at, None if failed else branch.group)
        self._count += 1
        heapq.heappush(self._coming, (at, position, self._count, completion))
        return completion

    def is_repeating(self) -> bool:
        """Whether the code reacts to results of an earlier execution, or has to get more."""
        first = self._first()
        return self._repeating or (first is not None and first.at <= self._newest)

    def next_at(self) -> int:
        """The instant of a new result; it is unique within the run."""
        self._last_at = max(self._clock.now(), self._last_at + 1)
        return self._last_at

    def drop(self, completion: Completion) -> None:
        """Expect it no longer."""
        completion.is_dropped = True
        self._check_soon()

    async def deliver(self, completion: Completion) -> None:
        """Return when this result is next."""
        completion.is_written = True
        is_new = completion.at > self._newest
        if is_new and self._first() is completion and (self._settled or self._follows(completion)):
            self._pass_first()
            return
        completion.future = self._loop.create_future()
        self._check_soon()
        try:
            await completion.future
        except asyncio.CancelledError:
            self.drop(completion)
            raise

    def _first(self) -> Completion | None:
        while self._coming and self._coming[0][-1].is_dropped:
            heapq.heappop(self._coming)
        return self._coming[0][-1] if self._coming else None

    def _follows(self, completion: Completion) -> bool:
        """Whether the same gather takes it as the last one: a gather ignores their order."""
        return completion.group is not None and completion.group is self._last_group

    def _pass_first(self) -> None:
        *_, first = heapq.heappop(self._coming)
        self._settled = False
        self._last_group = first.group
        # An execution that was killed may have recorded a result to which no code reacted.
        self._repeating = first.at <= self._newest and not self._was_killed
        if first.future is not None and not first.future.done():
            first.future.set_result(None)
        if first.group is None or self._coming or self._repeating:
            self._check_soon()

    def _check_soon(self) -> None:
        if not self._checking:
            self._checking = True
            self._loop.call_soon(self._check, self.calls, self._checks)

    def _check(self, seen: int, checks: int) -> None:
        if seen != self.calls:
            self._loop.call_soon(self._check, self.calls, self._checks)
        elif checks:
            self._loop.call_soon(self._check, seen, checks - 1)
        else:
            self._checking = self._repeating = False
            self._settled = True
            self._pass_next()

    def _pass_next(self) -> None:
        """The code has made its calls: give it the next result, if that is recorded."""
        while (first := self._first()) and first.is_written:
            if not (self._settled or self._follows(first)):
                break
            self._pass_first()
