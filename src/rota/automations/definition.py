"""The result of `app.automation`: topics, producers and consumers as the code declares them.

Declaring checks nothing but types: a deploy looks at the whole and reports all problems at once.
"""

from __future__ import annotations

import hashlib
import inspect
import tokenize
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import lru_cache
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, Unpack

from msgspec.structs import replace

from rota.automations.auto_fix import Fixer
from rota.automations.returned import event_type, shape_problems
from rota.core import typed
from rota.core.automations.failure_policy import (
    FailurePolicy,
    HandlerPolicyOptions,
    ToolPolicyOptions,
    checked_policy,
)
from rota.core.automations.graph import AutomationGraph, HandlerNode, TopicNode, problems
from rota.core.automations.model import DeadLetter
from rota.core.fingerprint import Scope, fingerprint
from rota.core.json_schema import misfit, shape_of
from rota.core.suggest import check_options
from rota.core.time.instants import SECOND, Duration, micros
from rota.core.time.recurrence import parse
from rota.core.typed import json_text
from rota.errors import BadAutomation, BadInput, RotaError, UsageError
from rota.schedules.host_zone import host_zone_name
from rota.store.automations.deploy import NewHandler, NewVersion, topic_rows
from rota.tools.base import Change

if TYPE_CHECKING:
    from rota.automations.context import Context, Prepared

F = TypeVar("F")
Function = Callable[..., Any]
# One change or none: a function that returns several does not type-check.
Mutate = Callable[["Context", "Prepared"], Change | Coroutine[Any, Any, Change | None] | None]
# A consumer of one function.
EventFunction = TypeVar(
    "EventFunction",
    bound=Callable[[Any], Change | Coroutine[Any, Any, Change | None] | None],
)
PUBLISHED_HINT = "Compare the payload with the type of the topic; nothing was published."
STORED_HINT = "Skip the event (`rota automation skip`), or deploy a type of the topic that it fits."


class Topic:
    """A named stream of events inside one automation; `kind` is the type of their payloads."""

    def __init__(self, name: str, kind: Any = Any, *, external: bool = False) -> None:
        self.name = name
        self.kind = kind
        self.external = external
        self._reader = typed.JsonReader(kind)

    def encode(self, payload: Any, *, bytes_max: int) -> str:
        """The payload as JSON text, checked against the topic's type."""
        what = f"an event of topic {self.name}"
        text = typed.encode(payload, what=what, bytes_max=bytes_max)
        self._read(text, what, PUBLISHED_HINT)
        return text

    def decode(self, text: str, message_id: str) -> Any:
        """A stored payload, typed."""
        what = f"event {message_id} of topic {self.name} does not fit its type"
        return self._read(text, what, STORED_HINT)

    def _read(self, text: str, what: str, hint: str) -> Any:
        """The typed value, or BadInput with the whole path: that of the decoder has no keys."""
        try:
            return self._reader.read(text, what=what, hint=hint)
        except BadInput as error:
            shape = _shape_of(self.kind) if "[...]" in error.message else None
            wrong = misfit(shape, text) if shape is not None else None
            if wrong is None:
                raise
            raise BadInput(f"{what}: {wrong}", hint=hint) from None


class Handler(NamedTuple):
    """A declared handler: its place in the graph, and its functions by phase."""

    node: HandlerNode
    functions: dict[str, Function]  # run | prepare, mutate, next
    owner: type | None  # the class that has these methods
    policy: FailurePolicy = FailurePolicy()
    renamed_from: str | None = None
    takes_event: bool = False  # one function `(event)`: Rota prepares

    def bound(self, phase: str) -> Function:
        """The function of a phase; methods get a fresh object, so that nothing is shared."""
        function = self.functions[phase]
        if self.takes_event:
            return lambda _ctx, prepared: function(prepared.events[0])
        if self.owner is None:
            return function
        made = self.owner()
        return lambda *args: function(made, *args)

    def is_async(self, phase: str) -> bool:
        """Whether a phase runs on the event loop; others run in threads."""
        return inspect.iscoroutinefunction(self.functions[phase])


def _names(topics: Sequence[Topic | str]) -> tuple[str, ...]:
    if isinstance(topics, str | Topic):
        raise UsageError("subscribes and publishes are lists of topics")
    return tuple(map(_name, topics))


def _name(topic: Topic | str) -> str:
    return topic if isinstance(topic, str) else topic.name


def _policy(what: str, options: Mapping[str, Any], kind: type) -> FailurePolicy:
    return checked_policy(
        what, **{name: options[name] for name in kind.__annotations__ if name in options}
    )


class AutomationOptions(HandlerPolicyOptions, total=False):
    """The options of `app.automation`."""

    approval: bool
    timezone: str | None
    queue: str
    fix: Fixer | None
    dead_letter: Topic | str | None


