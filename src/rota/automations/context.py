"""`ctx`: all that a handler can ask of the host, phase by phase.

A call that its phase does not allow is refused with an error. The run fails even if the handler
catches that error. Publishing, inputs and logs are buffered and committed with the run. State and
payloads go by value, through JSON.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, NoReturn, TypeVar

from rota.automations.definition import Automation, Handler, Topic
from rota.core import redaction
from rota.core.automations.model import NewEvent, NewInput, StoredEvent
from rota.core.automations.phases import ALLOWED, Act, Phase
from rota.core.time.instants import moment
from rota.errors import BadInput, HostStop, NotAllowed, ReadFailed, RotaError
from rota.tools.base import Safety, Tool

if TYPE_CHECKING:
    from rota.automations.handler_code import HandlerCode

log = logging.getLogger("rota.automations")
P = TypeVar("P")

PEEK_MAX = 1000
IDS_MAX = 1000
LOG_LINES_MAX = 1000
LOG_CHARS_MAX = 1000
NAME_CHARS_MAX = 500


class Event(NamedTuple, Generic[P]):
    """An event as a handler sees it; `id` is its message id."""

    topic: str
    id: str
    payload: P
    status: str
    created_at: datetime
    attempt: int


def event_of(topic: Topic, stored: StoredEvent) -> Event[Any]:
    """A stored event with its payload typed, or BadInput."""
    redaction.learn(stored.payload)
    payload = topic.decode(stored.payload, stored.message_id)
    at = moment(stored.created_at)
    return Event(topic.name, stored.message_id, payload, stored.status, at, stored.attempt)


class Prepared(NamedTuple):
    """The value that `prepare` returns, and later phases receive: events to pin, values, and a wake
    time.

    `events` are events from `ctx.peek`, and `title` tells people what the change will mean.
    `wake_at` is an aware datetime or ISO text: the handler runs again then, even without new
    events.
    """

    events: Sequence[Event[Any]] = ()
    data: Any = None
    title: str | None = None
    wake_at: datetime | str | None = None


class MutationResult(NamedTuple):
    """The argument of `next` about the change: applied (with the tool's result), skipped or none.
    `problem` says why the result of an applied change is not there."""

    status: str
    result: Any = None
    problem: str | None = None


class _HandlerCall(NamedTuple):
    """A call of `ctx` by a handler: its words, and its coroutines."""

    asks: str
    guarded: Coroutine[Any, Any, Any]
    work: Coroutine[Any, Any, Any]


class Context:
    """The host as one handler run sees it in one phase."""

    def __init__(
        self,
        automation: Automation,
        handler: Handler,
        phase: Phase,
        host: HandlerCode,
        now: Callable[[], int],
        loop: asyncio.AbstractEventLoop | None,
    ) -> None:
        self._automation = automation
        self._handler = handler
        self._phase = phase
        self._host = host
        self._now = now
        self._loop = loop  # set when the handler runs in a thread
        self.events: list[NewEvent] = []
        self.inputs: list[NewInput] = []
        self.logs: list[str] = []
        self.refused: list[str] = []  # events with an unreadable payload
        self.seen: dict[tuple[str, str], StoredEvent] = {}  # by topic and message id
        self.stopped: HostStop | None = None
        self._is_over = False
        self._numbers = itertools.count()
        # Calls that the handler made and did not await yet.
        self._unawaited: dict[int, _HandlerCall] = {}

    @property
    def caller(self) -> tuple[str, str]:
        """The names of the automation and of the handler."""
        return self._automation.name, self._handler.node.name

    @property
    def now(self) -> datetime:
        """The host's time, in UTC."""
        return moment(self._now())

    # -- what a handler may ask ------------------------------------------------------------

    def log(self, *words: object) -> None:
        """Note a line for people; kept whether the run succeeds or fails."""
        if len(self.logs) < LOG_LINES_MAX:
            self.logs.append(" ".join(str(word) for word in words)[:LOG_CHARS_MAX])

    def input(self, source: str, type: str, id: str, title: str) -> NewInput:  # noqa: A002
        """Register something that came in; the same source, type and id is the same input."""
        self._allow(Act.INPUT)
        made = NewInput(*(self._word(word, "an input") for word in (source, type, id, title)))
        self.inputs.append(made)
        return made

    def publish(
        self,
        topic: Topic | str | Iterable[Topic | str],
        id: str,  # noqa: A002
        payload: Any = None,
        *,
        input: NewInput | Sequence[NewInput] | None = None,  # noqa: A002
        title: str | None = None,
    ) -> None:
        """Publish an event under a stable id, to one or several topics; committed with the run.

        In a producer, `input` says what it comes from; without one, the event's own topic and id
        are registered. In `next` the inputs of the reserved events are inherited."""
        self._allow(Act.PUBLISH)
        several = [topic] if isinstance(topic, Topic | str) else list(topic)
        topics = [self._topic(one, self._handler.node.publishes, "publishes to") for one in several]
        message_id = self._word(id, "a message id")
        inputs = self._causes(input, topics, message_id, title)
        for one in topics:
            try:
                text = one.encode(payload, bytes_max=self._host.payload_bytes_max)
            except RotaError as error:
                self._stop(error)
            self.events.append(NewEvent(one.name, message_id, text, inputs))

    def _causes(
        self, given: Any, topics: Sequence[Topic], message_id: str, title: str | None
    ) -> tuple[NewInput, ...]:
        if self._phase is Phase.EMITTING:
            if given is not None:
                self._refuse("next inherits the inputs of its events; it names none")
            return ()
        if given is None:
            name = self._handler.node.name
            return (NewInput(name, topics[0].name, message_id, title or message_id),)
        return (given,) if isinstance(given, NewInput) else tuple(given)

    def peek(self, topic: Topic | str, limit: int = 100) -> Any:
        """Pending events of a subscribed topic, oldest first. Await it in async handlers."""
        self._allow(Act.PEEK)
        found = self._topic(topic, self._handler.node.subscribes, "subscribes to")
        if not isinstance(limit, int) or not 1 <= limit <= PEEK_MAX:
            self._refuse(f"peek takes a limit of 1 to {PEEK_MAX}, not {limit!r}")
        asked = self._seen(found, lambda: self._host.peek(found.name, limit))
        return self._answer(f"ctx.peek({found.name})", asked)

    def get(self, topic: Topic | str, ids: Sequence[str]) -> Any:
        """Events of a subscribed topic by id, in any status. Await it in async handlers."""
        self._allow(Act.PEEK)
        found = self._topic(topic, self._handler.node.subscribes, "subscribes to")
        wanted = [str(one) for one in ids]
        if len(wanted) > IDS_MAX:
            self._refuse(f"get takes at most {IDS_MAX} ids, not {len(wanted)}")
        asked = self._seen(found, lambda: self._host.named(found.name, wanted))
        return self._answer(f"ctx.get({found.name})", asked)

    def call(self, tool: Tool, /, **params: Any) -> Any:
        """Call a tool that reads, in a producer or in prepare. Await it in async handlers."""
        if not isinstance(tool, Tool):
            self._refuse(f"{tool!r} is not a tool")
        self._still_open(Act.READ)
        if tool.safety is not Safety.READ:
            self._refuse(
                f"ctx.call reads, and {tool.name} makes a change",
                hint=f"Nothing was sent. Return the change from mutate: "
                f"`return {tool.name}.change(...)`.",
            )
        self._allow(Act.READ)
        return self._answer(f"ctx.call({tool.name})", self._host.read(tool, params))

    # -- how it is answered ----------------------------------------------------------------

    async def _seen(
        self, topic: Topic, ask: Callable[[], Awaitable[list[StoredEvent]]]
    ) -> list[Event[Any]]:
        return [self._read_event(topic, one) for one in await ask()]

    def _read_event(self, topic: Topic, stored: StoredEvent) -> Event[Any]:
        """The event. One that does not fit its type is recorded, so that it can be skipped."""
        self.seen[topic.name, stored.message_id] = stored
        try:
            return event_of(topic, stored)
        except RotaError as error:
            self.refused.append(stored.id)
            self._stop(error)

    def _answer(self, asks: str, work: Coroutine[Any, Any, Any]) -> Any:
        """An awaitable for async handlers; sync ones wait here, in their own thread."""
        number = next(self._numbers)
        guarded = self._guarded(number, work)
        if self._loop is None:
            self._unawaited[number] = _HandlerCall(asks, guarded, work)
            return guarded
        return asyncio.run_coroutine_threadsafe(guarded, self._loop).result()

    def end(self) -> NotAllowed | None:
        """The handler is over: what it asked for and did not await is dropped, and is an error."""
        self._is_over = True
        forgotten = list(self._unawaited.values())
        self._unawaited.clear()
        for asked in forgotten:
            asked.guarded.close()
            asked.work.close()
        if not forgotten:
            return None
        return NotAllowed(
            f"{forgotten[0].asks} was never awaited, so it was not executed",
            hint="Write `await` before it.",
        )

    async def _guarded(self, number: int, work: Coroutine[Any, Any, Any]) -> Any:
        self._unawaited.pop(number, None)
        if self.stopped is not None:
            work.close()
            raise self.stopped
        try:
            return await work
        except ReadFailed:
            raise  # the one failure of a call that handlers may treat themselves
        except HostStop as stop:
            self.stopped = self.stopped or stop
            raise
        except Exception as error:
            self._stop(error)

    def _topic(self, topic: Topic | str, allowed: Sequence[str], word: str) -> Topic:
        name = topic if isinstance(topic, str) else topic.name
        if name not in allowed:
            self._refuse(
                f"{self._handler.node.kind} {self._handler.node.name} {word} "
                f"{', '.join(allowed) or 'nothing'}, not {name}"
            )
        return self._automation.topics[name]

    def _word(self, text: object, what: str) -> str:
        if not isinstance(text, str) or not text or len(text) > NAME_CHARS_MAX:
            self._refuse(f"{what} is text of 1 to {NAME_CHARS_MAX} characters, not {text!r:.80}")
        return text

    def _allow(self, act: Act) -> None:
        self._still_open(act)
        if act not in ALLOWED.get(self._phase, ()):
            name = self._handler.node.name
            self._refuse(f"{name} may not {act} while {self._phase}")

    def _still_open(self, act: Act) -> None:
        if self._is_over:
            self._refuse_late(act)
        if self.stopped is not None:
            raise self.stopped

    def _refuse_late(self, act: Act) -> NoReturn:
        """Refuse a call that comes after the end of the handler. The run fails, unless it is
        committed already: then only the log can report it."""
        automation, handler = self.caller
        late = f"{handler} of {automation} may not {act}: its phase {self._phase} is over"
        log.error("%s", late)
        error = NotAllowed(late, hint="Await the tasks that the handler starts.")
        self._host.late = self._host.late or error
        raise HostStop(error)

    def _refuse(self, sentence: str, *, hint: str | None = None) -> NoReturn:
        self._stop(NotAllowed(sentence, hint=hint))

    def _stop(self, cause: Exception) -> NoReturn:
        """Stop the handler. If it swallows the exception, the host stops it all the same."""
        self.stopped = self.stopped or HostStop(cause)
        raise self.stopped


def as_prepared(value: object) -> Prepared:
    """The value that `prepare` returned: a Prepared, None, or a mapping."""
    if value is None:
        return Prepared()
    if isinstance(value, Prepared):
        return value
    if isinstance(value, Mapping) and isinstance(value.get("reservations"), Sequence):
        events = [
            Event(topic, message_id, None, "", moment(0), 0)
            for one in value["reservations"]
            for topic, message_id in _reserved(one)
        ]
        ui = value.get("ui") or {}
        wake_at = value.get("wakeAt", value.get("wake_at"))
        return Prepared(events, value.get("data"), ui.get("title"), wake_at)
    raise BadInput(
        f"prepare returned {value!r:.80}",
        hint="Return Prepared(events, data, title, wake_at), or None to take nothing.",
    )


def _reserved(one: object) -> list[tuple[str, str]]:
    """Topic and id of each event that an entry of `reservations` names."""
    topic = one.get("topic") if isinstance(one, Mapping) else None
    ids = one.get("ids") if isinstance(one, Mapping) else None
    if not isinstance(topic, str) or not isinstance(ids, list | tuple):
        raise BadInput(
            f"prepare returned the reservation {one!r:.80}, which needs a topic and a list of ids",
            hint='A reservation is {"topic": "mail", "ids": ["id of an event"]}.',
        )
    return [(topic, str(each)) for each in ids]
