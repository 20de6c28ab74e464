"""`rota up`: the worker daemon of a project; and the signals and logs of every daemon."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

import click
from click.core import ParameterSource

from rota import RunIdFilter, project
from rota.app import Rota
from rota.cli import complete, connect, exit_codes, render
from rota.cli.base import BaseCommand, CommonOptions
from rota.client.doctor import served
from rota.core.runs.ids import short_id
from rota.core.runs.stored_errors import own_frames
from rota.core.runs.user_log import LOUD
from rota.core.time.instants import iso
from rota.errors import UsageError
from rota.http import server as http_server
from rota.http.options import HttpOptions
from rota.http.server import HttpServer
from rota.project import ProjectLocation

log = logging.getLogger("rota.up")

RUNS = "rota.runs"  # the logger of each run's start, end, retry and failure


@click.command(cls=BaseCommand)
@click.argument("target", required=False, shell_complete=complete.files)
@click.option(
    "--queue",
    "queues",
    multiple=True,
    metavar="NAME",
    help="Serve only this queue; may be repeated.",
    shell_complete=complete.queues,
)
@click.option("--slots", type=int, help="Runs to execute at the same time. [ROTA_SLOTS]")
@click.option("--migrate", is_flag=True, help="PostgreSQL: migrate the tables first.")
@click.option("--http", "address", metavar="HOST:PORT", help="Address of the API and dashboard.")
@click.option(
    "--no-http", is_flag=True, envvar="ROTA_NO_HTTP",
    help="Do not serve the API and dashboard. [ROTA_NO_HTTP]",
)  # fmt: skip
@click.pass_obj
def up(
    call: CommonOptions,
    target: str | None,
    queues: tuple[str, ...],
    slots: int | None,
    migrate: bool,
    address: str | None,
    no_http: bool,
) -> int:
    """Run a worker for a project.

    TARGET is package.module:app, path/to/file.py, file.py:app or a folder with a rota.toml;
    without one, the rota.toml of this folder or a parent.

    Rota takes a setting from the first of these that has it: flag, environment (ROTA_DATABASE,
    ROTA_SLOTS, …), rota.toml, code.

    With the extra `web`, API and dashboard are on 127.0.0.1:8420, or the next free port.

    SIGTERM and Ctrl-C stop it gracefully: runs get `stop_s` seconds to end, and the worker releases
    the rest. A second signal stops it at once. Logs go to stderr; with --json, one object per line.
    """
    source = click.get_current_context().get_parameter_source("no_http")
    if no_http and address and source is ParameterSource.COMMANDLINE:
        raise click.UsageError("--http and --no-http contradict each other: give one.")
    call.project = target or call.project
    found = connect.project_of(call)
    if found is None:
        raise UsageError(
            "there is no project here",
            hint="Name one: `rota up file.py`, or go to a folder with a rota.toml.",
        )
    app = connect.app_of(call, found, slots=slots)
    if not (app.workflows or app.automations.declared):
        raise UsageError(
            f"{found.app} registers no workflow and no automation: there is nothing to execute",
            hint="Decorate functions with @app.workflow, and import their modules in it.",
        )
    app.migrates = app.migrates or migrate
    write_logs(call)
    _warn_of_namespace(project.place_without_code(found, connect.given(call)), app)
    no_server = no_http and address is None  # a flag beats the environment
    server = None if no_server else _server(app, connect.http_options(found, address), address)
    code = asyncio.run(WorkerDaemon(app, queues, server).live())
    leave_threads(code)
    return code


def _server(app: Rota, options: HttpOptions, address: str | None) -> HttpServer | None:
    """The server beside the worker; None if its extra is missing and no address was named."""
    if address is None and not http_server.is_installed():
        return None
    return HttpServer(app, options)


def _warn_of_namespace(place: ProjectLocation | None, app: Rota) -> None:
    """Other commands do not import code, so they do not see a namespace that only code names."""
    if place is not None and place.settings.namespace != app.settings.namespace:
        log.warning(
            "this worker serves namespace %s, which its code names, but `rota run list` and others "
            "use %s: put `namespace` under [settings] in rota.toml",
            app.settings.namespace, place.settings.namespace,
        )  # fmt: skip


class StopSignals:
    """SIGTERM and Ctrl-C: the first signal stops a daemon gracefully, the second at once."""

    def __init__(self) -> None:
        self.stop = asyncio.Event()
        self._hurry = asyncio.Event()

    def listen(self) -> None:
        """Handle the signals of this process from now on."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signalled)

    def _signalled(self) -> None:
        if self.stop.is_set():
            self._hurry.set()
        self.stop.set()

    async def drain(
        self, gracefully: Coroutine[Any, Any, None], at_once: Callable[[], Awaitable[None]]
    ) -> tuple[str, int]:
        """Stop gracefully; after a second signal, at once. Returns which, and the exit code."""
        draining = asyncio.create_task(gracefully)
        hurrying = asyncio.create_task(self._hurry.wait())
        await asyncio.wait({draining, hurrying}, return_when=asyncio.FIRST_COMPLETED)
        if draining.done():
            hurrying.cancel()
            await draining
            return "gracefully", exit_codes.OK
        draining.cancel()
        await asyncio.gather(draining, return_exceptions=True)
        await at_once()
        return "at once, runs released", exit_codes.INTERRUPTED


