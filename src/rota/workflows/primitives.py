"""The primitives of workflow code besides steps: sleep, wait_for, now, random, uuid, gather.

Each is durable inside a workflow and an ordinary call outside of one.
"""

from __future__ import annotations

import asyncio
import random as _random
import uuid as _uuid
from collections import deque
from collections.abc import Awaitable, Coroutine, Generator
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple, TypeVar

import msgspec

from rota.core.runs.names import checked_name
from rota.core.runs.options import StoredRunOptions
from rota.core.time.instants import (
    FIRST,
    Duration,
    bounded,
    instant,
    micros,
    moment,
    patience_micros,
)
from rota.core.typed import JsonReader
from rota.engine.clock import SystemClock
from rota.errors import UsageError
from rota.workflows import branches
from rota.workflows.results import record_result, repeat_result
from rota.workflows.signals import take_signal
from rota.workflows.workflow_run import WorkflowRun, current_run

T = TypeVar("T")


class ThisRun(NamedTuple):
    """The facts about its own run that a workflow may read."""

    id: str
    root_id: str
    name: str
    attempt: int
    trigger: str
    due_at: datetime | None
    external_id: str | None
    is_cancelled: bool
    # For a scheduled run: the occurrence that was fired before its own (nominal), if there was one.
    previous_due_at: datetime | None = None


def _inside(verb: str) -> WorkflowRun:
    flow = current_run()
    if flow is None:
        raise UsageError(
            f"{verb} was called outside of a workflow",
            hint="Call it in the workflow function itself, not in a step or in plain code.",
        )
    return flow


def _refuse_in_step(verb: str) -> None:
    step = branches.step_around()
    if step is not None:
        raise UsageError(
            f"rota.{verb} was called inside step {step}, where it is not durable",
            hint="Call it in the workflow, between steps. In a step, use asyncio.sleep.",
        )


def sleep(duration: Duration) -> Coroutine[Any, Any, None]:
    """Sleep durably: it holds no worker, and a restart does not begin the sleep again.

    Args:
        duration: Seconds, a `timedelta`, or text such as "90s", "24h" or "30d".

    Raises:
        UsageError: It is called inside a step.

    Example:
        await sleep("24h")
    """
    flow = current_run()
    if flow is None:
        _refuse_in_step("sleep")
        return asyncio.sleep(micros(duration) / 1e6)
    return flow.noted("sleep", lambda: _sleep(flow, duration))


async def _sleep(flow: WorkflowRun, duration: Duration) -> None:
    wake_at = flow.clock.now() + micros(duration)
    await _sleep_until(flow, bounded(max(wake_at, FIRST), f"the end of sleep({duration!r})"))


def sleep_until(when: datetime) -> Coroutine[Any, Any, None]:
    """Sleep durably until a time.

    Args:
        when: An aware `datetime`. A time in the past returns at once.

    Raises:
        UsageError: It is called inside a step.
    """
    flow = current_run()
    if flow is None:
        _refuse_in_step("sleep_until")
        return asyncio.sleep(max(0, instant(when) - SystemClock().now()) / 1e6)
    wake_at = bounded(max(instant(when), FIRST), when.isoformat())
    return flow.noted("sleep_until", lambda: _sleep_until(flow, wake_at))


async def _sleep_until(flow: WorkflowRun, wake_at: int) -> None:
    key = flow.key_for("sleep")
    step = flow.recall(key)
    if step is None:
        await flow.permit_new()
        step = flow.new_step(key, "sleep", status="waiting", wake_at=wake_at)
        await flow.record(step)
    assert step.wake_at is not None
    if step.status == "completed":
        await repeat_result(flow, step)
    while step.status == "waiting" and flow.clock.now() < step.wake_at:
        await flow.wait("sleep", step.wake_at)
    if step.status == "waiting" and flow.order is not None:
        # Other branches may have seen that it is over: a replay has to know when.
        await record_result(flow, msgspec.structs.replace(step, status="completed"))


def wait_for(
    name: str,
    *,
    timeout: Duration | None = None,
    type: Any = Any,  # noqa: A002
) -> Coroutine[Any, Any, Any]:
    """Wait durably for the next signal of a name.

    Args:
        name: The name that the sender uses.
        timeout: How long to wait; 0 takes a signal that was sent before.
        type: The type of the value. The sender of a wrong value gets an error.

    Returns:
        The value of the signal.

    Raises:
        TimeoutError: No signal came in time.
        UsageError: It is called outside of a workflow.

    Example:
        verdict = await wait_for("verdict", timeout="3d", type=str)
    """
    flow = _inside("wait_for")
    checked_name(name, "signal name")
    limit_us = None if timeout is None else patience_micros(timeout)
    return flow.noted("wait_for", lambda: _wait_for(flow, name, limit_us, type))


async def _wait_for(flow: WorkflowRun, name: str, limit_us: int | None, type_: Any) -> Any:
    step = await take_signal(flow, name, limit_us, type_)
    if step.status == "failed":
        timeout = TimeoutError(f"no signal {name!r} came in time")
        flow.fails(step.key, timeout)
        raise timeout
    return flow.read_recorded(JsonReader(type_), step, f"signal {name}")


