"""Live events: hints about what has changed, and the exact course of one run.

Hints carry an id `<epoch>-<n>`; the epoch is made when the process starts. A reader that comes back
with an id of another epoch, one too old, or one from the future, must fetch everything again.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterator
from http import HTTPStatus
from typing import NamedTuple

import msgspec

from rota.client.client import Client
from rota.core.runs.model import StoredStep
from rota.core.runs.progress import progress_of
from rota.core.time.instants import instant
from rota.http.problems import RequestRefused
from rota.http.response_bodies import ListedRun, StepDocument, document

TOPICS = ("run", "schedule", "automation", "pipeline", "worker")
# A wake-up says that something may have happened to a run; runs of all kinds share it.
OF_RUNS = ("run", "automation", "pipeline")
RING = 1_000
COALESCE_S = 0.25
POLL_S = 10.0  # notifications may be lost
COMMENT_S = 15.0
RUN_POLL_S = 1.0
RETRY_MS = 2_000
STREAMS_MAX = 100
STREAMS_OF_READER_MAX = 4


class Hint(NamedTuple):
    """One hint: its number and its topic."""

    number: int
    topic: str


class EventHub:
    """Passes wake-ups of the client on to readers, at most one per topic and quarter second."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._epoch = secrets.token_hex(4)
        self._ring: deque[Hint] = deque(maxlen=RING)
        self._number = 0
        self._dirty: set[str] = set()
        self._news = asyncio.Event()
        self._readers: Counter[str] = Counter()
        self._flushing: asyncio.TimerHandle | None = None
        self._polling: asyncio.TimerHandle | None = None
        self.is_closed = False

    def open(self) -> None:
        """Listen to the client."""
        self._client.connection.wakeups.subscribe(self._notified)
        self._poll()

    def close(self) -> None:
        """End every stream."""
        self.is_closed = True
        self._client.connection.wakeups.unsubscribe(self._notified)
        for timer in (self._flushing, self._polling):
            if timer is not None:
                timer.cancel()
        self._wake()

    # -- news ------------------------------------------------------------------------------

    def _notified(self, topic: str) -> None:
        self._note(("schedule",) if topic == "schedule" else OF_RUNS)

    def _poll(self) -> None:
        self._note(TOPICS)
        self._polling = asyncio.get_running_loop().call_later(POLL_S, self._poll)

    def _note(self, topics: tuple[str, ...]) -> None:
        self._dirty.update(topics)
        if self._flushing is None and not self.is_closed:
            loop = asyncio.get_running_loop()
            self._flushing = loop.call_later(COALESCE_S, self._flush)

    def _flush(self) -> None:
        self._flushing = None
        for topic in sorted(self._dirty):
            self._number += 1
            self._ring.append(Hint(self._number, topic))
        self._dirty.clear()
        self._wake()

    def _wake(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def news(self, timeout_s: float) -> bool:
        """Wait for a hint; False when none came in time."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._news.wait(), timeout_s)
            return True
        return False

    # -- readers ---------------------------------------------------------------------------

    def stream_count(self) -> int:
        """How many streams are open."""
        return self._readers.total()

    def reserve(self, reader: str) -> contextlib.AbstractContextManager[bool]:
        """A slot for one more stream of a reader, held while the stream is open."""
        if self._is_full(reader):
            raise RequestRefused(
                HTTPStatus.TOO_MANY_REQUESTS, "too_many_streams",
                f"{STREAMS_OF_READER_MAX} streams of one reader and {STREAMS_MAX} in all are open",
                hint="Close a tab, or share one stream between them.",
                headers={"retry-after": "5"},
            )  # fmt: skip
        return self._slot(reader)

    def _is_full(self, reader: str) -> bool:
        busy = self._readers.total() >= STREAMS_MAX
        return self.is_closed or busy or self._readers[reader] >= STREAMS_OF_READER_MAX

    @contextlib.contextmanager
    def _slot(self, reader: str) -> Iterator[bool]:
        """Whether the slot is free. Requests of one moment may have been promised the same one."""
        if self._is_full(reader):
            yield False
            return
        self._readers[reader] += 1
        try:
            yield True
        finally:
            self._readers[reader] -= 1
            if not self._readers[reader]:
                del self._readers[reader]

    async def stream(
        self, topics: frozenset[str], last_id: str, slot: contextlib.AbstractContextManager[bool]
    ) -> AsyncIterator[str]:
        """Hints after `last_id`, for as long as the reader listens."""
        with slot as is_free:
            if not is_free:
                return
            seen = self._resume(last_id)
            yield f"retry: {RETRY_MS}\n\n"
            if last_id and seen is None:
                yield self._line("reset", self._number)
            seen = self._number if seen is None else seen
            while not self.is_closed:
                news = self._news
                fresh = [hint for hint in self._ring if hint.number > seen and hint.topic in topics]
                seen = self._number
                for hint in fresh:
                    yield self._line(hint.topic, hint.number)
                if news is self._news and not await self.news(COMMENT_S):
                    yield ": alive\n\n"

    def _resume(self, last_id: str) -> int | None:
        """The number to continue from, or None when that is not known."""
        epoch, _, text = last_id.rpartition("-")
        if epoch != self._epoch or not text.isdecimal():
            return None
        number = int(text)
        oldest = self._ring[0].number if self._ring else self._number + 1
        return number if oldest - 1 <= number <= self._number else None

    def _line(self, event: str, number: int) -> str:
        return event_text(event, f"{self._epoch}-{number}", {"ids": [], "more": True})


def event_text(event: str, event_id: str, data: object) -> str:
    """One event of a stream."""
    body = msgspec.json.encode(data, enc_hook=str).decode()
    return f"id: {event_id}\nevent: {event}\ndata: {body}\n\n"


async def run_events(
    client: Client,
    hub: EventHub,
    run_id: str,
    last_id: str,
    slot: contextlib.AbstractContextManager[bool],
) -> AsyncIterator[str]:
    """New steps and changes of status of one run. The id holds both, so any process resumes it."""
    with slot as is_free:
        if not is_free:
            return
        yield f"retry: {RETRY_MS}\n\n"
        known, quiet_s = last_id, 0.0
        while not hub.is_closed:
            last = await client.runs.newest(run_id)
            # The steps of a pipeline are its items, and there may be a million.
            steps = [] if last.kind == "pipeline" else await client.runs.steps(last)
            newest = steps[-1].position if steps else -1
            changed_at = max(map(_changed_at, steps), default=0)
            key = f"{last.id}:{last.label.replace(' ', '_')}:{newest}.{changed_at}"
            if key != known:
                after, seen_at = _seen(known)
                if known.partition(":")[0] < last.segment:  # the steps of a new segment
                    after, seen_at = -1, 0
                fresh = [
                    StepDocument.of(step)
                    for step in steps
                    if step.position > after or _changed_at(step) > seen_at
                ]
                shown = {"run": document(ListedRun, last), "steps": fresh}
                yield event_text("end" if last.is_final else "run", key, shown)
                known, quiet_s = key, 0.0
            if last.is_final:
                return
            if not await hub.news(RUN_POLL_S):
                quiet_s += RUN_POLL_S
            if quiet_s >= COMMENT_S:
                quiet_s = 0.0
                yield ": alive\n\n"


def _changed_at(step: StoredStep) -> int:
    """When a step ended, or last reported progress."""
    progress = progress_of(step)
    return step.finished_at or (instant(progress.at) if progress else 0)


def _seen(event_id: str) -> tuple[int, int]:
    """The position and the instant up to which the reader knows the steps."""
    position, _, at = event_id.rpartition(":")[2].partition(".")
    if not (position.isdecimal() and at.isdecimal()):
        return -1, 0
    return int(position), int(at)
