"""Finds timeouts of asyncio around durable waits. A suspension would drop them silently: the
run gives its slot back, and a replay starts them again.
"""

from __future__ import annotations

import asyncio
from asyncio import tasks as _tasks
from collections.abc import Container
from typing import Any

from rota.errors import UsageError
from rota.workflows.branches import Branch

# The callbacks of `asyncio.wait` and, before Python 3.12, `asyncio.wait_for` when their time is up.
_RELEASE = getattr(_tasks, "_release_waiter", None)


def undetected(loop: asyncio.AbstractEventLoop) -> str | None:
    """The warning about an event loop that does not expose its timers, such as uvloop."""
    if hasattr(loop, "_scheduled"):
        return None
    kind = type(loop)
    return (
        f"{kind.__module__}.{kind.__qualname__} does not show its timers, so Rota cannot detect an "
        "asyncio.timeout around a durable wait, which has no effect: use wait_for(…, timeout=…)"
    )


def asyncio_timeout_error(
    loop: asyncio.AbstractEventLoop, root: Branch, durable: Container[object]
) -> UsageError | None:
    """The error when a branch that waits durably is inside a timeout of asyncio. None on loops
    that do not show their timers (see `undetected`)."""
    timers: list[Any] = getattr(loop, "_scheduled", [])
    blocked = [task for task in root.blocked_tasks(durable) if task is not None]
    if not timers or not any(_bounds(timer, blocked) for timer in timers):
        return None
    return UsageError(
        "an asyncio timeout around a durable wait has no effect: the run suspends and frees its "
        "slot",
        hint="Use `wait_for(…, timeout=…)`, or a timeout of the step, the child or the workflow.",
    )


def _bounds(timer: Any, blocked: list[Any]) -> bool:
    callback = timer._callback  # None once it is cancelled
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Timeout):
        return getattr(owner, "_task", None) in blocked
    if callback is None or callback is not _RELEASE:
        return False
    return any(getattr(task, "_fut_waiter", None) is timer._args[0] for task in blocked)
