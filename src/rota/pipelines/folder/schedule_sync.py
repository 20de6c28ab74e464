"""Makes schedules of the store from schedule blocks of files, and updates them.

The file decides about times, an operator about pauses. All but `put`, a transaction, is pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from rota.core.pipelines.names import pipeline_id_of
from rota.core.runs.lifecycle import Status, Trigger
from rota.core.runs.model import Schedule
from rota.core.schedules.firing_plan import jitter_us
from rota.core.schedules.intent import (
    ENDED,
    NO_FURTHER,
    QUARANTINED_REASON,
    Intent,
)
from rota.core.time.recurrence import next_after
from rota.notifications.receivers import Recipients
from rota.pipelines import snapshot
from rota.pipelines.definition.loader import Loaded, holds_pipeline
from rota.pipelines.definition.schedule_block import timed
from rota.pipelines.folder.events import Change
from rota.pipelines.folder.state_file import ScheduleState, read_time
from rota.schedules import definition
from rota.schedules.overrides import declared_zone, run_options
from rota.store.backend.database import Tx
from rota.store.notifications import recipients
from rota.store.schedules import templates as store

OWNER = "pipeline"
DISABLED = "disabled in its file"
START_PAUSED = "its file asks to start paused"
ADOPTED = "paused, as its state file says"
QUEUE = "default"
PRIORITY = 0


class Block(NamedTuple):
    """The schedule of a file, ready to become a row."""

    name: str  # the schedule's id, such as daily-report-a1b2c3
    namespace: str
    origin: str  # the folder that holds the pipelines
    loaded: Loaded

    @property
    def intent(self) -> Intent:
        """The intent of the row, as far as the file decides it."""
        assert self.loaded.schedule is not None
        return msgspec.structs.replace(
            self.loaded.schedule.intent, owner=OWNER, origin=self.origin,
            declared=self.loaded.digest,
        )  # fmt: skip

    @property
    def is_enabled(self) -> bool:
        """Whether the file enables it."""
        return self.loaded.schedule is not None and self.loaded.schedule.enabled


class Synced(NamedTuple):
    """The row after a sync with its block; `change` is None when nothing changed."""

    row: Schedule
    change: Change | None


def new_schedule(
    block: Block, state: ScheduleState | None, *, schedule_id: str, now: int
) -> Schedule:
    """The row of a new schedule. It continues a state that came with the folder: the next
    execution, and whether the schedule is paused."""
    intent = block.intent
    due_at = _first_due(block, intent, state, now)
    reason = _rest_at_creation(block, state)
    if due_at is None:
        reason = NO_FURTHER
    intent = msgspec.structs.replace(
        intent, paused_at=now if reason else 0, since_at=0 if due_at is None else due_at - 1
    )
    at = None if reason or due_at is None else due_at + jitter_us(block.name, intent.policies)
    return Schedule(
        schedule_id, block.namespace, block.name, QUEUE, PRIORITY,
        Status.PAUSED if reason else Status.SCHEDULED, reason, at, due_at, intent.text,
        store.stored(intent), run_options(intent.policies).stored(),
        snapshot.encoded(block.loaded), now, block.origin,
    )  # fmt: skip


def _rest_at_creation(block: Block, state: ScheduleState | None) -> str | None:
    assert block.loaded.schedule is not None
    if not block.is_enabled:
        return DISABLED
    if block.loaded.schedule.start_paused:
        return START_PAUSED
    return ADOPTED if state is not None and state.status == "paused" else None


def _first_due(block: Block, intent: Intent, state: ScheduleState | None, now: int) -> int | None:
    """The next occurrence, or the one that was missed while no scheduler ran for the folder.

    The state keeps when it would have run; the occurrence is before that by the schedule's jitter.
    """
    upcoming = next_after(intent.spec, now)
    if state is None or state.next_run is None or not state.enabled:
        return upcoming
    planned = read_time(state.next_run) - jitter_us(block.name, intent.policies)
    missed = next_after(intent.spec, min(planned, now) - 1)
    return missed if missed is not None and missed <= now else upcoming


# -- changes -------------------------------------------------------------------------------


def changed(old: Schedule, block: Block, *, now: int) -> Schedule:
    """The row after its file was read again, by the rule that all declarations share."""
    before, problem = definition.found(old)
    intent = block.intent if problem is not None else _in_zone_of(before, block)
    fresh = msgspec.structs.replace(
        old, queue=QUEUE, priority=PRIORITY, cron_expr=intent.text, parent_id=block.origin,
        options=run_options(intent.policies).stored(), input=snapshot.encoded(block.loaded),
    )  # fmt: skip
    pause = None if block.is_enabled else DISABLED
    return definition.renewed(old, fresh, intent, now=now, resumes=_resumes, pause=pause)


def _in_zone_of(before: Intent, block: Block) -> Intent:
    """The intent of a file; a zone that was found at first stays if it names none."""
    config = block.loaded.pipeline.schedule
    assert config is not None
    zone = declared_zone(before)
    if config.timezone is not None or zone is None:
        return block.intent
    made = timed(config, workflow=before.workflow, host_zone=zone).intent
    return msgspec.structs.replace(block.intent, spec=made.spec)


def _resumes(reason: str, _: bool) -> bool:
    """Whether a schedule was paused because of its file, so that an edit may resume it."""
    return reason == DISABLED or reason in ENDED or reason.startswith(QUARANTINED_REASON)


# -- the store -----------------------------------------------------------------------------


async def put(
    tx: Tx, block: Block, state: ScheduleState | None, *, new_ids: Iterator[str], now: int
) -> Synced:
    """Insert the schedule, or update it from its file."""
    old = await store.find(tx, namespace=block.namespace, name=block.name, lock=True)
    if old is None:
        row = new_schedule(block, state, schedule_id=next(new_ids), now=now)
        await store.put(tx, row, trigger=Trigger.DEPLOY, now=now)
        await recipients.put(tx, row.id, _receivers(block.loaded))
        return Synced(row, "added")
    old = await store.end_pause(tx, old, now=now, new_ids=new_ids)
    fresh = changed(old, block, now=now)
    if fresh == old:
        return Synced(old, None)
    await store.replace(tx, old, fresh, now=now, new_ids=new_ids)
    await recipients.put(tx, old.id, _receivers(block.loaded))
    stored = await store.find(tx, namespace=block.namespace, name=block.name)
    assert stored is not None
    return Synced(stored, "updated")


def is_ours(row: Schedule, origin: str) -> bool:
    """Whether a schedule belongs to a folder of pipelines."""
    intent = definition.found(row).intent
    return intent.owner == OWNER and intent.origin == origin


def pipeline_of(row: Schedule) -> str:
    """The pipeline that a schedule runs."""
    return pipeline_id_of(definition.found(row).intent.workflow)


def still_there(row: Schedule) -> bool:
    """Whether the folder that a schedule was made from is still where it was."""
    origin = definition.found(row).intent.origin
    if origin is None:
        return False
    return holds_pipeline(Path(origin) / pipeline_of(row))


def _receivers(loaded: Loaded) -> str | None:
    """The receivers of a pipeline's messages as they are stored beside its schedule, if any."""
    block = loaded.pipeline.schedule
    if block is None or block.notify is None:
        return None
    named = Recipients(
        pipeline_id=loaded.pipeline_id,
        name=loaded.pipeline.name,
        folder=str(loaded.folder.resolve()),
        notify=block.notify,
    )
    return msgspec.json.encode(named).decode()
