"""Waits for the end of a run. A timeout or Ctrl-C ends the wait; the run continues."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import click

from rota.cli import render
from rota.cli.base import CommonOptions
from rota.cli.exit_codes import Interrupted, TookTooLong
from rota.client.client import Client
from rota.core.runs.stored_errors import end_of, run_failed
from rota.core.time.instants import SECOND, patience_micros
from rota.errors import BadInput, RotaError
from rota.explain.run import BLOCKED
from rota.explain.why import why

# A run that has not ended after this time may be blocked, for example because no worker runs.
EXPLAIN_AFTER_US = 5 * SECOND


def check_timeout(timeout: str | None, *, waits: bool) -> None:
    """Refuse a `--timeout` that is not a duration, or that comes without `--wait`."""
    if timeout is None:
        return
    patience_micros(timeout)
    if not waits:
        raise BadInput(
            "--timeout means something only with --wait",
            hint="Add --wait. The timeout of a run itself belongs to its workflow or schedule.",
        )


class Waiter:
    """Waits for one run and prints its result."""

    def __init__(self, call: CommonOptions, timeout: str | None, *, waits: bool = True) -> None:
        check_timeout(timeout, waits=waits)  # before anything is started
        self._call = call
        self._timeout = timeout
        self._run_id: str | None = None

    async def wait(self, client: Client, run_id: str, *, existed: bool | None = None) -> None:
        """Wait for the end and print the result, or raise the error that the run ended with."""
        self._run_id = run_id
        await client.connection.wakeups.listen()
        explanation = asyncio.create_task(self._explain_if_blocked(client, run_id))
        try:
            ended = await client.runs.wait(run_id, timeout=self._timeout)
        except TimeoutError as error:
            raise TookTooLong(
                f"run {run_id} has not ended within {self._timeout}; it continues",
                hint=f"Look with `rota run show {run_id}`, wait with `rota run result {run_id}`.",
            ) from error
        finally:
            explanation.cancel()
        self._run_id = None  # the run is over: Ctrl-C from now on ends no wait
        if ended.status != "completed":
            raise run_failed(run_id, end_of(ended.status, ended.reason, ended.error))
        if self._call.json and existed is not None:
            output = render.parsed(ended.output)
            render.document({"id": run_id, "existed": existed, "output": output})
        else:
            render.result(ended.output)

    async def _explain_if_blocked(self, client: Client, run_id: str) -> None:
        await client.clock.wait(asyncio.Event(), client.clock.now() + EXPLAIN_AFTER_US)
        with contextlib.suppress(RotaError):  # The wait itself reports a database that is away.
            answer = await why(client, run_id)
            if answer.verdict in BLOCKED and not self._call.json:
                hint = "" if answer.hint is None else f"\n→ {answer.hint}"
                click.echo(f"{answer.sentence}{hint}", err=True)

    def run(self, work: Callable[[], None]) -> None:
        """Do the work, which may wait for a run. Ctrl-C ends the waiting, not the run."""
        try:
            work()
        except KeyboardInterrupt:
            if self._run_id is None:
                raise
            raise Interrupted(
                f"stopped waiting; run {self._run_id} continues",
                hint=f"`rota run cancel {self._run_id}` cancels it.",
            ) from None
