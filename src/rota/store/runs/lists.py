"""Lists of runs by filter: which index serves which filter, and how far a page looks.

A page reads one index in the order of ids, at most `WINDOW` entries of it. If an index decides the
whole filter, that is the page. Otherwise the page may end before it is full; it then says how far
back it looked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from msgspec.structs import asdict

from rota.core.pipelines.names import PREFIX
from rota.core.runs.filters import RunFilter, beyond
from rota.core.runs.ids import created_at_of as created_at
from rota.core.runs.lifecycle import Status
from rota.core.runs.model import Run
from rota.store.backend.database import Row, Tx

# Entries that one page looks at. A store of 1,000 runs has hardly fewer, so that a page costs the
# same however many are stored.
WINDOW = 2_000
# The same for a search, which compares texts of each.
SEARCH_WINDOW = 1_000
# The same for programs that want a whole list: fewer, longer reads.
LONG_WINDOW = 20_000
# Entries that a search by the beginning of an id or external id looks at.
BEGINNING_WINDOW = 100
# Names of automations and pipelines that a page queries one by one.
NAMES_MAX = 40

_UNSUCCESSFUL = (Status.FAILED, Status.CRASHED, Status.CANCELLED, Status.SKIPPED)
# Statuses of runs that may hold an error.
_WITH_ERROR = (Status.FAILED, Status.CRASHED, Status.WAITING)
_OPEN = (Status.PENDING, Status.RUNNING, Status.SLEEPING, Status.WAITING)
# Kinds with runs that are indexed by name.
_NAMED_KINDS = ("automation", "pipeline")

Given = dict[str, Any]


class IndexQueries(NamedTuple):
    """The queries of one index: ids of a page; how many entries the window holds, and the last."""

    ids: str
    extent: str


INDEXES = {
    "newest": IndexQueries("ids_newest", "end_of_newest"),
    "unsuccessful": IndexQueries("ids_unsuccessful", "end_of_unsuccessful"),
    "name": IndexQueries("ids_of_name", "end_of_name"),
    "schedule": IndexQueries("ids_of_schedule", "size_of_schedule"),
    Status.PENDING: IndexQueries("ids_pending", "size_pending"),
    Status.RUNNING: IndexQueries("ids_running", "size_running"),
    Status.SLEEPING: IndexQueries("ids_sleeping", "size_sleeping"),
    Status.WAITING: IndexQueries("ids_waiting", "size_waiting"),
}


class FoundIds(NamedTuple):
    """Ids of a page, newest first, and the last id that was read if the bound ended the page."""

    ids: list[str]
    looked_to: str | None = None


class RunsFound(NamedTuple):
    """Runs, newest first, and the id after which the next page begins. When the bound ended the
    page before it was full, also the instant back to which it looked.
    """

    runs: list[Run]
    next_id: str | None
    looked_back_to: int | None


async def page(
    tx: Tx,
    wanted: RunFilter,
    *,
    namespace: str,
    before: str,
    limit: int,
    schedule_id: str = "",
    window: int = WINDOW,
) -> RunsFound:
    """One page of the runs that fit, created before an id."""
    given = _given(wanted, namespace, before, limit, schedule_id)
    found = await _ids(tx, wanted, given | {"window": max(window, limit)})
    rows = await tx.rows("runs_by_id", ids=found.ids) if found.ids else []
    runs = [Run(*row) for row in rows]
    last_id = found.ids[-1] if len(found.ids) == limit else found.looked_to
    if wanted.error:  # not every index knows it
        runs = [run for run in runs if (run.error or "").startswith(wanted.error_text)]
    is_short = last_id is not None and len(runs) < limit
    return RunsFound(runs, last_id, _instant(last_id or "") if is_short else None)


def _instant(run_id: str) -> int | None:
    """When an id was made; None for one that Rota did not make."""
    try:
        return created_at(run_id)
    except ValueError:
        return None


async def _ids(tx: Tx, wanted: RunFilter, given: Given) -> FoundIds:
    """The ids of one page."""
    if wanted.error and wanted.status not in ("", *_WITH_ERROR):
        return FoundIds([])
    if wanted.root_id:
        return FoundIds(_first(await tx.rows("ids_of_chain", **given)))
    if wanted.external_id:
        return FoundIds(_first(await tx.rows("ids_called", **given)))
    if wanted.error and not wanted.status:
        parts = [await _of_status(tx, given | {"status": one}, one) for one in _WITH_ERROR]
        return _merged(parts, given["limit"])
    if wanted.status in (*_UNSUCCESSFUL, *_OPEN):
        return await _of_status(tx, given, wanted.status)
    if given["schedule_id"]:
        return await _of_schedule(tx, given)
    indexed = wanted.kind in _NAMED_KINDS or wanted.name.startswith(PREFIX)
    if wanted.name or not indexed:
        return await _scan(tx, given, "name" if indexed else "newest")
    return await _of_kind(tx, given)


async def beginning(
    tx: Tx, wanted: RunFilter, *, namespace: str, limit: int, schedule_id: str = ""
) -> list[Run]:
    """The newest runs of which the id or the external id begins with the searched text. The first
    external ids in their order are read, if there are many."""
    given = _given(wanted, namespace, wanted.beyond_id, limit, schedule_id)
    rows = await tx.rows(
        "ids_beginning", **given, window=BEGINNING_WINDOW, id_beyond=beyond(wanted.id_part),
        beyond=beyond(wanted.search),
    )  # fmt: skip
    found = await tx.rows("runs_by_id", ids=_first(rows)) if rows else []
    return [Run(*row) for row in found]


def _given(wanted: RunFilter, namespace: str, before: str, limit: int, schedule_id: str) -> Given:
    return asdict(wanted) | {
        "namespace": namespace, "before": before, "first": wanted.first_id, "limit": limit,
        "schedule_id": schedule_id, "tag": wanted.tag_text, "error": wanted.error_text,
        "name_like": wanted.name_like, "id_part": wanted.id_part,
    }  # fmt: skip


async def names_of_kinds(tx: Tx, *, namespace: str, limit: int = LONG_WINDOW) -> list[str]:
    """The names of the automations and pipelines that have runs."""
    return _first(await tx.rows("names_of_kinds", namespace=namespace, limit=limit))


async def _of_kind(tx: Tx, given: Given) -> FoundIds:
    """Runs of a kind that is indexed by name: each name's newest, as one list. With many names the
    newest runs are looked through."""
    names = await names_of_kinds(tx, namespace=given["namespace"], limit=NAMES_MAX + 1)
    if len(names) > NAMES_MAX:
        return await _scan(tx, given, "newest")
    window = max(given["limit"], given["window"] // max(1, len(names)))
    parts = [await _scan(tx, given | {"name": one, "window": window}, "name") for one in names]
    return _merged(parts, given["limit"])


async def _of_status(tx: Tx, given: Given, status: str) -> FoundIds:
    """Runs of a status that has an index: those that did not succeed, and open ones if there are
    few. With many open runs, the newest runs are looked through."""
    if status in _UNSUCCESSFUL:
        return await _scan(tx, given, "unsuccessful")
    return await _few(tx, given, status) or await _scan(tx, given, "newest")


async def _of_schedule(tx: Tx, given: Given) -> FoundIds:
    """Runs of a schedule: among the newest runs, or all of them if they are few. The newest come
    first because a schedule that fires often is found there at once."""
    newest = await _scan(tx, given, "newest")
    if newest.looked_to is None:
        return newest
    return await _few(tx, given, "schedule") or newest


async def _few(tx: Tx, given: Given, index: str) -> FoundIds | None:
    """Read an index in another order; None when it has more entries than the window holds."""
    [(size,)] = await tx.rows(INDEXES[index].extent, **given)
    if size >= given["window"]:
        return None
    return FoundIds(_first(await tx.rows(INDEXES[index].ids, **given)))


async def _scan(tx: Tx, given: Given, index: str) -> FoundIds:
    """Read an index in the order of ids, as far as the window reaches. The last id that it looked
    at counts if it stopped at the end of its window."""
    found = _first(await tx.rows(INDEXES[index].ids, **given))
    if len(found) == given["limit"]:
        return FoundIds(found)
    [(count, last_id)] = await tx.rows(INDEXES[index].extent, **given)
    return FoundIds(found, str(last_id) if count == given["window"] else None)


def _first(rows: Sequence[Row]) -> list[str]:
    return [str(row[0]) for row in rows]


def _merged(parts: Sequence[FoundIds], limit: int) -> FoundIds:
    """Several pages as one. Rows below the bound of any of them are not known yet."""
    bounds = [part.looked_to for part in parts if part.looked_to is not None]
    bounds += [part.ids[-1] for part in parts if len(part.ids) == limit]
    looked_to = max(bounds, default=None)
    found = sorted({one for part in parts for one in part.ids}, reverse=True)
    if looked_to is not None:
        found = [one for one in found if one >= looked_to]
    return FoundIds(found[:limit], looked_to if len(found) < limit else None)
