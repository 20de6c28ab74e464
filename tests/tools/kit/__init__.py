"""The work of a host with a tool, in short: the rules of the protocol, without a ledger."""

from __future__ import annotations

from typing import Any

from rota.errors import NotSent, OutcomeUnknown
from rota.tools import Applied, Call, NotApplied, Safety, Tool

CALL = Call(key="key-1", timeout_s=60.0)
PERSON = "a person is asked"


async def settle(tool: Tool, params: dict[str, Any], call: Call = CALL, tries: int = 6) -> Any:
    """Call, and after each fault reconcile or call again, until the outcome is known."""
    for _ in range(tries):
        try:
            return await tool.call(params, call)
        except NotSent:
            continue
        except OutcomeUnknown:
            settled = await after_unknown(tool, params, call)
            if settled is not None:
                return settled
    raise AssertionError(f"still unknown after {tries} tries")


async def after_unknown(tool: Tool, params: dict[str, Any], call: Call) -> Any:
    """None if the tool may be called again; otherwise how it ended."""
    if tool.safety is Safety.IDEMPOTENT:
        return None
    verdict = await tool.reconcile(params, call)
    if isinstance(verdict, Applied):
        return verdict.result
    return None if isinstance(verdict, NotApplied) else PERSON


def same(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal and of the same types, all the way down."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        alike = one.keys() == other.keys() and all(type(name) is str for name in (*one, *other))
        return alike and all(same(value, other[name]) for name, value in one.items())
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)
