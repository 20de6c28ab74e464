"""Creation of runs: one, many, many that differ little; successors of a run."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from operator import itemgetter
from typing import Any

import msgspec

from rota.core.runs.lifecycle import Status, Trigger
from rota.core.runs.model import Claim, NewRun, Run, Started
from rota.core.runs.options import StoredRunOptions
from rota.store.backend.database import Row, Taken, Tx
from rota.store.runs.claim import Claimed, ClaimRequest, claim
from rota.store.runs.payloads import INLINE_BYTES_MAX, big_bodies

MinimalItem = tuple[str, str | None]  # id, input
BulkItem = tuple[str, str | None, str | None, str | None]  # id, external id, limit key, input


async def start_runs(
    tx: Tx, runs: Sequence[NewRun], *, now: int, alone: bool = True
) -> list[Started]:
    """Insert runs. If the external id or id of a run exists already, the answer is that run."""
    if len(runs) == 1 and _is_single(runs[0]) and (alone or not tx.dialect.fuses):
        [run] = runs
        row = (run.id, run.input)
        try:
            await tx.change("start_minimal", [row], alone=alone, **_uniform(run, now))
            return [Started(run.id, existed=False)]
        except Taken:
            return await _with_existing(tx, runs, set())
    bodies = big_bodies(
        (run.id, "input", run.input)
        for run in runs
        if run.id == (run.segment_id or run.root_id or run.id)
    )
    rows = [_row(run, now) for run in runs]
    answers = await tx.many("start_runs", rows, now=now, alone=alone and not bodies)
    created = {row[0] for row in answers}
    if bodies:
        await tx.many("put_payloads", [row for row in bodies if row[0] in created])
    if len(created) == len(runs):
        return [Started(run.id, existed=False) for run in runs]
    return await _with_existing(tx, runs, created)


async def start_and_claim(
    tx: Tx, fresh: Sequence[NewRun], request: ClaimRequest
) -> tuple[list[Started], Claimed]:
    """Insert runs and claim as many, in one commit."""
    started = await start_runs(tx, fresh, now=request.now, alone=False)
    return started, await claim(tx, request, alone=False)


async def start_minimal(
    tx: Tx, template: NewRun, items: Sequence[MinimalItem], *, now: int
) -> dict[str, str]:
    """Insert many runs that differ only in id and input. Answers as `start_uniform` does."""
    if max(map(len, filter(None, map(itemgetter(1), items))), default=0) <= INLINE_BYTES_MAX:
        with contextlib.suppress(Taken):
            await tx.change("start_minimal", items, alone=True, **_uniform(template, now))
            return {}
    return await start_uniform(tx, template, [(i, None, None, body) for i, body in items], now=now)


async def start_uniform(
    tx: Tx, template: NewRun, items: Sequence[BulkItem], *, now: int
) -> dict[str, str]:
    """Insert many runs that differ only in id, external id, limit key and input. Returns those
    that existed already: the new id of each, and the id it has.

    The columns they share travel once: in bulk that is most of the work.
    """
    if any(item[3] is not None and len(item[3]) > INLINE_BYTES_MAX for item in items):
        started = await start_runs(tx, [_unlike(template, item) for item in items], now=now)
    elif await tx.change("start_uniform", items, alone=True, **_uniform(template, now)) == len(
        items
    ):
        return {}
    else:
        created = {row[0] for row in await tx.rows("find_ids", ids=[item[0] for item in items])}
        started = await _with_existing(tx, [_unlike(template, item) for item in items], created)
    pairs = zip(items, started, strict=True)
    return {item[0]: one.id for item, one in pairs if one.existed}


def successor(
    run: Run | Claim,
    new_id: str,
    *,
    trigger: str,
    available_at: int,
    attempt: int | None = None,
    recoveries: int | None = None,
    reason: str | None = None,
) -> NewRun:
    """The next row of a chain. The external id stays with the first row."""
    options = run.options
    if run.trigger == Trigger.DETACHED:
        options = msgspec.structs.replace(StoredRunOptions.read(options), detached=1).text()
    return NewRun(
        id=new_id,
        namespace=run.namespace,
        name=run.name, available_at=available_at, input=run.input, kind=run.kind, queue=run.queue,
        priority=run.priority, trigger=trigger, root_id=run.root_id, retry_of=run.id,
        parent_id=run.parent_id, schedule_id=run.schedule_id, due_at=run.due_at,
        attempt=attempt or run.attempt,
        recoveries=run.recoveries if recoveries is None else recoveries,
        serial_key=run.serial_key, limit_key=run.limit_key, version=run.version, tags=run.tags,
        options=options, reason=reason, segment_id=run.segment_id,
        pinned_version=run.pinned_version,
    )  # fmt: skip


def continuation(
    claim: Claim, new_id: str, *, body: str | None, version: str | None, now: int
) -> NewRun:
    """The first row of the next segment of a chain, with the input of that segment."""
    following = successor(
        claim, new_id, trigger=Trigger.CONTINUE, available_at=now, attempt=1, recoveries=0
    )
    options = StoredRunOptions.read(following.options).continued().text()
    return msgspec.structs.replace(
        following,
        input=body,
        version=version,
        options=options,
        segment_id=new_id,
        pinned_version=None,
    )


def _row(run: NewRun, now: int) -> Row:
    body = run.input
    return (
        run.id, run.namespace, run.kind, run.name, run.queue, run.priority,
        _insertion(run, now), run.reason, run.available_at, run.due_at, run.schedule_id,
        run.retry_of, run.root_id or run.id, run.parent_id, run.attempt, run.recoveries,
        run.trigger, run.external_id, run.serial_key, run.limit_key, run.version, run.tags,
        run.options,
        None if body is not None and len(body) > INLINE_BYTES_MAX else body, run.segment_id,
        run.pinned_version,
    )  # fmt: skip


def _insertion(run: NewRun, now: int) -> Status:
    return Status.SLEEPING if run.available_at > now else Status.PENDING


def _is_single(run: NewRun) -> bool:
    """Whether only its id could conflict, and its row holds all of it."""
    return (
        run.attempt == 1 and run.recoveries == 0
        and run.external_id is None and run.retry_of is None and run.parent_id is None
        and run.serial_key is None and run.schedule_id is None and run.limit_key is None
        and run.due_at is None and run.reason is None and run.root_id is None
        and (run.input is None or len(run.input) <= INLINE_BYTES_MAX)
    )  # fmt: skip


def _uniform(run: NewRun, now: int) -> dict[str, Any]:
    """The values that runs of one bulk share."""
    return {
        "namespace": run.namespace, "kind": run.kind, "name": run.name, "queue": run.queue,
        "priority": run.priority, "status": _insertion(run, now), "available_at": run.available_at,
        "trigger": run.trigger, "version": run.version, "tags": run.tags, "options": run.options,
        "now": now,
    }  # fmt: skip


def _unlike(template: NewRun, item: BulkItem) -> NewRun:
    return msgspec.structs.replace(
        template, id=item[0], external_id=item[1], limit_key=item[2], input=item[3]
    )


async def _with_existing(tx: Tx, runs: Sequence[NewRun], created: set[str]) -> list[Started]:
    missing = [run for run in runs if run.id not in created]
    # A start repeated after a broken connection finds its own row: that is success, not conflict.
    own = {row[0] for row in await tx.rows("find_ids", ids=[run.id for run in missing])}
    keys = [(r.namespace, r.name, r.external_id) for r in missing if r.external_id is not None]
    holders = {tuple(row[1:]): row[0] for row in await tx.many("find_started", keys)}
    others = [run for run in missing if run.id not in own]
    taken = {run.id: await _in_the_way(tx, run, holders) for run in others}
    return [
        Started(taken[run.id], existed=True) if run.id in taken else Started(run.id, existed=False)
        for run in runs
    ]


async def _in_the_way(tx: Tx, run: NewRun, holders: dict[tuple[Any, ...], str]) -> str:
    """The id of the run that has the unique key of this one."""
    holder = holders.get((run.namespace, run.name, run.external_id))
    if holder is None:
        rows = await tx.rows(
            "find_in_the_way", namespace=run.namespace, serial_key=run.serial_key or "",
            root_id=run.root_id or "", retry_of=run.retry_of or "",
            schedule_id=run.schedule_id or "", due_at=run.due_at or 0,
        )  # fmt: skip
        holder = str(rows[0][0])
    return holder
