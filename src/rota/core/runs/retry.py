"""Retry policies: failure and attempt in, the time of the next try (or none) out. Pure."""

from __future__ import annotations

import math

import msgspec

from rota.core.time.instants import SECOND, Duration, micros
from rota.errors import BadSetting


class RetryPolicy(msgspec.Struct, frozen=True):
    """How often and how patiently to try again.

    `attempts` counts all tries, the first included. Delays grow from `delay_s` by `factor`
    up to `delay_s_max`; `jitter` spreads each by up to that share of itself, downwards.
    Errors whose class name (or a base class name) is in `never` are not tried again.
    """

    attempts: int = 1
    delay_s: float = 1.0
    factor: float = 2.0
    delay_s_max: float = 300.0
    jitter: float = 0.0
    never: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        numbers = (self.delay_s, self.factor, self.delay_s_max)
        sane = all(math.isfinite(number) for number in numbers) and self.delay_s_max >= 0
        sane = sane and self.attempts >= 1 and self.delay_s >= 0 and self.factor >= 1
        if not sane or not 0 <= self.jitter <= 1:
            raise BadSetting(
                f"retry policy {self} makes no sense",
                hint="attempts >= 1, delay_s >= 0, factor >= 1, 0 <= jitter <= 1.",
            )

    @classmethod
    def of(cls, retries: int | RetryPolicy | None, delay: Duration | None = None) -> RetryPolicy:
        """A policy from the short form `retries=5`: that many further tries."""
        if isinstance(retries, RetryPolicy):
            return retries
        if retries is not None and retries < 0:
            raise BadSetting(f"retries={retries} is negative", hint="0 means: never try again.")
        first = 1.0 if delay is None else micros(delay) / SECOND
        return cls(attempts=1 + (retries or 0), delay_s=first)

    def delay_us(self, attempt: int, chance: float) -> int:
        """Wait after the failed `attempt` (from 1); `chance` in [0, 1) feeds the jitter."""
        try:
            grown = self.delay_s * self.factor ** (attempt - 1)
        except OverflowError:  # a run on its thousandth try
            grown = self.delay_s_max
        capped = min(grown, self.delay_s_max)
        return round(capped * (1 - self.jitter * chance) * SECOND)


def next_try_us(
    policy: RetryPolicy,
    *,
    attempt: int,
    error_names: tuple[str, ...],
    retry_after_s: float | None,
    chance: float,
) -> int | None:
    """Microseconds until the next try after `attempt` failed, or None to give up."""
    if attempt >= policy.attempts or any(name in policy.never for name in error_names):
        return None
    if retry_after_s is not None:
        return round(max(retry_after_s, 0.0) * SECOND)
    return policy.delay_us(attempt, chance)
