"""Commands of people to automations: pause, run now, publish, approve, resolve, skip. Each is one
transaction under the automation's lock: it applies as a whole, or says why not and changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec

from rota.core.automations.model import (
    RECONCILIATION,
    RESOLUTIONS,
    DeployedAutomation,
    EventName,
    LedgerRow,
    NewAnswer,
    NewEvent,
)
from rota.core.automations.phases import Mutation
from rota.core.automations.text import RETRIED
from rota.core.json_schema import misfit
from rota.core.runs.lifecycle import Status, Trigger
from rota.core.runs.model import Run
from rota.errors import BadInput, WrongState
from rota.store.automations import answers, effects, events, state, views
from rota.store.automations.events import AutomationKey, Published
from rota.store.automations.state import IDLE, NextStart, TopicSchema
from rota.store.backend.database import Tx

SLEEPS = (RECONCILIATION, *RETRIED)  # it continues by itself, and a person may know better
_REPLAYABLE = ("idempotent", "reconcilable")


class LockedAutomation(NamedTuple):
    """A command of an operator: the locked automation, and its open run."""

    automation: DeployedAutomation
    key: AutomationKey
    open_run: Run | None

    def waiting(self, *reasons: str) -> Run:
        """The open run, if it waits for a person (for one of these reasons)."""
        open_run = self.open_run
        if (
            open_run is None
            or open_run.status != Status.WAITING
            or (reasons and open_run.reason not in reasons)
        ):
            for_what = f" for {' or '.join(reasons)}" if reasons else " for an operator"
            raise WrongState(f"automation {self.automation.name} does not wait{for_what}")
        return open_run

    def answers(self, expected: str | None, row: LedgerRow | None) -> None:
        """The answer names this very change, or this very run; otherwise WrongState."""
        now = [one.id for one in (row, self.open_run) if one is not None]
        if expected is not None and expected not in now:
            name = self.automation.name
            raise WrongState(
                f"automation {name} no longer waits for {expected}; nothing was changed",
                hint=f"See what it waits for now: `rota automation show {name}`.",
            )


async def take(tx: Tx, namespace: str, name: str) -> LockedAutomation:
    """Lock an automation, or UnknownAutomation."""
    automation, key = await state.lock(tx, namespace, name), AutomationKey(namespace, name)
    return LockedAutomation(automation, key, await state.read_open_run(tx, key))


async def stop(tx: Tx, namespace: str, name: str, *, status: str, now: int) -> None:
    """Pause or archive: active runs end normally, no new run begins."""
    locked = await take(tx, namespace, name)
    await state.set_status(tx, locked.automation, status, now=now)
    if locked.open_run is not None:
        await state.suspend(tx, locked.open_run)


async def resume(tx: Tx, namespace: str, name: str, *, now: int, new_id: str) -> None:
    """Continue, from a pause or from the archive. One that waits for a person continues waiting."""
    automation = await state.lock(tx, namespace, name)
    await state.set_status(tx, automation, "active", now=now)
    active = msgspec.structs.replace(automation, status="active")
    await state.ensure_open_run(tx, active, now=now, new_id=new_id)


async def run_now(tx: Tx, namespace: str, name: str, *, now: int) -> list[str]:
    """Queue every producer; refused while a run is active, or while something must be resolved."""
    locked = await take(tx, namespace, name)
    if locked.automation.status != "active":
        raise WrongState(
            f"automation {name} is {locked.automation.status}", hint="Resume it first."
        )
    open_run = locked.open_run
    if open_run is not None and open_run.status == Status.RUNNING:
        raise WrongState(
            f"automation {name} has a run in progress",
            hint="Wait until the run has ended, then try again.",
        )
    busy = open_run is not None and open_run.status in (Status.WAITING, Status.SLEEPING)
    if open_run is not None and busy and open_run.reason not in (IDLE, state.EVENT):
        raise WrongState(
            f"automation {name} is {open_run.label}",
            hint=f"Resolve that first: `rota automation show {name}` says how.",
        )
    queued = await state.queue_producers(tx, locked.key, now=now)
    await state.poke(tx, locked.automation, now=now)
    return queued


async def publish(
    tx: Tx, namespace: str, name: str, fresh: Sequence[NewEvent], *, now: int,
    new_ids: Iterator[str],
) -> Published:  # fmt: skip
    """Publish from outside to topics that are declared external, and wake who reads them."""
    automation, key = await state.lock(tx, namespace, name), AutomationKey(namespace, name)
    known = await state.topics(tx, key)
    for event in fresh:
        _fits(name, event, known)
    published = await events.publish(tx, key, fresh, new_ids=new_ids, created_by=None, now=now)
    if published.readers:
        await state.poke(tx, automation, now=now)
    return published


async def publish_all(
    tx: Tx, namespace: str, name: str, fresh: Sequence[NewEvent], *, now: int,
    new_ids: Iterator[str],
) -> list[bool]:  # fmt: skip
    """Publish events of several callers; whether each event was new or corrected."""
    changed = [False] * len(fresh)
    for wave in _waves(fresh):
        published = await publish(
            tx, namespace, name, list(wave.values()), now=now, new_ids=new_ids
        )
        names = {(event.topic, event.message_id) for event in published.events}
        for index, event in wave.items():
            changed[index] = (event.topic, event.message_id) in names
    return changed


def _waves(fresh: Sequence[NewEvent]) -> Iterator[dict[int, NewEvent]]:
    """Split events into groups, in order, so that no group has the same message id twice."""
    left = dict(enumerate(fresh))
    while left:
        first = {(left[index].topic, left[index].message_id): index for index in reversed(left)}
        wave = {index: left.pop(index) for index in sorted(first.values())}
        yield wave


def _fits(name: str, event: NewEvent, known: Mapping[str, TopicSchema]) -> None:
    """Whether an event from outside may enter its topic, or BadInput."""
    topic = event.topic
    if topic not in known:
        raise BadInput(
            f"automation {name} has no topic {topic!r}",
            hint=f"Its topics are: {', '.join(sorted(known)) or 'none'}.",
        )
    schema = known[topic]
    if not schema.external:
        raise BadInput(
            f"topic {topic} of automation {name} accepts no events from outside",
            hint="Declare it with external=True.",
        )
    if schema.shape is not None and (wrong := misfit(json.loads(schema.shape), event.payload)):
        raise BadInput(
            f"an event of topic {topic}: {wrong}",
            hint="Compare the payload with the type of the topic; nothing was published.",
        )


async def decide(
    tx: Tx, namespace: str, name: str, verdict: Literal["approved", "rejected"], *,
    answer: NewAnswer, now: int, expected: str | None = None,
) -> LedgerRow:  # fmt: skip
    """Agree to the exact parameters that were proposed, or continue without the change: then its
    events are skipped, and `next` sees that."""
    locked = await take(tx, namespace, name)
    open_run = locked.waiting("approval")
    row = await _entry(tx, open_run)
    locked.answers(expected, row)
    if verdict == "approved":
        await effects.approve(tx, open_run.root_id, now=now)
    else:
        await effects.move(tx, row, row.moved(Mutation.SKIPPED, now=now, resolved_by=verdict))
    await answers.put(tx, locked.key, verdict, answer, open_run=open_run, change=row, now=now)
    await state.resolve(tx, open_run.id, now=now)
    return row


async def resolve(
    tx: Tx,
    namespace: str,
    name: str,
    how: str,
    *,
    answer: NewAnswer,
    now: int,
    expected: str | None = None,
    result: str | None = None,
) -> list[EventName]:
    """Clear what blocks it: try again, say whether it happened (with its `result`), or
    skip it. Returns the events that were skipped at once."""
    if how not in RESOLUTIONS:
        raise BadInput(f"{how!r} is not an answer", hint=f"Use one of: {', '.join(RESOLUTIONS)}.")
    locked = await take(tx, namespace, name)
    open_run = locked.open_run
    asleep = (
        open_run is not None and open_run.status == Status.SLEEPING and open_run.reason in SLEEPS
    )
    if open_run is None or not asleep:
        open_run = locked.waiting()
    row = await effects.of_chain(tx, open_run.root_id)
    locked.answers(expected, row)
    skipped: list[EventName] = []
    if open_run.reason == "approval":
        raise WrongState(f"automation {name} waits for approval", hint="Approve or reject it.")
    if open_run.reason == RECONCILIATION:
        await _settle_doubt(tx, open_run, how, result, now)
    elif how in ("happened", "did-not-happen"):
        raise WrongState(
            f"automation {name} is {open_run.label}; it has no side effect with an unknown outcome"
        )
    elif how == "skip":
        skipped = await _skip(tx, locked, open_run, row, now)
    await answers.put(tx, locked.key, how, answer, open_run=open_run, change=row, now=now)
    await state.count_troubles(tx, locked.automation, failures=0, fixes=0)
    if asleep:
        await state.retime(tx, open_run, NextStart(Status.PENDING, None, now, Trigger.RETRY))
    else:
        await state.resolve(tx, open_run.id, now=now)
    return skipped


async def _settle_doubt(tx: Tx, open_run: Run, how: str, result: str | None, now: int) -> None:
    row = await _entry(tx, open_run)
    if how == "try-again":
        if row.safety not in _REPLAYABLE:
            raise WrongState(
                f"{row.tool} cannot find out whether its effect happened",
                hint="Check yourself, then resolve it with happened, did-not-happen or skip.",
            )
        if row.status != Mutation.NEEDS_RECONCILE or row.reconcile_count:
            # Not back to 0: before the first `reconcile` a tool waits until its counterpart has
            # settled.
            count = min(row.reconcile_count, 1)
            after = row.moved(Mutation.NEEDS_RECONCILE, now=now, reconcile_count=count)
            await effects.move(tx, row, after)
    elif how == "happened":
        after = row.moved(Mutation.APPLIED, now=now, result=result, resolved_by="person")
        await effects.move(tx, row, after)
    elif how == "did-not-happen":
        if row.safety == "idempotent":  # a new run would have another key
            raise WrongState(
                f"{row.tool} is idempotent: it is called again with the same key, which is safe",
                hint="Resolve it: try-again when its counterpart can answer; or happened, or skip.",
            )
        await effects.move(tx, row, row.moved(Mutation.FAILED, now=now, resolved_by="person"))
    else:
        await effects.move(tx, row, row.moved(Mutation.SKIPPED, now=now, resolved_by="person"))


async def _skip(
    tx: Tx, locked: LockedAutomation, open_run: Run, row: LedgerRow | None, now: int
) -> list[EventName]:
    """Skip the events that the failed run had pinned, or the event that it failed on; after its
    change there is nothing left to skip."""
    if row is not None and row.status == Mutation.APPLIED:
        raise WrongState(
            f"the side effect {row.id} has happened, so its events cannot be skipped",
            hint="Correct `next` and deploy, or try again.",
        )
    ledger = {} if row is None else {open_run.root_id: row}
    found = await views.to_skip(tx, locked.key.namespace, [open_run], ledger)
    chosen = found.get(locked.key.automation, [])
    if not chosen:
        raise WrongState(
            f"automation {locked.automation.name} has no event to skip that would let it continue",
            hint="Try again when the cause is gone, or correct the code and deploy.",
        )
    owner = open_run.retry_of or open_run.id
    await events.skip(tx, owner, [event.id for event in chosen], now=now)
    return chosen


async def _entry(tx: Tx, open_run: Run) -> LedgerRow:
    row = await effects.of_chain(tx, open_run.root_id)
    if row is None:
        raise WrongState(f"run {open_run.id} has no side effect in the ledger")
    return row


async def skip_event(
    tx: Tx,
    namespace: str,
    name: str,
    topic: str,
    message_id: str,
    *,
    answer: NewAnswer,
    now: int,
) -> None:
    """Skip a pending event."""
    locked = await take(tx, namespace, name)
    skipped = await tx.rows(
        "skip_event", namespace=namespace, automation=name, topic=topic, message_id=message_id,
        now=now,
    )  # fmt: skip
    if not skipped:
        found = await events.named(tx, locked.key, topic, [message_id])
        if not found:
            raise BadInput(f"there is no event {topic}/{message_id} in automation {name}")
        raise WrongState(f"event {topic}/{message_id} is {found[0].status}; it cannot be skipped")
    event_id = skipped[0][0]
    await answers.put(tx, locked.key, "skip", answer, event_id=event_id, now=now)


async def skip_input(
    tx: Tx, namespace: str, name: str, input_id: str, *, answer: NewAnswer, now: int
) -> int:
    """Skip an input: its pending events, and those it still leads to; returns how many at once.
    Events that a run holds already are processed."""
    locked = await take(tx, namespace, name)
    found = await tx.rows("skip_input", namespace=namespace, automation=name, id=input_id, now=now)
    if not found:
        raise BadInput(f"automation {name} has no input {input_id} that is not skipped")
    await answers.put(tx, locked.key, "skip", answer, input_id=input_id, now=now)
    return len(await tx.rows("skip_caused", namespace=namespace, automation=name, now=now))