def now() -> Coroutine[Any, Any, datetime]:
    """The current time in UTC, recorded: it is the same at every replay.

    In a step it is the time of the engine, not recorded.
    """
    flow = current_run()
    return _plain_now() if flow is None else flow.noted("now", lambda: _now(flow))


async def _plain_now() -> datetime:
    place = branches.here.get()
    clock = place.clock if isinstance(place, branches.InStep) else None
    return moment((clock or SystemClock()).now())


async def _now(flow: WorkflowRun) -> datetime:
    key = flow.key_for("now")
    step = flow.recall(key)
    if step is None:
        await flow.permit_new()
        at = flow.clock.now()
        step = flow.new_step(key, "now", output=str(at), finished_at=at)
        await record_result(flow, step)
    else:
        await repeat_result(flow, step)
    return moment(int(step.output or 0))


class _Patched:
    """The answer of `patched`, which has to be awaited: it is recorded first."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __await__(self) -> Generator[Any, None, bool]:
        return _is_patched(self._name).__await__()

    def __bool__(self) -> bool:
        raise UsageError(
            f"patched({self._name!r}) has to be awaited",
            hint=f"Write `if await patched({self._name!r}):`.",
        )


def patched(name: str) -> _Patched:
    """Change the code of a workflow under running runs.

    Args:
        name: The name of the change, unique in the workflow.

    Returns:
        An awaitable bool: False for a run that passed this point under the old code. The run
        records the answer.

    Example:
        if await patched("fraud check"):
            await check_fraud(order_id)  # the new path
    """
    return _Patched(name)


async def _is_patched(name: str) -> bool:
    flow = current_run()
    if flow is None:
        return True
    flow.check_open()
    key = f"patch {name}"
    step = flow.recall(key)
    if step is None:
        step = await flow.record_patch(key, not await flow.has_old_path())
    return step.output == "true"


def random() -> float:
    """A random number in [0, 1), the same at every replay (drawn from the run's own seed)."""
    flow = current_run()
    return _random.random() if flow is None else flow.random.random()


def uuid() -> _uuid.UUID:
    """A random UUID, the same at every replay (drawn from the run's own seed)."""
    flow = current_run()
    bits = _random.getrandbits(128) if flow is None else flow.random.getrandbits(128)
    return _uuid.UUID(int=bits, version=4)


def this_run() -> ThisRun:
    """The run that executes this code: ids, attempt, trigger, nominal times, `is_cancelled`.

    Raises:
        UsageError: It is called outside of a workflow.

    Example:
        while not this_run().is_cancelled: ...
    """
    flow = _inside("this_run")
    claim = flow.claim
    previous_at = StoredRunOptions.read(claim.options).previous_due_at
    return ThisRun(
        claim.id, claim.root_id, claim.name, claim.attempt, claim.trigger,
        None if claim.due_at is None else moment(claim.due_at), claim.external_id,
        flow.interrupted, None if previous_at is None else moment(previous_at),
    )  # fmt: skip


async def gather(*work: Awaitable[T], limit: int | None = None) -> list[T]:
    """Await many calls at the same time.

    Args:
        work: Calls of steps and children, or other awaitables.
        limit: At most so many at the same time.

    Returns:
        The results, in the order of the calls.

    Raises:
        Exception: The first error of a call; it cancels the others.

    Example:
        pages = await gather(*[fetch(url) for url in urls], limit=10)
    """
    if limit is not None and limit < 1:
        raise UsageError(f"limit={limit} allows no run")
    if wrong := [type(item).__name__ for item in work if not isinstance(item, Awaitable)]:
        hint = "Write gather(*calls), with a star before a list; call each step and workflow."
        raise UsageError(f"gather cannot await a {wrong[0]}", hint=hint)
    waiting = deque(enumerate(work))
    running: dict[int, asyncio.Future[T]] = {}
    results: dict[int, T] = {}
    ended: list[int] = []
    progress = asyncio.Event()

    def end(index: int, _: object) -> None:
        ended.append(index)
        progress.set()

    try:
        while waiting or running:
            while waiting and (limit is None or len(running) < limit):
                index, item = waiting.popleft()
                running[index] = asyncio.ensure_future(item)
                branches.join(running[index], item, progress)
                # Not `asyncio.wait`: its cost for each call that ends grows with all that run.
                running[index].add_done_callback(partial(end, index))
            await progress.wait()
            progress.clear()
            for index in sorted(ended):
                results[index] = running.pop(index).result()
            ended.clear()
        return [results[index] for index in range(len(work))]
    except BaseException:
        await _cancel_all(list(running.values()), [item for _, item in waiting])
        raise


async def _cancel_all(running: list[asyncio.Future[Any]], waiting: list[Awaitable[Any]]) -> None:
    for item in waiting:
        if asyncio.iscoroutine(item):
            item.close()  # it has never begun
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
