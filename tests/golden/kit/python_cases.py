"""Mistakes in Python code that uses Rota."""

from __future__ import annotations

import logging
import sqlite3
import subprocess
import sys
import time
from typing import Any

import asyncpg

from rota import Rota, RunFailed
from rota.engine.clock import SystemClock
from rota.engine.watchdog import Watchdog
from rota.store.backend.postgres_errors import translate
from rota.testing import virtual
from tests.golden.kit import Place, case


class Thing:
    """Nothing that JSON knows."""


@case("argument that is not JSON")
async def unserialisable_argument(place: Place) -> None:
    app = Rota(place.url)

    @app.workflow
    async def order(number: int, thing: Any) -> None: ...

    async with app.connected():
        await app.start(order, 7, Thing())


async def _failed(place: Place, app: Rota, name: str) -> str:
    async with virtual(app, url=place.url) as world:
        run = await app.start(name)
        await world.drain()
        try:
            await run.result()
        except RunFailed as error:
            notes = "\n".join(error.__notes__)
            return f"{type(error).__name__}: {error}\n{notes}\n"
    raise AssertionError("it did not fail")


@case("step result that is not JSON")
async def unserialisable_step_result(place: Place) -> str:
    app = Rota()

    @app.step
    async def make() -> Any:
        return Thing()

    @app.workflow
    async def order() -> None:
        await make()

    return await _failed(place, app, "order")


@case("workflow result that is not JSON")
async def unserialisable_result(place: Place) -> str:
    app = Rota()

    @app.workflow
    async def order() -> Any:
        return Thing()

    return await _failed(place, app, "order")


@case("argument of the wrong type, Python")
async def wrong_type(place: Place) -> None:
    app = Rota(place.url)

    @app.workflow
    async def order(number: int) -> None: ...

    async with app.connected():
        await app.start("order", number="seven")


@case("unknown workflow, Python")
async def unknown_workflow(place: Place) -> None:
    app = Rota(place.url)

    @app.workflow
    async def order() -> None: ...

    async with app.connected():
        await app.start("oder")


@case("forgot `async with app`")
async def not_connected(place: Place) -> None:
    app = Rota(place.url)

    @app.workflow
    async def order() -> None: ...

    await app.start(order)


@case("@app.schedule below @app.workflow")
def decorators_swapped(place: Place) -> None:
    app = Rota(place.url)

    async def order() -> None: ...

    app.workflow(app.schedule("5m")(order))  # type: ignore[type-var]


@case("two workflows of one name")
def duplicate_workflow(place: Place) -> None:
    app = Rota(place.url)

    @app.workflow
    async def order() -> None: ...

    app.workflow(name="order")(order.function)


@case("sync step called in an async workflow")
async def sync_step(place: Place) -> str:
    app = Rota()

    @app.step
    def charge() -> None: ...

    @app.workflow
    async def order() -> None:
        charge()

    return await _failed(place, app, "order")


@case("bad cron in code")
def bad_cron(place: Place) -> None:
    app = Rota(place.url)

    @app.schedule("0 9 * *")
    @app.workflow
    async def report() -> None: ...


@case("phrase with several readings, in code")
def bad_phrase(place: Place) -> None:
    app = Rota(place.url)

    @app.schedule("monday and friday at 5 and 6pm")
    @app.workflow
    async def report() -> None: ...


@case("cron that never comes, in code")
def impossible_cron(place: Place) -> None:
    app = Rota(place.url)

    @app.schedule("0 0 30 2 *")
    @app.workflow
    async def report() -> None: ...


@case("unknown time zone in code")
def bad_zone(place: Place) -> None:
    app = Rota(place.url)

    @app.schedule("0 9 * * *", timezone="Europe/Berln")
    @app.workflow
    async def report() -> None: ...


@case("unknown overlap policy")
def bad_overlap(place: Place) -> None:
    app = Rota(place.url)

    @app.schedule("0 9 * * *", overlap="queue_all")
    @app.workflow
    async def report() -> None: ...


