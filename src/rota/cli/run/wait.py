"""Waiting for the end of a run, with a limit and with Ctrl-C; the run continues either way."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rota.cli import render
from rota.cli.base import CommonOptions
from rota.cli.exit_codes import Interrupted, TookTooLong
from rota.core.runs.stored_errors import end_of, run_failed

if TYPE_CHECKING:
    from rota.client.client import Client
    from rota.errors import RunFailed


class Waiter:
    """Waits for one run and remembers how it ended."""

    def __init__(self, call: CommonOptions, timeout: str | None) -> None:
        self._call = call
        self._timeout = timeout
        self._run_id: str | None = None
        self._existed: bool | None = None
        self._output: str | None = None
        self._problem: RunFailed | None = None
        self._over = False

    async def wait(self, client: Client, run_id: str, *, existed: bool | None = None) -> None:
        """Wait for the end."""
        self._run_id = run_id
        self._existed = existed
        await client.connection.wakeups.listen()
        try:
            ended = await client.runs.wait(run_id, timeout=self._timeout)
        except TimeoutError as error:
            raise TookTooLong(
                f"run {run_id} has not ended within {self._timeout}; it continues",
                hint=f"Look with `rota run show {run_id}`, wait with `rota run result {run_id}`.",
            ) from error
        self._over = True
        self._output = ended.output
        if ended.status != "completed":
            self._problem = run_failed(run_id, end_of(ended.status, ended.reason, ended.error))

    @contextlib.contextmanager
    def interruptible(self) -> Iterator[None]:
        """Ctrl-C ends the waiting, not the run."""
        try:
            yield
        except KeyboardInterrupt:
            if self._run_id is None:
                raise
            raise Interrupted(
                f"stopped waiting; run {self._run_id} continues",
                hint=f"`rota run cancel {self._run_id}` would call it off.",
            ) from None

    def show(self) -> None:
        """Print the result, or raise what the run ended with."""
        if self._problem is not None:
            raise self._problem
        if not self._over:
            return
        if self._call.json and self._existed is not None:
            output = render.parsed(self._output)
            render.document({"id": self._run_id, "existed": self._existed, "output": output})
        else:
            render.result(self._output)
