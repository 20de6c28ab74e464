"""Budgets that all workers of a store share: what is spent and reserved is one row of the database.

A call reserves its maximum before it is sent, in one short transaction, and settles it afterwards.
A reservation of a process that died is never settled: after a while, or when its run is taken up
again, it counts as spent. So a crash makes a budget smaller, never larger.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias

import msgspec

from rota.ai.base import Estimate
from rota.ai.budget import NOTHING, Amount, Budget, Hold, Limit, Verdict, judge
from rota.ai.shared_limits import Ticking
from rota.core.time.instants import MINUTE, SECOND
from rota.store.backend.batching import Batch
from rota.store.backend.database import Database
from rota.store.pipelines import provider_limits

Period: TypeAlias = Literal["day", "month", "run"]
POLL_US = SECOND  # between tries while the calls of others have reserved the rest
RESERVED_US = 15 * MINUTE  # after it, a reservation counts as spent


class ReservedCall(msgspec.Struct, frozen=True):
    """The most that a call in progress may take."""

    amount: Amount
    until: int


class Account(msgspec.Struct, frozen=True):
    """The state of a budget in one period. A later period begins with nothing."""

    period: str = ""
    spent: Amount = NOTHING
    reserved: dict[str, ReservedCall] = {}

    def at(self, period: str, now: int) -> Account:
        """The same in a period; a clock that is behind does not bring an earlier one back."""
        if period > self.period:
            return Account(period)
        return self._without(lambda _, each: each.until <= now)

    def forfeit(self, holder: str) -> Account:
        """Reservations of a process that is gone count as spent."""
        return self._without(lambda key, _: key.startswith(holder))

    def reserve(
        self, limit: Limit, key: str, amount: Amount, until: int
    ) -> tuple[Account, Verdict]:
        """Reserve for a call, if the limit allows it now."""
        held = NOTHING
        for each in self.reserved.values():
            held += each.amount
        verdict = judge(limit, self.spent, held, amount)
        if verdict != "go":
            return self, verdict
        reserved = {**self.reserved, key: ReservedCall(amount, until)}
        return msgspec.structs.replace(self, reserved=reserved), verdict

    def settle(self, key: str, used: Amount) -> Account:
        """Count what a call took. One that is not reserved any more has counted in full."""
        if key not in self.reserved:
            return self
        others = {name: each for name, each in self.reserved.items() if name != key}
        return msgspec.structs.replace(self, spent=self.spent + used, reserved=others)

    def _without(self, is_over: Callable[[str, ReservedCall], bool]) -> Account:
        over = [key for key, each in self.reserved.items() if is_over(key, each)]
        account = self
        for key in over:
            account = account.settle(key, self.reserved[key].amount)
        return account


Step: TypeAlias = Callable[[Account], tuple[Account, Any]]
_ACCOUNT = msgspec.json.Decoder(Account)


class AccountRow:
    """The row of one budget; changes that come at the same time share a transaction."""

    def __init__(
        self, database: Database, *, namespace: str, name: str, first: Amount = NOTHING
    ) -> None:
        """`first` is spent already when the row is made."""
        self._database, self._namespace = database, namespace
        self._name = f"budget:{name}"
        self._blank = msgspec.json.encode(Account(spent=first)).decode()
        self._batch: Batch[Step, Any] = Batch(self._send)

    async def change(self, step: Step) -> Any:
        """Apply a step to the account; no change of another worker comes between."""
        return await self._batch.put(step)

    async def remove(self) -> None:
        """Delete the row."""
        await self._database.write(
            provider_limits.remove, namespace=self._namespace, name=self._name
        )

    async def _send(self, steps: Sequence[Step]) -> list[Any]:
        def apply(text: str) -> tuple[str, list[Any]]:
            account = _ACCOUNT.decode(text)
            results = []
            for step in steps:
                account, result = step(account)
                results.append(result)
            return msgspec.json.encode(account).decode(), results

        return await self._database.write_brief(
            provider_limits.change, apply, namespace=self._namespace, name=self._name,
            blank=self._blank,
        )  # fmt: skip


class SharedBudget(Budget):
    """A budget in a row of the database, for a day, a month (both in UTC) or a run."""

    def __init__(
        self, row: AccountRow, clock: Ticking, limit: Budget, *, holder: str, period: Period,
        of: str,
    ) -> None:  # fmt: skip
        """`holder` names the process in the row, and `of` names the budget in errors."""
        super().__init__()
        self._limit, self._row, self._clock = limit.limit, row, clock
        self._holder, self._period, self._of = holder, period, of
        self._numbers = itertools.count()

    async def open(self, earlier: str) -> None:
        """Make the row, and count what `earlier` processes of this holder left reserved."""
        await self._row.change(lambda account: (account.forfeit(earlier), None))

    async def _hold(self, estimate: Estimate) -> Hold:
        key = f"{self._holder}/{next(self._numbers)}"
        while True:
            amount, now = self._at_most(estimate), self._clock.now()

            def step(
                account: Account, amount: Amount = amount, now: int = now
            ) -> tuple[Account, tuple[Verdict, Amount]]:
                account = account.at(self._named(now), now)
                account, verdict = account.reserve(self._limit, key, amount, now + RESERVED_US)
                return account, (verdict, account.spent)

            verdict, self.spent = await self._row.change(step)
            if verdict == "go":
                return Hold(amount, key)
            if verdict == "refuse":
                raise self._refused(amount, f"{self._of} {self._named(now)}".strip())
            await self._clock.wait(asyncio.Event(), now + POLL_US)

    async def _settle(self, call: Hold, used: Amount) -> None:
        settled = self._row.change(lambda account: (account.settle(call.key, used), None))
        await asyncio.shield(asyncio.ensure_future(settled))

    def _named(self, now: int) -> str:
        if self._period == "run":
            return ""
        day = datetime.fromtimestamp(now / SECOND, UTC).date().isoformat()
        return day if self._period == "day" else day[:7]
