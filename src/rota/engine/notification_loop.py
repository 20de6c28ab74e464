"""The notification loop: turns recorded notifications into messages, by the limits of each rule.

Causes are recorded in their own transactions. This loop takes them in batches, under the lock of
the rules: the messages, the progress of the rules and the marks are one commit. The receivers that
a schedule brings along are a rule without a limit: each of its notifications is a message. Any
number of processes may run a notification loop. It runs only in processes that declare rules or
serve pipelines.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from rota.core.notifications.model import NOTIFY, NOTIFY_BLOCK, Notification, NotificationKind
from rota.core.notifications.rules import NotificationMessage, dispatch
from rota.core.runs.lifecycle import Trigger
from rota.core.runs.model import NewRun
from rota.core.time.instants import micros
from rota.engine.context import EngineContext
from rota.engine.timed_loop import TimedLoop
from rota.engine.wakeups import READY
from rota.store.backend.database import Tx
from rota.store.notifications import overdue, record, rules
from rota.store.notifications.record import FreshNotification
from rota.store.notifications.rules import StoredRule
from rota.store.runs.start import start_runs

BATCH = 500
# READY is sent for work of every kind, so the notification loop limits how often it polls.
GAP_S = 0.5
# The workflow that sends a message, and its queue: a channel that is down delays no other work.
DELIVERY = "rota.notification"
QUEUE = "rota.notifications"
SLOTS = 10
# A worker without a heartbeat for so many of its times is not counted as one that has code.
SILENT_BEATS = 3
# The kinds that happen once to a run, at its end.
_ENDS = {
    NotificationKind.SUCCEEDED, NotificationKind.RECOVERED, NotificationKind.FAILED,
    NotificationKind.MISSED,
}  # fmt: skip


class Dispatched(NamedTuple):
    """The notifications that one round took and started, and when a digest is due."""

    taken: int
    started: int
    next_at: int | None


class NotificationLoop(TimedLoop):
    """Dispatches the notifications of one namespace."""

    def __init__(self, base: EngineContext) -> None:
        super().__init__(base, READY)

    def is_due(self) -> bool:
        """Whether something may have been recorded, or a digest is due."""
        return self.next_at is not None and self.next_at <= self._base.clock.now()

    async def run(self) -> None:
        """Dispatch and sleep until cancelled."""
        while True:
            self._wake.clear()
            await self.tick()
            await asyncio.sleep(GAP_S)
            await self._base.clock.wait(self._wake, self._rest_until())

    async def tick(self) -> int:
        """Dispatch everything recorded; returns how many messages were started."""
        started = 0
        self.next_at = None
        if not self.armed:
            return 0
        while True:
            now = self._base.clock.now()
            silent_us = SILENT_BEATS * micros(self._base.settings.heartbeat_s)
            done = await self._base.database.write(
                dispatch_batch, namespace=self._base.settings.namespace, now=now,
                new_ids=self._base.ids.endless(now), alive_after=now - silent_us,
            )  # fmt: skip
            started += done.started
            if done.taken < BATCH:
                break
        # A poll requested after the commit counts, even before the commit is acknowledged.
        polled_at = self.next_at
        if started:
            self._base.wakeups.notify_soon(READY)
        self.next_at = done.next_at if polled_at is None else polled_at
        return started


async def dispatch_batch(
    tx: Tx, *, namespace: str, now: int, new_ids: Iterator[str], alive_after: int
) -> Dispatched:
    """Turn one batch of notifications into runs that send messages, in one transaction. A worker
    with an older heartbeat than `alive_after` is silent."""
    known = await rules.lock(tx, namespace=namespace)
    look_at = await overdue.look(
        tx, [one.rule for one in known], namespace=namespace, alive_after=alive_after, now=now
    )
    fresh = await record.fresh(tx, namespace=namespace, limit=BATCH)
    news = [one.notification for one in fresh if one.for_rules]
    plans = {
        one.name: dispatch(one.rule, one.progress, news, now=now, digest_id=next(new_ids))
        for one in known
    }
    runs = [
        _run(name, message, namespace=namespace, run_id=next(new_ids), now=now)
        for name, plan in plans.items()
        for message in plan.messages
    ]
    runs += [
        _run_of_schedule(
            one.notification, one.recipients, namespace=namespace, run_id=next(new_ids), now=now
        )
        for one in fresh
        if one.recipients is not None
    ]
    if runs:
        await start_runs(tx, runs, now=now, alone=False)
    states = {one.name: plans[one.name].state for one in known}
    changed = {one.name: states[one.name] for one in known if one.progress != states[one.name]}
    await rules.advance(tx, changed, namespace=namespace)
    if fresh:
        marks = [(one.notification.id, _sent_to(one, known)) for one in fresh]
        await record.dispatched(tx, marks, now=now)
    dues = [at for at in (look_at, *(plan.due_at for plan in plans.values())) if at is not None]
    return Dispatched(len(fresh), len(runs), min(dues, default=None))


def _sent_to(one: FreshNotification, known: list[StoredRule]) -> str:
    """The names of its rules; a dispatcher of the version before may have noted some."""
    names = [one.sent_to] if one.sent_to else []
    if one.for_rules:
        names = [rule.name for rule in known if rule.rule.wants(one.notification)]
    return ", ".join(names if one.recipients is None else [*names, NOTIFY_BLOCK])


def _run(
    rule: str, message: NotificationMessage, *, namespace: str, run_id: str, now: int
) -> NewRun:
    body = msgspec.json.encode({"rule": rule, "message": message}).decode()
    return NewRun(
        id=run_id, namespace=namespace, name=DELIVERY, available_at=now, input=body, queue=QUEUE,
        trigger=Trigger.EVENT, external_id=f"{rule}:{message.id}",
    )  # fmt: skip


def _run_of_schedule(
    one: Notification, recipients: str, *, namespace: str, run_id: str, now: int
) -> NewRun:
    """The run that sends to the receivers of a schedule: one for the beginning and one for the end
    of an execution, and one each time that it waits for a person."""
    what, external_id = str(one.kind), one.run_id
    if one.kind not in _ENDS:
        what += "" if one.kind is NotificationKind.BEGAN else f":{one.id}"
        external_id = f"{one.run_id}:{what}"
    fields = {"run_id": one.run_id, "what": what, "tells": msgspec.Raw(recipients.encode())}
    return NewRun(
        id=run_id, namespace=namespace, name=NOTIFY, available_at=now,
        input=msgspec.json.encode(fields).decode(), queue=QUEUE, trigger=Trigger.EVENT,
        external_id=external_id,
    )  # fmt: skip
