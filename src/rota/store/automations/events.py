"""Events of an automation's topics: published by message id, pinned for a chain, used or released.

Each function is a step of a transaction that holds the automation's lock. The effect of a run on an
event is noted in `reservations`, which only grows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from rota.core.automations.model import EventName, NewEvent, NewInput, StoredEvent, offered
from rota.core.automations.phases import EventStatus
from rota.errors import BadReservation
from rota.store.backend.database import Row, Tx


class AutomationKey(NamedTuple):
    """Which automation."""

    namespace: str
    automation: str


class EventChanged(Exception):
    """An event was published again after the run had read it, so it was not reserved."""


class Published(NamedTuple):
    """New and corrected events, and the consumers that should read them. Events that a run has
    reserved are not included: their newer payload waits."""

    events: list[EventName]
    readers: dict[str, int]  # by name: the number of marks


async def publish(
    tx: Tx,
    key: AutomationKey,
    events: Sequence[NewEvent],
    *,
    new_ids: Iterator[str],
    created_by: str | None,
    now: int,
    inherited: Sequence[str] = (),
    inputs: Sequence[NewInput] = (),
) -> Published:
    """Publish events, register their inputs, and mark their readers.

    `inherited` are input ids that every event comes from; `inputs` are registered even when no
    event refers to them."""
    every = [*inputs, *(i for event in events for i in event.inputs)]
    known = await _register(tx, key, every, new_ids, created_by, now)
    # The last of several with one message id wins, as it would one after the other.
    unique = {(event.topic, event.message_id): event for event in events}
    if not unique:
        return Published([], {})
    items = [(next(new_ids), e.topic, e.message_id, e.payload) for e in unique.values()]
    rows = await tx.many("publish_events", items, **key._asdict(), created_by=created_by, now=now)
    causes = [
        (event_id, input_id)
        for event_id, topic, message_id, _ in rows
        for input_id in dict.fromkeys(
            [*inherited, *(known[i.key] for i in unique[topic, message_id].inputs)]
        )
    ]
    if causes:
        await tx.many("put_causes", causes)
        if await tx.rows("has_skipped_input", **key._asdict()):
            await tx.rows("skip_caused", **key._asdict(), now=now)
    changed = [EventName(*name) for *name, status in rows if status == EventStatus.PENDING]
    topics = sorted({one.topic for one in changed})
    readers = await mark(tx, key, topics) if topics else {}
    return Published(changed, readers)


async def _register(
    tx: Tx,
    key: AutomationKey,
    inputs: Sequence[NewInput],
    new_ids: Iterator[str],
    created_by: str | None,
    now: int,
) -> dict[tuple[str, str, str], str]:
    unique = {one.key: one for one in inputs}
    items = [(next(new_ids), *one) for one in unique.values()]
    rows = await tx.many("put_inputs", items, **key._asdict(), created_by=created_by, now=now)
    return {(row[1], row[2], row[3]): row[0] for row in rows}


async def mark(tx: Tx, key: AutomationKey, topics: Sequence[str]) -> dict[str, int]:
    """Mark the readers of these topics as due; returns their marks by name."""
    rows = await tx.rows("mark_readers", **key._asdict(), topics=list(topics))
    return {row[0]: row[1] for row in rows}


async def peek(tx: Tx, key: AutomationKey, topic: str, limit: int) -> list[StoredEvent]:
    """Pending events, oldest first."""
    rows = await tx.rows("peek_events", **key._asdict(), topic=topic, limit=limit, alone=True)
    return offered([StoredEvent(*row) for row in rows])


class Peek(NamedTuple):
    """A read of a handler: the oldest pending events of a topic."""

    key: AutomationKey
    topic: str
    limit: int


async def peek_all(tx: Tx, asked: Sequence[Peek]) -> list[list[StoredEvent]]:
    """The same for several handlers of one namespace; one round trip where that counts."""
    if len(asked) == 1 or not tx.dialect.fuses:
        return [await peek(tx, *one) for one in asked]
    items = [(number, one.key.automation, one.topic, one.limit) for number, one in enumerate(asked)]
    found: list[list[StoredEvent]] = [[] for _ in asked]
    for row in await tx.many("peek_topics", items, namespace=asked[0].key.namespace, alone=True):
        found[row[0]].append(StoredEvent(*row[1:]))
    return [offered(each) for each in found]


async def named(tx: Tx, key: AutomationKey, topic: str, ids: Sequence[str]) -> list[StoredEvent]:
    """Events by message id, in any status."""
    rows = await tx.rows("events_named", **key._asdict(), topic=topic, message_ids=list(ids))
    return [StoredEvent(*row) for row in rows]


async def oldest(tx: Tx, key: AutomationKey) -> dict[str, str]:
    """The id of each consumer's oldest pending event."""
    rows = await tx.rows("oldest_events", **key._asdict())
    found: dict[str, str] = {}
    for consumer, event_id in rows:
        if event_id is not None:
            found[consumer] = min(event_id, found.get(consumer, event_id))
    return found


