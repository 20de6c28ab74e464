"""The findings of the doctor, one line each, and its checks of a SQLite file."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Literal, NamedTuple

from rota.settings import Settings

if TYPE_CHECKING:  # a program that only talks to PostgreSQL needs no SQLite
    from rota.store.backend.sqlite_inspect import SqliteState

Level = Literal["ok", "warn", "bad"]


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
        hint = f"Upgrade apsw: before {'.'.join(map(str, SAFE_SQLITE))} two writers may collide."
        found = Finding("bad", "store", says, hint)
    elif settings.synchronous != "full":
        hint = "A power cut may lose the last commits; `synchronous = full` loses none."
        found = Finding("warn", "store", says, hint)
    else:
        found = Finding("ok", "store", says)
    return [found, *_permissions(state), *_backlog(state)]


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
