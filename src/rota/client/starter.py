"""The public forms of a start: arguments typed by the workflow, options apart from them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Coroutine, Iterable
from typing import TYPE_CHECKING, Any, overload

from rota.client.handle import RunHandle
from rota.client.start import NO_OPTIONS, Item, P, R, RunOptions, Startable

if TYPE_CHECKING:
    from rota.client.client import Client


class Starter(ABC):
    """Starts runs of any workflow, given as an object or by name. `start` takes arguments only."""

    _given: RunOptions = NO_OPTIONS

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
            args: The arguments of the workflow, with `kwargs`; options go to `options`.

        Returns:
            A handle of the run.

        Raises:
            BadInput: The arguments do not fit the workflow.
            UnknownWorkflow: No workflow has this name.

        Example:
            run = await app.start(fulfil, "order-7")
        """
        return self.start_run(workflow, args, kwargs, self._given)

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
        return self.start_runs(workflow, items, self._given)

    @abstractmethod
    def start_run(
        self,
        workflow: Startable[..., Any] | str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        options: RunOptions,
    ) -> Coroutine[Any, Any, RunHandle[Any]]:
        """Start a run: every public form of a start comes here."""

    @abstractmethod
    def start_runs(
        self, workflow: Startable[..., Any] | str, items: Iterable[Item], options: RunOptions
    ) -> Coroutine[Any, Any, list[RunHandle[Any]]]:
        """Start many runs: every public form of `start_many` comes here."""


class ClientStarter(Starter):
    """A client with options for the runs it starts: what `client.options(...)` returns."""

    def __init__(self, client: Client, options: RunOptions) -> None:
        self._client = client
        self._given = options

    def start_run(
        self,
        workflow: Startable[..., Any] | str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        options: RunOptions,
    ) -> Coroutine[Any, Any, RunHandle[Any]]:
        """Start a run through the client."""
        return self._client.start_run(workflow, args, kwargs, options)

    def start_runs(
        self, workflow: Startable[..., Any] | str, items: Iterable[Item], options: RunOptions
    ) -> Coroutine[Any, Any, list[RunHandle[Any]]]:
        """Start many runs through the client."""
        return self._client.start_runs(workflow, items, options)
