"""Keeps an invoker within its limits: waits as the rules of `limits` decide."""

from __future__ import annotations

import asyncio
import functools
import random
import time
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from rota.ai import limits as rules
from rota.ai.base import Invoker, Reply, Request, Wrapper, announced, passing
from rota.ai.limits import Decision, Limits, State
from rota.core.time.instants import SECOND
from rota.errors import RotaError, Transient

T = TypeVar("T")
PATIENCE_S = 60.0
LOST_AFTER_S = 30.0  # a call ends within its timeout; its process may have died


class Keeper(Protocol):
    """Keeps the state: in this process, or in a row of the database that all workers share."""

    async def change(self, step: Callable[[State], tuple[State, T]]) -> T:
        """Apply `step` to the state; no change of another worker comes between."""
        ...


class Memory:
    """Keeps the state in this process."""

    def __init__(self) -> None:
        self.state = State()

    async def change(self, step: Callable[[State], tuple[State, T]]) -> T:
        """Apply `step`; nothing can come between, since it does not await."""
        self.state, result = step(self.state)
        return result


class Limiter(Wrapper):
    """An invoker that waits for its limits.

    It waits in the order of asking, up to `patience_s`; for more than that, and whenever the
    breaker is open, it raises Transient with the time to come back, so that no slot is held.
    """

    announces = True  # it awaits `begin` of a question when its wait is over

    def __init__(
        self,
        invoker: Invoker,
        limits: Limits,
        *,
        keeper: Keeper | None = None,
        patience_s: float = PATIENCE_S,
        now: Callable[[], int] = lambda: time.monotonic_ns() // 1000,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        super().__init__(invoker)
        self._limits = limits
        self._keeper: Keeper = keeper or Memory()
        self._patience_us = round(patience_s * SECOND)
        self._now, self._sleep = now, sleep
        self._locks: dict[asyncio.AbstractEventLoop, asyncio.Lock] = {}

    async def ask(self, request: Request) -> Reply:
        """Wait for the limits, then ask."""
        held = self.estimate(request).tokens
        lease = await self._wait(held, request.timeout_s)
        try:
            reply = await self._invoker.ask(await announced(request))
        except BaseException as error:
            after = functools.partial(_after, error, self._limits, held=held, now=self._now())
            await self._change(lambda state: rules.released(after(state), lease))
            raise
        used = reply.tokens_in + reply.tokens_out

        def answered(state: State) -> State:
            state = rules.answered(self._limits, state, held=held, used=used)
            return rules.released(state, lease)

        await self._change(answered)
        return reply

    async def _wait(self, tokens: int, timeout_s: float) -> int:
        """Wait for the limits; the instant at which the call is lost at last."""
        lock = self._lock()
        if not lock.locked():  # no call waits, so none is overtaken
            decision, until, _ = await self._admitted(tokens, timeout_s)
            if not decision.wait_us:
                return until
        async with lock:  # first come, first served
            while True:
                decision, until, said = await self._admitted(tokens, timeout_s)
                if not decision.wait_us:
                    return until
                if decision.why in ("broken", "probed") or decision.wait_us > self._patience_us:
                    raise self._not_now(decision, said)
                await self._sleep(decision.wait_us / SECOND)

    async def _admitted(self, tokens: int, timeout_s: float) -> tuple[Decision, int, str]:
        def admit(state: State) -> tuple[State, tuple[Decision, int, str]]:
            now = self._now()
            until = now + round((timeout_s + LOST_AFTER_S) * SECOND)
            state, decision = rules.admit(self._limits, state, now=now, tokens=tokens, until=until)
            return state, (decision, until, state.said)

        return await self._keeper.change(admit)

    def _not_now(self, decision: Decision, said: str) -> Transient:
        wait_s = decision.wait_us / SECOND
        why = {
            "broken": "has failed too often in a row, so calls pause (circuit breaker)",
            "probed": "has failed too often in a row; one call probes whether it is back",
            "asked": "asked to wait",
            "rate": "has reached its rate limit",
        }[decision.why]
        last = (
            f"; the last failure: {said}" if said and decision.why in ("broken", "probed") else ""
        )
        message = f"{self.name} {why}; next try in {wait_s:.1f} s{last}"
        error = passing(message, retry_after_s=wait_s)
        error.facts |= {"why": decision.why, "provider": self.name}
        return error

    async def _change(self, step: Callable[[State], State]) -> None:
        await self._keeper.change(lambda state: (step(state), None))

    def _lock(self) -> asyncio.Lock:
        loop = asyncio.get_running_loop()
        if loop not in self._locks:
            open_ones = {old: kept for old, kept in self._locks.items() if not old.is_closed()}
            self._locks = {**open_ones, loop: asyncio.Lock()}
        return self._locks[loop]


def _after(error: BaseException, limits: Limits, state: State, *, now: int, held: int) -> State:
    """The state of the provider after a call that failed."""
    facts = error.facts if isinstance(error, RotaError) else {}
    used = held if facts.get("sent") or not isinstance(error, Exception) else 0
    if isinstance(error, Transient) and facts.get("throttled"):
        return rules.throttled(
            limits, state, now=now, held=held, retry_after_s=error.retry_after_s,
            chance=random.random(),
        )  # fmt: skip
    if isinstance(error, Transient):
        return rules.failed(
            limits, state, now=now, held=held, used=used, retry_after_s=error.retry_after_s,
            said=str(error),
        )  # fmt: skip
    if isinstance(error, RotaError):
        return rules.answered(limits, state, held=held, used=used)
    return rules.abandoned(limits, state, held=held, used=used)
