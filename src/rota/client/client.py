"""One method per verb a person uses. Python, CLI and HTTP are renderings of this.

A client needs only a database URL. It knows no user code: workflows are named, or given as
registered objects that bring their own typed door.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Awaitable, Iterable, Sequence
from types import TracebackType
from typing import Any, Self, Unpack

import msgspec

from rota.client.audit import Audit
from rota.client.automations import Automations
from rota.client.caller import here, refuse_in_workflow
from rota.client.handle import RunHandle
from rota.client.home import ClientHome, never_delete
from rota.client.notifications import Notifications
from rota.client.operations import Operations
from rota.client.overview import Overview
from rota.client.runs import Runs
from rota.client.schedules import Schedules
from rota.client.start import (
    Item,
    RunBuilder,
    RunOptions,
    Startable,
    StartOptions,
)
from rota.client.starter import ClientStarter, Starter
from rota.client.tokens import Sessions, Tokens
from rota.core import spans
from rota.core.runs.fairness import QueueLimits, stored_queue
from rota.core.runs.ids import IdMaker
from rota.core.runs.model import NewRun, Queue, Started, WorkerRecord
from rota.core.suggest import check_options, suggestion
from rota.engine.clock import Clock, SystemClock
from rota.engine.results import Results
from rota.engine.wakeups import READY, TIMER, Wakeups
from rota.engine.worker import Worker
from rota.errors import (
    AlreadyStarted,
    UnknownQueue,
    UsageError,
)
from rota.settings import Settings
from rota.store.backend import migrate
from rota.store.backend.batching import Batch
from rota.store.backend.database import BRIEF, Database, open_url
from rota.store.runs import workers
from rota.store.runs.start import start_minimal, start_runs, start_uniform

BULK = 500


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
        self.starter = RunBuilder(self.settings, self.ids)
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
        self._batch: Batch[NewRun, Started] = Batch(self._send_starts)
        self._home: ClientHome | None = None
        self._database: Database | None = None
        self._wakeups: Wakeups | None = None
        self._results: Results | None = None
        self._worker: Worker | None = None  # of this process, if it has one

    # -- opening ---------------------------------------------------------------------------

    async def connect(self) -> Self:
        """Open the database, migrating it where that is automatic.

        In a forked child, and after the event loop was closed, this opens it again."""
        if self._home is not None and not self._home.is_here:
            self.leave_home()
        if self._database is not None:
            return self
        if self.settings.traces and not spans.is_on():
            self.trace()
        database = open_url(self.url, self.settings)
        await database.open()
        try:
            await self._follow(database)
            await migrate.prepare(database, migrate=self.migrates, now=self.clock.now())
        except BaseException:
            await database.close()
            raise
        self._database = database
        self._home = ClientHome.here()
        self._wakeups = Wakeups(database)
        self._results = Results(database, self.clock, self._wakeups)
        return self

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

    async def _follow(self, database: Database) -> None:
        if isinstance(self.clock, SystemClock):
            sent = self.clock.local_us()
            server = await database.clock_us()
            if server is not None:
                self.clock.follow(server, sent=sent, received=self.clock.local_us())

    async def close(self) -> None:
        """Close the database."""
        if self._home is not None and not self._home.is_here:
            self.leave_home()
        database, self._database = self._database, None
        self._home = None
        if self._results is not None:
            self._results.close()
        if database is not None:
            await database.close()

    def leave_home(self) -> None:
        """Drop a connection that a fork or a closed event loop has left behind."""
        home, database = self._home, self._database
        if home is None or database is None:
            return
        if home.forked:
            never_delete(database, self._results, home.loop)
        elif home.loop.is_closed():
            database.abandon()
        else:
            home.check()
        self._home = self._database = self._wakeups = self._results = None
        self._batch = Batch(self._send_starts)

    async def __aenter__(self) -> Self:
        return await self.connect()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    @property
    def database(self) -> Database:
        """The open database."""
        if self._database is None:
            raise UsageError(
                "the app is not connected to its database",
                hint="Use `async with app:` or `await app.connect()`.",
            )
        if self._home is not None:
            self._home.check()
        return self._database

    @property
    def _starts(self) -> Batch[NewRun, Started]:
        """Starts that share a commit. A batch of another loop would never answer."""
        if self._home is not None:
            self._home.check()
        return self._batch

    @property
    def wakeups(self) -> Wakeups:
        """The wake-ups of this process."""
        assert self._wakeups is not None, "not connected"
        return self._wakeups

    @property
    def results(self) -> Results:
        """The callers that wait for results in this process."""
        assert self._results is not None, "not connected"
        return self._results

    async def backup(self, path: str | os.PathLike[str], *, disarmed: bool = False) -> int:
        """Copy a SQLite database to a new file while workers run; returns the bytes of the copy.
        A `disarmed` copy does not act until `rota arm`."""
        at = self.clock.now() if disarmed else None
        return await self.database.backup(os.fspath(path), disarmed_at=at)

    # -- starting --------------------------------------------------------------------------

    def workflow_named(self, name: str) -> Startable[..., Any] | None:
        """The registered workflow of that name; a bare client knows none and asks nothing."""
        return None

    def options(self, **options: Unpack[StartOptions]) -> ClientStarter:
        """Choose options for the runs to start.

        Args:
            options: See `StartOptions`.

        Returns:
            An object with `start` and `start_many`.

        Example:
            run = await app.options(queue="slow", delay="1h").start(fetch, url)
        """
        return ClientStarter(self, RunOptions.of(self.options, options))

    async def start_run(
        self,
        workflow: Startable[..., Any] | str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        options: RunOptions,
    ) -> RunHandle[Any]:
        """Start a run: every public form of a start comes here."""
        if here.get() is not None:  # the code of a workflow or of a step
            child = await self._start_inside(workflow, args, kwargs, options)
            if child is not None:
                return child
        with spans.start(workflow if isinstance(workflow, str) else workflow.name) as span:
            fresh = self.new_run(workflow, args, kwargs, options)
            span.note({"rota.run.id": fresh.id, "rota.queue": fresh.queue})
            started = await self._starts.put(fresh)
        if started.existed and options.on_conflict == "reject":
            unique = options.unique_key
            held = f"unique key {unique!r}" if unique else f"external id {options.external_id!r}"
            raise AlreadyStarted(f"run {started.id} has {held} already", run_id=started.id)
        return self.runs.handle(started.id, workflow, existed=started.existed)

    async def _start_inside(
        self,
        workflow: Startable[..., Any] | str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        options: RunOptions,
    ) -> RunHandle[Any] | None:
        """A start in the code of a workflow or of a step; None: it is like any other."""
        refuse_in_workflow("start")
        return None

    def send(self, run: NewRun) -> Awaitable[Started]:
        """Write a new run; all that come at this moment share a commit."""
        return self._starts.put(run)

    async def start_runs(
        self, workflow: Startable[..., Any] | str, items: Iterable[Item], options: RunOptions
    ) -> list[RunHandle[Any]]:
        """Start many runs in few commits: every public form of `start_many` comes here."""
        refuse_in_workflow("start_many")
        definition, name = self._definition(workflow)
        now = self.clock.now()
        # Every input is checked before the first run is inserted.
        with spans.start(name, len(items := list(items))):
            template, rows, plain = self.starter.bulk(definition, name, items, options, now=now)
        store: Any = start_minimal if plain else start_uniform
        returns = definition.signature.returns if definition else None
        handles: list[RunHandle[Any]] = []
        existing: dict[str, str] = {}
        for begin in range(0, len(rows), 2 * BULK):
            # Two at a time: what goes to the database is made ready while it stores the other.
            writes = asyncio.gather(
                *(
                    self.database.write(store, template, rows[at : at + BULK], now=now)
                    for at in range(begin, min(begin + 2 * BULK, len(rows)), BULK)
                )
            )
            await asyncio.sleep(0)  # the database works while the handles are made
            handles += [
                RunHandle(self, row[0], returns, False) for row in rows[begin : begin + 2 * BULK]
            ]
            for found in await writes:
                existing |= found
        await self.wakeups.announce(TIMER if template.available_at > now else READY)
        if not existing:
            return handles
        return [
            RunHandle(self, existing.get(h.id, h.id), returns, h.id in existing) for h in handles
        ]

    def new_run(
        self, workflow: Startable[..., Any] | str, args: Any, kwargs: Any, options: RunOptions
    ) -> NewRun:
        """A new run, its input checked. Nothing is written yet."""
        definition, name = self._definition(workflow)
        return self.starter.new_run(definition, name, args, kwargs, options, now=self.clock.now())

    def _definition(
        self, workflow: Startable[..., Any] | str
    ) -> tuple[Startable[..., Any] | None, str]:
        if isinstance(workflow, str):
            return self.workflow_named(workflow), workflow
        return workflow, workflow.name

    async def _send_starts(self, fresh: Sequence[NewRun]) -> list[Started]:
        brief = len(fresh) <= BRIEF
        if brief and self._worker is not None:
            begun = await self._worker.begin(fresh)
            if begun is not None:
                return begun
        now = self.clock.now()
        topics = sorted({TIMER if run.available_at > now else READY for run in fresh})
        database = self._database or self.database
        started = await database.write_and_notify(topics, brief, start_runs, fresh, now=now)
        for topic in topics:
            self.wakeups.notified(topic)
        return started

    # -- workers and queues ----------------------------------------------------------------

    async def workers(self, *, everyone: bool = False) -> Sequence[WorkerRecord]:
        """Workers that are on, or all known ones."""
        return await self.database.read(
            workers.listing, namespace=self.settings.namespace, everyone=everyone
        )

    async def queues(self) -> Sequence[Queue]:
        """Queues with limits."""
        return await self.database.read(workers.queues, namespace=self.settings.namespace)

    async def pause_queue(self, name: str, *, paused: bool = True) -> None:
        """Stop (or resume) claiming from a queue, on all workers."""
        refuse_in_workflow("pause_queue")
        known = {queue.name for queue in await self.queues()} | {"default"}
        for worker in await self.workers():
            known.update(msgspec.json.decode(worker.queues))
        if name not in known:
            raise UnknownQueue(
                f"there is no queue {name!r}",
                hint=suggestion(name, known, f"Known: {', '.join(sorted(known))}."),
            )
        await self.wakeups.write(
            (READY,), workers.pause_queue, namespace=self.settings.namespace, name=name,
            paused=paused,
        )  # fmt: skip

    async def limit_queue(self, name: str, **limits: Unpack[QueueLimits]) -> Queue:
        """Set the limits of a queue across all workers; a limit that is not named is removed. A
        worker that declares the queue sets its own limits again when it starts."""
        refuse_in_workflow("limit_queue")
        check_options(limits, QueueLimits, self.limit_queue)
        declared = stored_queue(self.settings.namespace, name, limits)
        await self.wakeups.write((READY,), workers.put_queues, [declared])
        return next(queue for queue in await self.queues() if queue.name == name)
