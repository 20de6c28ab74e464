"""The task of a run is stopped by the worker and by the end of the event loop, not by itself."""

from __future__ import annotations

import asyncio

from rota.engine.run_task import RunTask, is_stopped


async def in_a_task_group() -> None:
    async def bad() -> None:
        raise ValueError

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(bad())
            group.create_task(asyncio.sleep(60))
    except* ValueError:
        pass


async def in_a_timeout() -> None:
    try:
        async with asyncio.timeout(0):
            try:
                await asyncio.sleep(60)
            finally:
                assert not is_stopped(asyncio.current_task())
    except TimeoutError:
        pass


async def test_code_that_cancels_its_own_task_does_not_stop_it() -> None:
    for work in (in_a_task_group, in_a_timeout):
        task = RunTask(work(), loop=asyncio.get_running_loop())
        await task
        assert not is_stopped(task)


async def test_the_worker_stops_it() -> None:
    task = RunTask(asyncio.sleep(60), loop=asyncio.get_running_loop())
    task.stop()
    assert is_stopped(task)
    await asyncio.wait([task])
    assert task.cancelled()


def test_the_end_of_the_loop_stops_it() -> None:
    seen: list[bool] = []

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            seen.append(is_stopped(asyncio.current_task()))

    async def main() -> RunTask:
        task = RunTask(work(), loop=asyncio.get_running_loop())
        await asyncio.sleep(0)
        return task

    asyncio.run(main())
    assert seen == [True]
