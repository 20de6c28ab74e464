"""Skips the events or the check that a handler fails on, so that later work is not blocked. Part
of the transaction that ends the failed run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from rota.core.automations.model import DeadLetter, EventName, HandlerRun, NewEvent, StoredEvent
from rota.core.automations.planner import DeployedHandler
from rota.core.plurals import counted, some
from rota.core.runs.ids import short_id
from rota.core.runs.stored_errors import read_error
from rota.core.time.instants import iso
from rota.core.typed import json_text
from rota.store.automations import events, views
from rota.store.automations.events import AutomationKey
from rota.store.backend.database import Tx

# A notification about a skip names so many events and letters.
NAMED_MAX = 5


class SkipTarget(NamedTuple):
    """The facts about the failed run that a skip needs."""

    key: AutomationKey
    run: HandlerRun
    handler: DeployedHandler | None
    error: str
    failures: int
    dead_letter: str | None  # the topic that receives what is skipped
    next_run_at: int | None  # of a producer


class LeftOut(NamedTuple):
    """The text about a skip, for people, and the handlers that should look."""

    remark: str
    readers: dict[str, int]
    changed: DeployedHandler | None = None
    items: tuple[str, ...] = ()  # topic/id of each event
    letters: tuple[str, ...] = ()  # topic/id of each dead letter


async def leave_out(
    tx: Tx, target: SkipTarget, *, now: int, new_ids: Iterator[str]
) -> LeftOut | None:
    """Skip a producer's check, or the events of a consumer that block it; None when there is
    nothing to skip that would let it continue."""
    if target.run.kind == "producer":
        return await _leave_out_check(tx, target, now)
    found = await views.events_in_the_way(tx, target.key.namespace, [target.run])
    chosen = found.get(target.key.automation, [])
    if not chosen:
        return None
    ids = [event.id for event in chosen]
    stored = [StoredEvent(*row) for row in await tx.rows("events_by_id", ids=ids)]
    await events.skip(tx, target.run.run_id, ids, now=now)
    readers = await _bury(tx, target, stored, now, new_ids) if target.dead_letter else {}
    letters = [
        f"{target.dead_letter}/{_letter_id(target, one)}" for one in stored if target.dead_letter
    ]
    return LeftOut(
        _remark(chosen, target.dead_letter), readers,
        items=tuple(f"{one.topic}/{one.message_id}" for one in chosen[:NAMED_MAX]),
        letters=tuple(letters[:NAMED_MAX]),
    )  # fmt: skip


async def set_apart(tx: Tx, target: SkipTarget, seen: Sequence[str]) -> LeftOut | None:
    """Let each event of a failed batch be taken alone from here, so that only the bad one is
    skipped; None if there was one event, or if that was tried before. `seen` are the events that a
    `prepare` has read, if it failed."""
    if target.run.kind == "producer":
        return None
    taken = await tx.rows("taken_by_runs", run_ids=[target.run.run_id])
    ids = [event_id for _, _, event_id, *_ in taken] or seen
    count = await events.set_apart(tx, ids) if len(ids) > 1 else 0
    if not count:
        return None
    said = counted(count, "event")
    return LeftOut(f"one of {said} may be bad, so each of them is taken alone from here", {})


async def _leave_out_check(tx: Tx, target: SkipTarget, now: int) -> LeftOut | None:
    """The next check comes at its time; state stays."""
    if target.handler is None:
        return None
    await tx.rows(
        "leave_out_check", **target.key._asdict(),
        name=target.handler.name, next_run_at=target.next_run_at, now=now,
    )  # fmt: skip
    changed = replace(target.handler, next_run_at=target.next_run_at, queued_at=None)
    return LeftOut("this check was skipped", {}, changed, items=("this check",))


async def _bury(
    tx: Tx, target: SkipTarget, stored: Sequence[StoredEvent], now: int, new_ids: Iterator[str]
) -> dict[str, int]:
    """Publish a dead letter for each event, with the inputs that it comes from."""
    readers: dict[str, int] = {}
    for event in stored:
        inputs = [row[0] for row in await tx.rows("inputs_of_events", ids=[event.id])]
        published = await events.publish(
            tx, target.key, [_letter(target, event, now)], new_ids=new_ids,
            created_by=target.run.run_id, now=now, inherited=inputs,
        )  # fmt: skip
        readers |= published.readers
    return readers


def _letter(target: SkipTarget, event: StoredEvent, now: int) -> NewEvent:
    """The id names the run too: an event that is put back and fails again has a second letter."""
    error = read_error(target.error)
    letter = DeadLetter(
        event.topic, event.message_id, msgspec.Raw(event.payload.encode()),
        {name: error.get(name, "") for name in ("type", "message", "kind")},
        target.run.handler, target.run.run_id, target.failures, iso(now),
    )  # fmt: skip
    return NewEvent(target.dead_letter or "", _letter_id(target, event), json_text(letter))


def _letter_id(target: SkipTarget, event: StoredEvent) -> str:
    return f"{event.topic}/{event.message_id}@{short_id(target.run.run_id)}"


def _remark(chosen: Sequence[EventName], dead_letter: str | None) -> str:
    named = some([f"{one.topic}/{one.message_id}" for one in chosen])
    where = f", dead letter in topic {dead_letter}" if dead_letter else ""
    return f"skipped {named}{where}"
