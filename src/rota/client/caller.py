"""Which code makes a call: that of a workflow, of a step, or code outside of both.

Workflow code is replayed, so whatever it does through a client would happen at every replay.
"""

from __future__ import annotations

import contextvars
from typing import Any, Protocol

from rota.errors import UsageError


class CodePlace(Protocol):
    """A branch of a workflow, or a step: `flow` is None inside a step."""

    @property
    def flow(self) -> Any:
        """The run that executes this workflow code."""
        ...


# None outside of workflows. `workflows.branches` sets it.
here: contextvars.ContextVar[CodePlace | None] = contextvars.ContextVar("rota_branch", default=None)


def refuse_in_workflow(verb: str) -> None:
    """Refuse a call in workflow code that changes something outside of the run."""
    place = here.get()
    if place is not None and place.flow is not None:
        raise refusal(verb)


def refusal(verb: str) -> UsageError:
    """The error for a call in workflow code that changes something outside of the run."""
    return UsageError(
        f"{verb} was called in a workflow, where every replay would do it again",
        hint=f"Call it in a step: its result is recorded, so {verb} happens once.",
    )
