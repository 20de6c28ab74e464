"""The public forms of a start: arguments typed by the workflow, options apart from them."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable
from typing import Any, overload

from rota.client.caller import has_to_be_awaited
from rota.client.handle import RunHandle
from rota.client.start import NO_OPTIONS, Item, P, R, RunOptions, RunStarter, Startable
from rota.errors import UsageError


class Starter:
    """Starts runs of any workflow, given as an object or by name. `start` takes arguments only."""

    def __init__(self, starter: RunStarter, options: RunOptions = NO_OPTIONS) -> None:
        self.starter = starter
        self._given = options

    @overload
    def start(
        self, workflow: Startable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, RunHandle[R]]: ...

    @overload
    def start(
        self, workflow: str, /, *args: Any, **kwargs: Any
    ) -> Coroutine[Any, Any, RunHandle[Any]]: ...

    def start(
        self, workflow: Startable[..., Any] | str, /, *args: Any, **kwargs: Any
    ) -> Coroutine[Any, Any, RunHandle[Any]]:
        """Start a run. It is stored when this returns. In a workflow it becomes a child.

        Args:
            workflow: A registered workflow, or the name of one.
            args, kwargs: The arguments of the workflow; options go to `options`.

        Returns:
            A handle of the run.

        Raises:
            BadInput: The arguments do not fit the workflow.
            UnknownWorkflow: No workflow has this name.

        Example:
            run = await app.start(fulfil, "order-7")
        """
        _checked(workflow)
        return has_to_be_awaited(
            "start", lambda: self.starter.start(workflow, args, kwargs, self._given)
        )

    @overload
    def start_many(
        self, workflow: Startable[P, R], items: Iterable[Item], /
    ) -> Coroutine[Any, Any, list[RunHandle[R]]]: ...

    @overload
    def start_many(
        self, workflow: str, items: Iterable[Item], /
    ) -> Coroutine[Any, Any, list[RunHandle[Any]]]: ...

    def start_many(
        self, workflow: Startable[..., Any] | str, items: Iterable[Item], /
    ) -> Coroutine[Any, Any, list[RunHandle[Any]]]:
        """Start one run per item, in few commits.

        Args:
            workflow: A registered workflow, or the name of one.
            items: For each run a tuple of arguments, or a `Start` with its own external id or key.

        Returns:
            The handles, in the order of the items.

        Raises:
            BadInput: The arguments of an item do not fit; nothing is started.

        Example:
            runs = await app.start_many(send, [("ann",), ("bob",)])
        """
        _checked(workflow)
        return has_to_be_awaited(
            "start_many", lambda: self.starter.start_many(workflow, items, self._given)
        )


def _checked(workflow: object) -> None:
    """Refuse what is not a registered workflow: a function without its decorator, a step."""
    if not isinstance(workflow, str | Startable):
        name = getattr(workflow, "__name__", None) or repr(workflow)
        raise UsageError(
            f"{name} is not a workflow",
            hint="Decorate the function with @app.workflow, or give the name of a workflow.",
        )
