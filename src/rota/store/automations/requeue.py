"""Requeues skipped events, by event or dead letter, in one transaction under the lock."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from rota.core.automations.graph import AutomationGraph
from rota.core.automations.model import DeadLetter, EventName, NewAnswer, NewEvent, StoredEvent
from rota.core.automations.phases import EventStatus
from rota.core.typed import json_text
from rota.errors import BadInput, WrongState
from rota.store.automations import answers, commands, events, state, views
from rota.store.automations.events import AutomationKey
from rota.store.backend.database import Tx

AT_ONCE = 1000
_GRAPH = msgspec.json.Decoder(AutomationGraph)
_LETTER = msgspec.json.Decoder(DeadLetter)


async def requeue(
    tx: Tx,
    namespace: str,
    name: str,
    topic: str,
    message_id: str | None,
    *,
    answer: NewAnswer,
    now: int,
    new_ids: Iterator[str],
    before: str = "",
) -> tuple[list[EventName], str]:
    """Make a skipped event pending again, or the event behind a dead letter; without an id, a batch
    of the topic. Returns the events that their readers get once more, and the id before which the
    next batch begins; an empty one at the end."""
    locked = await commands.take(tx, namespace, name)
    [newest] = await state.versions(tx, locked.key, limit=1)
    letters = topic in _GRAPH.decode(newest.graph).dead_letters
    found = await _chosen(tx, locked.key, topic, message_id, letters, before)
    back: list[EventName] = []
    for event in found:
        if letters:
            back.append(await _behind(tx, locked.key, event, now, new_ids))
        else:
            back.append(await _again(tx, event, now))
    for one in back:
        each = answer._replace(id=next(new_ids))
        await answers.put(tx, locked.key, "requeue", each, event_id=one.id, now=now)
    if back and await events.mark(tx, locked.key, sorted({one.topic for one in back})):
        await state.poke(tx, locked.automation, now=now)
    is_full = message_id is None and len(found) == AT_ONCE
    return back, found[-1].id if is_full else ""


async def _chosen(
    tx: Tx, key: AutomationKey, topic: str, message_id: str | None, letters: bool, before: str
) -> Sequence[StoredEvent]:
    if message_id is None:
        status = EventStatus.PENDING if letters else EventStatus.SKIPPED
        return await views.list_events(
            tx, key, topic=topic, status=status, before=before, limit=AT_ONCE
        )
    found: Sequence[StoredEvent] = await events.named(tx, key, topic, [message_id])
    if not found and letters:
        found = await _letters_about(tx, key, topic, message_id)
    if not found:
        raise BadInput(
            f"there is no event {topic}/{message_id} in automation {key.automation}",
            hint=f"See `rota automation events {key.automation} --topic {topic}`.",
        )
    return found


async def _letters_about(
    tx: Tx, key: AutomationKey, topic: str, message_id: str
) -> Sequence[StoredEvent]:
    """The newest open letter about the event with this id, or topic and id."""
    open_ = await views.list_events(
        tx, key, topic=topic, status=EventStatus.PENDING, before="", limit=AT_ONCE
    )
    about = ((one, _LETTER.decode(one.payload)) for one in open_)
    names = ((one, {letter.id, f"{letter.topic}/{letter.id}"}) for one, letter in about)
    return [one for one, known in names if message_id in known][:1]


async def _again(tx: Tx, event: StoredEvent, now: int) -> EventName:
    if not await tx.rows("requeue_event", id=event.id, now=now):
        raise WrongState(
            f"event {event.topic}/{event.message_id} is {event.status}, not skipped",
            hint="Only skipped events can be requeued.",
        )
    await tx.rows("unskip_inputs", event_id=event.id)
    return EventName(event.id, event.topic, event.message_id)


async def _behind(
    tx: Tx, key: AutomationKey, event: StoredEvent, now: int, new_ids: Iterator[str]
) -> EventName:
    """The event that a dead letter is about. It is published once more if it was pruned since."""
    if event.status == EventStatus.RESERVED:
        raise WrongState(f"a run has reserved the dead letter {event.message_id}")
    letter = _LETTER.decode(event.payload)
    known = await state.topics(tx, key)
    if letter.topic not in known:
        raise WrongState(f"automation {key.automation} no longer has the topic {letter.topic}")
    await tx.rows("close_letter", id=event.id, now=now)
    found = await events.named(tx, key, letter.topic, [letter.id])
    if found:
        return await _again(tx, found[0], now)
    inputs = [row[0] for row in await tx.rows("inputs_of_events", ids=[event.id])]
    fresh = NewEvent(letter.topic, letter.id, json_text(letter.payload))
    published = await events.publish(
        tx, key, [fresh], new_ids=new_ids, created_by=event.created_by, now=now, inherited=inputs
    )
    return published.events[0]
