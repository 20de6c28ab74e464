"""The start of a run: a workflow, its arguments and options in, a stored run out.

Arguments and options never share a call: `options(...)` takes options, `start(...)` arguments.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import datetime
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    Literal,
    NamedTuple,
    ParamSpec,
    TypedDict,
    TypeVar,
    overload,
)

import msgspec

from rota.client.caller import current_run, current_step, refusal
from rota.client.handle import RunHandle
from rota.client.start_many import Item, Start, as_start, items_of, start_many
from rota.core import trace_spans, typed
from rota.core.redaction import Redactor
from rota.core.runs.model import NewRun, Started
from rota.core.runs.names import checked_key, checked_name, checked_priority, checked_tags
from rota.core.runs.options import StoredRunOptions
from rota.core.runs.retry import RetryPolicy
from rota.core.suggest import check_options, suggestion
from rota.core.time.instants import Duration, bounded, instant, micros, timeout_micros
from rota.engine.wakeups import READY, TIMER
from rota.errors import AlreadyStarted, BadInput, UnknownWorkflow, UsageError
from rota.store.backend.batching import Batch
from rota.store.backend.database import BRIEF
from rota.store.runs.start import start_runs

if TYPE_CHECKING:
    from rota.client.client import Client

P = ParamSpec("P")
R = TypeVar("R")
OnConflict = Literal["return", "reject"]

TAGS_BYTES_MAX = 4096


class Startable(Generic[P, R]):
    """The client's view of a registered workflow: parameters `P`, the result `R` of a run."""

    function: Callable[P, Any]
    client: Client  # the app that has registered it
    kind: str
    name: str
    queue: str
    priority: int
    version: str
    signature: typed.Signature


# A workflow, None if this client does not know it, and its name.
Known = tuple[Startable[..., Any] | None, str]


class StartOptions(TypedDict, total=False):
    """The options of a start, for `options(...)`.

    `external_id` starts a run only once; `on_conflict` says whether a second start returns the run
    that exists or raises AlreadyStarted. `delay` or `at` starts it later. `key` is what the limits
    per key count by. `queue`, `priority`, `retries` and `timeout` replace those of the workflow.
    At most one open run of a workflow has a `unique_key`; it is free again when that run has ended.
    A `detached` child outlives the workflow that starts it.
    """

    external_id: str | None
    on_conflict: OnConflict
    queue: str | None
    priority: int | None
    delay: Duration | None
    at: datetime | None
    key: str | None
    tags: dict[str, str] | None
    retries: int | RetryPolicy | None
    timeout: Duration | None
    unique_key: str | None
    detached: bool


class RunOptions(msgspec.Struct, frozen=True):
    """`StartOptions` with their defaults, checked."""

    external_id: str | None = None
    on_conflict: OnConflict = "return"
    queue: str | None = None
    priority: int | None = None
    delay: Duration | None = None
    at: datetime | None = None
    key: str | None = None
    tags: dict[str, str] | None = None
    retries: int | RetryPolicy | None = None
    timeout: Duration | None = None
    unique_key: str | None = None  # at most one open run of this workflow has it
    detached: bool = False  # of a child: it continues when its parent fails or is cancelled

    @classmethod
    def of(cls, call: Callable[..., Any], options: StartOptions) -> RunOptions:
        """Options as a caller of the public function `call` gave them."""
        check_options(options, StartOptions, call)
        made = cls(**options)
        if made.on_conflict not in ("return", "reject"):
            raise BadInput(
                f"on_conflict={made.on_conflict!r} is not a policy", hint="Write return or reject."
            )
        return made

    def for_item(self, item: Start) -> RunOptions:
        """The options of one item of `start_many`, which may have its own external id and key."""
        key = self.key if item.key is None else item.key
        return msgspec.structs.replace(self, external_id=item.external_id, key=key)

    def check_many(self) -> None:
        """Refuse the options that only a single start has."""
        for name, value, hint in (
            (
                "external_id",
                self.external_id,
                "Give each item its own: Start((…,), external_id=…).",
            ),
            ("unique_key", self.unique_key, "Start them one by one."),
        ):
            if value is not None:
                problem = f"{name}={value!r} applies to one run, so start_many does not accept it"
                raise BadInput(problem, hint=hint)
        if self.on_conflict != "return":
            raise BadInput(
                "start_many takes no on_conflict",
                hint="Look at `existed` of each run that it returns.",
            )

    def available_at(self, now: int) -> int:
        """The earliest instant to run."""
        if self.delay is not None and self.at is not None:
            raise BadInput("give delay or at, not both")
        if self.delay is not None:
            return bounded(now + max(0, micros(self.delay)), f"delay={self.delay!r}")
        return now if self.at is None else bounded(instant(self.at), f"at={self.at.isoformat()}")

    def check(self) -> None:
        """Raise BadInput for a name, key or priority that not every database can hold."""
        if self.external_id is not None:
            checked_key(self.external_id, "external_id")
        if self.key is not None:
            checked_key(self.key, "key")
        if self.unique_key is not None:
            checked_key(self.unique_key, "unique_key")
        if self.queue is not None:
            checked_name(self.queue, "queue")
        if self.priority is not None:
            checked_priority(self.priority)
        if self.tags is not None:
            checked_tags(self.tags)

    def stored(self) -> str | None:
        """Policies that differ from the workflow's, as JSON."""
        if self.retries is None and self.timeout is None and not trace_spans.is_on():
            return None
        retry = None if self.retries is None else RetryPolicy.of(self.retries)
        timeout_us = None if self.timeout is None else timeout_micros(self.timeout)
        return StoredRunOptions(retry, timeout_us, traceparent=trace_spans.traceparent()).text()


