"""Steps that belong to no app: `rota.step` for libraries, `rota.run_step` for any function."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypedDict, TypeVar, TypeVarTuple, Unpack, overload

from rota.core.runs.retry import RetryPolicy
from rota.core.suggest import check_options
from rota.core.time.instants import Duration
from rota.workflows import steps
from rota.workflows.steps import Step, StepOptions, next_key
from rota.workflows.workflow_run import current_run

P = ParamSpec("P")
R = TypeVar("R")
Ts = TypeVarTuple("Ts")


@overload
def step(function: Callable[P, R], /) -> Step[P, R]: ...


@overload
def step(
    function: None = None, /, **options: Unpack[StepOptions]
) -> Callable[[Callable[P, R]], Step[P, R]]: ...


def step(function: Any = None, /, **options: Unpack[StepOptions]) -> Any:
    """Make a function a step of any app, so that a library can ship steps.

    In one run the name belongs to this function: the call of another step with the same name is
    refused.

    Args:
        function: The function; without one, `step` is a decorator with options.
        options: As those of `app.step`.

    Returns:
        A `Step`, or a decorator that makes one.

    Example:
        @rota.step(name="shop.charge", retries=5)
        async def charge(order: str) -> str: ...
    """
    check_options(options, StepOptions, step)
    if function is None:
        return lambda function: Step(function, **options)
    return Step(function, **options)


class AdHocOptions(TypedDict, total=False):
    """The options of `run_step`."""

    retries: int | RetryPolicy | None
    timeout: Duration | None


_OPTIONS = tuple(AdHocOptions.__annotations__)


@overload
def run_step(
    name: str, function: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs
) -> Coroutine[Any, Any, R]: ...


@overload
def run_step(
    name: str, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
) -> Coroutine[Any, Any, R]: ...


@overload
def run_step(
    name: str,
    function: Callable[[Unpack[Ts]], Coroutine[Any, Any, R]],
    /,
    *args: *Ts,
    **options: Unpack[AdHocOptions],
) -> Coroutine[Any, Any, R]: ...


@overload
def run_step(
    name: str,
    function: Callable[[Unpack[Ts]], R],
    /,
    *args: *Ts,
    **options: Unpack[AdHocOptions],
) -> Coroutine[Any, Any, R]: ...


def run_step(  # type: ignore[misc]  # mypy cannot match *Ts with *args: Any
    name: str, function: Callable[..., Any], /, *args: Any, **kwargs: Any
) -> Coroutine[Any, Any, Any]:
    """Call any function as a step: in a workflow its result is recorded and not computed again.

    A sync function runs in a thread. Outside of a workflow this is a plain call.

    Args:
        name: The name of the step; one function has it in a run.
        function: A function, sync or async.
        args, kwargs: Its arguments, which a replay compares. `retries` and `timeout` are options,
            as those of `app.step`.

    Returns:
        The result of the function.

    Raises:
        UsageError: Another function has this name in the run.

    Example:
        page = await rota.run_step("fetch", client.get, url, retries=3)
    """
    run = current_run()
    options = {option: kwargs.pop(option) for option in _OPTIONS if option in kwargs}
    made = Step(function, name=name, **options)
    if run is None:
        return _plain(function, args, kwargs)
    key = next_key(run, made)
    return run.noted("run_step", lambda: steps.run_step(run, made, key, args, kwargs))


async def _plain(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    if inspect.iscoroutinefunction(function):
        return await function(*args, **kwargs)
    return await asyncio.to_thread(function, *args, **kwargs)