class Automation:
    """An automation as the code declares it."""

    def __init__(self, name: str, **options: Unpack[AutomationOptions]) -> None:
        self.name = name
        self.approval = options.get("approval", False)
        self.timezone = options.get("timezone")
        self.queue = options.get("queue", "default")
        self.fix = options.get("fix")
        self.dead_letter = options.get("dead_letter")
        self.policy = _policy(f"automation {name}", options, HandlerPolicyOptions)
        self.topics: dict[str, Topic] = {}
        self._handlers: list[Handler] = []
        self._digests: list[str] = []  # of the handlers, as far as they were asked for
        self._twice: list[str] = []

    @property
    def handlers(self) -> dict[str, Handler]:
        """The declared handlers by name."""
        return {one.node.name: one for one in self._handlers}

    def topic(self, name: str, kind: Any = Any, *, external: bool = False) -> Topic:
        """Declare a topic; `external` when others publish to it, by client or CLI."""
        if name in self.topics:
            self._twice.append(f"topic {name} is declared twice")
        made = self.topics[name] = Topic(name, kind, external=external)
        return made

    def producer(
        self,
        *,
        publishes: Sequence[Topic | str],
        every: Duration | None = None,
        cron: str | None = None,
        timezone: str | None = None,
        name: str | None = None,
        renamed_from: str | None = None,
        **policy: Unpack[ToolPolicyOptions],
    ) -> Callable[[F], F]:
        """Declare a producer: a function `(ctx, state)` that reads, publishes, and returns its
        new state (None keeps the old one). With `renamed_from` it keeps the state of that one.

        `retries` and `failed_reads` say what follows a failure."""
        check_options(policy, ToolPolicyOptions, self.producer)
        what = f"producer {name or ''}".strip()
        failures = checked_policy(what, **policy)
        if (every is None) == (cron is None):
            raise UsageError(f"{what}: give either every= or cron=")

        def declare(function: F) -> F:
            assert callable(function)
            named = str(name or getattr(function, "__name__", ""))
            node = HandlerNode(
                named, "producer", publishes=_names(publishes), zone=timezone or self.timezone,
                schedule=cron if every is None else _interval(every),
            )  # fmt: skip
            self._handlers.append(Handler(node, {"run": function}, None, failures, renamed_from))
            return function

        return declare

    def consumer(
        self,
        name: str | None = None,
        *,
        subscribes: Sequence[Topic | str],
        publishes: Sequence[Topic | str] = (),
        prepare: Function | None = None,
        mutate: Mutate | None = None,
        next: Function | None = None,  # noqa: A002 - the word of the model
        approval: bool | None = None,
        renamed_from: str | None = None,
        dead_letter: Topic | str | None = None,
        **policy: Unpack[HandlerPolicyOptions],
    ) -> Any:
        """Declare a consumer, as a decorator of one function or of a class with three methods.

        The function takes an event and returns a change or None: Rota gives it one event after the
        other. A class has up to three methods, which may be given as arguments instead:
        `prepare(ctx, state)` chooses events, `mutate(ctx, prepared)` returns one change or None,
        `next(ctx, prepared, mutation)` publishes and returns the new state. `renamed_from` is the
        name it had before: it keeps the state of that one.

        `retries`, `failed_reads` and `skip_after` say what follows a failure; the topic
        `dead_letter` receives the events that are skipped then."""
        check_options(policy, HandlerPolicyOptions, self.consumer)
        failures = checked_policy(f"consumer {name or ''}".strip(), **policy)
        letters = self.dead_letter if dead_letter is None else dead_letter
        asks = self.approval if approval is None else approval

        def declare(
            owner: type | None, named: str, found: dict[str, Function], *, takes_event: bool = False
        ) -> None:
            node = HandlerNode(
                named, "consumer", _names(subscribes), _names(publishes),
                has_mutate="mutate" in found, has_next="next" in found,
                approval=asks and "mutate" in found,
                dead_letter=None if letters is None else _name(letters),
            )  # fmt: skip
            self._handlers.append(Handler(node, found, owner, failures, renamed_from, takes_event))

        if prepare is not None:
            given = {"prepare": prepare, "mutate": mutate, "next": next}
            found = {phase: function for phase, function in given.items() if function}
            declare(None, name or prepare.__name__, found)
            return None

        def decorate(owner: Any) -> Any:
            if not isinstance(owner, type):
                named = name or str(getattr(owner, "__name__", "consumer"))
                declare(None, named, {"mutate": owner}, takes_event=True)
                return owner
            phases = ("prepare", "mutate", "next")
            found = {phase: vars(owner)[phase] for phase in phases if phase in vars(owner)}
            declare(owner, name or owner.__name__, found)
            return owner

        return decorate

    def consume(self, name: str, function: EventFunction) -> EventFunction:
        """Declare the one topic of `app.consumer`, and its consumer."""
        topic = self.topic(name, event_type(function), external=True)
        if isinstance(self.dead_letter, str):
            self.topic(self.dead_letter, DeadLetter)
        consumer: EventFunction = self.consumer(subscribes=[topic])(function)
        return consumer

    def graph(self) -> AutomationGraph:
        """All that is declared."""
        topics = tuple(
            TopicNode(one.name, one.external, _shape_of(one.kind)) for one in self.topics.values()
        )
        return AutomationGraph(topics, tuple(one.node for one in self._handlers))

    def digest(self) -> str:
        """A hash that changes with anything that a deploy would store."""
        return self._digest(json_text(self.graph()))

    def _digest(self, graph: str) -> str:
        twice = ("twice", *self._twice) if self._twice else ()
        return _hash(graph, self.queue, *self._handler_digests(), *twice)

    def _handler_digests(self) -> Sequence[str]:
        """The digests, each computed once: a list in a closure may grow while its handler runs, and
        that is not other code."""
        self._digests += map(_digest, self._handlers[len(self._digests) :])
        return self._digests

    def version(self, *, now: int) -> NewVersion:
        """The version that a deploy stores, or BadAutomation with everything that is wrong."""
        graph = self.graph()
        found = [*self._twice, *problems(self.name, graph), *self._bad_renames()]
        found += [
            f"consumer {one.node.name} has no `prepare`"
            for one in self._handlers
            if one.node.kind == "consumer"
            and not one.takes_event
            and "prepare" not in one.functions
        ]
        for each in self._handlers:
            name = f"{each.node.kind} {each.node.name}"
            found += shape_problems(name, each.functions, takes_event=each.takes_event)
        letters = {one.node.dead_letter for one in self._handlers}
        found += [
            f"topic {one.name} receives dead letters; declare it with DeadLetter, or without a type"
            for one in self.topics.values()
            if one.name in letters and one.kind not in (Any, DeadLetter)
        ]
        specs: dict[str, str] = {}
        for one in graph.producers:
            try:
                zone = one.zone or host_zone_name()
                specs[one.name] = json_text(parse(one.schedule or "", zone=zone, now=now))
            except RotaError as error:
                found.append(f"producer {one.name}: {error}")
        if found:
            listed = "".join(f"\n  - {problem}" for problem in found)
            raise BadAutomation(
                f"automation {self.name} cannot be deployed:{listed}", problems=found
            )
        handlers = [
            NewHandler(
                one.node.name, one.node.kind, digest, specs.get(one.node.name),
                _written(one.node), one.renamed_from,
            )
            for one, digest in zip(self._handlers, self._handler_digests(), strict=True)
        ]  # fmt: skip
        text = json_text(graph)
        return NewVersion(
            self.name, self.queue, self._digest(text), text, handlers, topic_rows(graph),
            self._source(),
        )  # fmt: skip

    def _bad_renames(self) -> list[str]:
        names = Counter(one.renamed_from for one in self._handlers if one.renamed_from)
        found = [f"{n} handlers are renamed from {name}" for name, n in names.items() if n > 1]
        return found + [
            f"{one.node.kind} {one.node.name} is renamed from {one.renamed_from}, which is declared"
            for one in self._handlers
            if one.renamed_from in self.handlers
        ]

    def _source(self) -> str:
        """The text of every function, by handler and phase, as JSON."""
        return json_text(
            {
                one.node.name: {phase: _text(function) for phase, function in one.functions.items()}
                for one in self._handlers
            }
        )