NO_OPTIONS = RunOptions()


class WorkflowStart(NamedTuple):
    """A child run to start."""

    args: Any
    kwargs: Any
    options: RunOptions


def of_another_app(name: str) -> UsageError:
    """The error for a workflow that another app of this process has registered: its runs belong
    into the database of that app, and its code is there."""
    hint = f"Write `await {name}.start(…)`: the run then starts in its own app."
    if current_run() is not None:
        hint = (
            "Start it in a step: `async with other_app.connected(): run = await "
            f"{name}.options(external_id=…).start(…)`. A parent and its child are runs of one app."
        )
    return UsageError(f"workflow {name} belongs to another app", hint=hint)


class RunStarter:
    """Checks the input of new runs and stores them: every public form of a start comes here."""

    def __init__(
        self, client: Client, workflows: Mapping[str, Startable[..., Any]] | None = None
    ) -> None:
        self.client = client
        self._workflows = workflows
        self._settings = client.settings
        self._redactor = Redactor(client.settings.secret_fields)
        self.leave()

    def leave(self) -> None:
        """Begin again after a fork or in another event loop: the old batch never answers."""
        self._batch: Batch[NewRun, Started] = Batch(self._send)

    def workflow_named(self, name: str) -> Startable[..., Any] | None:
        """The registered workflow of that name, or an error with the nearest names; None in a
        client without an app."""
        if self._workflows is None:
            return None
        if name not in self._workflows:
            names = sorted(self._workflows)
            hint = suggestion(name, names, f"Known: {', '.join(names) or 'none'}.")
            raise UnknownWorkflow(f"there is no workflow {name!r}", hint=hint, name=name)
        return self._workflows[name]

    def start(
        self,
        workflow: Startable[..., Any] | str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        options: RunOptions,
        called: str = "start",
    ) -> Coroutine[Any, Any, RunHandle[Any]]:
        """Start a run. Workflow code that calls this and never awaits it fails."""
        known, run = self._definition(workflow), current_run()
        if run is not None:
            return self._start_child(run, known[0], WorkflowStart(args, kwargs, options), called)
        if options.external_id is None and current_step() is not None:
            self._warn_in_step(known[1])
        returns = None if isinstance(workflow, str) else workflow.signature.returns
        return self._start(known, args, kwargs, options, returns)

    async def _start(
        self,
        known: Known,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        options: RunOptions,
        returns: typed.JsonReader | None,
    ) -> RunHandle[Any]:
        with trace_spans.start(known[1]) as span:
            fresh = self._new_run(known, args, kwargs, options)
            span.note({"rota.run.id": fresh.id, "rota.queue": fresh.queue})
            started = await self.send(fresh)
        if started.existed and options.on_conflict == "reject":
            given = {"external id": options.external_id, "unique key": options.unique_key}
            held = " or ".join(f"{what} {value!r}" for what, value in given.items() if value)
            raise AlreadyStarted(f"run {started.id} has {held} already", run_id=started.id)
        return RunHandle(self.client, started.id, returns, started.existed)

    def _start_child(
        self, run: Any, workflow: Any, start: WorkflowStart, called: str
    ) -> Coroutine[Any, Any, RunHandle[Any]]:
        """Start a run from the code of a workflow."""
        raise refusal("start")

    def _warn_in_step(self, name: str) -> None:
        """A step starts this workflow without an external id."""

    def start_many(
        self,
        workflow: Startable[..., Any] | str,
        items: Iterable[Item],
        options: RunOptions,
        called: str = "start_many",
    ) -> Coroutine[Any, Any, list[RunHandle[Any]]]:
        """Start many runs in few commits. Workflow code that never awaits this fails."""
        known, run = self._definition(workflow), current_run()
        if run is not None:
            return self._start_children(run, known[0], items, options, called)
        return self._start_many(known, items, options, in_step=current_step() is not None)

    def _start_children(
        self, run: Any, workflow: Any, items: Iterable[Item], options: RunOptions, called: str
    ) -> Coroutine[Any, Any, list[RunHandle[Any]]]:
        """Start many runs from the code of a workflow."""
        raise refusal("start_many")

    async def _start_many(
        self, known: Known, items: Iterable[Item], options: RunOptions, *, in_step: bool
    ) -> list[RunHandle[Any]]:
        chosen = items_of(items)
        if in_step and any(as_start(one).external_id is None for one in chosen):
            self._warn_in_step(known[1])
        return await start_many(self, known, chosen, options)

    def new_run(
        self, workflow: Startable[..., Any] | str, args: Any, kwargs: Any, options: RunOptions
    ) -> NewRun:
        """A new run, its input checked. Nothing is written yet. Another app may execute it."""
        if isinstance(workflow, Startable):
            return self._new_run((workflow, workflow.name), args, kwargs, options)
        return self._new_run(self._definition(workflow), args, kwargs, options)

    def _new_run(self, known: Known, args: Any, kwargs: Any, options: RunOptions) -> NewRun:
        text = self.written_input(known, args, kwargs)
        return self.build_run(known, text, options, self.client.clock.now())

    def encoded_run(self, name: str, text: str | None, options: RunOptions) -> NewRun:
        """The same for a kind that encodes its own input."""
        return self.build_run((None, name), text, options, self.client.clock.now())

    def send(self, run: NewRun) -> Awaitable[Started]:
        """Write a new run; all that come at this moment share a commit."""
        self.client.connection.check()
        return self._batch.put(run)

    async def _send(self, fresh: Sequence[NewRun]) -> list[Started]:
        connection = self.client.connection
        brief = len(fresh) <= BRIEF
        if brief and connection.worker is not None:
            begun = await connection.worker.begin(fresh)
            if begun is not None:
                return begun
        now = self.client.clock.now()
        topics = sorted({TIMER if run.available_at > now else READY for run in fresh})
        write = connection.database.write_brief if brief else connection.database.write
        started = await write(start_runs, fresh, now=now)
        await connection.wakeups.announce(*topics)
        return started

    def _definition(self, workflow: object) -> Known:
        """The workflow and its name. Refuses a step, a function without a decorator, and a
        workflow of another app."""
        if isinstance(workflow, str):
            return self.workflow_named(workflow), workflow
        if not isinstance(workflow, Startable):
            name = getattr(workflow, "__name__", None) or repr(workflow)
            raise UsageError(
                f"{name} is not a workflow",
                hint="Decorate the function with @app.workflow, or give the name of a workflow.",
            )
        if self._workflows is not None and workflow.client is not self.client:
            raise of_another_app(workflow.name)
        return workflow, workflow.name

    def build_run(self, known: Known, text: str | None, options: RunOptions, now: int) -> NewRun:
        """A new run with this input."""
        definition, name = known
        if options is not NO_OPTIONS:
            options.check()
        tags = options.tags
        priority = options.priority
        return NewRun(
            id=self.client.ids.make(now),
            namespace=self._settings.namespace,
            name=name,
            available_at=options.available_at(now),
            input=text,
            queue=options.queue or (definition.queue if definition else "default"),
            priority=priority
            if priority is not None
            else (definition.priority if definition else 0),
            external_id=options.external_id,
            serial_key=unique_key(name, options.unique_key),
            limit_key=options.key,
            version=definition.version if definition else None,
            tags=typed.encode(tags, what="tags", bytes_max=TAGS_BYTES_MAX) if tags else None,
            options=options.stored(),
        )

    def written_input(
        self, known: Known, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> str | None:
        """The arguments as JSON, or BadInput if they do not fit the workflow."""
        definition, name = known
        limit = self._settings.payload_bytes_max
        kwargs = self._redactor.restored(kwargs)
        if definition is not None:
            return definition.signature.write(args, kwargs, what=name, bytes_max=limit)
        checked_name(name, "workflow name")
        if args:
            raise BadInput(
                f"workflow {name} is not registered here, so its arguments have no names",
                hint="Name each argument, or start it through the app that registers it.",
            )
        return (
            typed.encode(kwargs, what=f"the input of {name}", bytes_max=limit) if kwargs else None
        )


def unique_key(name: str, key: str | None) -> str | None:
    """How a key that is unique among the open runs of a workflow is stored."""
    return None if key is None else f"workflow:{name}:{key}"


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
        return self.starter.start(workflow, args, kwargs, self._given)

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
        return self.starter.start_many(workflow, items, self._given)
