"""Operations that are made of others: races, groups, scopes, and branches that talk."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import sys
from collections.abc import AsyncIterator
from typing import Any

import anyio

import rota
from tests.simulation.kit.interpreter import Interpreter, operation, seconds
from tests.simulation.kit.operations import Op

Task = asyncio.Task[Any]
__all__ = ["Interpreter"]


def _tasks(it: Interpreter, op: Op) -> list[Task]:
    return [asyncio.create_task(it.do(part), name=f"part {part.n}") for part in op.parts]


async def _drop(tasks: list[Task]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


# -- groups ------------------------------------------------------------------------------------


@operation
async def sequence(it: Interpreter, op: Op) -> object:
    return await it.do_all(op)


@operation
async def gather(it: Interpreter, op: Op) -> object:
    values = await rota.gather(*(it.do(part) for part in op.parts), limit=op.arg or None)
    return it.see(op, values)


@operation
async def asyncio_gather(it: Interpreter, op: Op) -> object:
    return it.see(op, await asyncio.gather(*(it.do(part) for part in op.parts)))


@operation
async def gathered_errors(it: Interpreter, op: Op) -> object:
    work = [it.do(part) for part in op.parts]
    ends = await asyncio.gather(*work, return_exceptions=True)
    return it.see(op, [type(end).__name__ for end in ends])


@operation
async def race(it: Interpreter, op: Op) -> object:
    """The first wins; the others are cancelled and have ended when this returns."""
    tasks = _tasks(it, op)
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        it.see(op, [task.done() for task in tasks])
    finally:
        await _drop(tasks)
    for task in tasks:
        it.see_end(op, task)
    return await it.effect(op)


@operation
async def first_ended(it: Interpreter, op: Op) -> object:
    """The others continue."""
    tasks = _tasks(it, op)
    try:
        done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        it.see(op, "ended", [task.get_name() for task in (*done, *pending)])
        await it.effect(op)
        for task in tasks:
            await asyncio.wait([task])
            it.see_end(op, task)
    finally:
        await _drop(tasks)
    return None


@operation
async def wait_with_timeout(it: Interpreter, op: Op) -> object:
    tasks = _tasks(it, op)
    try:
        done, pending = await asyncio.wait(tasks, timeout=seconds(op.us))
        it.see(op, "ended", [task.get_name() for task in (*done, *pending)])
        await it.effect(op)
    finally:
        await _drop(tasks)
    return None


@operation
async def as_completed(it: Interpreter, op: Op) -> object:
    tasks = _tasks(it, op)
    try:
        for next_one in asyncio.as_completed(tasks):
            try:
                it.see(op, await next_one)
            except Exception as error:
                it.see_error(op, error)
            if op.arg == 0:
                await it.effect(op)
    finally:
        await _drop(tasks)
    return None


@operation
async def task_group(it: Interpreter, op: Op) -> object:
    async with asyncio.TaskGroup() as group:
        for part in op.parts:
            group.create_task(it.do(part))
    return it.see(op, "group")


@operation
async def anyio_group(it: Interpreter, op: Op) -> object:
    """anyio cancels the branches of a group in no defined order, so there is one."""
    async with anyio.create_task_group() as group:
        group.start_soon(it.do, op.parts[0])
        for part in op.parts[1:]:
            await it.do(part)
        if op.arg == 0:
            group.cancel_scope.cancel()
    return it.see(op, f"anyio group {group.cancel_scope.cancel_called}")


@operation
async def eager(it: Interpreter, op: Op) -> object:
    """A task that begins at once, where Python has these."""
    options: dict[str, Any] = {"eager_start": True} if sys.version_info >= (3, 12) else {}
    task = asyncio.Task(it.do(op.parts[0]), loop=asyncio.get_running_loop(), **options)
    try:
        it.see(op, f"begun {task.done()}")
        await asyncio.wait([task])
        it.see_end(op, task)
    finally:
        await _drop([task])
    return None


# -- scopes ------------------------------------------------------------------------------------


@operation
async def timeout(it: Interpreter, op: Op) -> object:
    scope = asyncio.timeout(seconds(op.us))
    try:
        async with scope:
            await it.do(op.parts[0])
    except TimeoutError as error:
        it.see_error(op, error)
    it.see(op, f"expired {scope.expired()}")
    return await it.effect(op)


@operation
async def wait_for(it: Interpreter, op: Op) -> object:
    return it.see(op, await asyncio.wait_for(it.do(op.parts[0]), seconds(op.us)))


@operation
async def shield(it: Interpreter, op: Op) -> object:
    inner = asyncio.create_task(it.do(op.parts[0]))
    try:
        async with asyncio.timeout(seconds(op.us)):
            it.see(op, await asyncio.shield(inner))
    except TimeoutError as error:
        it.see_error(op, error)
        await it.effect(op)
    await asyncio.wait([inner])
    return it.see_end(op, inner)


@operation
async def move_on(it: Interpreter, op: Op) -> object:
    with anyio.move_on_after(seconds(op.us)) as scope:
        await it.do(op.parts[0])
    it.see(op, f"moved on {scope.cancelled_caught}")
    return await it.effect(op)


@operation
async def fail_after(it: Interpreter, op: Op) -> object:
    with anyio.fail_after(seconds(op.us)):
        await it.do(op.parts[0])
    return it.see(op, "in time")


@operation
async def shielded_scope(it: Interpreter, op: Op) -> object:
    with anyio.move_on_after(seconds(op.us)):
        try:
            await it.effect(op)
            await anyio.sleep(seconds(op.us) / 2)
        finally:
            with anyio.CancelScope(shield=True):
                await it.do(op.parts[0])
    return it.see(op, "after the scope")


@operation
async def anyio_sleep(it: Interpreter, op: Op) -> object:
    await anyio.sleep(seconds(op.us))
    return it.see(op, "slept")


@operation
async def finally_(it: Interpreter, op: Op) -> object:
    try:
        return await it.do(op.parts[0])
    finally:
        it.see(op, "finally")
        await it.do(op.parts[1])


@operation
async def handler(it: Interpreter, op: Op) -> object:
    try:
        return await it.do(op.parts[0])
    except Exception as error:
        it.see_error(op, error)
        await it.do(op.parts[1])
        raise


@operation
async def cancelled_task(it: Interpreter, op: Op) -> object:
    task = asyncio.create_task(it.do(op.parts[0]))
    try:
        await it.do(op.parts[1])
    finally:
        await _drop([task])
    it.see_end(op, task)
    return await it.effect(op)


@operation
async def exit_stack(it: Interpreter, op: Op) -> object:
    async with contextlib.AsyncExitStack() as stack:
        for number, part in enumerate(op.parts):
            stack.push_async_callback(it.effect, part)
            stack.callback(it.see, op, f"left {number}")
            await it.do(part)
    return None


@operation
async def generator(it: Interpreter, op: Op) -> object:
    """Ended early it is closed, by the code or when it is dropped."""

    async def values() -> AsyncIterator[object]:
        try:
            for part in op.parts:
                yield await it.do(part)
        finally:
            it.see(op, "closing")
            await it.effect(op)

    each = values()
    async for value in each:
        it.see(op, value)
        if op.arg > 1:
            break
    if op.arg == 2:
        await each.aclose()  # type: ignore[attr-defined]
    return None


@operation
async def choice(it: Interpreter, op: Op) -> object:
    return await it.do(op.parts[rota.random() < 0.5])


# -- branches that talk ------------------------------------------------------------------------


@operation
async def lock(it: Interpreter, op: Op) -> object:
    return await _guarded(it, op, asyncio.Lock() if op.arg % 2 else anyio.Lock())


@operation
async def semaphore(it: Interpreter, op: Op) -> object:
    return await _guarded(it, op, asyncio.Semaphore(2) if op.arg % 2 else anyio.Semaphore(2))


async def _guarded(it: Interpreter, op: Op, guard: Any) -> object:
    async def branch(part: Op) -> None:
        async with guard:
            it.see(part, "inside")
            await it.do(part)

    return it.see(op, await asyncio.gather(*map(branch, op.parts)))


@operation
async def queue(it: Interpreter, op: Op) -> object:
    items: asyncio.Queue[object] = asyncio.Queue(op.arg)

    async def produce(part: Op) -> None:
        try:
            await items.put(await it.do(part))
        except Exception as error:
            await items.put(type(error).__name__)

    async with asyncio.TaskGroup() as group:
        for part in op.parts:
            group.create_task(produce(part))
        for _ in op.parts:
            it.see(op, await items.get())
            await it.effect(op)
    return None


@operation
async def stream(it: Interpreter, op: Op) -> object:
    send, receive = anyio.create_memory_object_stream[object](op.arg)

    async def produce() -> None:
        async with send:
            for part in op.parts:
                await send.send(await it.do(part))

    async with anyio.create_task_group() as group, receive:
        group.start_soon(produce)
        async for value in receive:
            it.see(op, value)
            await it.effect(op)
    return None


@operation
async def event(it: Interpreter, op: Op) -> object:
    ready: Any = asyncio.Event() if op.arg % 2 else anyio.Event()

    async def first() -> None:
        try:
            await it.do(op.parts[0])
        finally:
            ready.set()

    async def second() -> None:
        await ready.wait()
        it.see(op, "ready")
        await it.do(op.parts[1])

    return await rota.gather(first(), second())


@operation
async def handed_over(it: Interpreter, op: Op) -> object:
    """A `finally` block waits for a branch that has work left."""
    stop, flushed = asyncio.Event(), asyncio.Event()

    async def flush() -> None:
        await stop.wait()
        try:
            await it.do(op.parts[1])
        finally:
            flushed.set()

    task = asyncio.create_task(flush())
    try:
        await it.do(op.parts[0])
    finally:
        stop.set()
        await flushed.wait()
        it.see(op, "flushed")
        await asyncio.wait([task])
        it.see_end(op, task)
    return None


@operation
async def condition(it: Interpreter, op: Op) -> object:
    changed, ended = asyncio.Condition(), 0

    async def branch(part: Op) -> None:
        nonlocal ended
        try:
            await it.do(part)
        finally:
            ended += 1
            async with changed:
                changed.notify_all()

    tasks = [asyncio.create_task(branch(part)) for part in op.parts]
    try:
        async with changed:
            await changed.wait_for(lambda: ended >= len(tasks) - 1)
            it.see(op, f"{ended} ended")
            await it.effect(op)
    finally:
        await _drop(tasks)
    return None


@operation
async def barrier(it: Interpreter, op: Op) -> object:
    meeting = asyncio.Barrier(len(op.parts))

    async def branch(part: Op) -> None:
        try:
            await it.do(part)
        except Exception as error:
            it.see_error(part, error)
        it.see(part, await meeting.wait())
        await it.effect(part)

    async with asyncio.TaskGroup() as group:
        for part in op.parts:
            group.create_task(branch(part))
    return None


# -- around other code, without a durable call -------------------------------------------------


@operation
async def anyio_group_alone(it: Interpreter, op: Op) -> object:
    async with anyio.create_task_group() as group:
        group.start_soon(it.do, op.parts[0])
    return None


@operation
async def cancel_scope(it: Interpreter, op: Op) -> object:
    with anyio.CancelScope(shield=bool(op.arg % 2)):
        await it.do(op.parts[0])
    return None


@operation
async def shared_context(it: Interpreter, op: Op) -> object:
    """Tasks in one context, as some frameworks make them."""
    shared = contextvars.copy_context()
    loop = asyncio.get_running_loop()
    await loop.create_task(asyncio.sleep(0), context=shared)
    return await loop.create_task(it.do(op.parts[0]), context=shared)
