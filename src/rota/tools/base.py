"""The tool protocol: one effect on the outside world, and what can be known of it afterwards.

A tool declares its replay safety. `call` makes the effect; `reconcile` finds out whether an
earlier call with the same key had its effect. The error of `call` says what is known:

    UsageError               the call was malformed; nothing was sent
    NotSent                  it did not happen; try again later, with the same key
    Rejected                 the counterpart refused; it did not happen, and would not next time
    NeedsLogin,              it did not happen; a person has to act first
    NeedsPermission
    OutcomeUnknown           it may have happened. An idempotent tool may be called again with the
                             same key; any other must be reconciled, or a person asked

Each error is about one call. Once a call ended unknown, a later call that is rejected does
not prove that the first had no effect: only a success, or a verdict of `reconcile`, does.
Anything else that would leave `call` of a write becomes OutcomeUnknown: nothing is guessed.
The host records that the effect happened before it encodes the result.
"""

from __future__ import annotations

import copy
import functools
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from enum import StrEnum
from typing import Any, NamedTuple, Self, TypeAlias, TypeVar, Unpack

from rota.core import typed
from rota.core.automations.failure_policy import FailurePolicy, ToolPolicyOptions, checked_policy
from rota.core.fingerprint import MadeFrom
from rota.core.runs.failures import is_outage, kind_of
from rota.core.runs.retry import RETRY_DELAY_S_MAX
from rota.core.suggest import check_options
from rota.errors import NeedsLogin, NeedsPermission, NotSent, OutcomeUnknown, Rejected, UsageError

T = TypeVar("T")
SETTLE_S = 10.0
PARAMS_BYTES_MAX = 16 * 1024 * 1024
# The errors that a tool may raise: each says for itself what is known of the effect. A UsageError
# counts only before the tool begins: inside of one it may come from anything, at any time.
_CLASSIFIED = (NotSent, Rejected, NeedsLogin, NeedsPermission, OutcomeUnknown)


class Safety(StrEnum):
    """The action when the outcome of a call is unknown."""

    READ = "read"  # changes nothing: call it again
    IDEMPOTENT = "idempotent"  # call it again with the same key: the effect happens once
    RECONCILABLE = "reconcilable"  # ask `reconcile`; never call again without its verdict
    UNKNOWABLE = "unknowable"  # only a person can tell


def checked_safety(safety: Safety | str) -> Safety:
    """A kind of replay safety by its name, or UsageError."""
    try:
        return Safety(safety)
    except ValueError:
        known = ", ".join(Safety)
        raise UsageError(
            f"{safety!r} is not a kind of replay safety", hint=f"Use one of: {known}."
        ) from None


class Call(NamedTuple):
    """One call: the key of its effect, the same over all retries, and the time it may take."""

    key: str
    timeout_s: float


class Change(NamedTuple):
    """One change, as a consumer returns it. Nothing is sent before Rota has recorded it."""

    tool: Tool
    params: dict[str, Any]


_BUILT: ContextVar[list[Change] | None] = ContextVar("rota_changes", default=None)


@contextmanager
def changes_built() -> Iterator[list[Change]]:
    """The changes that code builds inside of this block: in its tasks and threads too."""
    made: list[Change] = []
    token = _BUILT.set(made)
    try:
        yield made
    finally:
        _BUILT.reset(token)


class Applied(NamedTuple):
    """The effect happened; `result` is what the call returned, or as much as can be found."""

    result: Any


class NotApplied(NamedTuple):
    """The effect did not happen, and no earlier call can still make it happen: the host calls
    the tool again. A counterpart that may still be at work is Unknown."""

    why: str


class Unknown(NamedTuple):
    """The outcome is unknown now; ask again later (after `retry_after_s`, if given), or a person.

    `unreachable`: the counterpart did not answer at all. Such an answer does not count: Rota
    repeats it until the counterpart answers, without a person.
    """

    why: str
    retry_after_s: float | None = None
    unreachable: bool = False


Verdict: TypeAlias = Applied | NotApplied | Unknown


