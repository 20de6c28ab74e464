"""`@tool`: a function of one's own as a tool, with typed parameters."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, Unpack, cast, overload

from rota.core import typed
from rota.core.automations.failure_policy import ToolPolicyOptions, checked_policy
from rota.core.suggest import check_options
from rota.core.user_code import in_its_thread
from rota.errors import BadInput, OutcomeUnknown, Transient, UsageError
from rota.tools.base import (
    PARAMS_BYTES_MAX,
    SETTLE_S,
    Call,
    Safety,
    Tool,
    Unknown,
    Verdict,
    checked_safety,
    checked_settle_s,
)

Function = Callable[..., Any]
CALL = "call"  # a parameter of this name receives the Call


def tool(
    *,
    safety: Safety | str,
    name: str | None = None,
    settle_s: float = SETTLE_S,
    service: str | None = None,
    **policy: Unpack[ToolPolicyOptions],
) -> Callable[[Function], FunctionTool]:
    """Make a tool of a sync or async function; its type hints are its parameters.

    A reconcilable tool is asked `settle_s` after the call, when its counterpart is surely done.
    A parameter named `call` receives the `Call` with the key. Functions that can fail before or
    instead of their effect say so with NotSent or Rejected; any other exception of a write means
    that the outcome is unknown. `service` is whom it asks, for people; `retries` and
    `failed_reads` say what follows a failure.
    """
    check_options(policy, ToolPolicyOptions, tool)
    kind = checked_safety(safety)
    settle_s = checked_settle_s(settle_s, tool=name or "@tool")
    failures = checked_policy(name or "@tool", **policy)

    def decorate(function: Function) -> FunctionTool:
        made = FunctionTool(function, kind, name or function.__name__, settle_s)
        made.service, made.policy = service, failures
        return made

    return decorate


class FunctionTool(Tool):
    """A tool made of a function. Calling it directly calls the function."""

    def __init__(
        self, function: Function, safety: Safety, name: str, settle_s: float = SETTLE_S
    ) -> None:
        self.name = name
        self.safety = safety
        self.settle_s = settle_s
        self.__doc__ = function.__doc__
        self._perform = _CallChecker(function)
        self._reconciler: _CallChecker | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The function itself, for tests and scripts."""
        return self._perform.function(*args, **kwargs)

    def read(self, params: dict[str, Any]) -> dict[str, Any]:
        """Keyword arguments for the function."""
        if self.safety is Safety.RECONCILABLE and self._reconciler is None:
            raise UsageError(
                f"{self.name} is declared reconcilable, but has no reconcile function",
                hint=f"Attach a function with @{self.name}.reconcile, or declare it unknowable.",
            )
        return self._perform.read(params, tool=self.name)

    async def perform(self, params: dict[str, Any], call: Call) -> Any:
        """Run the function; one that takes too long has an unknown outcome."""
        limit = asyncio.timeout(call.timeout_s)
        try:
            async with limit:
                return await self._perform.run(params, call)
        except TimeoutError as error:
            if not limit.expired():
                raise
            message = f"{self.name} did not end within {call.timeout_s:g} s"
            if self.safety is Safety.READ:
                raise Transient(message) from error
            raise OutcomeUnknown(message, tool=self.name) from error

    async def look_up(self, params: dict[str, Any], call: Call) -> Verdict:
        """Run the attached function."""
        if self._reconciler is None:
            return await super().look_up(params, call)
        if call.key in self._perform.at_work:
            return Unknown(f"a call of {self.name} that took too long is still running")
        try:
            async with asyncio.timeout(call.timeout_s):
                return cast(Verdict, await self._reconciler.run(params, call))
        except TimeoutError:
            why = f"the reconcile function of {self.name} did not end within {call.timeout_s:g} s"
            return Unknown(why, unreachable=True)

    @overload
    def reconcile(self, params: Function) -> Function: ...
    @overload
    def reconcile(self, params: dict[str, Any], call: Call) -> Coroutine[Any, Any, Verdict]: ...
    def reconcile(self, params: Any, call: Call | None = None) -> Any:
        """As a decorator: attach the function that reconciles. As a method: call it."""
        if call is not None:
            return super().reconcile(params, call)
        if self.safety in (Safety.READ, Safety.UNKNOWABLE):
            raise UsageError(
                f"{self.name} is declared {self.safety}, so there is nothing to reconcile",
                hint='Declare it with safety="reconcilable" or "idempotent".',
            )
        self._reconciler = _CallChecker(params, known=self._perform.names)
        self.made_from = (*self.made_from, params)
        return params


class _CallChecker:
    """A function with its typed parameters, and whether it takes the call."""

    def __init__(self, function: Function, known: frozenset[str] | None = None) -> None:
        self.function = function
        self._signature = typed.Signature(function, without=CALL)
        named = inspect.signature(function).parameters
        self._takes_call = CALL in named
        # Keys of calls in threads, which cannot be stopped. By key, not by call: two calls of one
        # key are only made by an idempotent tool, which needs no reconciliation.
        self.at_work: set[str] = set()
        self.names = frozenset(named) - {CALL}
        needed = {name for name in self.names if named[name].default is inspect.Parameter.empty}
        if known is not None and not needed <= known:
            strange = ", ".join(sorted(needed - known))
            raise BadInput(
                f"{function.__name__} asks for {strange}, which the tool does not take",
                hint="A reconcile function takes parameters of its tool, by the same names.",
            )

    def read(self, params: dict[str, Any], *, tool: str) -> dict[str, Any]:
        what = f"parameters of {tool}"
        text = typed.encode(params, what=what, bytes_max=PARAMS_BYTES_MAX)
        checked = self._signature.check(text, what=what, bytes_max=PARAMS_BYTES_MAX)
        return self._signature.read(checked, what=what)

    async def run(self, params: dict[str, Any], call: Call) -> Any:
        values = {name: value for name, value in params.items() if name in self.names}
        if self._takes_call:
            values[CALL] = call
        if inspect.iscoroutinefunction(self.function):
            return await self.function(**values)
        answer = await asyncio.to_thread(self._in_thread, values, call.key)
        return await answer if inspect.isawaitable(answer) else answer

    def _in_thread(self, values: dict[str, Any], key: str) -> Any:
        self.at_work.add(key)
        try:
            return in_its_thread(lambda: self.function(**values))
        finally:
            self.at_work.discard(key)
