"""The archive: finished chains leave the tables in use, as one document each, by month.

A chain with a unique key (an external id, or the occurrence of a schedule) keeps its runs in place.
So the key stays taken and the result can be read; only its steps and log lines move.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from rota.core.pipelines.item_chunks import readable
from rota.core.runs.filters import beyond
from rota.core.runs.lifecycle import Status
from rota.core.runs.model import Run, StoredStep
from rota.core.time.instants import moment
from rota.core.typed import json_text
from rota.errors import UnknownRun
from rota.store.backend.database import Tx
from rota.store.runs import retention, steps

# The others have rows of their own in other tables, which retention prunes with them.
KINDS = ("workflow", "pipeline")


class ArchivedChain(NamedTuple):
    """A chain as it was moved."""

    month: str
    attempts: list[Run]
    steps: list[StoredStep]


class ArchiveMonth(NamedTuple):
    """A month of the archive, and how many chains it holds."""

    month: str
    chain_count: int


def month_of(at: int) -> str:
    """The month of an instant, in UTC: 2026-10."""
    return f"{moment(at):%Y-%m}"


async def move(
    tx: Tx, *, namespace: str, before_id: str, before_at: int, after_id: str, limit: int
) -> retention.RetentionBatch:
    """Look at one page of runs created before an id; move the chains that ended before an
    instant. Like retention, it leaves alone what is open, has an open parent, or may be needed by
    a retry of its parent."""
    found, next_id = await retention.finished_chains(
        tx, namespace=namespace, before_id=before_id,
        before=retention.ChainEnd(before_at), after_id=after_id, limit=limit,
    )  # fmt: skip
    if not found:
        return retention.RetentionBatch(0, next_id)
    roots = [chain.root_id for chain in found]
    chains: dict[str, list[Run]] = {}
    for row in await tx.rows("archivable_attempts", roots=roots):
        run = Run(*row)
        chains.setdefault(run.root_id, []).append(run)
    recorded = await _steps_of(tx, chains)
    leaving = [one for one in found if _leaves(chains[one.root_id], recorded[one.root_id])]
    moved = await retention.without_needed_children(tx, leaving)
    rows = [_row(chains[root], recorded[root]) for root in moved]
    await _make_months(tx, {row[0] for row in rows})
    await tx.change("put_archive", rows)
    if moved:
        whole = [root for root in moved if not _is_keyed(chains[root][0])]
        await retention.delete_records(tx, moved)
        await tx.rows("delete_chains", roots=whole)
    return retention.RetentionBatch(len(moved), next_id)


async def _steps_of(tx: Tx, chains: dict[str, list[Run]]) -> dict[str, list[StoredStep]]:
    """The steps of each chain, segment by segment."""
    segments = {root: sorted({run.segment for run in runs}) for root, runs in chains.items()}
    found = await steps.load(tx, [one for each in segments.values() for one in each])
    return {root: [step for one in each for step in found[one]] for root, each in segments.items()}


def _is_keyed(first: Run) -> bool:
    return first.external_id is not None or first.schedule_id is not None


def _leaves(attempts: Sequence[Run], recorded: Sequence[StoredStep]) -> bool:
    """Whether a chain moves. One that keeps its runs may be retried unless it completed, and not
    only in part. So it keeps its steps too; without steps there is nothing to move."""
    if attempts[0].kind not in KINDS:
        return False
    if not _is_keyed(attempts[0]):
        return True
    last = attempts[-1]
    return last.status == Status.COMPLETED and last.reason is None and bool(recorded)


def _row(attempts: Sequence[Run], recorded: Sequence[StoredStep]) -> tuple[str, str, str, int, str]:
    ended = max(run.finished_at or 0 for run in attempts)
    document = {"attempts": [*map(_fields, attempts)], "steps": [*map(_fields, recorded)]}
    body = json_text(document)
    return month_of(ended), attempts[0].root_id, attempts[0].namespace, ended, body


def _fields(record: msgspec.Struct) -> dict[str, Any]:
    """The fields that are not empty: more than half of the fields of a run are."""
    return {
        name: value for name, value in msgspec.structs.asdict(record).items() if value is not None
    }


async def _make_months(tx: Tx, months: set[str]) -> None:
    if tx.dialect.name != "postgres" or not months:
        return
    if not await _missing(tx, months):
        # Another process may be dropping one of them: it is gone now, or stays until this commit.
        await tx.script(f"lock table {tx.schema}.archive in row exclusive mode")
        if not await _missing(tx, months):
            return
    # Two that archive at the same time make a month once.
    await tx.script(f"lock table {tx.schema}.archive in access exclusive mode")
    for month in await _missing(tx, months):
        await tx.script(
            f"create table {tx.schema}.{_partition(month)} partition of {tx.schema}.archive"
            f" for values in ('{month}')"
        )


async def _missing(tx: Tx, months: set[str]) -> list[str]:
    """The months without a partition."""
    known = {row[0] for row in await tx.rows("list_tables")}
    return [month for month in sorted(months) if _partition(month) not in known]


def _partition(month: str) -> str:
    return f"archive_{month.replace('-', '_')}"


async def has_month(tx: Tx, *, month: str) -> bool:
    """Whether the archive has a month; a count would read all of it."""
    if tx.dialect.name == "postgres":
        return not await _missing(tx, {month})
    return bool(await tx.rows("first_of_month", month=month))


async def months(tx: Tx) -> list[ArchiveMonth]:
    """The months that the archive holds, of all namespaces."""
    return [ArchiveMonth(*row) for row in await tx.rows("archive_months")]


async def drop(tx: Tx, *, month: str) -> None:
    """Delete a month of the archive: on PostgreSQL its partition, at once."""
    if tx.dialect.name == "postgres":
        await tx.script(f"drop table if exists {tx.schema}.{_partition(month)}")
    else:
        await tx.rows("delete_month", month=month)


async def find(tx: Tx, *, namespace: str, run_id: str) -> ArchivedChain | None:
    """The archived chain of the id of its first run, or of a beginning that fits one run only."""
    rows = await tx.rows(
        "archived_chain", namespace=namespace, prefix=run_id, beyond=beyond(run_id)
    )
    if len(rows) > 1:
        raise UnknownRun(f"{run_id!r} fits several archived runs", hint="Give more of the id.")
    if not rows:
        return None
    body = msgspec.json.decode(rows[0][1])
    return ArchivedChain(
        rows[0][0],
        [_read(Run, one) for one in body["attempts"]],
        [readable(_read(StoredStep, one)) for one in body["steps"]],
    )


def _read(kind: Any, fields: dict[str, Any]) -> Any:
    """A record as an older Rota may have written it: fields that came later are None."""
    return kind(**{name: fields.get(name) for name in kind.__struct_fields__})