class Reservation(NamedTuple):
    """Events that a run wants to reserve: message ids by topic, and the revisions it has seen."""

    ids: Mapping[str, Sequence[str]]
    seen: Mapping[tuple[str, str], int]  # by topic and message id

    @property
    def items(self) -> list[tuple[str, str, int]]:
        """Topic, message id and revision; -1 if the run has not seen the payload."""
        names = [(topic, each) for topic, ids in self.ids.items() for each in ids]
        return [(*name, self.seen.get(name, -1)) for name in names]


async def reserve(
    tx: Tx, key: AutomationKey, run_id: str, wanted: Reservation, *, now: int
) -> None:
    """Pin events for a run: every one of them, or none and BadReservation or EventChanged."""
    items = {(topic, message_id): revision for topic, message_id, revision in wanted.items}
    if not items:
        return
    rows = await tx.many("reserve_events", list(items), **key._asdict(), run_id=run_id, now=now)
    if len(rows) < len(items):
        await complain(tx, key, run_id, wanted)
    changed = [name for *name, revision in rows if items[*name] not in (revision, -1)]
    if changed:
        raise _changed(changed)
    await tx.rows("note_held", run_id=run_id, act="reserved", now=now)


def _changed(names: Sequence[Sequence[str]]) -> EventChanged:
    listed = ", ".join("/".join(name) for name in names[:10])
    return EventChanged(f"published again since prepare read them: {listed}")


async def complain(tx: Tx, key: AutomationKey, run_id: str, wanted: Reservation) -> None:
    """Raise BadReservation for events that cannot be reserved, or EventChanged. An event that the
    run holds already is fine: the response to an earlier try was lost."""
    complaints, changed = [], list[tuple[str, str]]()
    for topic, ids in wanted.ids.items():
        found = {one.message_id: one for one in await named(tx, key, topic, ids)}
        for message_id in ids:
            event = found.get(message_id)
            if event is None:
                complaints.append(f"{topic}/{message_id} does not exist")
            elif event.status == EventStatus.PENDING:
                changed.append((topic, message_id))
            elif event.reserved_by != run_id:
                complaints.append(f"{topic}/{message_id} is {event.status}")
    if complaints:
        listed = "; ".join(complaints[:10])
        raise BadReservation(f"only pending events can be reserved: {listed}")
    if changed:
        raise _changed(changed)


async def note_refused(tx: Tx, run_id: str, event_ids: Sequence[str], *, now: int) -> None:
    """Record the events that a run could not read: an operator may skip them."""
    await _note(tx, run_id, "refused", event_ids, now)


async def skip(tx: Tx, run_id: str, event_ids: Sequence[str], *, now: int) -> None:
    """Skip events because a run failed on them."""
    await tx.rows("skip_events", ids=list(event_ids), now=now)
    await _note(tx, run_id, "skipped", event_ids, now)


async def _note(tx: Tx, run_id: str, act: str, event_ids: Sequence[str], now: int) -> None:
    items = [(event_id,) for event_id in event_ids]
    await tx.many("put_reservations", items, run_id=run_id, act=act, now=now)


async def set_apart(tx: Tx, event_ids: Sequence[str]) -> int:
    """Let these pending events be taken alone, unless they were before; returns how many."""
    return len(await tx.rows("set_apart", ids=list(event_ids)))


async def put_together(tx: Tx, key: AutomationKey, topics: Sequence[str]) -> None:
    """Let events that were not taken alone be taken with others again: their reader looks again."""
    await tx.rows("put_together", **key._asdict(), topics=list(topics))
    await mark(tx, key, topics)


async def release(tx: Tx, root_id: str, *, now: int) -> None:
    """Release all events that a chain has reserved."""
    await tx.rows("note_owned", root_id=root_id, act="released", now=now)
    await tx.rows("release_events", root_id=root_id, now=now)


async def release_corrected(tx: Tx, run_id: str, *, now: int) -> None:
    """Release reserved events that were corrected since; the correction counts."""
    released = [row[0] for row in await tx.rows("release_corrected", run_id=run_id, now=now)]
    await _note(tx, run_id, "released", released, now)


async def use(tx: Tx, ends: Sequence[Row], *, now: int) -> None:
    """Consume or skip the reserved events of chains; the newest run of each holds all of them."""
    await tx.many("note_used", ends, now=now)
    await tx.many("use_events", ends, now=now)


async def transfer(tx: Tx, root_id: str, run_id: str, *, now: int) -> None:
    """Transfer all reserved events of a chain to its newest run."""
    await tx.rows("note_owned", root_id=root_id, act="transferred", now=now)
    await tx.rows("transfer_events", root_id=root_id, run_id=run_id, now=now)
    await tx.rows("note_held", run_id=run_id, act="reserved", now=now)


async def inherited(tx: Tx, run_id: str) -> list[str]:
    """The inputs behind the events that a run has reserved."""
    return [row[0] for row in await tx.rows("causes_of_run", run_id=run_id)]
