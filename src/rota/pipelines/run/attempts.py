"""The tries of one question: the consequence of a failure or an unusable reply.

A failed call is an attempt, and `maxRetries` bounds them. An open breaker is waited for, as many
times as there are retries. A provider that throttles, and limits of ours, are waited for and cost
no attempt. No wait, and no sum of waits for a provider, is longer than `wait_s_max`.
"""

from __future__ import annotations

import msgspec

from rota.ai.base import Reply, Request
from rota.core.runs.retry import RetryPolicy
from rota.core.time.instants import SECOND
from rota.engine.outcome import passes, policy_delay_us
from rota.errors import (
    BadSetting,
    BudgetSpent,
    EmptyReply,
    MissingExtra,
    NeedsLogin,
    NeedsPermission,
    Rejected,
    Transient,
    TruncatedReply,
)
from rota.pipelines.run.prompt_builder import ModelPrompt

# Failures that concern every item: the run stops, and what is done is kept.
STOPPING = (NeedsLogin, NeedsPermission, BudgetSpent, BadSetting, MissingExtra)
WAIT_S_MIN = 0.1
# For a provider that throttles without saying how long.
THROTTLED = RetryPolicy(attempts=1_000_000, delay_s=1.0, delay_s_max=60.0, jitter=0.5)


class Attempts:
    """The tries of one question so far."""

    def __init__(self, question: ModelPrompt) -> None:
        self._question = question
        self._attempt = self._throttled = self._shut_out = 0
        self._waited_s = 0.0
        self._timeout_s = question.timeout_s
        self._tokens_max = question.options.max_tokens
        self._cut: TruncatedReply | None = None

    def request(self, prompt: str) -> Request:
        """The next try."""
        request = self._question.request(prompt, self._timeout_s)
        return msgspec.structs.replace(request, max_tokens=self._tokens_max)

    def refused(self, error: Exception, took_s: float) -> float:
        """Seconds until the next try after an error; raises it when there is none."""
        if self._cut is not None and isinstance(error, BudgetSpent | Rejected):
            raise self._cut from error  # no higher limit is allowed
        if isinstance(error, STOPPING):
            raise error
        if took_s >= self._timeout_s:
            self._timeout_s = 2 * self._question.timeout_s  # it may only have needed more time
        if isinstance(error, Transient) and error.facts.get("why") in ("rate", "probed"):
            return min(max(error.retry_after_s or 0.0, WAIT_S_MIN), self._question.wait_s_max)
        if isinstance(error, Transient) and _is_throttled(error):
            self._throttled += 1
            wait_s = self._next_s(THROTTLED, self._throttled, error)
        elif isinstance(error, Transient) and error.facts.get("why") == "broken":
            self._shut_out += 1
            wait_s = self._next_s(self._question.retry, self._shut_out, error)
        elif passes(error):
            self._attempt += 1
            wait_s = self._next_s(self._question.retry, self._attempt, error)
        else:
            raise error
        self._waited_s += wait_s
        if self._waited_s > self._question.wait_s_max:
            raise error
        return wait_s

    def _next_s(self, policy: RetryPolicy, attempt: int, error: Exception) -> float:
        wait_us = policy_delay_us(error, policy, attempt=attempt)
        if wait_us is None:
            raise error
        return wait_us / SECOND

    def unusable(self, reply: Reply, request: Request, *, is_bounded: bool) -> float | None:
        """None for an answer; otherwise seconds until the next try, or the failure."""
        if reply.finish == "length":
            return self._more_tokens(reply, request, is_bounded=is_bounded)
        if reply.text.strip():
            return None
        error = EmptyReply(f"{reply.model} replied with nothing ({reply.finish})")
        self._attempt += 1
        return self._next_s(self._question.retry, self._attempt, error)

    def _more_tokens(self, reply: Reply, request: Request, *, is_bounded: bool) -> float:
        bound = max(request.max_tokens or 0, reply.tokens_out)
        self._cut = TruncatedReply(f"the reply of {reply.model} was cut off after {bound} tokens")
        self._attempt += 1
        tokens_max = int(bound * self._question.tokens_factor)
        # Without a bound of ours it was the model's own: there is not more room.
        if not is_bounded or tokens_max <= bound or self._attempt >= self._question.retry.attempts:
            raise self._cut
        self._tokens_max = tokens_max
        return 0.0


def _is_throttled(error: Transient) -> bool:
    return bool(error.facts.get("throttled")) or error.facts.get("why") == "asked"
