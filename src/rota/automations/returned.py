"""The one change of a handler run is the value that `mutate` returns, so a second one cannot be
written down. A list is not a change, and a change that is built and not returned is refused before
anything is sent."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import NoneType, UnionType
from typing import Any, Union

from rota.errors import NotAllowed, UsageError
from rota.tools.base import Change

ONE_CHANGE = (
    "Nothing was sent. Build one change, and return it: `return send.change(...)`; or return None. "
    "Make several changes with one tool, or with a consumer for each."
)


def the_change(name: str, value: object) -> Change | None:
    """The change that `mutate` of this handler returned; NotAllowed if it is anything else."""
    if value is None or isinstance(value, Change):
        return value
    raise NotAllowed(
        f"mutate of {name} returned a {type(value).__name__}; it returns one change, or None",
        hint=ONE_CHANGE,
    )


def refuse_lost(what: str, value: object, built: Sequence[Change]) -> None:
    """NotAllowed if a change was built that is not the one that mutate returned."""
    lost = [one.tool.name for one in built if one is not value]
    if lost:
        tools = ", ".join(dict.fromkeys(lost))
        raise NotAllowed(f"{what} built a change of {tools} that would be lost", hint=ONE_CHANGE)


def event_type(function: Callable[..., Any]) -> Any:
    """The type of the payloads that a consumer of one function takes: `Order` for `Event[Order]`,
    Any for an event without a type."""
    [parameter, *_] = inspect.signature(function).parameters.values() or [None]
    if parameter is None or parameter.annotation is inspect.Parameter.empty:
        return Any
    try:
        hint = typing.get_type_hints(function)[parameter.name]
    except NameError as error:
        raise UsageError(
            f"the type of {parameter.name} of {function.__name__} cannot be resolved: {error}",
            hint="Define the type in the module, before the consumer.",
        ) from None
    return next(iter(typing.get_args(hint)), Any)


def shape_problems(
    name: str, functions: Mapping[str, Callable[..., Any]], *, takes_event: bool = False
) -> Iterator[str]:
    """The problems that the declarations of a handler's functions show, before any of them runs."""
    for phase, function in functions.items():
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            yield f"{phase} of {name} has `yield`; it returns one value"
        elif takes_event and len(inspect.signature(function).parameters) != 1:
            yield f"{name} takes {inspect.signature(function)}; it takes one event"
        elif phase == "mutate" and not _may_be_change(_hint(function)):
            hint = inspect.formatannotation(_hint(function))
            yield f"mutate of {name} returns {hint}; it returns one change, or None"


def _hint(function: Callable[..., Any]) -> Any:
    """The type that a function says it returns; Any if it does not, or it cannot be resolved."""
    try:
        return typing.get_type_hints(function).get("return", Any)
    except Exception:  # a name that only a type checker imports
        return Any


def _may_be_change(hint: Any) -> bool:
    if typing.get_origin(hint) in (Union, UnionType):
        return all(map(_may_be_change, typing.get_args(hint)))
    return hint in (Any, object, None, NoneType, Change)
