"""The findings of the doctor, one line each, about a SQLite file and about a PostgreSQL role."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from rota.core.plurals import counted, some
from rota.core.runs.ids import short_id
from rota.core.runs.model import WorkerRecord, WorkflowBlock
from rota.core.time.instants import span
from rota.engine.step_threads import named
from rota.settings import Settings
from rota.store.automations.state import OrphanedChain
from rota.store.backend.postgres_grants import RoleGrants
from rota.store.backend.postgres_session import RoleSettings

if TYPE_CHECKING:  # a program that only talks to PostgreSQL needs no SQLite
    from rota.store.backend.sqlite_inspect import SqliteState

Level = Literal["ok", "warn", "bad"]
READ = ("select",)
WORK = ("select", "insert", "update", "delete")
TABLES_MAX = 5  # that a finding names
# A disk is nearly full if less than both is free: the share alone means days on a large disk.
FREE_SHARE_MIN, FREE_BYTES_MIN = 0.05, 500 << 20


class Finding(NamedTuple):
    """One line of the doctor's page."""

    level: Level
    what: str
    says: str
    hint: str | None = None


def sqlite_findings(version: str, path: str, settings: Settings) -> list[Finding]:
    """Version and settings of the file, who may open it, and how long its log is."""
    from rota.store.backend.sqlite import SAFE_SQLITE
    from rota.store.backend.sqlite_inspect import inspect

    state = inspect(path)
    says = (
        f"{version}, journal {state.journal_mode}, synchronous {settings.synchronous}, file {path}"
    )
    number = tuple(int(part) for part in version.rpartition(" ")[2].split("."))
    if number < SAFE_SQLITE:
        safe = ".".join(map(str, SAFE_SQLITE))
        hint = f"Upgrade apsw: before SQLite {safe} two writing processes may corrupt the file."
        found = Finding("bad", "store", says, hint)
    elif settings.synchronous != "full":
        hint = "A power cut may lose the last commits; `synchronous = full` loses none."
        found = Finding("warn", "store", says, hint)
    else:
        found = Finding("ok", "store", says)
    waiting_bytes = state.backlog_pages * state.page_bytes
    return [found, *_permissions(state), *_backlog(state), *disk_findings(path, waiting_bytes)]


def _permissions(state: SqliteState) -> list[Finding]:
    if not state.open_to_others:
        return []
    files = " ".join(map(shlex.quote, state.open_to_others))
    says = f"other users of this machine may open {', '.join(state.open_to_others)}"
    return [Finding("warn", "permissions", says, f"`chmod go= {files}` keeps them out.")]


def _backlog(state: SqliteState) -> list[Finding]:
    from rota.store.backend.sqlite_inspect import BACKLOG_PAGES

    if state.backlog_pages < BACKLOG_PAGES:
        return []
    mib = state.backlog_pages * state.page_bytes >> 20
    says = f"{mib} MiB in the log are not yet in the database file; the log grows"
    hint = (
        "A full or failing disk, or a program that reads for long, stops the checkpoint. See the"
        " worker's log, free some space, end long readers."
    )
    return [Finding("warn", "log", says, hint)]


def disk_findings(path: str, waiting_bytes: int = 0) -> list[Finding]:
    """Whether the disk of a SQLite file is full, or nearly. `waiting_bytes` of the log have to be
    moved into the file."""
    from rota.store.backend.sqlite_inspect import LOG_BYTES, LOG_CHUNK_BYTES, disk_space

    space = disk_space(path)
    if space is None or not space.total:
        return []
    is_low = space.free < FREE_BYTES_MIN and space.free < FREE_SHARE_MIN * space.total
    if not is_low and space.free >= LOG_BYTES + waiting_bytes:
        return []
    level: Level = "bad" if space.free < LOG_CHUNK_BYTES else "warn"
    says = (
        f"{space.free:,} bytes ({space.free >> 20} of {space.total >> 20} MiB) are free on the file"
        f" system of {space.folder}"
    )
    effect = "Writes fail now or soon" if level == "bad" else "Writes fail when the disk is full"
    hint = (
        f"{effect} (`store_full`), and no run starts or ends. Free some space, or move the database"
        " to a larger disk. A shorter `keep_days` lets workers delete more."
    )
    return [Finding(level, "disk", says, hint)]


