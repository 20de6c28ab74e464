"""One method per verb a person uses. Python, CLI and HTTP are renderings of this.

A client needs only a database URL. It knows no user code: workflows are named, or given as
registered objects that bring their own typed door.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Iterable, Sequence
from operator import itemgetter
from types import TracebackType
from typing import Any, Self, TypedDict, Unpack, overload

import msgspec

from rota.client.automations import Automations
from rota.client.caller import refuse_in_workflow
from rota.client.handle import RunHandle
from rota.client.home import ClientHome, never_delete
from rota.client.notifications import Notifications
from rota.client.schedules import Schedules
from rota.client.start import (
    Item,
    P,
    R,
    RunBuilder,
    RunOptions,
    Startable,
    StartOptions,
)
from rota.client.starter import ClientStarter, Starter
from rota.core import typed
from rota.core.runs import options
from rota.core.runs.ids import IdMaker
from rota.core.runs.lifecycle import Status, Trigger, allowed
from rota.core.runs.model import NewRun, Queue, Run, Started, StoredStep, WorkerRecord
from rota.core.runs.names import checked_key, checked_name
from rota.core.runs.options import BEGAN_AT
from rota.core.suggest import check_options, suggestion
from rota.core.time.instants import Duration, patience_micros
from rota.engine.clock import Clock, SystemClock
from rota.engine.results import Results
from rota.engine.wakeups import CANCEL, DONE, READY, TIMER, Wakeups
from rota.errors import (
    AlreadyStarted,
    BadInput,
    UnknownWorkflow,
    UsageError,
    WrongState,
)
from rota.settings import Settings
from rota.store.backend import migrate
from rota.store.backend.batching import Batch
from rota.store.backend.database import BRIEF, Database, open_url
from rota.store.runs import history, steps, transitions, workers
from rota.store.runs.history import ChainResult, Ready

BULK = 500


class RunFilters(TypedDict, total=False):
    """What `list` selects by; `before` is the last id of the page before."""

    name: str
    status: str
    queue: str
    external_id: str
    root_id: str
    before: str
    limit: int


class Client(Starter):
    """Starts, finds, awaits and steers runs in one namespace of one database."""

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
        self.schedules = Schedules(self)
        self.automations = Automations(self)
        self.notifications = Notifications(self)
        self.migrates = url.startswith("sqlite") if migrate is None else migrate
        self._batch: Batch[NewRun, Started] = Batch(self._send_starts)
        self._home: ClientHome | None = None
        self._database: Database | None = None
        self._wakeups: Wakeups | None = None
        self._results: Results | None = None

    # -- opening ---------------------------------------------------------------------------

    async def connect(self) -> Self:
        """Open the database, migrating it where that is automatic.

        In a forked child, and after the event loop was closed, this opens it again."""
        if self._home is not None and not self._home.is_here:
            self.leave_home()
        if self._database is not None:
            return self
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
        """Whoever waits for results in this process."""
        assert self._results is not None, "not connected"
        return self._results

    async def backup(self, path: str | os.PathLike[str]) -> int:
        """Copy a SQLite database to a new file while workers run; returns the bytes of the copy."""
        return await self.database.backup(os.fspath(path))

    # -- starting --------------------------------------------------------------------------

    def workflow_named(self, name: str) -> Startable[..., Any] | None:
        """The registered workflow of that name; a bare client knows none and asks nothing."""
        return None

    def _known(self, name: str) -> Startable[..., Any] | None:
        """The registered workflow, if it is known here; steering a run needs no code."""
        try:
            return self.workflow_named(name)
        except UnknownWorkflow:
            return None

    def options(self, **options: Unpack[StartOptions]) -> ClientStarter:
        """Options for runs: `await client.options(queue="slow").start("fetch", url)`."""
        return ClientStarter(self, RunOptions.of(self.options, options))

    async def start_run(
        self,
        workflow: Startable[..., Any] | str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        options: RunOptions,
    ) -> RunHandle[Any]:
        """Start a run: every public form of a start comes here."""
        refuse_in_workflow("start")
        started = await self._starts.put(self.new_run(workflow, args, kwargs, options))
        if started.existed and options.on_conflict == "reject":
            unique = options.unique_key
            held = f"unique key {unique!r}" if unique else f"external id {options.external_id!r}"
            raise AlreadyStarted(f"run {started.id} has {held} already", run_id=started.id)
        return self.ref(started.id, workflow, existed=started.existed)

    async def send(self, run: NewRun) -> Started:
        """Write a run that is ready to be born; all that come at this moment share a commit."""
        return await self._starts.put(run)

    async def start_runs(
        self, workflow: Startable[..., Any] | str, items: Iterable[Item], options: RunOptions
    ) -> list[RunHandle[Any]]:
        """Start many runs in few commits: every public form of `start_many` comes here."""
        refuse_in_workflow("start_many")
        door, name = self._door(workflow)
        now = self.clock.now()
        # Every input is checked before the first run is inserted.
        template, rows, plain = self.starter.bulk(door, name, items, options, now=now)
        store: Any = transitions.start_plain if plain else transitions.start_alike
        existing: dict[str, str] = {}
        for begin in range(0, len(rows), 2 * BULK):
            # Two at a time: what goes to the database is made ready while it stores the other.
            for found in await asyncio.gather(
                *(
                    self.database.write(store, template, rows[at : at + BULK], now=now)
                    for at in range(begin, min(begin + 2 * BULK, len(rows)), BULK)
                )
            ):
                existing |= found
        await self.wakeups.announce(TIMER if template.available_at > now else READY)
        returns = door.signature.returns if door else None
        ids = map(itemgetter(0), rows)
        return [RunHandle(self, existing.get(i, i), returns, i in existing) for i in ids]

    def new_run(
        self, workflow: Startable[..., Any] | str, args: Any, kwargs: Any, options: RunOptions
    ) -> NewRun:
        """A new run, its input checked. Nothing is written yet."""
        door, name = self._door(workflow)
        return self.starter.new_run(door, name, args, kwargs, options, now=self.clock.now())

    def _door(self, workflow: Startable[..., Any] | str) -> tuple[Startable[..., Any] | None, str]:
        if isinstance(workflow, str):
            return self.workflow_named(workflow), workflow
        return workflow, workflow.name

    @overload
    def ref(
        self, run_id: str, workflow: Startable[P, R], *, existed: bool = False
    ) -> RunHandle[R]: ...

    @overload
    def ref(
        self, run_id: str, workflow: object = None, *, existed: bool = False
    ) -> RunHandle[Any]: ...

    def ref(self, run_id: str, workflow: Any = None, *, existed: bool = False) -> RunHandle[Any]:
        """A reference to a chain by the id of its first run."""
        signature: typed.Signature | None = getattr(workflow, "signature", None)
        return RunHandle(self, run_id, signature.returns if signature else None, existed)

    async def _send_starts(self, fresh: Sequence[NewRun]) -> list[Started]:
        now = self.clock.now()
        topics = sorted({TIMER if run.available_at > now else READY for run in fresh})
        started = await self.database.write_and_notify(
            topics, len(fresh) <= BRIEF, transitions.start, fresh, now=now
        )
        for topic in topics:
            self.wakeups.heard(topic)
        return started

    # -- finding ---------------------------------------------------------------------------

    async def get(self, run_id: str) -> Run:
        """One run by id, or by a prefix of it that fits no other."""
        return await self.database.read(
            history.get, namespace=self.settings.namespace, run_id=run_id
        )

    async def _own(self, run_id: str) -> Run:
        """A run that may be steered: schedules and automations have verbs of their own."""
        run = await self.get(run_id)
        if run.kind == "automation":
            raise WrongState(
                f"{run_id} is a turn of the automation {run.name}",
                hint=f"Use `rota automation` and its name, {run.name}.",
            )
        if run.kind == "schedule":
            raise WrongState(
                f"{run_id} is the schedule {run.name}, not a run",
                hint=f"Use `rota schedule` and its name, {run.name}.",
            )
        return run

    async def chain(self, run_id: str) -> list[Run]:
        """Every attempt of the run's chain, first to last."""
        run = await self.get(run_id)
        if run.kind == "schedule":
            run = await self._own(run_id)
        return await self.database.read(history.chain, root_id=run.root_id)

    async def steps(self, run_id: str) -> list[StoredStep]:
        """What the run's chain has recorded, in order."""
        run = await self.get(run_id)
        found = await self.database.read(steps.load, [run.root_id])
        return found[run.root_id]

    async def list(self, **filters: Unpack[RunFilters]) -> list[Run]:
        """Runs, newest first; filters: name, status, queue, external_id, root_id, before, limit."""
        check_options(filters, RunFilters, self.list)
        if filters.get("status") and filters["status"] not in set(Status):
            raise BadInput(
                f"there is no status {filters['status']!r}",
                hint=f"There are: {', '.join(Status)}.",
            )
        return await self.database.read(history.page, namespace=self.settings.namespace, **filters)

    async def counts(self) -> dict[str, int]:
        """Runs by status."""
        return await self.database.read(history.counts, namespace=self.settings.namespace)

    async def ready(self) -> Sequence[Ready]:
        """What could be claimed now, by queue and name."""
        return await self.database.read(history.ready, namespace=self.settings.namespace)

    async def workers(self, *, everyone: bool = False) -> Sequence[WorkerRecord]:
        """Workers that are on, or all known ones."""
        return await self.database.read(
            workers.listing, namespace=self.settings.namespace, everyone=everyone
        )

    async def queues(self) -> Sequence[Queue]:
        """Queues with limits."""
        return await self.database.read(workers.queues, namespace=self.settings.namespace)

    # -- awaiting and steering -------------------------------------------------------------

    async def wait(self, run_id: str, *, timeout: Duration | None = None) -> ChainResult:
        """How the chain ended, once it has; TimeoutError when it has not by then. A timeout of 0
        looks once."""
        limit_us = None if timeout is None else patience_micros(timeout)
        run = await self.get(run_id)
        if limit_us == 0:
            for ended in await self.database.read(history.ended, [run.root_id]):
                return ended
            raise TimeoutError(f"run {run.id} has not ended")
        limit_s = None if limit_us is None else limit_us / 1e6
        return await asyncio.wait_for(self.results.wait(run.root_id), limit_s)

    async def cancel(self, run_id: str, *, reason: str = "by request") -> Sequence[str]:
        """Call off the chain's open run and everything below it; returns the cancelled ids. Not
        inside a workflow: use a step."""
        refuse_in_workflow("cancel")
        checked_key(reason, "reason")
        run = await self._own(run_id)
        # `ready` as well: the slot that the run held in a limited queue is free.
        ids = await self.wakeups.write(
            (CANCEL, DONE, READY), transitions.cancel, [run.root_id], reason=reason,
            now=self.clock.now(),
        )  # fmt: skip
        if not ids:
            last = (await self.chain(run.id))[-1]
            raise WrongState(f"run {last.id} is {last.label}; there is nothing to cancel")
        return ids

    async def retry(self, run_id: str) -> RunHandle[Any]:
        """Try a chain that ended (or waits for a person) again, from its last finished step. Not
        inside a workflow: use a step."""
        refuse_in_workflow("retry")
        await self._own(run_id)
        last = (await self.chain(run_id))[-1]
        now = self.clock.now()
        if allowed("resolve", Status(last.status)):
            await self.wakeups.write((READY,), transitions.resolve, last.id, now=now)
        elif not await self.wakeups.write(
            (READY,), transitions.retry_chain, last.root_id, self.ids.make(now), now=now
        ):
            raise WrongState(f"run {last.id} is {last.label}; there is nothing to retry")
        return self.ref(last.root_id, self._known(last.name))

    async def signal(self, run_id: str, name: str, value: Any = None) -> None:
        """Send a signal to a run; it is kept until the run asks for it. Not inside a workflow: use
        a step."""
        refuse_in_workflow("signal")
        checked_name(name, "signal name")
        run = await self._own(run_id)
        last = (await self.chain(run.id))[-1]
        if last.is_final:
            raise WrongState(f"run {last.id} is {last.label}; nobody will hear a signal")
        now = self.clock.now()
        body = typed.encode(value, what=f"signal {name}", bytes_max=self.settings.payload_bytes_max)
        await self.wakeups.write(
            (READY,), steps.send_signal, signal_id=self.ids.make(now), root_id=run.root_id,
            name=name, body=body, now=now,
        )  # fmt: skip

    async def fork(self, run_id: str, *, from_step: str) -> RunHandle[Any]:
        """A new chain with the same input that remembers everything before `from_step`. Not inside
        a workflow: use a step."""
        refuse_in_workflow("fork")
        run = await self._own(run_id)
        if run.kind == "pipeline":
            raise WrongState(
                f"{run_id} is a run of {run.name}; a pipeline run is not forked",
                hint="Start the pipeline again and let it take over what is equal (cache_from).",
            )
        recorded = {step.key: step for step in await self.steps(run.id)}
        if from_step not in recorded:
            raise BadInput(
                f"run {run.id} has recorded no step {from_step!r}",
                hint=suggestion(from_step, recorded, f"It has: {', '.join(recorded)}."),
            )
        now = self.clock.now()
        fresh = NewRun(
            id=self.ids.make(now), namespace=run.namespace, name=run.name, available_at=now,
            input=run.input, kind=run.kind, queue=run.queue, priority=run.priority,
            trigger=Trigger.FORK, limit_key=run.limit_key, version=run.version, tags=run.tags,
            options=_seeded(run),
        )  # fmt: skip
        started = await self.wakeups.write(
            (READY,), steps.fork, fresh, from_root=run.root_id,
            position=recorded[from_step].position, now=now,
        )  # fmt: skip
        return self.ref(started.id, self._known(run.name))

    async def pause_queue(self, name: str, *, paused: bool = True) -> None:
        """Stop (or resume) claiming from a queue, on all workers."""
        refuse_in_workflow("pause_queue")
        known = {queue.name for queue in await self.queues()} | {"default"}
        for worker in await self.workers():
            known.update(msgspec.json.decode(worker.queues))
        if name not in known:
            raise BadInput(
                f"there is no queue {name!r}",
                hint=suggestion(name, known, f"Known: {', '.join(sorted(known))}."),
            )
        await self.wakeups.write(
            (READY,), workers.pause_queue, namespace=self.settings.namespace, name=name,
            paused=paused,
        )  # fmt: skip


def _seeded(run: Run) -> str:
    """The options of a fork: it draws the random values that its origin drew."""
    return options.with_default(options.without(run.options, BEGAN_AT), "seed", run.root_id)
