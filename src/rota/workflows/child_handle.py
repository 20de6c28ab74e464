"""The handle of a child run inside of the workflow that started it."""

from __future__ import annotations

from typing import Any, TypeVar

from rota.client.client import Client
from rota.client.handle import RunHandle
from rota.core.time.instants import Duration
from rota.core.typed import JsonReader
from rota.errors import UsageError
from rota.workflows.run import WorkflowRun
from rota.workflows.waits import Siblings, child_result

R = TypeVar("R")


class ChildHandle(RunHandle[R]):
    """A child run seen from the workflow that started it: awaiting it is durable."""

    def __init__(
        self,
        client: Client,
        run_id: str,
        returns: JsonReader,
        flow: WorkflowRun,
        siblings: Siblings | None = None,
    ) -> None:
        super().__init__(client, run_id, returns, existed=False)
        self._flow = flow
        self._siblings = siblings

    async def result(self, *, timeout: Duration | None = None) -> R:
        """Wait durably; no worker is held meanwhile."""
        if timeout is not None:
            raise UsageError(
                "a child's result takes no timeout", hint="Give the child workflow a timeout."
            )
        returns = self._returns or JsonReader(Any)
        value: R = await child_result(self._flow, self.id, returns, self._siblings)
        return value
