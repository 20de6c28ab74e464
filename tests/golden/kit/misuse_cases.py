"""Workflows used in a way that cannot work, code that changed under a run, files without rights."""

from __future__ import annotations

import asyncio
import logging
import os
import pwd
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rota import Client, Rota, RunHandle, gather, sleep, wait_for
from rota.errors import RotaError
from rota.testing import virtual
from tests.golden.kit import Place, case


async def _end(place: Place, app: Rota, name: str = "order") -> str:
    """How a run of the workflow fails, as the caller of `result` sees it."""
    async with virtual(app, url=place.url) as world:
        run = await app.start(name)
        await world.drain()
        return await _reported(run)


async def _reported(run: Any) -> str:
    try:
        ended = await run.result()
    except RotaError as error:
        return "\n".join([f"{type(error).__name__}: {error}", *error.__notes__])
    raise AssertionError(f"it ended with {ended!r}")


def _in_step(place: Place, body: Callable[[Rota], Callable[[], Any]]) -> Any:
    """A workflow with one step that does what `body` says."""
    app = Rota()
    work = app.step(name="work")(body(app))

    @app.workflow
    async def order() -> None:
        await work()

    return _end(place, app)


@case("step that was not awaited")
def not_awaited(place: Place) -> Any:
    app = Rota()

    @app.step
    async def charge() -> int:
        return 1

    @app.workflow
    async def order() -> str:
        charge()  # type: ignore[unused-coroutine]
        return "done"

    return _end(place, app)


@case("step that was not awaited, and its result used")
def coroutine_used(place: Place) -> Any:
    app = Rota()

    @app.step
    async def price() -> int:
        return 1

    @app.workflow
    async def order() -> int:
        return price() + 1  # type: ignore[operator]

    return _end(place, app)


@case("workflow awaited inside a step")
def workflow_in_step(place: Place) -> Any:
    def body(app: Rota) -> Any:
        @app.workflow
        async def child() -> None: ...

        async def work() -> None:
            await child()

        return work

    return _in_step(place, body)


@case("rota.sleep inside a step")
def sleep_in_step(place: Place) -> Any:
    def body(app: Rota) -> Any:
        async def work() -> None:
            await sleep("1h")

        return work

    return _in_step(place, body)


@case("gather of a list")
async def gathers_list(place: Place) -> Any:
    app = Rota(place.url)

    @app.workflow
    async def order() -> None:
        calls: Any = []
        await gather(calls)

    return await _end(place, app)


@case("rota.wait_for outside a workflow")
async def wait_outside(place: Place) -> None:
    await wait_for("reply")


@case("start inside a step")
async def start_in_step(place: Place) -> str:
    seen: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: seen.append(record.getMessage())  # type: ignore[method-assign]
    app = Rota()

    @app.workflow
    async def other() -> None: ...

    @app.step
    async def work() -> None:
        await app.start(other)

    @app.workflow
    async def order() -> None:
        await work()

    logging.getLogger("rota").addHandler(handler)
    try:
        async with virtual(app, url=place.url) as world:
            await app.start(order)
            await world.drain()
    finally:
        logging.getLogger("rota").removeHandler(handler)
    return "\n".join(line for line in seen if "external_id" in line)


@case("a thread in a workflow")
def thread_in_a_workflow(place: Place) -> Any:
    app = Rota()

    @app.workflow
    async def order() -> None:
        await asyncio.to_thread(print, "on the thread")

    return _end(place, app)


@case("@app.step on a method")
def step_on_a_method(place: Place) -> None:
    app = Rota()

    class Service:
        @app.step
        async def charge(self, amount: int) -> None: ...


@case("two steps of one name")
def two_steps(place: Place) -> None:
    app = Rota()

    @app.step(name="charge")
    async def one() -> None: ...

    @app.step(name="charge")
    async def two() -> None: ...


@case("sync step awaited")
def sync_step_awaited(place: Place) -> Any:
    app = Rota()

    @app.step
    def price() -> int:
        return 1

    @app.workflow
    async def order() -> int:
        return await price()  # type: ignore[misc]

    return _end(place, app)


@case("every other friday, command line")
def every_other(place: Place) -> str:
    return place.rota("next", "every other friday at 9")


# -- code that changed under a run -------------------------------------------------------------


Calls = list[tuple[str, int]]


async def _changed(place: Place, before: Calls, after: Calls) -> str:
    """Begin a run with some calls of steps, continue with others."""

    def version(calls: Calls) -> Rota:
        app = Rota()

        async def work(n: int) -> int:
            return n

        steps = {name: app.step(name=name)(work) for name in ("charge", "mail", "pack")}

        @app.workflow(name="order")
        async def order() -> None:
            for name, n in calls:
                await steps[name](n)
            await sleep("1h")

        return app

    old = version(before)
    async with virtual(old, url=place.url) as world:
        run = await old.start("order")
        await world.settle()
        later = world.clock.now() + 7_200_000_000
    fresh = version(after)
    async with virtual(fresh, url=place.url, start=later) as world:
        await world.drain()
        return await _reported(RunHandle(fresh, run.id, None, True))


@case("step removed under a run that waits")
def removed(place: Place) -> Any:
    return _changed(place, [("charge", 1), ("mail", 2)], [("mail", 2)])


@case("arguments of a recorded step changed")
def other_arguments(place: Place) -> Any:
    return _changed(place, [("charge", 1)], [("charge", 100)])


# -- files without rights ----------------------------------------------------------------------


@contextmanager
def _without_rights() -> Iterator[Path]:
    """A folder that every user can enter, as a user whom permissions bind: root is the user
    `nobody`.
    """
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        if os.getuid() == 0:
            os.seteuid(0)
        folder.chmod(0o755)
        shutil.rmtree(folder)


async def _opened(folder: Path) -> str:
    if os.getuid() == 0:
        os.seteuid(pwd.getpwnam("nobody").pw_uid)
    try:
        async with Client(f"sqlite:///{folder / 'rota.db'}") as client:
            await client.start("order")
    except RotaError as error:
        notes = "\n".join(getattr(error, "__notes__", ()))
        return f"{type(error).__name__}: {error}\n{notes}".replace(str(folder), "FOLDER")
    raise AssertionError("it was written")


@case("the database file may not be written")
async def read_only_file(place: Place) -> str:
    with _without_rights() as folder:
        async with Client(f"sqlite:///{folder / 'rota.db'}"):
            pass
        (folder / "rota.db").chmod(0o444)
        return await _opened(folder)


@case("the database file may not be read")
async def unreadable_file(place: Place) -> str:
    with _without_rights() as folder:
        async with Client(f"sqlite:///{folder / 'rota.db'}"):
            pass
        (folder / "rota.db").chmod(0)
        return await _opened(folder)


@case("the folder of the database may not be written")
async def read_only_folder(place: Place) -> str:
    with _without_rights() as folder:
        folder.chmod(0o555)
        return await _opened(folder)