class WorkerDaemon:
    """One worker, until a signal stops it."""

    def __init__(self, app: Rota, queues: Sequence[str], server: HttpServer | None = None) -> None:
        self._app = app
        self._server = server
        self._queues = list(queues) or None
        self._signals = StopSignals()

    async def live(self) -> int:
        """Work until a signal comes, drain, sign off; returns the exit code."""
        self._signals.listen()
        try:
            with self._app.own_process():
                return await self._work()
        finally:
            if self._server is not None:
                await self._server.stop()
            await self._app.close()

    async def _work(self) -> int:
        starting = asyncio.create_task(self._start())
        stopping = asyncio.create_task(self._signals.stop.wait())
        await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():  # stopped while it waits for the database
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
            return exit_codes.INTERRUPTED
        await starting
        await self._say_up()
        if self._server is not None:
            log.info("API and dashboard: %s", self._server.address)
        await stopping
        return await self._drain()

    async def _start(self) -> None:
        if self._server is not None:  # first: if its address is refused, no run has begun
            await self._app.connect()
            await self._server.start()
        await self._app.start_worker(self._queues)

    async def _drain(self) -> int:
        runtime = self._app.runtime
        assert runtime is not None
        worker = runtime.worker
        runs = render.count(len(worker.held), "run")
        rest = f"{runs} may take up to {self._app.settings.stop_s:.0f} s to end; "
        log.info("stopping: %sa second signal stops at once", rest if worker.held else "")
        stop = self._app.stop_worker
        how, code = await self._signals.drain(stop(), lambda: stop(0))
        log.info("worker %s stopped %s", worker.id, how)
        return code

    async def _say_up(self) -> None:
        app = self._app
        assert app.runtime is not None
        worker_id = app.runtime.worker.id
        # From the database, so that the line says what other processes see.
        rows = [row for row in await app.workers() if row.id == worker_id]
        log.info(
            "worker %s is up on %s: namespace %s, queues %s, %d slots, %s",
            worker_id, app.connection.database.place, app.settings.namespace,
            ", ".join(name for row in rows for name in served(row)), app.settings.slots,
            _performs(app),
        )  # fmt: skip


def _performs(app: Rota) -> str:
    kinds = {"workflows": sorted(app.workflows), "automations": sorted(app.automations.declared)}
    return ", ".join(f"{kind} {', '.join(names)}" for kind, names in kinds.items() if names)


def write_logs(call: CommonOptions) -> None:
    """Log to stderr, without passwords. A project that has set up logging keeps its own."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Lines(call))
    handler.addFilter(RunIdFilter())
    logging.basicConfig(level=logging.DEBUG if call.debug else logging.INFO, handlers=[handler])
    for name in ("asyncio", *LOUD):
        logging.getLogger(name).setLevel(logging.WARNING)


class _Lines(logging.Formatter):
    """One line per record; a traceback follows it."""

    def __init__(self, call: CommonOptions) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s%(of_run)s: %(message)s")
        self._call = call

    def format(self, record: logging.LogRecord) -> str:
        """The record as text, or as one JSON object."""
        run_id = getattr(record, "run_id", "")
        names_run = run_id in record.getMessage()  # Rota's own lines about a run name it
        record.of_run = "" if names_run else f" [run {short_id(run_id)}]"
        if record.name == RUNS and record.exc_info:  # what failed is user code, not Rota
            trace = self.formatException(record.exc_info)
            record.exc_text = "\n".join(own_frames(trace))
        if not self._call.json:
            return exit_codes.hide(super().format(record), self._call.url)
        fields: dict[str, str | int] = {
            "at": iso(round(record.created * 1e6)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": exit_codes.hide(record.getMessage(), self._call.url),
        }
        if run_id:
            for name in ("run_id", "run_name", "root_id", "attempt"):
                fields[name] = getattr(record, name, "")
        if trace_id := getattr(record, "trace_id", ""):
            fields["trace_id"] = trace_id
        if record.exc_info:
            trace = record.exc_text or self.formatException(record.exc_info)
            fields["trace"] = exit_codes.hide(trace, self._call.url)
        return json.dumps(fields, ensure_ascii=False)


def leave_threads(code: int) -> None:
    """Exit without the threads that hang in user code. Their runs are already handed over."""
    hanging = [t for t in threading.enumerate() if t.name.startswith("rota-") and not t.daemon]
    if hanging:
        log.warning(
            "exiting although user code still runs in %s", render.count(len(hanging), "thread")
        )
        logging.shutdown()
        os._exit(code)
