"""The primitives of workflow code besides steps: sleep, wait_for, now, random, uuid, gather.

Each is durable inside a workflow and an ordinary call outside of one.
"""

from __future__ import annotations

import asyncio
import random as _random
import uuid as _uuid
from collections import deque
from collections.abc import Awaitable, Coroutine, Generator, Iterable, Iterator, Mapping
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple, TypeVar

from rota.client import caller
from rota.core.runs.names import checked_name, read_tags
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
from rota.errors import ContinueAsNew, UsageError
from rota.workflows.calls import SleepCall
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
    tags: Mapping[str, str] = {}


def _inside(verb: str) -> WorkflowRun:
    run = current_run()
    if run is None:
        raise UsageError(
            f"{verb} was called outside of a workflow",
            hint="Call it in the workflow function itself, not in a step or in plain code.",
        )
    return run


def _refuse_in_step(verb: str) -> None:
    step = caller.current_step()
    if step is not None:
        raise UsageError(
            f"rota.{verb} was called inside step {step.name}, where it is not durable",
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
    run = current_run()
    if run is None:
        _refuse_in_step("sleep")
        return asyncio.sleep(micros(duration) / 1e6)
    wake_at = run.clock.now() + micros(duration)
    return _sleeping(run, bounded(max(wake_at, FIRST), f"the end of sleep({duration!r})"), "sleep")


def sleep_until(when: datetime) -> Coroutine[Any, Any, None]:
    """Sleep durably until a time.

    Args:
        when: An aware `datetime`. A time in the past returns at once.

    Raises:
        UsageError: It is called inside a step.
    """
    run = current_run()
    if run is None:
        _refuse_in_step("sleep_until")
        return asyncio.sleep(max(0, instant(when) - SystemClock().now()) / 1e6)
    wake_at = bounded(max(instant(when), FIRST), when.isoformat())
    return _sleeping(run, wake_at, "sleep_until")


def _sleeping(run: WorkflowRun, wake_at: int, name: str) -> Coroutine[Any, Any, None]:
    key = run.key_for("sleep")
    return run.noted(name, lambda: _sleep(run, key, wake_at))


async def _sleep(run: WorkflowRun, key: str, wake_at: int) -> None:
    call = SleepCall(run, key, run.records.replay.ask(key))
    call.until = wake_at
    await run.end_of(call)


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
    run = _inside("wait_for")
    checked_name(name, "signal name")
    limit_us = None if timeout is None else patience_micros(timeout)
    key = run.key_for(f"wait {name}")
    return run.noted("wait_for", lambda: _wait_for(run, key, name, limit_us, type))


async def _wait_for(run: WorkflowRun, key: str, name: str, limit_us: int | None, type_: Any) -> Any:
    step = await take_signal(run, key, name, limit_us, type_)
    if step.status == "failed":
        timeout = TimeoutError(f"no signal {name!r} came in time")
        run.fails(step.key, timeout)
        raise timeout
    return run.read_recorded(JsonReader(type_), step, f"signal {name}")


def now() -> Coroutine[Any, Any, datetime]:
    """The current time in UTC, recorded: it is the same at every replay.

    In a step it is the time of the engine, not recorded.
    """
    run = current_run()
    if run is None:
        return _plain_now()
    key = run.key_for("now")
    return run.noted("now", lambda: _now(run, key))


async def _plain_now() -> datetime:
    step = caller.current_step()
    return moment((SystemClock() if step is None else step.clock).now())


async def _now(run: WorkflowRun, key: str) -> datetime:
    step = run.records.fact(key, "now", lambda: str(run.clock.now()))
    return moment(int(step.output or 0))


class Patched:
    """The answer of `patched`: true or false at once, and it may be awaited too."""

    def __init__(self, answer: bool) -> None:
        self._answer = answer

    def __await__(self) -> Generator[Any, None, bool]:
        yield from ()
        return self._answer

    def __bool__(self) -> bool:
        return self._answer

    def __repr__(self) -> str:
        return str(self._answer)


def patched(name: str) -> Patched:
    """Change the code of a workflow under running runs.

    Args:
        name: The name of the change, unique in the workflow.

    Returns:
        A bool, which may be awaited: False for a run that passed this point under the old code.
        The run records the answer.

    Example:
        if patched("fraud check"):
            await check_fraud(order_id)  # the new path
    """
    run = current_run()
    return Patched(True if run is None else run.records.is_patched(name))


def random() -> float:
    """A random number in [0, 1), the same at every replay (drawn from the run's own seed)."""
    run = current_run()
    return _random.random() if run is None else run.random.random()


def uuid() -> _uuid.UUID:
    """A random UUID, the same at every replay (drawn from the run's own seed)."""
    run = current_run()
    bits = _random.getrandbits(128) if run is None else run.random.getrandbits(128)
    return _uuid.UUID(int=bits, version=4)


def in_workflow() -> bool:
    """Whether this is code of a workflow: False in a step and outside of workflows.

    Example:
        pause = rota.sleep if rota.in_workflow() else asyncio.sleep
    """
    return current_run() is not None


def this_run() -> ThisRun:
    """The run that executes this code: ids, attempt, tags, nominal times, `is_cancelled`.

    Raises:
        UsageError: It is called outside of a workflow.

    Example:
        while not this_run().is_cancelled: ...
    """
    run = _inside("this_run")
    claim = run.claim
    previous_at = StoredRunOptions.read(claim.options).previous_due_at
    return ThisRun(
        claim.id, claim.root_id, claim.name, claim.attempt, claim.trigger,
        None if claim.due_at is None else moment(claim.due_at), claim.external_id,
        run.interrupted or run.ending.end is not None,
        None if previous_at is None else moment(previous_at), read_tags(claim.tags),
    )  # fmt: skip


def continue_as_new(*args: Any, **kwargs: Any) -> ContinueAsNew:
    """End this run and begin the next one of the same workflow, with an empty history.

    The next run keeps ids, unique key, tags, parent, schedule, queue, priority, key and options,
    and the signals that were not taken. Results, signals and commands follow it.

    Args:
        args, kwargs: The arguments of the next run.

    Returns:
        An exception. Raise it: nothing after it is executed.

    Raises:
        BadInput: The arguments do not fit the workflow.
        UsageError: It is called outside of a workflow, or in a step.

    Example:
        raise rota.continue_as_new(state, page=page + 1)
    """
    run = _inside("continue_as_new")
    run.check_open()
    starter = run.context.starter
    body = starter.written_input((starter.workflow_named(run.name), run.name), args, kwargs)
    run.continuation = ContinueAsNew(run.name, body)
    return run.continuation


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
    _check_awaitables("gather", work, "gather(*calls), with a star before a list")
    waiting = deque(enumerate(work))
    running: dict[int, asyncio.Future[T]] = {}
    results: dict[int, T] = {}
    ended: list[int] = []
    progress = asyncio.Event()
    run = current_run()

    def end(index: int, _: object) -> None:
        ended.append(index)
        progress.set()

    try:
        while waiting or running:
            while waiting and (limit is None or len(running) < limit):
                index, item = waiting.popleft()
                running[index] = asyncio.ensure_future(item)
                # Not `asyncio.wait`: its cost for each call that ends grows with all that run.
                running[index].add_done_callback(partial(end, index))
            await progress.wait()
            progress.clear()
            for index in sorted(ended):
                results[index] = running.pop(index).result()
            ended.clear()
        return [results[index] for index in range(len(work))]
    except BaseException as error:
        await _cancel_all(list(running.values()), [item for _, item in waiting])
        if run is not None and isinstance(error, asyncio.CancelledError):
            raise run.ending.error_for(error, run.reacts_to) from None
        raise


def as_completed(work: Iterable[Awaitable[T]]) -> Iterator[Coroutine[Any, Any, T]]:
    """Await calls one by one, as they end. Their tasks begin in the order given, which
    `asyncio.as_completed` does not promise.

    Args:
        work: Calls of steps and children, or other awaitables.

    Returns:
        As many awaitables: each returns the next result, or raises the next error.

    Raises:
        UsageError: One of them cannot be awaited.

    Example:
        for each in as_completed([quote(shop) for shop in shops]):
            best = min(best, await each)
    """
    work = list(work)
    _check_awaitables("as_completed", work, "as_completed([…])")
    ended: asyncio.Queue[asyncio.Future[T]] = asyncio.Queue()
    for item in work:
        asyncio.ensure_future(item).add_done_callback(ended.put_nowait)

    async def next_one() -> T:
        return (await ended.get()).result()

    return (next_one() for _ in work)


def _check_awaitables(verb: str, work: Iterable[object], example: str) -> None:
    if wrong := [type(item).__name__ for item in work if not isinstance(item, Awaitable)]:
        raise UsageError(
            f"{verb} cannot await a {wrong[0]}",
            hint=f"Write {example}; call each step and workflow.",
        )


async def _cancel_all(running: list[asyncio.Future[Any]], waiting: list[Awaitable[Any]]) -> None:
    for item in waiting:
        if asyncio.iscoroutine(item):
            item.close()  # it has never begun
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
