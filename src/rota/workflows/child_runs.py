"""Makes the runs that a workflow starts: validated like any start, and tied to their parent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from rota.client.client import Client
from rota.client.start import RunOptions
from rota.core import spans
from rota.core.runs.lifecycle import Trigger
from rota.core.runs.model import NewRun
from rota.engine.wakeups import READY, TIMER

if TYPE_CHECKING:
    from rota.workflows.run import WorkflowRun


class ChildRuns:
    """The child runs of one process."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def new_run(
        self, flow: WorkflowRun, workflow: Any, args: Any, kwargs: Any, options: RunOptions
    ) -> NewRun:
        """A new child run of `flow`."""
        with spans.start(workflow.name):
            fresh = self._client.new_run(workflow, args, kwargs, options)
        trigger = Trigger.DETACHED if options.detached else Trigger.CHILD
        return msgspec.structs.replace(fresh, parent_id=flow.claim.root_id, trigger=trigger)

    def new_id(self) -> str:
        """An id for the next attempt of a child."""
        return self._client.ids.make(self._client.clock.now())

    def started(self, *, delayed: bool = False) -> None:
        """Tell workers that there is work, or will be."""
        self._client.wakeups.notify_soon(TIMER if delayed else READY)
