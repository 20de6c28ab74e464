"""One method per verb a person uses. Python, CLI and HTTP are renderings of this.

A client needs only a database URL. It knows no user code: a workflow is given by its name, or as a
registered object that checks its own arguments.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self, Unpack

import msgspec

from rota.client.audit import Audit
from rota.client.automations import Automations
from rota.client.caller import refuse_in_workflow
from rota.client.connection import Connection, SharedUse
from rota.client.notifications import Notifications
from rota.client.operations import Operations
from rota.client.overview import Overview
from rota.client.runs import Runs
from rota.client.schedules import Schedules
from rota.client.start import RunOptions, RunStarter, Starter, StartOptions
from rota.client.tokens import Sessions, Tokens
from rota.core import trace_spans
from rota.core.runs.ids import IdMaker
from rota.core.runs.model import Queue, WorkerRecord
from rota.core.runs.queue_options import QueueLimits, stored_queue
from rota.core.suggest import check_options, suggestion
from rota.engine.clock import Clock, SystemClock
from rota.engine.wakeups import READY
from rota.errors import UnknownQueue
from rota.settings import Settings
from rota.store.runs import workers


class Client(Starter):
    """Starts runs in one namespace of one database; `runs` finds, awaits and changes them."""

    def __init__(
        self,
        url: str,
        *,
        settings: Settings | None = None,
        clock: Clock | None = None,
        migrate: bool | None = None,
    ) -> None:
        self.settings = settings or Settings()
        self.url = url
        self.clock: Clock = clock or SystemClock()
        self.ids = IdMaker(random.SystemRandom().getrandbits)
        self.connection = Connection()
        self._connected = SharedUse(self.connect, self.close, self._is_connected)
        super().__init__(RunStarter(self))
        self.runs = Runs(self)
        self.schedules = Schedules(self)
        self.automations = Automations(self)
        self.notifications = Notifications(self)
        self.overview = Overview(self)
        self.tokens = Tokens(self)
        self.sessions = Sessions(self)
        self.audit = Audit(self)
        self.operations = Operations(self)
        self.migrates = url.startswith("sqlite") if migrate is None else migrate

    # -- opening ---------------------------------------------------------------------------

    async def connect(self) -> Self:
        """Open the database, migrating it where that is automatic.

        In a forked child, and after the event loop was closed, this opens it again."""
        if self.connection.is_elsewhere:
            self._leave_home()
        if self.connection.is_open:
            return self
        if self.settings.traces and not trace_spans.is_on():
            self.trace()
        await self.connection.open(self)
        return self

    def _is_connected(self) -> bool:
        return self.connection.is_open and not self.connection.is_elsewhere

    def trace(self, provider: Any = None) -> None:
        """Make spans with OpenTelemetry in this process, from now on.

        Args:
            provider: A tracer provider; without one, that of the program.

        Raises:
            MissingExtra: The package is not installed: `pip install 'rota[otel]'`.

        Example:
            app.trace(provider)
        """
        from rota.engine import otel

        otel.install(provider)

    async def close(self) -> None:
        """Close the database."""
        if self.connection.is_elsewhere:
            self._leave_home()
        self._connected.is_ours = False
        await self.connection.close()

    def _leave_home(self) -> None:
        """Drop a connection that a fork or a closed event loop has left behind."""
        self.connection.leave()
        self.starter.leave()
        self._connected.forget()

    async def __aenter__(self) -> Self:
        await self._enter()
        return self

    async def _enter(self) -> None:
        """Begin an `async with` block; blocks of one client share its connection."""
        if self.connection.is_elsewhere:
            self._leave_home()
        await self._connected.enter()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._connected.leave()

    async def backup(self, path: str | os.PathLike[str], *, disarmed: bool = False) -> int:
        """Copy a SQLite database to a new file while workers run.

        Args:
            path: The new file.
            disarmed: The copy does not act until `rota arm`.

        Returns:
            The size of the copy in bytes.
        """
        at = self.clock.now() if disarmed else None
        return await self.connection.database.backup(os.fspath(path), disarmed_at=at)

    # -- starting --------------------------------------------------------------------------

    def options(self, **options: Unpack[StartOptions]) -> Starter:
        """Choose options for the runs to start.

        Args:
            options: See `StartOptions`.

        Returns:
            An object with `start` and `start_many`.

        Example:
            run = await app.options(queue="slow", delay="1h").start(fetch, url)
        """
        return Starter(self.starter, RunOptions.of(self.options, options))

    # -- workers and queues ----------------------------------------------------------------

    async def workers(self, *, everyone: bool = False) -> Sequence[WorkerRecord]:
        """List live workers.

        Args:
            everyone: Also those that have stopped.
        """
        return await self.connection.database.read(
            workers.listing, namespace=self.settings.namespace, everyone=everyone
        )

    async def queues(self) -> Sequence[Queue]:
        """Queues with limits."""
        return await self.connection.database.read(
            workers.queues, namespace=self.settings.namespace
        )

    async def pause_queue(self, name: str, *, paused: bool = True) -> None:
        """Stop (or resume) claiming from a queue, on all workers.

        Args:
            name: The queue.
            paused: False resumes it.
        """
        refuse_in_workflow("pause_queue")
        known = {queue.name for queue in await self.queues()} | {"default"}
        for worker in await self.workers():
            known.update(msgspec.json.decode(worker.queues))
        if name not in known:
            raise UnknownQueue(
                f"there is no queue {name!r}",
                hint=suggestion(name, known, f"Known: {', '.join(sorted(known))}."),
            )
        await self.connection.wakeups.write(
            (READY,), workers.pause_queue, namespace=self.settings.namespace, name=name,
            paused=paused,
        )  # fmt: skip

    async def limit_queue(self, name: str, **limits: Unpack[QueueLimits]) -> Queue:
        """Set the limits of a queue across all workers.

        A worker that declares the queue sets its own limits again when it starts.

        Args:
            name: The queue.
            limits: See `QueueOptions`; a limit that is not named is removed.

        Returns:
            The queue with its limits.
        """
        refuse_in_workflow("limit_queue")
        check_options(limits, QueueLimits, self.limit_queue)
        declared = stored_queue(self.settings.namespace, name, limits)
        await self.connection.wakeups.write((READY,), workers.put_queues, [declared])
        return next(queue for queue in await self.queues() if queue.name == name)
