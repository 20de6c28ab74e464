"""Compiled code as text: the same for unchanged code in every process. Pure."""

from __future__ import annotations

from functools import lru_cache
from types import CodeType


@lru_cache(4096)
def code_text(code: CodeType | None) -> str:
    """Changes when the compiled code does; comments and line numbers do not count."""
    return repr(_essence(code))


def _essence(code: CodeType | None) -> tuple[object, ...]:
    if code is None:
        return ()
    constants = [_constant(one) for one in code.co_consts]
    return (code.co_code, constants, code.co_names, code.co_varnames)


def _constant(value: object) -> object:
    """`x in {"a", "b"}` compiles to a frozenset, whose order follows the process's hash seed."""
    if isinstance(value, CodeType):
        return _essence(value)
    if isinstance(value, frozenset):
        return sorted((_constant(one) for one in value), key=repr)
    if isinstance(value, tuple):
        return tuple(_constant(one) for one in value)
    return value
