"""`ctx`: all that a handler can ask of the host, phase by phase.

A call that its phase does not allow is refused with an error. The run fails even if the handler
catches that error. Publishing, inputs and logs are buffered and committed with the run. State and
payloads go by value, through JSON.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import datetime
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from rota.automations.call_sites import (
    LEAVES,
    CallSite,
    is_captured,
    site_of,
    use_after,
    use_elsewhere,
)
from rota.automations.definition import Automation, Handler, Topic
from rota.core import redaction
from rota.core.automations.model import NewEvent, NewInput, StoredEvent
from rota.core.automations.phases import ALLOWED, Act, Phase
from rota.core.time.instants import moment
from rota.errors import BadInput, HostStop, NotAllowed, ReadFailed, RotaError
from rota.tools.base import Safety, Tool

if TYPE_CHECKING:
    from rota.automations.handler_runner import HandlerRunner

log = logging.getLogger("rota.automations")

PEEK_MAX = 1000
IDS_MAX = 1000
LOG_LINES_MAX = 1000
LOG_CHARS_MAX = 1000
NAME_CHARS_MAX = 500
# By version of Python, the result of `sys.getrefcount` for a context that only the host refers to,
# and while the handler asks for its change. More means that a task may have it too: the search for
# one reads the frames of all tasks of the event loop. An unknown version always searches.
_HELD = {(3, 11): (4, 10), (3, 12): (4, 10), (3, 13): (4, 9)}
HELD_BY_HOST, HELD_IN_CHANGE = _HELD.get(sys.version_info[:2], (0, 0))
ONE_CHANGE = (
    "Write `return await ctx.call(...)` where either of several calls is meant; make several "
    "changes with one tool, or with a consumer for each."
)


class Event(NamedTuple):
    """An event as a handler sees it; `id` is its message id."""

    topic: str
    id: str
    payload: Any
    status: str
    created_at: datetime
    attempt: int


class Prepared(NamedTuple):
    """The value that `prepare` returns, and later phases receive: events to pin, values, and a wake
    time.

    `events` are events from `ctx.peek`, and `title` tells people what the change will mean.
    `wake_at` is an aware datetime or ISO text: the handler runs again then, even without new
    events.
    """

    events: Sequence[Event] = ()
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
    """A call of `ctx` by a handler: its line, and its coroutines."""

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
        host: HandlerRunner,
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
        self.seen: dict[tuple[str, str], int] = {}  # revisions, by topic and message id
        self.stopped: HostStop | None = None
        self.thread: int | None = None  # the one of a sync handler
        self._is_over = False
        self._change: CallSite | None = None
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
        asks = f"ctx.peek in {site_of(sys._getframe(1))}"
        found = self._topic(topic, self._handler.node.subscribes, "subscribes to")
        if not isinstance(limit, int) or not 1 <= limit <= PEEK_MAX:
            self._refuse(f"peek takes a limit of 1 to {PEEK_MAX}, not {limit!r}")
        return self._answer(asks, self._seen(found, lambda: self._host.peek(found.name, limit)))

    def get(self, topic: Topic | str, ids: Sequence[str]) -> Any:
        """Events of a subscribed topic by id, in any status. Await it in async handlers."""
        self._allow(Act.PEEK)
        asks = f"ctx.get in {site_of(sys._getframe(1))}"
        found = self._topic(topic, self._handler.node.subscribes, "subscribes to")
        wanted = [str(one) for one in ids]
        if len(wanted) > IDS_MAX:
            self._refuse(f"get takes at most {IDS_MAX} ids, not {len(wanted)}")
        return self._answer(asks, self._seen(found, lambda: self._host.named(found.name, wanted)))

    def call(self, tool: Tool, /, **params: Any) -> Any:
        """Call a tool. Reads belong to producers and prepare; mutate makes one change, and what
        is after that call is not executed. Await it in async handlers."""
        if not isinstance(tool, Tool):
            self._refuse(f"{tool!r} is not a tool")
        frame = sys._getframe(1)
        asks = f"ctx.call in {site_of(frame)}"
        if tool.safety is Safety.READ:
            self._allow(Act.READ)
            return self._answer(asks, self._host.read(tool, params))
        self._allow(Act.MUTATE)
        self._only_change(frame)
        return self._answer(asks, self._host.mutate(tool, params))

    def _only_change(self, frame: FrameType) -> None:
        """Refuse a second change, and a first behind which a second may be: the first ends the
        phase, so the second would be lost silently."""
        here = site_of(frame)
        if self._change is not None:
            self._refuse(
                f"a run makes one change: {here} asks for a second one, after {self._change}",
                hint="The first counts and the second was not made. " + ONE_CHANGE,
            )
        if self._loop is not None and threading.get_ident() != self.thread:
            self._refuse(
                f"the call in {here} runs in another thread; a change must be made in the "
                "handler's own thread",
                hint="Nothing was called. Make the call in mutate itself.",
            )
        later = use_after(frame, self)
        if later is None and self._loop is None and self._may_be_shared(frame):
            later = use_elsewhere(self)
        if later is not None:
            lost = "the next iteration of the loop around it" if later == here else str(later)
            self._refuse(
                f"a run makes one change, and its call ends mutate: after the call in {here}, "
                f"{lost} would never be executed",
                hint="Nothing was called. " + ONE_CHANGE,
            )
        self._change = here

    def _may_be_shared(self, frame: FrameType) -> bool:
        """Whether other code than the calling one may refer to the context. A variable that
        closures share counts as one reference, so it is looked for."""
        return sys.getrefcount(self) > HELD_IN_CHANGE or is_captured(frame, self)

    # -- how it is answered ----------------------------------------------------------------

    async def _seen(
        self, topic: Topic, ask: Callable[[], Awaitable[list[StoredEvent]]]
    ) -> list[Event]:
        return [
            Event(
                topic.name, one.message_id, self._decoded(topic, one), one.status,
                moment(one.created_at), one.attempt,
            )
            for one in await ask()
        ]  # fmt: skip

    def _decoded(self, topic: Topic, stored: StoredEvent) -> Any:
        """The payload, typed. A payload of another type is recorded, so that it can be skipped."""
        self.seen[topic.name, stored.message_id] = stored.revision
        redaction.learn(stored.payload)
        try:
            return topic.decode(stored.payload, stored.message_id)
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

    def left_behind(self) -> NotAllowed | None:
        """The error about a task that may use `ctx` after its handler has returned."""
        if self._loop is not None or sys.getrefcount(self) <= HELD_BY_HOST:
            return None
        site = use_elsewhere(self, LEAVES)
        if site is None:
            return None
        return NotAllowed(
            f"the handler has returned, but a task that it started may still use ctx in {site}",
            hint="Await the tasks that the handler starts.",
        )

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
        if self._is_over:
            self._refuse_late(act)
        if self.stopped is not None:
            raise self.stopped
        if act not in ALLOWED.get(self._phase, ()):
            name = self._handler.node.name
            self._refuse(f"{name} may not {act} while {self._phase}")

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
