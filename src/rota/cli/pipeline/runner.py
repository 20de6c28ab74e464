"""One run of a pipeline, executed by this process: signals, progress, the end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

import msgspec

from rota import project
from rota.app import Rota
from rota.cli import exit_codes
from rota.cli.base import CommonOptions
from rota.cli.pipeline import location
from rota.cli.pipeline.progress import Meter
from rota.client.client import Client
from rota.client.handle import RunHandle
from rota.core.pipelines.names import run_name
from rota.core.runs.model import Run
from rota.core.runs.stored_errors import read_error
from rota.errors import UnknownRun, WrongState
from rota.pipelines.definition.loader import entry_file
from rota.pipelines.definition.locate import DATABASE, root_of
from rota.pipelines.outcome import PipelineResult, Progress
from rota.pipelines.run.result_reader import partial_output, write_rows
from rota.pipelines.run.row_files import has_rows

PAGE = 50
REFRESH_S = 1.0
SETTLE_S = 0.05  # between the end of an attempt and its row
UNREDUCED = ("cancelled", "failed")
STOP_S = 5.0  # for what is in flight when it was cancelled
Begin = Callable[["Rota", str], Awaitable["RunHandle[PipelineResult]"]]


# -- where runs are kept -----------------------------------------------------------------------


def client_of(call: CommonOptions, path: Path) -> Client | None:
    """A client that only reads; None if there is no database yet, so that nothing has run."""
    place = location.place_of(call, root_of(path))
    if not project.database_exists(place.url):
        return None
    return Client(place.url, settings=place.settings, migrate=False)


def flag_of(call: CommonOptions) -> str:
    """The option that names this database, for a command about runs; empty if none is needed."""
    url = call.url or ""
    if call.database or not url.endswith(f"/{DATABASE}"):
        return ""
    path = Path(url.removeprefix("sqlite:///"))
    here = Path.cwd()
    return f" --database sqlite:///{path.relative_to(here) if path.is_relative_to(here) else path}"


async def chosen_run(app: Client, path: Path, run_id: str | None) -> Run:
    """The newest attempt of the run that is meant.

    Without an id it is the newest run that has begun: not a skipped occurrence, nor a queued one.
    """
    if run_id is not None:
        name = _run_name_of(path)
        last = (await app.runs.chain(run_id))[-1]
        if last.name != name:
            raise UnknownRun(f"run {run_id} is one of {last.name}, not of {name}", run_id=run_id)
        return last
    async with contextlib.aclosing(runs_of(app, path)) as runs:
        async for run in runs:
            if not _has_not_begun(run):
                return run
    raise never_ran(path)


async def runs_of(client: Client, path: Path, size: int = PAGE) -> AsyncGenerator[Run, None]:
    """The runs of a pipeline, newest first, in pages; every attempt is a run."""
    before = ""
    while True:
        page = await client.runs.list(name=_run_name_of(path), before=before, limit=size)
        for run in page:
            yield run
        if len(page) < size:
            return
        before = page[-1].id


def _run_name_of(path: Path) -> str:
    return run_name(entry_file(path).parent.resolve().name)


def _has_not_begun(run: Run) -> bool:
    return run.status == "skipped" or (run.status, run.reason) == ("sleeping", "turn")


def never_ran(path: Path) -> UnknownRun:
    """The error for a pipeline without a run."""
    return UnknownRun(
        f"{path} has not run yet, as far as this database knows",
        hint=f"Run it: `rota pipeline run {path}`; or name another --database.",
    )


# -- execution --------------------------------------------------------------------------------


class PipelineRunEnd(NamedTuple):
    """How it ended."""

    run_id: str
    result: PipelineResult
    error_type: str | None
    kept: str | None  # the finished items, reduced, if the run did not reach its reduce

    @property
    def text(self) -> str | None:
        """The text for stdout."""
        return self.kept if self.result.output is None else self.result.output


class Life:
    """Executes one run and obeys Ctrl-C: once cancels, twice leaves at once."""

    def __init__(self, app: Rota, meter: Meter, out: Path | None = None) -> None:
        """`out`: rows are written to it at the end, if its name means a file of rows."""
        self._app, self._meter, self._out = app, meter, out
        self._interrupt = asyncio.Event()
        self._end_shown = False
        self._root_id: str | None = None

    async def live(self, begin: Begin, queue: str | None = None) -> PipelineRunEnd:
        """Begin the run, execute it to its end, and say how it ended."""
        app = self._app
        queue = queue or f"here-{secrets.token_hex(4)}"
        unlisten = app.pipelines.listen(self._notified)
        try:
            async with self._signals():
                # Nothing else is executed here: no schedule is fired, no other queue is served.
                await app.start_worker([queue], fires=False)
                await app.operations.must_be_armed()
                ref = await begin(app, queue)
                self._root_id = ref.id
                await self._ended(ref)
                return await self._end(ref)
        finally:
            unlisten()
            self._meter.end()
            await app.stop_worker(STOP_S)
            await app.close()

    def leave(self, code: int) -> None:
        """After an interrupt, end the process here: Python would wait for a thread that reads."""
        if self._interrupt.is_set():
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def _notified(self, progress: Progress) -> None:
        if self._root_id in (None, progress.root_id):
            self._meter.report(progress)
            self._end_shown = progress.phase == "ended"

    async def _ended(self, ref: RunHandle[PipelineResult]) -> None:
        waiting = asyncio.ensure_future(self._app.runs.wait(ref.id))
        stopping = asyncio.ensure_future(self._interrupt.wait())
        try:
            while not waiting.done():
                pause_s = SETTLE_S if self._end_shown else REFRESH_S
                await asyncio.wait(
                    {waiting, stopping}, timeout=pause_s, return_when=asyncio.FIRST_COMPLETED
                )
                self._meter.refresh()
                if self._end_shown and (await ref.run()).status == "waiting":
                    return  # for a person, who reads what this command prints
                if stopping.done() and not waiting.done():
                    await self._cancel(ref)
                    await waiting
        finally:
            waiting.cancel()
            stopping.cancel()

    async def _cancel(self, ref: RunHandle[PipelineResult]) -> None:
        self._meter.say("cancelling; finished items are kept (Ctrl-C again stops at once)")
        with contextlib.suppress(WrongState):  # it has ended by itself meanwhile
            await ref.cancel(reason="with Ctrl-C")

    async def _end(self, ref: RunHandle[PipelineResult]) -> PipelineRunEnd:
        pipelines = self._app.pipelines
        result = await pipelines.result(ref.id)
        last = await ref.run()
        error_type = read_error(last.error)["type"] if last.error else None
        kept = None
        if result.outcome in UNREDUCED and result.output is None:
            kept = await partial_output(self._app, ref.id)
            if result.result_file is None and result.processed + result.failed:
                name = await pipelines.write_results(ref.id)
                result = msgspec.structs.replace(result, result_file=name)
        if self._out is not None and result.processed and has_rows(self._out):
            await write_rows(self._app, ref.id, self._out)
        return PipelineRunEnd(ref.id, result, error_type, kept)

    @contextlib.asynccontextmanager
    async def _signals(self) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()
        numbers = (signal.SIGINT, signal.SIGTERM)
        for number in numbers:
            loop.add_signal_handler(number, self._signalled)
        try:
            yield
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)

    def _signalled(self) -> None:
        if self._interrupt.is_set():
            self._meter.end()
            sys.stderr.write(
                "stopped at once; `rota pipeline resume` continues from what is done\n"
            )
            sys.stderr.flush()
            os._exit(exit_codes.INTERRUPTED)
        self._interrupt.set()