def _interval(every: Duration) -> str:
    return every if isinstance(every, str) else f"{micros(every) / SECOND:g}s"


def _written(node: HandlerNode) -> str | None:
    """The schedule as it was written; the same text keeps its times over deploys."""
    return f"{node.schedule} {node.zone or ''}".strip() if node.kind == "producer" else None


def _text(function: Function) -> str:
    code = getattr(function, "__code__", None)
    text = None if code is None else _source_of(code)
    name = getattr(function, "__qualname__", function)
    return text or f"# the source of {name!s} is not available\n"


# Automations that one function declares share their code: it is read once for all of them.
@lru_cache(4096)
def _source_of(code: CodeType | ModuleType) -> str | None:
    try:
        return inspect.getsource(code)
    except (OSError, TypeError, SyntaxError, tokenize.TokenError):  # edited since its import
        return None


_shape_of_class = lru_cache(4096)(shape_of)


def _shape_of(kind: Any) -> dict[str, Any] | None:
    return _shape_of_class(kind) if isinstance(kind, type) else shape_of(kind)


def _digest(handler: Handler) -> str:
    """A hash of the declaration and of the code that it reaches (see `core/fingerprint`). The name
    does not count: a handler that is only renamed has not changed."""
    roots: list[object] = [handler.functions[phase] for phase in sorted(handler.functions)]
    if handler.owner is not None:
        roots.append(handler.owner)
    code = fingerprint(roots, Scope.REACHABLE, module_text=_source_of)
    return _hash(json_text(replace(handler.node, name="")), code)


def _hash(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