def grant_findings(found: RoleGrants) -> list[Finding]:
    """A worker needs to read and write every table, a reader to read; the owner migrates."""
    role, owner = found.role, found.tables[0].owner
    writes = any(one.insert or one.update or one.delete for one in found.tables)
    needs = WORK if writes else READ
    lacking = [one for one in found.tables if set(one.missing) & set(needs)]
    if lacking:
        verbs = [verb for verb in needs if any(verb in one.missing for one in lacking)]
        lacked = some([one.table for one in lacking], TABLES_MAX)
        says = f"role {role} lacks {', '.join(verbs)} on {lacked}"
        tables = f"all tables in schema {found.schema}"
        hint = f"As {owner}: grant {', '.join(needs)} on {tables} to {role};"
        return [Finding("bad", "grants", says, hint)]
    if all(one.is_owner for one in found.tables):
        return [_owner(found)]
    says = f"role {role} has what a worker needs; {owner} migrates"
    if not writes:
        says = f"role {role} may only read: enough for lists, why, metrics and the doctor"
    return [Finding("ok", "grants", says), *_later(found, needs)]


def session_findings(found: RoleSettings | None) -> list[Finding]:
    """Rota sets these for its sessions; a pooler may keep it from that."""
    if found is None:
        return []
    changes = [f"{name} = 0" for name in found.short_timeouts]
    says = [f"a short {name}" for name in found.short_timeouts]
    if found.has_jit:
        changes, says = ["jit = off", *changes], ["JIT compilation", *says]
    if not changes:
        return []
    hint = " ".join(f"alter role {found.role} set {change};" for change in changes)
    return [Finding("warn", "session", f"role {found.role} has {some(says, len(says))}", hint)]


def _owner(found: RoleGrants) -> Finding:
    if found.may_create:
        says = f"role {found.role} has what a worker needs, and may migrate"
        return Finding("ok", "grants", says)
    says = f"role {found.role} owns the tables, but may not migrate: it creates none in the schema"
    hint = f"As the schema's owner: grant create on schema {found.schema} to {found.role};"
    return Finding("warn", "grants", says, hint)


def _later(found: RoleGrants, needs: tuple[str, ...]) -> list[Finding]:
    if set(needs) <= found.later:
        return []
    owner = found.tables[0].owner
    says = f"role {found.role} gets no grants on tables that a later migration makes"
    hint = (
        f"As {owner}: alter default privileges in schema {found.schema} grant {', '.join(needs)}"
        f" on tables to {found.role};"
    )
    return [Finding("warn", "grants", says, hint)]


def threads_held(worker: WorkerRecord) -> list[str]:
    """The steps, by name, that hold a thread of a worker although they timed out."""
    return [str(name) for name in msgspec.json.decode(worker.held_threads or "[]")]


def block_findings(worker: WorkerRecord, now: int) -> list[Finding]:
    """The findings about workflows that blocked a worker."""
    who = f"worker {worker.id} ({worker_name(worker)})"
    hint = (
        "Call blocking code in a sync step, which runs in a thread. The worker's log has a stack."
    )
    return [
        Finding(
            "warn", "workers",
            f"workflow {one.workflow} has blocked {who} for a second "
            f"{counted(one.count, 'time')} since its start, last {span(now - one.at)} ago at "
            f"{one.line} (run {one.run_id})", hint,
        )
        for one in msgspec.json.decode(worker.workflow_blocks or "[]", type=list[WorkflowBlock])
    ]  # fmt: skip


def worker_name(worker: WorkerRecord) -> str:
    """A worker for people: its machine and its process."""
    return f"{worker.host.partition('/')[0]}, pid {worker.pid}"


def thread_finding(worker: WorkerRecord) -> Finding:
    """The finding about threads that steps hold although they timed out."""
    who = f"worker {worker.id} ({worker_name(worker)})"
    says = f"threads of {who} are held by steps that timed out: {named(threads_held(worker))}"
    hint = "Give the calls in these steps timeouts of their own, then restart the worker."
    return Finding("warn", "workers", says, hint)


def orphan_findings(found: Sequence[OrphanedChain]) -> list[Finding]:
    """The findings about chains that have ended and left their change or their events open."""
    return [
        Finding(
            "bad", "automations",
            f"run {short_id(one.run_id)} of automation {one.automation} ended without an answer "
            "about its change, or still holds events",
            f"`rota automation resume {one.automation}` takes them up: Rota looks the change up, "
            "makes it again with its key, or asks you.",
        )
        for one in found
    ]  # fmt: skip
