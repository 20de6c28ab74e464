"""The ledger of a run's calls: what they took, and which are in progress.

A call is in the ledger before it is sent. Each call has a slot; a slot is one step of the chain,
`us/<writer>/<slot>`. The step holds the sum of the calls that ended in this slot, and the most that
the one in progress may take. A process that dies leaves that last amount behind: the call may have
been sent, so it counts.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import msgspec

from rota.ai.base import Reply
from rota.ai.budget import NANO, NOTHING, Amount, may_be_billed, usage_of
from rota.core.runs.model import StoredStep
from rota.pipelines.outcome import UsageSum

PREFIX = "us/"


class CallTotals(UsageSum, frozen=True, kw_only=True, omit_defaults=True):
    """The calls of a run. Those without an answer are counted; what they took is only bounded."""

    unpriced: int = 0
    unanswered: int = 0  # of `calls`: their cost is unknown
    unanswered_tokens: int = 0  # at most
    unanswered_nano_usd: int = 0  # at most

    @property
    def spent(self) -> Amount:
        """The totals as a budget counts them."""
        return Amount(
            nano_usd=math.ceil(round(self.cost_usd * NANO, 3)) + self.unanswered_nano_usd,
            tokens=self.tokens + self.unanswered_tokens,
            calls=self.calls,
        )


class SlotRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """The content of the step of a slot."""

    ended: CallTotals = CallTotals()
    under_way: CallTotals | None = None


class Slot:
    """One slot: at most one call at a time. Its step has this key, and holds this record."""

    def __init__(self, ledger: CallLedger, number: int) -> None:
        self._ledger = ledger
        self.key = f"{PREFIX}{ledger.writer}/{number:06d}"
        self.record = SlotRecord()
        self.is_owed = False  # its last call is over, and not written yet
        self._is_announced = False  # durable: the call in progress may have been sent
        self.amount = NOTHING  # that the next call may take

    async def begin(self) -> None:
        """Record that a call is sent now; durable when this returns."""
        under_way = _unanswered(self.amount)
        self.record = msgspec.structs.replace(self.record, under_way=under_way)
        self._is_announced = False
        await self._ledger.put([self])
        self._is_announced = True

    def end(self, took: CallTotals) -> None:
        """The call is over. Its cost is not written yet: the commit of its result does that."""
        if self.record.under_way is None:
            return  # it never began
        self.record = SlotRecord(self.record.ended + took)
        self.is_owed = True

    def failed(self, error: BaseException) -> None:
        """The call ended without an answer. One that was stopped in `begin` was never sent."""
        self.end(of_error(error, self.amount) if self._is_announced else CallTotals())


class CallLedger:
    """The slots of one claim of a run. `put` writes their steps, under the claim.

    A slot is free again when its last call is written: one step is never written twice at once.
    The end of a call is written in the commit of its result. A process that dies before that commit
    loses the answer: the call stays in progress, and never counts as answered.
    """

    def __init__(self, put: Callable[[Sequence[Slot]], Awaitable[None]], writer: str) -> None:
        self.put = put
        self.writer = writer
        self._count = 0
        self._free: list[Slot] = []

    @contextlib.asynccontextmanager
    async def call(self, amount: Amount, owed: list[Slot]) -> AsyncIterator[Slot]:
        """A slot for one call that takes at most so much; then it is `owed`, if it was sent."""
        if not self._free:
            self._free.append(Slot(self, self._count))
            self._count += 1
        slot = self._free.pop()
        slot.amount = amount
        try:
            yield slot
        except BaseException as error:
            slot.failed(error)
            raise
        finally:
            (owed if slot.is_owed else self._free).append(slot)

    def written(self, owed: list[Slot]) -> None:
        """These slots are written, and may be used again."""
        for slot in owed:
            slot.is_owed = False
        self._free += owed
        owed.clear()

    async def write(self, owed: list[Slot]) -> None:
        """Write the ends of calls that have no result."""
        if owed:
            await self.put(owed)
            self.written(owed)


async def totals(steps: AsyncIterator[StoredStep]) -> CallTotals:
    """The sum of all slots of a chain; a call that was left in progress has no answer."""
    whole = CallTotals()
    async for step in steps:
        record = msgspec.json.decode(step.output or "{}", type=SlotRecord)
        whole += record.ended + (record.under_way or CallTotals())
    return whole


def of_reply(reply: Reply) -> CallTotals:
    """One call that was answered."""
    return CallTotals(
        calls=1, tokens_in=reply.tokens_in, tokens_out=reply.tokens_out,
        cost_usd=reply.cost_usd or 0.0, unpriced=int(reply.cost_usd is None),
    )  # fmt: skip


def of_error(error: BaseException, amount: Amount = NOTHING) -> CallTotals:
    """One call that failed: its reported usage, or at most the amount if it may be on the bill."""
    known = usage_of(error)
    if known is not None:
        return of_reply(known)
    return _unanswered(amount) if may_be_billed(error) else CallTotals()


def _unanswered(amount: Amount) -> CallTotals:
    return CallTotals(
        calls=1, unanswered=1, unanswered_tokens=amount.tokens,
        unanswered_nano_usd=amount.nano_usd,
    )  # fmt: skip
