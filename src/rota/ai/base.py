"""The invoker protocol: one question to a model, its answer, and what may go wrong.

The errors of `ask` name the next action; each is decided where the failure is seen:

    Transient         try again, after `retry_after_s` if given: throttled, broken, slow or down
    NeedsLogin        no key, or an invalid one: a person sets the variable that the error names
    NeedsPermission   the key is valid but may not do this, or the account has no credit left
    Rejected          the same question would be refused again; the fact `reason` may say why:
                      "too_long", "content_filter" or "unknown_model"
    UsageError        the question or the settings make no sense; nothing was sent

A cancelled or timed-out `ask` leaves nothing behind: the connection is closed, the program killed.
The fact `sent` of an error is True when the provider may have worked, and so may charge for it.
Its fact `request_id` is the provider's name for the call, where it gave one.
Its facts `tokens_in`, `tokens_out` and `cost_usd` are what the provider charges, where it said so.
Its fact `throttled` is True when the provider is well and only asks us to slow down.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import msgspec

from rota.ai import tokens
from rota.ai.finish import Finish
from rota.errors import RotaError, Transient

TIMEOUT_S = 120.0
# The length of an answer without a limit; only estimates are made of it.
ANSWER_TOKENS = 1000
# The bound of an answer under a budget where neither the question nor the provider has one.
BOUND_TOKENS = 4096


class Request(msgspec.Struct, frozen=True):
    """One question. `model` is plain, or `provider:model` for an invoker that knows several."""

    model: str
    prompt: str
    system: str | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    timeout_s: float = TIMEOUT_S  # for the call itself; waiting for a rate limit comes before it
    wants_json: bool = False  # the answer shall be one JSON object; not for a list of them
    schema: dict[str, Any] | None = None  # of that object, for models that take one
    cwd: str | None = None  # the folder in which a command works; of no use to the others
    headers: dict[str, str] = {}  # further headers, for providers over HTTP
    body: dict[str, Any] = {}  # further fields of the request, for providers over HTTP
    # Awaited right before the question is sent, after all waits for limits. See `announced`.
    begin: Callable[[], Awaitable[None]] | None = None


class Reply(msgspec.Struct, frozen=True):
    """One answer. It is complete only if `finish` is `Finish.WHOLE`."""

    text: str
    model: str  # as the provider calls it
    tokens_in: int
    tokens_out: int
    cost_usd: float | None  # None: no price is known for the model
    finish: Finish = Finish.WHOLE
    finish_word: str = ""  # as the provider says it
    guessed: bool = False  # without a believable count of the provider: tokens are estimated
    is_cost_stated: bool = False  # by the provider; otherwise it comes from the prices
    request_id: str | None = None  # the provider's name for the call


class Estimate(msgspec.Struct, frozen=True):
    """The estimated usage of a question; `tokens_max` and `cost_usd_max` are upper bounds."""

    model: str
    tokens_in: int
    tokens_out: int
    cost_usd: float | None
    tokens_max: int | None = None  # None: the estimate is the maximum
    cost_usd_max: float | None = None
    is_bounded: bool = True  # False: nothing keeps the answer from being longer than estimated
    # Why no most in dollars is known, and what to do about it.
    no_price: tuple[str, str] | None = None

    @property
    def tokens(self) -> int:
        """Both directions."""
        return self.tokens_in + self.tokens_out


class Invoker(Protocol):
    """Something that answers questions."""

    @property
    def name(self) -> str:
        """How people call it: `openai`, `anthropic`, `offline`, or a name of their own."""
        ...

    async def ask(self, request: Request) -> Reply:
        """Ask once; never tries again by itself. See the head of this module for its errors."""
        ...

    def estimate(self, request: Request) -> Estimate:
        """Estimates what `ask` would take; calls no model."""
        ...


class Wrapper:
    """Base of invokers that pass questions on to another one."""

    def __init__(self, invoker: Invoker) -> None:
        self._invoker = invoker

    @property
    def name(self) -> str:
        """That of the other one."""
        return self._invoker.name

    def estimate(self, request: Request) -> Estimate:
        """Estimates what `ask` would take; calls no model, spends nothing."""
        return self._invoker.estimate(request)

    async def aclose(self) -> None:
        """Close what the other one holds open."""
        await release(self._invoker)


async def announced(request: Request) -> Request:
    """Await `begin` of a question that is about to be sent; the question without it."""
    if request.begin is None:
        return request
    await request.begin()
    return msgspec.structs.replace(request, begin=None)


def announces(invoker: Invoker) -> bool:
    """Whether an invoker awaits `begin` itself; its caller does it otherwise."""
    return bool(getattr(invoker, "announces", False))


async def release(invoker: Invoker) -> None:
    """Close what an invoker holds open, if anything. It opens it again when it is asked."""
    close = getattr(invoker, "aclose", None)
    if close is not None:
        await close()


def estimated_tokens(request: Request) -> tuple[int, int]:
    """Tokens of the question, and of its answer: the limit, or the usual length."""
    asked = tokens.estimate(request.prompt) + tokens.estimate(request.system or "")
    return asked + tokens.FRAME, request.max_tokens or ANSWER_TOKENS


def prompt_tokens_max(request: Request) -> int:
    """Tokens of the question at most: vocabularies are made of bytes, so a byte is a token."""
    texts = (request.prompt, request.system or "", str(request.body or ""))
    return sum(len(text.encode(errors="replace")) for text in texts) + tokens.FRAME_MAX


def request_id_of(error: BaseException) -> str | None:
    """The provider's name for a call that failed, where it gave one."""
    found = error.facts.get("request_id") if isinstance(error, RotaError) else None
    return found if isinstance(found, str) else None


def passing(
    message: str, *, retry_after_s: float | None = None, sent: bool = False, throttled: bool = False
) -> Transient:
    """A failure that may pass by itself; `throttled`: the provider works, and wants fewer calls."""
    error = Transient(message, retry_after_s=retry_after_s)
    error.facts.update(sent=sent, throttled=throttled)
    return error
