"""The maintenance of a worker: heartbeat, leases, reaping, pruning. One loop for each pace."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Callable, Sequence

import msgspec

from rota.core import process_metrics
from rota.core.runs.code_versions import ONLINE_LEASES, online, waits_over
from rota.core.runs.ids import id_bound
from rota.core.runs.lifecycle import Status
from rota.core.runs.model import WorkerRecord as WorkerRow
from rota.core.runs.notified_workers import Fleet
from rota.core.runs.recovery import runs_alone
from rota.core.time.instants import DAY, MINUTE, iso, micros
from rota.core.typed import json_text
from rota.engine import process_identity
from rota.engine.clock import STEP_US, SystemClock
from rota.engine.context import EngineContext
from rota.engine.wakeups import CANCEL, DONE, READY
from rota.engine.watchdog import Watchdog
from rota.engine.worker import Worker
from rota.errors import StoreReadOnly
from rota.store.access import audit
from rota.store.disarm import Disarmed
from rota.store.notifications import record
from rota.store.runs import code_versions, retention, workers
from rota.store.runs.chain_ends import release_stuck
from rota.store.runs.recover import reap_runs
from rota.store.runs.retention import ChainEnd
from rota.store.runs.workers import Beat
from rota.store.schedules import templates

log = logging.getLogger("rota.maintenance")

REAP_BATCH = 200
# A batch keeps other writers on SQLite waiting: some milliseconds.
PRUNE_BATCH = 250
PRUNE_REST_US = MINUTE
# The share of its time that a worker may spend on retention while there is something to prune.
# SQLite has one writer, which others need too.
PRUNE_SHARE_LOCAL, PRUNE_SHARE_SERVER = 0.5, 0.75
# At its start a worker prunes for a shorter time: its program waits.
PRUNE_FIRST = 0.1
FORGET_US = DAY
# Minimum age of another worker's heartbeat (and at least one lease) before its time counts as
# certainly past.
PROOF_US = 10 * MINUTE
# `keep_runs` deletes nothing younger: a caller that waits for a result has time to read it.
KEEP_RUNS_US = 10 * MINUTE
# A worker counts as part of the fleet for this many heartbeat intervals after its last heartbeat.
PEER_BEATS = 3


class Maintenance:
    """Keeps the row and the leases of one worker, and recovers runs of dead workers."""

    def __init__(
        self,
        worker: Worker,
        base: EngineContext,
        watchdog: Watchdog,
        allow: Callable[[bool], None],
        held_threads: Callable[[], Sequence[str]],
    ) -> None:
        self._worker = worker
        self._database = base.database
        self._clock = base.clock
        self._settings = base.settings
        self._wakeups = base.wakeups
        self._ids = base.ids
        self._kept_kinds = base.kept_kinds
        self._watchdog = watchdog
        self._allow = allow
        self._held_threads = held_threads
        self._disarmed: Disarmed | None = None
        self._host = process_identity.host()
        self._row: WorkerRow | None = None
        self._is_registered = False
        self._prune_at = 0
        self._pruned_to: dict[str, str] = {}  # where a pass that ran out of time continues
        self._oldest_kept: ChainEnd | None = None  # by `keep_runs`, in the current pass
        self._count_at = 0

    async def register(self, queues: list[str], version: str) -> None:
        """Write this worker's row, then take over the runs of dead workers and release queued
        occurrences with no run before them."""
        now = self._clock.now()
        pid = os.getpid()
        self._row = WorkerRow(
            self._worker.id, self._settings.namespace, self._host, pid,
            process_identity.started(pid), json_text(queues), json_text(self._worker.names()),
            self._settings.slots, "online", version, now, now, None,
        )  # fmt: skip
        await self._database.write(workers.register, self._row, self._worker.code)
        await self.beat()
        self._is_registered = True
        if self._disarmed is not None:
            return
        released = await self._database.write(
            release_stuck, namespace=self._settings.namespace, now=self._clock.now()
        )
        if released:
            log.warning("released %d queued runs that waited for no other run", released)
            self._wakeups.notify_soon(READY)

    async def keep_leases(self) -> None:
        """Renew at a third of the lease, and at once after a cancel."""
        while True:
            self._worker.renew_now.clear()
            await self._worker.renew()
            third = micros(self._settings.lease_s) // 3
            await self._clock.wait(self._worker.renew_now, self._clock.now() + third)

    async def heartbeat_loop(self) -> None:
        """Send heartbeats, recover runs and prune, once per heartbeat interval."""
        beat_us = micros(self._settings.heartbeat_s)
        next_at = self._clock.now() + beat_us
        while True:
            await self._clock.wait(asyncio.Event(), next_at)
            # The interval begins here: pruning takes a part of it.
            next_at = self._clock.now() + beat_us
            await self.beat()

    async def beat(self) -> None:
        """One round: clock, heartbeat, limits, reaping, pruning."""
        await self._follow_clock()
        now = self._clock.now()
        beat = await self._report(now)
        if not beat.is_known:
            assert self._row is not None
            again = msgspec.structs.replace(self._row, heartbeat_at=now)
            await self._database.write(workers.register, again, self._worker.code)
            beat = await self._report(now)
        self._note_disarmed(beat.disarmed)
        self._worker.expect_alone(beat.alone_waits)
        limits = await self._database.read(workers.queues, namespace=self._settings.namespace)
        self._worker.limit(limits)
        await self._worker.tidy()
        if self._disarmed is None:
            await self.reap()
            await self._release_refused(now)
            await self._prune(now)

    async def _report(self, now: int) -> Beat:
        online = self._worker.claiming or self._disarmed is not None
        return await self._database.write(
            workers.beat, self._worker.id, status="online" if online else "draining", now=now,
            queues=self._worker.queue_names, names=self._worker.names(),
            code_id=self._worker.code.id, version=self._worker.version,
            held_threads=json.dumps(held) if (held := list(self._held_threads())) else None,
            workflow_blocks=json_text(blocks) if (blocks := self._watchdog.blocks()) else None,
        )  # fmt: skip

    def _note_disarmed(self, disarmed: Disarmed | None) -> None:
        if disarmed == self._disarmed:
            return
        if disarmed is None:
            log.info("%s is armed again: this worker acts", self._database.place)
        else:
            log.warning(
                "%s has been disarmed since %s (%s): this worker claims, fires and sends nothing "
                "until `rota arm`", self._database.place, iso(disarmed.at), disarmed.reason,
            )  # fmt: skip
        self._disarmed = disarmed
        self._allow(disarmed is None)

    async def _follow_clock(self) -> None:
        if isinstance(self._clock, SystemClock):
            sent = self._clock.local_us()
            server = await self._database.clock_us()
            if server is not None:
                self._clock.follow(server, sent=sent, received=self._clock.local_us())

    async def reap(self) -> int:
        """Recover runs of dead workers and runs with an ended lease: each gets a successor."""
        now = self._clock.now()
        certain_at = await self._certain_at(now)
        rows = await self._database.read(workers.listing, namespace=self._settings.namespace)
        self._wakeups.fleet = self._fleet(rows, now)
        gone = self._gone(rows)
        total = 0
        while (reaped := await self._reap_some(now, certain_at, gone)) == REAP_BATCH:
            total += reaped
        # Only after reaping: `gone` comes from the list of workers, which has no offline workers.
        if offline := gone + self._silent(rows, certain_at):
            await self._database.write(workers.stop, offline, now=now)
        if total + reaped:
            self._wakeups.notify_soon(READY)
            self._wakeups.notify_soon(DONE)
            self._wakeups.notify_soon(CANCEL)  # children of runs that crashed for good
        return total + reaped

    async def _reap_some(self, now: int, certain_at: int, gone: list[str]) -> int:
        reaped = await self._database.write(
            reap_runs,
            namespace=self._settings.namespace,
            now=now,
            # After a jump of the clock every lease looks lapsed until its holder has renewed it.
            lapsed_before=certain_at,
            gone=gone,
            held=list(self._worker.held),
            recoveries_max=self._settings.recoveries_max,
            new_ids=list(self._ids.take(now, REAP_BATCH)),
            kept_kinds=self._kept_kinds,
        )
        if any(recovered and runs_alone(run.recoveries + 1) for run, recovered in reaped):
            self._worker.expect_alone(True)
        for run, recovered in reaped:
            process_metrics.RUNS_FINISHED.add(run.namespace, run.kind, run.name, Status.CRASHED)
            process_metrics.RUNS_RECOVERED.add(run.namespace, by=int(recovered))
            log.warning(
                "run %s (%s) lost its worker %s; %s", run.id, run.name, run.lease_owner,
                "a recovery takes over" if recovered else "quarantined: it crashed too often",
                extra={"run_id": run.id, "run_name": run.name},
            )  # fmt: skip
        return len(reaped)

    async def _release_refused(self, now: int) -> None:
        """Let any worker claim the runs that waited for newer code in vain."""
        namespace = self._settings.namespace
        runs = await self._database.read(code_versions.refused_runs, namespace=namespace)
        if not runs:
            return
        rows = await self._database.read(workers.listing, namespace=namespace)
        since = now - ONLINE_LEASES * micros(self._settings.lease_s)
        over = waits_over(runs, online(rows, since=since), now=now)
        if any(over):
            await self._database.write(code_versions.release, over)
            self._wakeups.notify_soon(READY)

    def _gone(self, rows: Sequence[WorkerRow]) -> list[str]:
        """Workers that are certainly dead: their process on this machine has ended."""
        return [
            row.id
            for row in rows
            if row.id != self._worker.id
            and row.host == self._host
            and not process_identity.lives(row.pid, row.pid_started)
        ]

    def _silent(self, rows: Sequence[WorkerRow], certain_at: int) -> list[str]:
        """Workers of other machines without a heartbeat for long. Silence alone proves no death, so
        their runs keep their leases. After a jump of the clock every worker looks silent."""
        silent_at = certain_at - 2 * micros(self._settings.lease_s)
        return [row.id for row in rows if row.host != self._host and row.heartbeat_at < silent_at]

    async def _certain_at(self, now: int) -> int:
        """A lower bound of the current time that holds even after a clock jump. Leases that lapsed
        before it may be reaped, and rows older than it may be pruned.

        It is `now` if the clock has been steady for a lease. Otherwise it is the newest heartbeat
        of another worker that is old enough (`PROOF_US`).
        """
        lease_us = micros(self._settings.lease_s)
        if self._clock.steady_for() >= lease_us:
            return now
        namespace = self._settings.namespace
        others = await self._database.read(
            workers.heartbeats_of_others, self._worker.id, namespace=namespace,
            until=now - max(PROOF_US, lease_us),
        )  # fmt: skip
        if others.newest > now + STEP_US:
            await self._database.write(
                workers.correct_heartbeats, self._worker.id, namespace=namespace, now=now
            )
        return others.until

    def _fleet(self, rows: Sequence[WorkerRow], now: int) -> Fleet:
        """The workers that can execute the same runs as this one and sent a heartbeat lately."""
        assert self._row is not None
        able = (self._row.queues, self._row.names, self._worker.code.id or None)
        since = now - PEER_BEATS * micros(self._settings.heartbeat_s)
        return Fleet(
            self._worker.id,
            [
                row.id
                for row in rows
                if row.id == self._worker.id
                or (
                    (row.queues, row.names, row.code_id) == able
                    and row.status == "online"
                    and row.heartbeat_at >= since
                )
            ],
        )

    async def _prune(self, now: int) -> None:
        """Prune for a share of a heartbeat, then wait for the next one; once a minute at rest."""
        keep = self._settings
        if not (keep.keep_days or keep.keep_runs or keep.keep_events_days):
            return
        if _rests(self._prune_at, now):
            return
        # A wrong clock may be set right soon, and what is deleted is gone.
        if not (certain_at := await self._certain_at(now)):
            return
        share = PRUNE_SHARE_LOCAL if self._database.is_local else PRUNE_SHARE_SERVER
        share *= 1 if self._is_registered else PRUNE_FIRST
        done = await self._prune_for(certain_at, now + round(share * micros(keep.heartbeat_s)))
        self._prune_at = now + PRUNE_REST_US if done else now

    async def _prune_for(self, now: int, until: int) -> bool:
        """Prune what is old at `now`; False if the time ran out before the end."""
        keep = self._settings
        namespace = keep.namespace
        await self._database.write(workers.forget, namespace=namespace, before=now - FORGET_US)
        done = True
        if keep.keep_days:
            oldest = max(0, now - round(keep.keep_days * DAY))
            done &= await self._prune_runs("days", ChainEnd(oldest), until)
            await self._database.write(templates.forget_deleted, namespace=namespace, before=oldest)
            await self._database.write(
                record.prune, namespace=namespace, before=oldest, limit=PRUNE_BATCH
            )
            await self._database.write(
                audit.prune, namespace=namespace, now=now, before=oldest, limit=PRUNE_BATCH
            )
        if keep.keep_runs:
            done &= await self._prune_excess(now, until)
        if keep.keep_events_days:
            done &= await self._prune_events(now - round(keep.keep_events_days * DAY), until)
        return done & await self._shrink(until)

    async def _prune_excess(self, now: int, until: int) -> bool:
        """Prune the chains beyond `keep_runs`, except those that ended a moment ago."""
        if "runs" not in self._pruned_to:
            if _rests(self._count_at, now):
                return True
            # The count reads all stored runs, so it waits even while other passes have more to do.
            self._count_at = now + PRUNE_REST_US
            self._oldest_kept = await self._database.read(
                retention.oldest_to_keep, namespace=self._settings.namespace,
                keep=self._settings.keep_runs,
            )  # fmt: skip
        if self._oldest_kept is None:
            return True
        before = min(self._oldest_kept, ChainEnd(now - KEEP_RUNS_US))
        return await self._prune_runs("runs", before, until)

    async def _prune_runs(self, which: str, before: ChainEnd, until: int) -> bool:
        """Prune at least one batch; False if the time ran out before the end."""
        after_id: str | None = self._pruned_to.pop(which, "")
        while after_id is not None:
            _, after_id = await self._database.write(
                retention.prune, namespace=self._settings.namespace,
                before_id=id_bound(before.at), before=before, after_id=after_id, limit=PRUNE_BATCH,
            )  # fmt: skip
            if after_id is not None and self._clock.now() > until:
                self._pruned_to[which] = after_id
                return False
        return True

    async def _prune_events(self, oldest: int, until: int) -> bool:
        oldest = max(0, oldest)
        while True:
            pruned = await self._database.write(
                retention.prune_events, namespace=self._settings.namespace,
                before_id=id_bound(oldest), before_at=oldest, limit=PRUNE_BATCH,
            )  # fmt: skip
            if pruned < PRUNE_BATCH:
                return True
            if self._clock.now() > until:
                return False

    async def _shrink(self, until: int) -> bool:
        """Return the space of deleted rows to the file system, if the database can."""
        while await self._database.shrink():
            if self._clock.now() > until:
                return False
        return True

    async def leave(self) -> None:
        """Mark this worker offline."""
        try:
            await self._database.write(workers.stop, [self._worker.id], now=self._clock.now())
        except StoreReadOnly:
            log.debug("could not sign off")

    def is_healthy(self) -> bool:
        """Whether the event loop is responsive."""
        return not self._watchdog.stuck_for_s()


def _rests(until: int, now: int) -> bool:
    """Whether the pause until `until` still lasts. A pause longer than PRUNE_REST_US means that the
    clock was set back: ignore it."""
    return 0 < until - now <= PRUNE_REST_US
