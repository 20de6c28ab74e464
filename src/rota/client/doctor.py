"""The checks of `rota doctor`: the database, its schema and clock, workers, queues, stuck runs.

`examine` only reads, and each finding says what to do about it. `repair` changes what can be
repaired without a decision by a person.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Literal, NamedTuple

import msgspec

from rota.client.findings import (
    Finding,
    Level,
    block_findings,
    disk_findings,
    grant_findings,
    orphan_findings,
    session_findings,
    sqlite_findings,
    thread_finding,
    worker_name,
)
from rota.client.operations import ARM_HINT, disarmed_clause
from rota.core.automations.text import refusal
from rota.core.plurals import counted, some
from rota.core.runs.filters import RunFilter
from rota.core.runs.ids import short_id
from rota.core.runs.lifecycle import Status
from rota.core.runs.model import Queue, Run, WorkerRecord
from rota.core.schedules.intent import QUARANTINED_REASON
from rota.core.time.instants import DAY, HOUR, MINUTE, SECOND, micros, span
from rota.engine import process_identity
from rota.engine.clock import SystemClock
from rota.errors import BadAutomation, RotaError, StoreReadOnly
from rota.schedules.ledger_check import ledger_faults
from rota.settings import Settings
from rota.store import disarm, invariants
from rota.store.automations import refused, views
from rota.store.automations.state import digests, orphaned_chains, versions_without_worker
from rota.store.backend import migrate
from rota.store.backend.database import Database, Tx, open_url
from rota.store.backend.migrate import PlannedMigration
from rota.store.backend.postgres_grants import role_grants
from rota.store.backend.postgres_session import role_settings
from rota.store.metrics import open_runs
from rota.store.runs import history, lists, retention, workers
from rota.store.runs.chain_ends import release_stuck
from rota.store.schedules import templates

MigrationPlan = list[PlannedMigration]
Absence = Literal["gone", "silent"]

OFFSET_US_MAX = 2 * SECOND
WAIT_US_MAX = MINUTE
# Runs may be stored for so long after their time: idle workers prune once a minute.
RETENTION_LATE_US = HOUR
LOOK_MAX = 1000
REPORT = "This is a bug in Rota: keep a copy of the database and report it."
REPAIR = "`rota doctor --repair` releases it, and so does the next start of a worker."


class DoctorReport(NamedTuple):
    """All findings. `code` is that of the error at which the check had to stop."""

    place: str
    findings: list[Finding]
    code: str | None = None


def absence(worker: WorkerRecord, settings: Settings, now: int) -> Absence | None:
    """Why a worker that has not signed off does not work: its process is gone, or it is silent."""
    if worker.status == "offline":
        return None
    if worker.host == process_identity.host() and not process_identity.lives(
        worker.pid, worker.pid_started
    ):
        return "gone"
    beats_us = max(3 * micros(settings.heartbeat_s), 5 * SECOND)
    return "silent" if now - worker.heartbeat_at > beats_us else None


def live_workers(rows: Sequence[WorkerRecord], settings: Settings, now: int) -> list[WorkerRecord]:
    """The workers that are neither gone nor silent."""
    return [row for row in rows if absence(row, settings, now) is None]


def served(worker: WorkerRecord) -> list[str]:
    """The queues a worker takes runs from."""
    return [str(name) for name in msgspec.json.decode(worker.queues)]


def known(worker: WorkerRecord) -> list[str]:
    """The names that a worker has code for."""
    return [str(name) for name in msgspec.json.decode(worker.names)]


@contextlib.asynccontextmanager
async def _opened(database: Database) -> AsyncIterator[Database]:
    """An open database, whatever its schema."""
    await database.open()
    try:
        yield database
    finally:
        await database.close()


async def bring_up_to_date(url: str, settings: Settings) -> tuple[str, list[str]]:
    """Apply the migrations that are missing; returns where, and their names."""
    async with _opened(open_url(url, settings)) as database:
        now = SystemClock().now()
        return database.place, await migrate.prepare(database, migrate=True, now=now)


async def plan_migration(url: str, settings: Settings) -> tuple[str, MigrationPlan]:
    """The effect of `rota migrate`, without doing it; returns where, and the migrations."""
    async with _opened(open_url(url, settings)) as database:
        return database.place, await database.read(migrate.plan)


async def back_up(url: str, settings: Settings, target: str, *, disarmed: bool) -> tuple[str, int]:
    """Copy a database, whatever its schema; returns where it is, and the bytes of the copy."""
    at = SystemClock().now() if disarmed else None
    async with _opened(open_url(url, settings)) as database:
        return database.place, await database.backup(target, disarmed_at=at)


async def examine(url: str, settings: Settings, *, full: bool = False) -> DoctorReport:
    """Check what is open, as far as the database allows it; `full`: check all that is stored."""
    found: list[Finding] = []
    place, path = "the database", None
    try:
        database = open_url(url, settings)
        place, path = database.place, getattr(database, "path", None)
        async with _opened(database):
            for check in Doctor(database, settings, full=full).checks():
                found += await check()
    except RotaError as error:
        found.append(Finding("bad", "database", error.message, error.advice))
        if path is not None and not any(one.what == "disk" for one in found):
            found += await asyncio.to_thread(disk_findings, path)
        return DoctorReport(place, found, error.code)
    return DoctorReport(place, found)


async def repair(url: str, settings: Settings) -> list[Finding]:
    """Repair what can be repaired in this namespace; returns what was done."""
    async with _opened(open_url(url, settings)) as database:
        await database.read(migrate.check)
        count = await database.write(
            release_stuck, namespace=settings.namespace,
            now=await database.clock_us() or SystemClock().now(),
        )  # fmt: skip
    if not count:
        return []
    return [Finding("ok", "repaired", f"released {counted(count, 'run')} that waited for no run")]


class Doctor:
    """A check of one namespace of an open database."""

    def __init__(self, database: Database, settings: Settings, *, full: bool = False) -> None:
        self._database = database
        self._full = full
        self._settings = settings
        self._namespace = settings.namespace
        self._now = SystemClock().now()
        self._live: list[WorkerRecord] = []
        self._queues: dict[str, Queue] = {}
        self._automations: frozenset[str] = frozenset()

    def checks(self) -> list[Callable[[], Awaitable[list[Finding]]]]:
        """The checks, in this order: later ones need what earlier ones found."""
        return [
            self.store, self.grants, self.schema, self.disarmed, self.clock, self.rules,
            self.retention, self.ledger, self.schedules,
            self.worker_rows, self.queues, self.deploys, self.pending, self.overdue,
            self.leases, self.orphans, self.quarantined, self.people, self.hung_handlers,
        ]  # fmt: skip

    # -- the database ----------------------------------------------------------------------

    async def store(self) -> list[Finding]:
        """Which database it is; for a SQLite file also durability, permissions, log and disk."""

        async def ask(tx: Tx) -> str:
            return str((await tx.rows("store_version"))[0][0])

        version = await self._database.read(ask)
        path = getattr(self._database, "path", None)
        if path is None:
            return [Finding("ok", "store", f"{version} at {self._database.place}")]
        return await asyncio.to_thread(sqlite_findings, version, path, self._settings)

    async def grants(self) -> list[Finding]:
        """Whether the role may do what a worker or a reader needs, and its settings let it."""
        session = session_findings(await self._database.read(role_settings))
        found = await self._database.read(role_grants)
        return session if found is None else session + grant_findings(found)

    async def schema(self) -> list[Finding]:
        """Whether the tables are those of this Rota; raises when nothing more can be read."""
        await self._database.read(migrate.check)
        newest = f"{migrate.shipped()[-1].number:04d}, up to date"
        try:
            # A write that changes nothing: it finds locks and missing permissions. A full disk
            # shows only if the log of SQLite has to be created.
            await self._database.write(workers.stop, [], now=self._now)
        except StoreReadOnly as error:
            if self._database.is_local:
                raise
            return [Finding("warn", "schema", f"{newest}, not writable: {error}", error.advice)]
        return [Finding("ok", "schema", f"{newest}, can be written")]

    async def disarmed(self) -> list[Finding]:
        """Whether the database is disarmed."""
        found = await self._database.read(disarm.state)
        if found is None:
            return []
        return [Finding("warn", "disarmed", f"this database {disarmed_clause(found)}", ARM_HINT)]

    async def clock(self) -> list[Finding]:
        """How far this machine's clock is from the database's."""
        sent = SystemClock.local_us()
        server = await self._database.clock_us()
        if server is None:
            return [Finding("ok", "clock", "the database uses this machine's clock")]
        offset = server - (sent + SystemClock.local_us()) // 2
        self._now = server
        says = f"this machine is {span(abs(offset))} {'behind' if offset > 0 else 'ahead'}"
        if abs(offset) <= OFFSET_US_MAX:
            return [Finding("ok", "clock", says)]
        hint = (
            "Rota uses the clock of the database. Set that of this machine (NTP): logs then agree."
        )
        return [Finding("warn", "clock", says, hint)]

    async def rules(self) -> list[Finding]:
        """The invariants, which must hold whatever happened."""
        broken = await self._database.read(invariants.broken, full=self._full)
        if not broken:
            count = len(invariants.INVARIANTS)
            says = f"all {count} hold"
            if not self._full:
                checked = count - len(invariants.SCANS)
                says = f"{checked} of {count} checked, and hold; `--full` reads all runs"
            return [Finding("ok", "invariants", says)]
        return [
            Finding(
                "bad", "invariants", f"broken: {one.sentence} ({'; '.join(one.rows)})",
                REPAIR if one.name in invariants.REPAIRABLE else REPORT,
            )
            for one in broken
        ]  # fmt: skip

    async def orphans(self) -> list[Finding]:
        """Automations with a change or events of a chain that has ended."""
        found = await self._database.read(orphaned_chains, namespace=self._namespace)
        return orphan_findings(found)

    async def retention(self) -> list[Finding]:
        """Whether workers delete finished runs that are older than `keep_days` in time."""
        keep = self._settings.keep_days
        oldest = self._now - round(keep * DAY) - RETENTION_LATE_US
        if not keep or oldest < 0:
            return []
        found = await self._database.read(
            retention.backlog, namespace=self._namespace, before_at=oldest, limit=LOOK_MAX
        )
        if not found:
            return []
        says = f"{counted(found, 'run')} past keep_days ({keep:g}) are still stored"
        hint = (
            "Workers delete them while they run and have time: start one (`rota up`) or more, or"
            " raise `keep_days`. A worker that runs for less than `lease_s` (a cron job) deletes"
            " only runs that were past `keep_days` when an earlier worker ran."
        )
        says = f"{says}, or more" if found == LOOK_MAX else says
        return [Finding("warn", "retention", says, hint)]

    async def ledger(self) -> list[Finding]:
        """Whether every occurrence that schedules have passed is accounted for."""
        days = self._settings.keep_days
        found = await self._database.read(
            ledger_faults, namespace=self._namespace, now=self._now,
            keep_from=self._now - round(days * DAY) if days else 0,
            keeps_all=not self._settings.keep_runs,
        )  # fmt: skip
        return [Finding("bad", "ledger", str(one), REPORT) for one in found]

    async def schedules(self) -> list[Finding]:
        """Schedules that were quarantined, and declarations that are ignored."""
        rows = await self._database.read(
            templates.ailing, namespace=self._namespace, limit=LOOK_MAX
        )
        quarantined = [
            row.name for row in rows if (row.reason or "").startswith(QUARANTINED_REASON)
        ]
        ignored = [row.name for row in rows if row.parent_id and '"ignored":' in row.spec]
        found = []
        if quarantined:
            says = f"{counted(len(quarantined), 'schedule')} quarantined: {some(quarantined)}"
            hint = "`rota why NAME` says what is wrong, and what to do."
            found.append(Finding("warn", "schedules", says, hint))
        if ignored:
            says = f"declared in code, but an operator's schedule has the name: {some(ignored)}"
            hint = "The declaration is ignored; rename it, or `rota schedule delete NAME`."
            found.append(Finding("warn", "schedules", says, hint))
        return found

    # -- workers and queues ----------------------------------------------------------------

    async def worker_rows(self) -> list[Finding]:
        """The workers that are on, and those that are gone, silent or blocked."""
        rows = await self._database.read(workers.listing, namespace=self._namespace)
        absent = {row.id: absence(row, self._settings, self._now) for row in rows}
        self._live = [row for row in rows if absent[row.id] is None]
        blocked = [row for row in rows if absent[row.id] != "gone" and self._is_blocked(row)]
        running = await self._page(Status.RUNNING) if blocked else []
        found = [self._blocked(row, running) for row in blocked]
        found += [
            self._missed(row, why)
            for row in rows
            if (why := absent[row.id]) is not None and row not in blocked
        ]
        found += [thread_finding(row) for row in self._live if row.held_threads]
        found += [one for row in self._live for one in block_findings(row, self._now)]
        if self._live:
            slots = sum(row.slots for row in self._live)
            names = sorted({name for row in self._live for name in served(row)})
            on = f"{counted(len(self._live), 'worker')} running, {counted(slots, 'slot')}"
            says = f"{on}, {'queue' if len(names) == 1 else 'queues'} {some(names)}"
            return [Finding("ok", "workers", says), *found]
        none = Finding("warn", "workers", "no worker is running", "Start one: `rota up`.")
        return [none, *found]

    def _missed(self, row: WorkerRecord, why: Absence) -> Finding:
        who = f"worker {row.id} ({worker_name(row)})"
        if why == "gone":
            hint = "Its runs go to another worker within a heartbeat; if there is none: `rota up`."
            return Finding("warn", "workers", f"{who} is gone without signing off", hint)
        says = f"{who} has sent no heartbeat for {span(self._now - row.heartbeat_at)}"
        hint = "Is its machine up? Its runs go to other workers when their leases lapse."
        return Finding("warn", "workers", says, hint)

    def _is_blocked(self, row: WorkerRecord) -> bool:
        """Whether a process of this machine lives but is late with its heartbeat."""
        beat_us = micros(self._settings.heartbeat_s)
        late_us = self._now - row.heartbeat_at - beat_us
        return row.host == process_identity.host() and late_us > max(beat_us // 2, SECOND)

    def _blocked(self, row: WorkerRecord, running: Sequence[Run]) -> Finding:
        says = (
            f"the event loop of worker {row.id} (pid {row.pid}) is blocked: its last heartbeat is "
            f"{span(self._now - row.heartbeat_at)} old, and one is due every "
            f"{span(micros(self._settings.heartbeat_s))}"
        )
        held = [f"{run.name} ({short_id(run.id)})" for run in running if run.lease_owner == row.id]
        if held:
            says += f"; it executes {some(held)}"
        hint = "Blocking code belongs in a sync step, which runs in a thread. The worker's log "
        return Finding("warn", "workers", says, hint + "names the line where it hangs.")

    async def queues(self) -> list[Finding]:
        """Queues that an operator has paused."""
        rows = await self._database.read(workers.queues, namespace=self._namespace)
        self._queues = {row.name: row for row in rows}
        return [
            Finding(
                "warn", "queues", f"queue {row.name} is paused", f"`rota queue resume {row.name}`."
            )
            for row in rows
            if row.paused
        ]

    # -- automations -----------------------------------------------------------------------

    async def deploys(self) -> list[Finding]:
        """Deployed versions that no live worker has, and deploys that were refused."""
        refusals = await self._database.read(refused.listing, namespace=self._namespace)
        found = [
            Finding("bad", "deploys", f"automation {name}: {refusal(one)}", BadAutomation.hint)
            for name, one in refusals.items()
        ]
        live = [row.id for row in self._live]
        deployed = await self._database.read(digests, namespace=self._namespace)
        self._automations = frozenset(deployed)
        missing = await self._database.read(
            versions_without_worker, namespace=self._namespace, workers=live, limit=LOOK_MAX
        )
        if live and missing:
            names = [f"{name} (version {version})" for name, version in missing]
            says = f"no live worker has the deployed code of {some(names)}"
            hint = "Restart the workers with it; `rota why NAME` shows which code they have."
            found.append(Finding("bad", "deploys", says, hint))
        return found

    # -- runs ------------------------------------------------------------------------------

    async def pending(self) -> list[Finding]:
        """Runs that wait for a worker: for too long, or for one that does not exist."""
        ready = await self._database.read(history.ready, namespace=self._namespace)
        found = [finding for row in ready if (finding := self._waits(row)) is not None]
        if found:
            return found
        count = sum(row.run_count for row in ready)
        return [Finding("ok", "pending", f"{counted(count, 'run')} waiting, none for long")]

    def _waits(self, row: history.Ready) -> Finding | None:
        waits_us = self._now - row.oldest_at
        runs = f"{counted(row.run_count, 'run')} of {row.name} in queue {row.queue}"
        says = f"{runs}, waiting up to {span(max(waits_us, 0))}"
        level: Level = "bad" if waits_us > WAIT_US_MAX else "warn"
        queue = self._queues.get(row.queue)
        if queue is not None and queue.paused:
            return Finding("warn", "pending", f"{says}: the queue is paused")
        if not any(row.queue in served(worker) for worker in self._live):
            hint = f"Start one: `rota up --queue {row.queue}`."
            return Finding(level, "pending", f"{says}: no live worker serves the queue", hint)
        automation = row.name in self._automations  # `deploys` looks for their code
        if not automation and not any(
            row.queue in served(one) and row.name in known(one) for one in self._live
        ):
            says += f": no live worker that serves the queue knows {row.name}"
            hint = f"Start a worker with code that registers {row.name}, or cancel the runs."
            return Finding(level, "pending", says, hint)
        if waits_us <= WAIT_US_MAX:
            return None
        hint = (
            f"All slots are busy, or a limit of queue {row.queue} is reached: see `rota run list"
            " --status running`."
        )
        return Finding("warn", "pending", f"{says}, though a worker serves the queue", hint)

    async def overdue(self) -> list[Finding]:
        """Sleeping runs that no worker woke."""

        async def ask(tx: Tx) -> int | None:
            due_at: int | None = (await tx.rows("next_due", namespace=self._namespace))[0][0]
            return due_at

        due_at = await self._database.read(ask)
        if due_at is None or self._now - due_at <= WAIT_US_MAX:
            return []
        says = f"a sleeping run should have woken {span(self._now - due_at)} ago"
        hint = "Any worker of this namespace wakes it: `rota up`."
        return [Finding("warn" if self._live else "bad", "sleeping", says, hint)]

    async def leases(self) -> list[Finding]:
        """Runs of silent workers that no worker has taken over yet."""
        opened = await self._database.read(open_runs, namespace=self._namespace, now=self._now)
        count = sum(row.lapsed_count for row in opened)
        if not count:
            running = sum(row.run_count for row in opened if row.status == Status.RUNNING)
            return [Finding("ok", "leases", f"{counted(running, 'run')} running, none lapsed")]
        rows = await self._page(Status.RUNNING)
        ids = [row.id for row in rows if row.lease_until and row.lease_until < self._now]
        says = f"{counted(count, 'lease')} lapsed" + (f": {some(ids)}" if ids else "")
        if self._live:
            hint = "A live worker recovers them within its heartbeat; check again in a moment."
            return [Finding("warn", "leases", says, hint)]
        return [Finding("bad", "leases", says, "Start a worker: `rota up` recovers them.")]

    async def quarantined(self) -> list[Finding]:
        """Chains that crashed their worker too often."""
        roots = sorted({row.root_id for row in await self._page(Status.CRASHED)})
        ends = await self._database.read(history.ended, roots) if roots else []
        crashed = sorted(end.root_id for end in ends if end.status == Status.CRASHED)
        if not crashed:
            return []
        says = (
            f"{counted(len(crashed), 'run')} quarantined after crashing too often: {some(crashed)}"
        )
        return [Finding("warn", "crashed", says, "Fix the cause, then `rota run retry ID`.")]

    async def people(self) -> list[Finding]:
        """Runs that wait for a person."""
        rows = await self._page(Status.WAITING)
        if not rows:
            return []
        ids = [f"{row.id} ({row.name}, {row.reason})" for row in rows]
        says = f"{counted(len(rows), 'run')} waiting for an operator: {some(ids)}"
        return [Finding("warn", "waiting", says, "`rota run show ID` says what is needed.")]

    async def hung_handlers(self) -> list[Finding]:
        """Automations with sync handlers that did not end in time and still hold threads."""
        found = await self._database.read(views.hung_handlers, namespace=self._namespace)
        hint = "Give their calls a timeout, deploy, and restart the worker."
        return [Finding("warn", "automations", f"{name}: {text}", hint) for name, text in found]

    async def _page(self, status: Status) -> Sequence[Run]:
        found = await self._database.read(
            lists.page, RunFilter(status=status), namespace=self._namespace, before="~",
            limit=LOOK_MAX,
        )  # fmt: skip
        return found.runs