class Tool(MadeFrom, ABC):
    """Base of all tools. Subclasses write `perform`, and `look_up` if they can reconcile."""

    name: str
    safety: Safety
    # An absence that `reconcile` sees sooner than this after the call proves nothing: a slow
    # counterpart may still be at work. The host of a reconcilable tool waits that long.
    settle_s: float = SETTLE_S
    # The counterpart, for people: they read "waiting for page (example.com)".
    service: str | None = None
    policy: FailurePolicy = FailurePolicy()

    def options(self, **options: Unpack[ToolPolicyOptions]) -> Self:
        """The same tool with a policy of its own for failures, which wins over that of its caller.

        Options: retries, failed_reads."""
        check_options(options, ToolPolicyOptions, self.options)
        changed = copy.copy(self)
        changed.policy = checked_policy(self.name, **options)
        return changed

    @property
    def label(self) -> str:
        """The tool and its service, for people."""
        return f"{self.name} ({self.service})" if self.service else self.name

    def change(self, /, **params: Any) -> Change:
        """The change that a call with these parameters makes, for a consumer to return."""
        if self.safety is Safety.READ:
            raise UsageError(
                f"{self.name} reads, so it makes no change",
                hint="Call it in `prepare`: `await ctx.call(tool, ...)`.",
            )
        made = Change(self, params)
        built = _BUILT.get()
        if built is not None:
            built.append(made)
        return made

    def check(self, params: dict[str, Any]) -> None:
        """Raise BadInput if `call` would refuse these parameters; has no effect."""
        self.read(params)

    async def call(self, params: dict[str, Any], call: Call) -> Any:
        """Make the effect once; see the head of this module for what may be raised."""
        values = self.read(params)
        try:
            return await self.perform(values, call)
        except _CLASSIFIED:
            raise
        except Exception as error:
            if self.safety is Safety.READ:
                raise
            raise OutcomeUnknown(
                f"{self.name} failed with {type(error).__name__}, and did not say whether its "
                f"effect happened: {error}",
                tool=self.name,
            ) from error

    async def reconcile(self, params: dict[str, Any], call: Call) -> Verdict:
        """Say whether an earlier call with these parameters and this key had its effect."""
        values = self.read(params)
        try:
            verdict: object = await self.look_up(values, call)
        except (NeedsLogin, NeedsPermission, UsageError):
            raise
        except Exception as error:
            why = f"{self.name} could not reconcile: {type(error).__name__}: {error}"
            return Unknown(why, unreachable=is_outage(error, kind_of(error)))
        if not isinstance(verdict, Applied | NotApplied | Unknown):
            return Unknown(
                f"{self.name} returned {type(verdict).__name__} from reconcile; "
                "a verdict is Applied, NotApplied or Unknown"
            )
        return verdict

    @abstractmethod
    def read(self, params: dict[str, Any]) -> Any:
        """The parameters, typed and checked."""

    @abstractmethod
    async def perform(self, params: Any, call: Call) -> Any:
        """The effect itself."""

    async def look_up(self, params: Any, call: Call) -> Verdict:
        """Whether the effect happened; without this, only a person can tell."""
        return Unknown(f"{self.name} cannot find out whether its effect happened")


def checked_settle_s(settle_s: object, *, tool: str) -> float:
    """A time to settle, or UsageError."""
    number = isinstance(settle_s, int | float) and not isinstance(settle_s, bool)
    if not number or not 0 <= settle_s <= RETRY_DELAY_S_MAX:  # type: ignore[operator]
        raise UsageError(
            f"{tool}: settle_s={settle_s!r} is not a number of seconds up to 7 days",
            hint="Give the time that the counterpart may need, such as settle_s=60.",
        )
    return float(settle_s)  # type: ignore[arg-type]


def read_params(kind: type[T], params: dict[str, Any], *, tool: str) -> T:
    """`params` as a value of this type; BadInput names the path to what does not fit."""
    what = f"parameters of {tool}"
    text = typed.encode(params, what=what, bytes_max=PARAMS_BYTES_MAX)
    hint = "Compare the parameters with those that the tool takes; nothing was called."
    values: T = _reader_of(kind).read(text, what=what, hint=hint)  # type: ignore[arg-type]
    return values


_reader_of = functools.cache(typed.JsonReader)