@case("arguments of a schedule that are not a list")
async def bad_args(place: Place) -> None:
    app = Rota(place.url)

    @app.workflow
    async def report(n: str) -> None: ...

    async with app.connected():
        args: Any = {"n": "1"}
        await app.schedules.create("s", report, "@daily", args=args)


@case("missing argument of a workflow")
async def missing_argument(place: Place) -> None:
    app = Rota(place.url)

    @app.workflow
    async def report(n: str) -> None: ...

    async with app.connected():
        await app.start("report")


@case("bad duration")
def bad_duration(place: Place) -> None:
    app = Rota(place.url)

    @app.workflow(timeout="1 fortnight")
    async def report() -> None: ...


@case("payload too big")
async def too_big(place: Place) -> None:
    app = Rota(place.url, payload_bytes_max=1024)

    @app.workflow
    async def order(text: str) -> None: ...

    async with app.connected():
        await app.start(order, "x" * 5000)


@case("sqlite3.connect to the file that Rota has open")
async def other_sqlite(place: Place) -> None:
    app = Rota(place.url)
    async with app.connected():
        sqlite3.connect(place.folder / "rota.db")


@case("unknown setting, Python")
def unknown_setting(place: Place) -> None:
    Rota(place.url, slotz=5)  # type: ignore[call-arg]


@case("unknown option of @app.workflow")
def workflow_option(place: Place) -> None:
    app = Rota(place.url)

    @app.workflow(retires=3)  # type: ignore[call-overload]
    async def order() -> None: ...


@case("unknown option of @app.step")
def step_option(place: Place) -> None:
    app = Rota(place.url)

    @app.step(retires=3)  # type: ignore[call-overload]
    async def charge() -> None: ...


@case("unknown option of @app.schedule")
def schedule_option(place: Place) -> None:
    app = Rota(place.url)

    @app.schedule("5m", overlp="skip")  # type: ignore[call-arg]
    @app.workflow
    async def order() -> None: ...


@case("unknown option of app.automation")
def automation_option(place: Place) -> None:
    Rota(place.url).automation("mail", aproval=True)  # type: ignore[call-arg]


@case("unknown option of a start")
def start_option(place: Place) -> None:
    app = Rota(place.url)

    @app.workflow
    async def order() -> None: ...

    order.options(external_idd="o-7")  # type: ignore[call-arg]


@case("setting out of bounds, Python")
def bad_setting(place: Place) -> None:
    Rota(place.url, slots=0)


@case("blocking code in the event loop")
async def blocked(place: Place) -> str:
    said: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage())

    keep, log = Keep(), logging.getLogger("rota.watchdog")
    log.addHandler(keep)
    watchdog = Watchdog(0.05, SystemClock())
    watchdog.start()
    try:
        deadline = time.monotonic() + 20
        while not said and time.monotonic() < deadline:
            pass  # this is the blocking code
    finally:
        watchdog.stop()
        log.removeHandler(keep)
    return said[0].partition(" It hangs at:")[0]


@case("asyncpg is not installed, Python")
def no_asyncpg(place: Place) -> str:
    code = (
        "import sys; sys.modules['asyncpg'] = None\n"
        "import asyncio; from rota import Rota\n"
        "asyncio.run(Rota('postgresql://host/db').connect())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    return "\n".join(done.stderr.splitlines()[-2:])


@case("PostgreSQL refuses the password")
def wrong_password(place: Place) -> None:
    """The server of the tests lets every user in, so its message is given."""
    refused = asyncpg.InvalidPasswordError('password authentication failed for user "ann"')
    raise translate(refused, "postgresql host/db schema rota")


@case("step that does not exist, in a fork")
async def unknown_step(place: Place) -> None:
    app = Rota()

    @app.step
    async def charge() -> None: ...

    @app.workflow
    async def order() -> None:
        await charge()

    async with virtual(app, url=place.url) as world:
        run = await app.start(order)
        await world.drain()
        await app.runs.fork(run.id, from_step="ship#0")


@case("queue that does not exist")
async def unknown_queue(place: Place) -> None:
    async with Rota(place.url).connected() as app:
        await app.pause_queue("mial")
