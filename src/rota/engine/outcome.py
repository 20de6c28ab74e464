"""Turns an exception into an outcome, by failure class and retry policy, for all kinds of work."""

from __future__ import annotations

import random
from typing import NamedTuple

import msgspec

from rota.core.runs.failures import TABLE, Kind, describe, kind_of, names_of
from rota.core.runs.ids import IdMaker
from rota.core.runs.lifecycle import CONTINUED, Status, Trigger
from rota.core.runs.model import Claim, NewRun, Outcome
from rota.core.runs.options import StoredRunOptions
from rota.core.runs.retry import RetryPolicy, next_try_us
from rota.core.time.instants import after
from rota.engine import run_log
from rota.engine.clock import Clock
from rota.store.runs.start import continuation, successor


class JudgedFailure(NamedTuple):
    """The failure class of an exception and its consequences."""

    kind: Kind
    detail: str  # as it is stored
    asks: bool  # a person has to act first
    passes: bool  # the cause may go away by itself
    names: tuple[str, ...]  # of its class and the bases, for `never` lists
    retry_after_s: float | None  # from the called service


def judge(error: BaseException) -> JudgedFailure:
    """Classify an exception."""
    kind = kind_of(error)
    return JudgedFailure(
        kind, describe(error), TABLE[kind].status is Status.WAITING, passes(error),
        names_of(error), getattr(error, "retry_after_s", None),
    )  # fmt: skip


def judge_handler(error: BaseException) -> JudgedFailure:
    """The same for a handler of an automation. A fix may change its code, so failures that are
    final elsewhere count as `logic` here."""
    failure = judge(error)
    is_final = failure.kind in (Kind.FATAL, Kind.STRANDED)
    return failure._replace(kind=Kind.LOGIC) if is_final else failure


def passes(error: BaseException) -> bool:
    """Whether the cause may go away by itself, so that a retry may succeed."""
    return TABLE[kind_of(error)].passes


def retry_delay_us(error: BaseException, policy: RetryPolicy, *, attempt: int) -> int | None:
    """Microseconds until the retry of a failed `attempt`; None if there is no retry."""
    if not TABLE[kind_of(error)].retried:
        return None
    return policy_delay_us(error, policy, attempt=attempt)


def policy_delay_us(error: BaseException, policy: RetryPolicy, *, attempt: int) -> int | None:
    """The same for an error that the caller retries in any failure class."""
    return next_try_us(
        policy, attempt=attempt, error_names=names_of(error),
        retry_after_s=getattr(error, "retry_after_s", None), chance=random.random(),
    )  # fmt: skip


def is_final(
    error: BaseException, policy: RetryPolicy, *, attempt: int, now: int, deadline_at: int | None
) -> bool:
    """Whether a run that fails so has failed for good: no retry follows, and it asks no person. A
    retry is assumed to wait for the longest time that the policy allows."""
    if TABLE[kind_of(error)].status is Status.WAITING:
        return False
    longest = msgspec.structs.replace(policy, jitter=0.0)
    wait_us = retry_delay_us(error, longest, attempt=attempt)
    return wait_us is None or (deadline_at is not None and now + wait_us >= deadline_at)


class OutcomeMaker:
    """Makes the outcome of a failed attempt: wait for a person, try again, or fail."""

    def __init__(self, clock: Clock, ids: IdMaker) -> None:
        self._clock = clock
        self._ids = ids

    def failed(
        self,
        claim: Claim,
        error: BaseException,
        policy: RetryPolicy,
        *,
        deadline_at: int | None = None,
        output: str | None = None,
        again: tuple[str, ...] = (),
        handling: tuple[str, ...] = (),
    ) -> Outcome:
        """The outcome. No retry begins after `deadline_at`, the deadline of the chain. `again` are
        the failed steps and `handling` the calls that handled them: a further attempt makes both
        again."""
        failure = judge(error)
        if failure.asks:
            run_log.asks(claim, error)
            return Outcome(
                claim, "ask", failure.kind, error=failure.detail, again=again, handling=handling
            )
        wait_us = retry_delay_us(error, policy, attempt=claim.attempt)
        run_log.failed(claim, error, retry_in_us=wait_us)
        retry = None if wait_us is None else self._retry(claim, wait_us, deadline_at)
        return Outcome(
            claim, "fail", failure.kind, output, failure.detail, retry=retry, again=again,
            handling=handling,
        )  # fmt: skip

    def continued(
        self, claim: Claim, body: str | None, version: str | None, untaken: tuple[str, ...]
    ) -> Outcome:
        """The outcome of a run that continues as new, with this input. `untaken` are waits with
        signals that its code has not got."""
        now = self._clock.now()
        new_id = self._ids.make_after(
            max(claim.id, claim.segment), now
        )  # segments sort by their ids
        following = continuation(claim, new_id, body=body, version=version, now=now)
        return Outcome(claim, "continue", CONTINUED, retry=following, untaken=untaken)

    def _retry(self, claim: Claim, wait_us: int, deadline_at: int | None) -> NewRun | None:
        now = self._clock.now()
        if deadline_at is not None and now + wait_us >= deadline_at:
            return None
        retry = successor(
            claim, self._ids.make(now), trigger=Trigger.RETRY, available_at=after(now, wait_us),
            attempt=claim.attempt + 1, reason="retry",
        )  # fmt: skip
        options = StoredRunOptions.read(retry.options).begun(claim.started_at)
        return msgspec.structs.replace(retry, options=options.text())
