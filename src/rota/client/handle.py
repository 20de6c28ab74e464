"""A reference to one chain: what `start` returns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from rota.core.runs.model import Run
from rota.core.runs.stored_errors import end_of, run_failed
from rota.core.time.instants import Duration
from rota.core.typed import JsonReader

if TYPE_CHECKING:
    from rota.client.client import Client


R = TypeVar("R")


OTHER_CODE = (
    "Other code than this one executed the run. Use the same code here, or read the JSON: "
    "`(await run.run()).output`."
)


class RunHandle(Generic[R]):
    """A run that was started; its result is an `R`.

    `id` names the whole chain: retries and recoveries included. `existed` says that the start found
    a run of the same external id or unique key.
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
        """Wait for the result of the run, its retries included.

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
        ended = await self._client.runs.wait(self.id, timeout=timeout)
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
        return (await self._client.runs.chain(self.id))[-1]

    async def cancel(self, *, reason: str = "by request") -> None:
        """Cancel the run and its children.

        Args:
            reason: Shown with the run.
        """
        await self._client.runs.cancel(self.id, reason=reason)

    async def signal(self, name: str, value: Any = None) -> None:
        """Send the run a signal; see `app.runs.signal`.

        Args:
            name: The name of the signal.
            value: Any JSON value.
        """
        await self._client.runs.signal(self.id, name, value)

    def __repr__(self) -> str:
        return f"<run {self.id}>"
