"""Calls user code of one phase: on the loop or in a thread, with a time limit that holds."""

from __future__ import annotations

import asyncio
import contextvars
from typing import Any

from rota.automations.context import Context
from rota.automations.definition import Function
from rota.automations.environment import AutomationEnvironment
from rota.automations.threads import HandlerHung
from rota.core.time.instants import micros
from rota.engine.invoke import DeadlinePassed, within_or_left
from rota.errors import HostStop, RunTimeout, UsageError

# How long stopped code may take to unwind.
UNWIND_S = 2.0


async def call(
    environment: AutomationEnvironment, function: Function, is_async: bool, ctx: Context, *args: Any
) -> Any:
    """The return value of the function. Raises what it raised, or why the host stopped it."""
    body = (
        _plain(function, ctx, *args) if is_async else _threaded(environment, function, ctx, *args)
    )
    task = asyncio.get_running_loop().create_task(body)
    limit_s = environment.settings.phase_s
    try:
        value = await within_or_left(
            task, environment.clock, environment.clock.now() + micros(limit_s), unwind_s=UNWIND_S,
            what="a handler",
        )  # fmt: skip
    except DeadlinePassed:
        error = _late(environment, ctx, limit_s)
        ctx.stopped = ctx.stopped or HostStop(error)
        raise error from None
    except HostStop as stop:
        raise (ctx.stopped or stop).cause from None
    except asyncio.CancelledError:
        if task.cancelled() and not _is_cancelled():
            automation, handler = ctx.caller
            raise UsageError(
                f"handler {handler} of automation {automation} raised CancelledError, although "
                "nothing cancelled it"
            ) from None
        raise
    if ctx.stopped is not None:  # it swallowed the stop, which counts all the same
        raise ctx.stopped.cause
    return value


def _late(environment: AutomationEnvironment, ctx: Context, limit_s: float) -> RunTimeout:
    automation, handler = ctx.caller
    late = f"handler {handler} did not end within {limit_s:g} s"
    if handler not in environment.threads.hung(automation):
        return RunTimeout(late)
    hint = "Give its calls a timeout. Restart the worker to end the thread."
    return HandlerHung(f"{late}; {environment.threads.hung_text(automation)}", hint=hint)


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def _plain(function: Function, ctx: Context, *args: Any) -> Any:
    try:
        return await function(ctx, *args)
    except (Exception, HostStop, asyncio.CancelledError):
        raise
    except BaseException as error:
        raise _tamed(error) from error


async def _threaded(
    environment: AutomationEnvironment, function: Function, ctx: Context, *args: Any
) -> Any:
    def run() -> Any:
        try:
            return function(ctx, *args)
        except StopIteration as error:  # no future can carry it
            raise RuntimeError("the handler raised StopIteration") from error
        except (Exception, HostStop):
            raise
        except BaseException as error:
            raise _tamed(error) from error

    context = contextvars.copy_context()
    return await environment.threads.run(*ctx.caller, lambda: context.run(run))


def _tamed(error: BaseException) -> UsageError:
    """A handler may end neither the program nor the loop it runs on."""
    return UsageError(f"a handler may not raise {type(error).__name__}: {error}")
