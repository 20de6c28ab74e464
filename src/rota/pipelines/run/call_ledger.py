"""The ledger of a run's calls: what they took, and which are in progress.

A call is in the ledger before it is sent. Each call has a slot; a slot is one step of the chain,
`us/<writer>/<slot>`. The step holds the sum of the calls that ended in this slot, and the most that
the one in progress may take. A process that dies leaves that last amount behind: the call may have
been sent, so it counts.

The usage of a call is certain if its provider stated it. Otherwise Rota assumes the most that the
call could take: a call without an answer, and an answer without a believable count of tokens. Each
of these has a step of its own, `as/<writer>/<number>`, that says what is known about it.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import msgspec

from rota.ai.base import Reply, request_id_of
from rota.ai.budget import NANO, NOTHING, Amount, may_be_billed, usage_of
from rota.core.runs.model import StoredStep
from rota.pipelines.outcome import UsageSum

PREFIX = "us/"
ASSUMED = "as/"
CORRECTED = "co/"
WHY_CHARS_MAX = 300


class CallTotals(UsageSum, frozen=True, kw_only=True, omit_defaults=True):
    """The calls of a run. `tokens_in`, `tokens_out` and `cost_usd` are certain."""

    unpriced: int = 0
    unanswered: int = 0  # of `calls`: sent, without an answer
    estimated: int = 0  # of `calls`: answered, without a believable count of tokens
    assumed_tokens: int = 0  # the most that these two took
    assumed_nano_usd: int = 0  # the same

    @property
    def spent(self) -> Amount:
        """The totals as a budget counts them."""
        return Amount(
            nano_usd=math.ceil(round(self.cost_usd * NANO, 3)) + self.assumed_nano_usd,
            tokens=self.tokens + self.assumed_tokens,
            calls=self.calls,
        )


class AssumedCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """A call with an unknown usage."""

    model: str
    why: str
    tokens: int  # at most
    nano_usd: int  # at most
    request_id: str | None = None  # the provider's name for it


class Correction(msgspec.Struct, frozen=True):
    """The true cost of an assumed call, by the provider's bill."""

    cost_usd: float
    tokens: int = 0  # that were assumed
    nano_usd: int = 0  # that were assumed


class SlotRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """The content of the step of a slot."""

    ended: CallTotals = CallTotals()
    under_way: CallTotals | None = None
    model: str = ""  # of the call in progress


class Slot:
    """One slot: at most one call at a time. Its step has this key, and holds this record."""

    def __init__(self, ledger: CallLedger, number: int) -> None:
        self._ledger = ledger
        self.key = f"{PREFIX}{ledger.writer}/{number:06d}"
        self.record = SlotRecord()
        self.is_owed = False  # its last call is over, and not written yet
        self._is_announced = False  # durable: the call in progress may have been sent
        self.amount = NOTHING  # that the next call may take
        self.model = ""
        self.assumed: AssumedCall | None = None  # its last call, if its usage is not known
        self.assumed_key = ""

    async def begin(self) -> None:
        """Record that a call is sent now; durable when this returns."""
        under_way = _unanswered(self.amount)
        self.record = SlotRecord(self.record.ended, under_way, self.model)
        self._is_announced = False
        await self._ledger.put([self])
        self._is_announced = True

    def answered(self, reply: Reply) -> None:
        """The call was answered."""
        self._end(of_reply(reply, self.amount), "answered without a count", reply.request_id)

    def failed(self, error: BaseException) -> None:
        """The call ended without an answer. One that was stopped in `begin` was never sent."""
        took = of_error(error, self.amount) if self._is_announced else CallTotals()
        self._end(took, str(error) or type(error).__name__, request_id_of(error))

    def _end(self, took: CallTotals, why: str, request_id: str | None) -> None:
        """The call is over. Its cost is not written yet: the commit of its result does that."""
        if self.record.under_way is None:
            return  # it never began
        self.record = SlotRecord(self.record.ended + took)
        self.is_owed = True
        if took.unanswered or took.estimated:
            self.assumed_key = self._ledger.next_key()
            self.assumed = AssumedCall(
                self.model, why[:WHY_CHARS_MAX], took.assumed_tokens, took.assumed_nano_usd,
                request_id,
            )  # fmt: skip


class CallLedger:
    """The slots of one claim of a run. `put` writes their steps, under the claim.

    A slot is free again when its last call is written: one step is never written twice at once.
    The end of a call is written in the commit of its result. A process that dies before that commit
    loses the answer: the call stays in progress, and never counts as answered.
    """

    def __init__(self, put: Callable[[Sequence[Slot]], Awaitable[None]], writer: str) -> None:
        self.put = put
        self.writer = writer
        self._count = self._assumed = 0
        self._free: list[Slot] = []

    @contextlib.asynccontextmanager
    async def call(self, amount: Amount, model: str, owed: list[Slot]) -> AsyncIterator[Slot]:
        """A slot for one call that takes at most so much; then it is `owed`, if it was sent."""
        if not self._free:
            self._free.append(Slot(self, self._count))
            self._count += 1
        slot = self._free.pop()
        slot.amount, slot.model = amount, model
        try:
            yield slot
        except BaseException as error:
            slot.failed(error)
            raise
        finally:
            (owed if slot.is_owed else self._free).append(slot)

    def next_key(self) -> str:
        """The key of one more assumed call."""
        self._assumed += 1
        return f"{ASSUMED}{self.writer}/{self._assumed:06d}"

    def written(self, owed: list[Slot]) -> None:
        """These slots are written, and may be used again."""
        for slot in owed:
            slot.is_owed, slot.assumed = False, None
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


async def corrections(steps: AsyncIterator[StoredStep]) -> CallTotals:
    """The difference that corrections make: a certain cost instead of an assumed one."""
    whole = CallTotals()
    async for step in steps:
        known = msgspec.json.decode(step.output or "{}", type=Correction)
        whole += CallTotals(
            cost_usd=known.cost_usd, assumed_tokens=-known.tokens,
            assumed_nano_usd=-known.nano_usd,
        )  # fmt: skip
    return whole


def of_reply(reply: Reply, amount: Amount = NOTHING) -> CallTotals:
    """One call that was answered; without a believable count it took the amount."""
    unpriced = int(reply.cost_usd is None)
    if reply.guessed:
        cost = reply.cost_usd if reply.is_cost_stated else None
        return CallTotals(
            calls=1, estimated=1, unpriced=unpriced, cost_usd=cost or 0.0,
            assumed_tokens=amount.tokens, assumed_nano_usd=amount.nano_usd if cost is None else 0,
        )  # fmt: skip
    return CallTotals(
        calls=1, tokens_in=reply.tokens_in, tokens_out=reply.tokens_out,
        cost_usd=reply.cost_usd or 0.0, unpriced=unpriced,
    )  # fmt: skip


def of_error(error: BaseException, amount: Amount = NOTHING) -> CallTotals:
    """One call that failed: its reported usage, or at most the amount if it may be on the bill."""
    known = usage_of(error)
    if known is not None:
        return of_reply(known)
    return _unanswered(amount) if may_be_billed(error) else CallTotals()


def _unanswered(amount: Amount) -> CallTotals:
    return CallTotals(
        calls=1, unanswered=1, assumed_tokens=amount.tokens, assumed_nano_usd=amount.nano_usd,
    )  # fmt: skip
