"""The consequence of a failed handler run: the policies of tool, handler and automation, and the
one place that resolves them. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, TypedDict, Unpack, get_args

import msgspec

from rota.core.runs.names import is_whole
from rota.core.runs.recovery import died_alone
from rota.core.runs.retry import (
    ATTEMPTS_MAX,
    RETRY_DELAY_S_MAX,
    RetryPolicy,
    capped_delay_s,
    next_try_us,
)
from rota.core.time.instants import shown
from rota.errors import BadSetting

FailedReads = Literal["stop", "skip"]
JITTER = 0.3
TRIES_COUNTED = 64


class ToolPolicyOptions(TypedDict, total=False):
    """The options of a tool that say what follows a failure; None: as the handler says."""

    retries: int | RetryPolicy | None
    failed_reads: FailedReads | None


class HandlerPolicyOptions(ToolPolicyOptions, total=False):
    """The same of a consumer or an automation."""

    skip_after: int | None


class FailurePolicy(NamedTuple):
    """The policy of one level; None leaves it to the next level."""

    retries: int | RetryPolicy | None = None
    failed_reads: FailedReads | None = None
    skip_after: int | None = None


def checked_policy(what: str, **options: Unpack[HandlerPolicyOptions]) -> FailurePolicy:
    """The options of one level, or BadSetting."""
    policy = FailurePolicy(**{name: options.get(name) for name in FailurePolicy._fields})  # type: ignore[arg-type]
    _check_count(what, "retries", policy.retries, least=0)
    _check_count(what, "skip_after", policy.skip_after, least=1)
    if policy.failed_reads not in (None, *get_args(FailedReads)):
        raise BadSetting(
            f"{what}: failed_reads={policy.failed_reads!r} is not a policy",
            hint="Write stop (the default) or skip.",
        )
    return policy


def _check_count(what: str, name: str, value: object, *, least: int) -> None:
    if value is None or (name == "retries" and isinstance(value, RetryPolicy)):
        return
    if not is_whole(value, least, ATTEMPTS_MAX - 1):
        kinds = " or a RetryPolicy" if name == "retries" else ""
        raise BadSetting(
            f"{what}: {name}={shown(value)} is not a number of tries",
            hint=f"Give a whole number from {least}{kinds}.",
        )


class Pace(NamedTuple):
    """The settings behind all policies: how often the code may fail, and the pauses."""

    failures_max: int
    backoff_s: float
    backoff_s_max: float
    retry_after_s_max: float = RETRY_DELAY_S_MAX


class EffectivePolicy(NamedTuple):
    """The policy for one failure, after all levels were asked."""

    own: RetryPolicy  # for what the handler's code raised
    outage: RetryPolicy  # for reads and unsent calls
    skips_failed_reads: bool
    skip_after: int | None
    retry_after_s_max: float = RETRY_DELAY_S_MAX

    def obeyed_s(self, asked_s: object) -> float | None:
        """The seconds to wait for a counterpart that asks for so many; None if it asks for none."""
        found = capped_delay_s(asked_s)
        return None if found is None else min(found, self.retry_after_s_max)


def effective(levels: Sequence[FailurePolicy], pace: Pace) -> EffectivePolicy:
    """The policy that holds: for each option the first of `levels` that has it, the most specific
    first; then the settings. Outages are tried again without end unless a level sets a limit."""
    retries = next((one.retries for one in levels if one.retries is not None), None)
    reads = next((one.failed_reads for one in levels if one.failed_reads is not None), "stop")
    after = next((one.skip_after for one in levels if one.skip_after is not None), None)
    return EffectivePolicy(
        _retry(pace.failures_max if retries is None else retries, pace),
        _retry(ATTEMPTS_MAX - 1 if retries is None else retries, pace),
        reads == "skip",
        after,
        pace.retry_after_s_max,
    )


def _retry(retries: int | RetryPolicy, pace: Pace) -> RetryPolicy:
    if isinstance(retries, RetryPolicy):
        return retries
    return RetryPolicy(1 + retries, pace.backoff_s, 2.0, pace.backoff_s_max, JITTER)


def tries_within(policy: RetryPolicy, elapsed_us: int) -> int:
    """The number of the try that is due after so long, if each failed at once. It is at most
    TRIES_COUNTED, by which the pauses have their full length."""
    waited_us, number = 0, 1
    while number < TRIES_COUNTED:
        waited_us += policy.delay_us(number, 0)
        if waited_us > elapsed_us:
            break
        number += 1
    return number


class Outage(NamedTuple):
    """A counterpart that does not answer: which, since when, and how often it was tried."""

    of: str
    since: int
    tries: int


class FailedAttempt(msgspec.Struct, frozen=True):
    """A failed handler run, as far as it matters for what follows."""

    retried: bool = False  # its class is tried again
    outage: bool = False  # a read or an unsent call
    refuted: bool = False  # the tool looked, and the change had not happened
    failed_read: bool = False  # refused for good: gone, too big
    crashes: int = 0  # how often its worker died of it; it has not failed otherwise
    error_names: tuple[str, ...] = ()
    retry_after_s: float | None = None


def skips_killer(skip_after: int | None, recoveries: int, recoveries_max: int) -> bool:
    """Whether `skip_after` leaves out an item after so many deaths of its worker. The last crash
    must be the item's own: other runs of a worker die with it."""
    if skip_after is None or not died_alone(recoveries):
        return False
    return recoveries >= min(skip_after, recoveries_max)


class AfterFailure(NamedTuple):
    """Try again after a pause, leave the item out, or (neither) wait for a person."""

    pause_us: int | None = None
    skips: bool = False


def after_failure(
    policy: EffectivePolicy, failed: FailedAttempt, *, number: int, chance: float
) -> AfterFailure:
    """The consequence. `number` counts such failures in a row: tries of an outage, or failures of
    the handler itself. An outage is not the fault of the item, unless the counterpart answered that
    its change has not happened."""
    if failed.crashes:
        return AfterFailure(skips=policy.skip_after is not None)
    if failed.failed_read and policy.skips_failed_reads:
        return AfterFailure(skips=True)
    limited = (failed.refuted or not failed.outage) and policy.skip_after is not None
    if limited and number >= (policy.skip_after or 0):
        return AfterFailure(skips=True)
    retry = policy.outage if failed.outage else policy.own
    if limited:
        retry = msgspec.structs.replace(retry, attempts=number + 1)
    if not (limited or failed.retried):
        return AfterFailure()
    pause_us = next_try_us(
        retry, attempt=number, error_names=failed.error_names,
        retry_after_s=policy.obeyed_s(failed.retry_after_s), chance=chance,
    )  # fmt: skip
    return AfterFailure(pause_us)
