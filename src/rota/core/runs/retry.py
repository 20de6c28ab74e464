"""Retry policies: failure and attempt in, the time of the next try (or none) out. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

import msgspec

from rota.core.time.instants import SECOND, Duration, micros, shown
from rota.errors import BadSetting

# No retry waits longer than this, whatever a policy or a counterpart (Retry-After) asks for.
RETRY_DELAY_S_MAX = 7 * 86_400.0
ATTEMPTS_MAX, FACTOR_MAX = 1_000_000_000, 1_000_000


def capped_delay_s(asked_s: object) -> float | None:
    """Seconds that a counterpart asks to wait, within the bounds; None when it is not a number."""
    if isinstance(asked_s, bool) or not isinstance(asked_s, int | float):
        return None
    if isinstance(asked_s, float) and math.isnan(asked_s):
        return None
    return float(min(max(asked_s, 0), RETRY_DELAY_S_MAX))


_SECONDS = re.compile(r"[0-9]+(\.[0-9]+)?")


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Seconds that a response asks to wait, within the bounds; a date counts from `date`."""
    for name, per_second in (("retry-after-ms", 1000), ("retry-after", 1)):
        number = headers.get(name, "").strip()
        if _SECONDS.fullmatch(number):
            return capped_delay_s(float(number) / per_second)
    try:
        until = parsedate_to_datetime(headers.get("retry-after", "").strip())
        since = parsedate_to_datetime(headers.get("date", ""))
        return capped_delay_s((until - since).total_seconds())
    except (ValueError, TypeError, OverflowError):
        return None


class RetryPolicy(msgspec.Struct, frozen=True):
    """How often and how patiently to try again.

    `attempts` counts all tries, the first included. Delays grow from `delay_s` by `factor` up to
    `delay_s_max`, which is at most 7 days; `jitter` spreads each by up to that share of itself,
    downwards. A Retry-After replaces the delay, within the same 7 days. An error is not tried again
    if the name of its class, or of a base class, is in `never`.
    """

    attempts: int = 1
    delay_s: float = 1.0
    factor: float = 2.0
    delay_s_max: float = 300.0
    jitter: float = 0.0
    never: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        bounds = (
            (self.attempts, 1, ATTEMPTS_MAX),
            (self.delay_s, 0, RETRY_DELAY_S_MAX),
            (self.delay_s_max, 0, RETRY_DELAY_S_MAX),
            (self.factor, 1, FACTOR_MAX),
            (self.jitter, 0, 1),
        )
        if not all(isinstance(n, int | float) and least <= n <= most for n, least, most in bounds):
            raise BadSetting(
                f"retry policy {shown(self)} makes no sense",
                hint=f"attempts 1 to {ATTEMPTS_MAX:,}, factor 1 to {FACTOR_MAX:,}, jitter 0 to 1, "
                f"delay_s and delay_s_max 0 to {RETRY_DELAY_S_MAX:,.0f} (7 days).",
            )

    @classmethod
    def of(cls, retries: int | RetryPolicy | None, delay: Duration | None = None) -> RetryPolicy:
        """A policy from the short form `retries=5`: that many further tries."""
        if isinstance(retries, RetryPolicy):
            return retries
        if retries is not None and (isinstance(retries, bool) or not isinstance(retries, int)):
            raise BadSetting(
                f"retries={retries!r} is not a number of tries",
                hint="Give a whole number, or a RetryPolicy.",
            )
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
    asked_s = capped_delay_s(retry_after_s)
    if asked_s is not None:
        return round(asked_s * SECOND)
    return policy.delay_us(attempt, chance)
