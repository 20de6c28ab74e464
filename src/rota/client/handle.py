"""A reference to one chain: what `start` returns."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from rota.core.runs.model import Run
from rota.core.runs.stored_errors import end_of, run_failed
from rota.core.time.instants import Duration, patience_micros
from rota.core.typed import JsonReader
from rota.store.runs import history
from rota.store.runs.history import ChainResult

if TYPE_CHECKING:
    from rota.client.client import Client


R = TypeVar("R")


OTHER_CODE = (
    "The run was executed by another version of the code. Use that version here, or read the JSON: "
    "`(await run.run()).output`."
)


class RunHandle(Generic[R]):
    """A run that was started; its result is an `R`.

    `id` names the whole chain: retries, recoveries and continuations included. `existed` says that
    the start found a run of the same external id or unique key.
    """

    __slots__ = ("_client", "_returns", "existed", "id")

    def __init__(
        self, client: Client, run_id: str, returns: JsonReader | None, existed: bool
    ) -> None:
        self.id = run_id
        self.existed = existed
        self._client = client
        self._returns = returns

    async def result(self, *, timeout: Duration | None = None) -> R:
        """Wait for the result of the run, its retries and continuations included.

        Args:
            timeout: The longest wait; 0 looks once, None waits without limit.

        Returns:
            The return value of the workflow, in its declared type.

        Raises:
            RunFailed: The run failed and no retry is left.
            RunCancelled: The run was cancelled.
            RunCrashed: The worker of the run died too often.
            TimeoutError: The run has not ended in time.

        Example:
            receipt = await run.result(timeout="1m")
        """
        ended = await wait_for_end(self._client, self.id, timeout)
        if ended.status != "completed":
            raise run_failed(self.id, end_of(ended.status, ended.reason, ended.error))
        reader = self._returns or JsonReader(Any)
        value: R = reader.read(ended.output, what=f"the result of run {self.id}", hint=OTHER_CODE)
        return value

    async def status(self) -> str:
        """Status and reason of the newest attempt."""
        return (await self.run()).label

    async def run(self) -> Run:
        """The newest attempt."""
        return await self._client.runs.newest(self.id)

    async def cancel(self, *, reason: str = "by request", grace: Duration | None = None) -> None:
        """Cancel the run and its children.

        Args:
            reason: Shown with the run.
            grace: The time that its code has to clean up; without it, the run ends at once.
        """
        await self._client.runs.cancel(self.id, reason=reason, grace=grace)

    async def signal(self, name: str, value: Any = None) -> None:
        """Send the run a signal; see `app.runs.signal`.

        Args:
            name: The name of the signal.
            value: Any JSON value.
        """
        await self._client.runs.signal(self.id, name, value)

    def __repr__(self) -> str:
        return f"<run {self.id}>"


async def wait_for_end(client: Client, run_id: str, timeout: Duration | None) -> ChainResult:
    """Wait until a run has ended, its retries included."""
    limit_us = None if timeout is None else patience_micros(timeout)
    connection, worker = client.connection, client.connection.worker
    # A run that the worker of this process holds is there, and has not ended.
    held = worker.held.get(run_id) if worker is not None and limit_us != 0 else None
    run = held or await client.runs.get(run_id)
    if limit_us == 0:
        for ended in await connection.database.read(history.ended, [run.root_id]):
            return ended
        raise TimeoutError(f"run {run.id} has not ended")
    limit_s = None if limit_us is None else limit_us / 1e6
    try:
        async with asyncio.timeout(limit_s):
            return await connection.results.wait(run.root_id, held=held is not None)
    except TimeoutError:
        late = f"run {run.id} has not ended within {timeout}; it continues"
        raise TimeoutError(late) from None
