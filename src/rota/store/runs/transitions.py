"""Runs: creation, settlement, recovery. Each function is one step of a transaction.

Every change names the status and the claim it expects; no row is an answer with a name.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Sequence
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

import msgspec

from rota.core.runs.lifecycle import FINAL, PARENT_ENDED, RULES, Status, Trigger
from rota.core.runs.model import Claim, NewRun, Outcome, Run, Started
from rota.core.runs.options import StoredRunOptions
from rota.core.runs.positions import claim_order
from rota.core.runs.recovery import is_recovered, runs_alone
from rota.errors import WrongState
from rota.store.backend.database import READY, Row, Taken, Tx
from rota.store.notifications import record
from rota.store.notifications.schedule_ends import tell_waits
from rota.store.runs.claim import Claimed, ClaimRequest, claim, values_of
from rota.store.schedules.overlap import EndedChain, release_next

# Larger bodies live in `payloads`: a claim or a settlement rewrites the row, not the body.
INLINE_BYTES_MAX = 4096
WAKE_BATCH = 500
_completion = attrgetter("claim.id", "claim.claim_count", "output")

PlainItem = tuple[str, str | None]  # id, input
BulkItem = tuple[str, str | None, str | None, str | None]  # id, external id, limit key, input


class SettleResult(NamedTuple):
    """The result of a settlement: ids that were ours, and whether others should look for work."""

    ids: frozenset[str]
    woke: bool
    cancelled: bool = False  # whether children were cancelled that other workers may hold


def _row(run: NewRun, now: int) -> Row:
    body = run.input
    return (
        run.id, run.namespace, run.kind, run.name, run.queue, run.priority,
        _insertion(run, now), run.reason, run.available_at, run.due_at, run.schedule_id,
        run.retry_of, run.root_id or run.id, run.parent_id, run.attempt, run.recoveries,
        run.trigger, run.external_id, run.serial_key, run.limit_key, run.version, run.tags,
        run.options,
        None if body is not None and len(body) > INLINE_BYTES_MAX else body,
    )  # fmt: skip


def _big(parts: Iterable[tuple[str, str, str | None]]) -> list[Row]:
    return [
        (run_id, part, body)
        for run_id, part, body in parts
        if body is not None and len(body) > INLINE_BYTES_MAX
    ]


def _inline(body: str | None) -> str | None:
    return body if body is None or len(body) <= INLINE_BYTES_MAX else None


async def start(tx: Tx, runs: Sequence[NewRun], *, now: int, alone: bool = True) -> list[Started]:
    """Insert runs. If the external id or id of a run exists already, the answer is that run."""
    if len(runs) == 1 and _is_single(runs[0]) and (alone or not tx.dialect.fuses):
        [run] = runs
        row = (run.id, run.input)
        try:
            channel = tx.take_notification(READY) if alone else None
            if channel is None:
                await tx.change("start_plain", [row], alone=alone, **_uniform(run, now))
            else:
                await tx.change(
                    "start_plain_and_notify", [row], alone=True, channel=channel,
                    **_uniform(run, now),
                )  # fmt: skip
            return [Started(run.id, existed=False)]
        except Taken:
            return await _with_existing(tx, runs, set())
    bodies = _big((run.id, "input", run.input) for run in runs if run.root_id in (None, run.id))
    rows = [_row(run, now) for run in runs]
    alone = alone and not bodies
    channel = tx.take_notification(READY) if alone else None
    if channel is None:
        answers = await tx.many("start_runs", rows, now=now, alone=alone)
    else:
        answers = await tx.many("start_runs_and_notify", rows, now=now, channel=channel, alone=True)
    born = {row[0] for row in answers}
    if bodies:
        await tx.many("put_payloads", [row for row in bodies if row[0] in born])
    if len(born) == len(runs):
        return [Started(run.id, existed=False) for run in runs]
    return await _with_existing(tx, runs, born)


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


async def start_plain(
    tx: Tx, template: NewRun, items: Sequence[PlainItem], *, now: int
) -> dict[str, str]:
    """Insert many runs that differ only in id and input. Answers as `start_uniform` does."""
    if max(map(len, filter(None, map(itemgetter(1), items))), default=0) <= INLINE_BYTES_MAX:
        with contextlib.suppress(Taken):
            await tx.change("start_plain", items, alone=True, **_uniform(template, now))
            return {}
    return await start_uniform(tx, template, [(i, None, None, body) for i, body in items], now=now)


async def start_uniform(
    tx: Tx, template: NewRun, items: Sequence[BulkItem], *, now: int
) -> dict[str, str]:
    """Insert many runs that differ only in id, external id, limit key and input; those that
    existed already are answered, the id that was meant for each and the id it has.

    The columns they share travel once: in bulk that is most of the work.
    """
    if any(item[3] is not None and len(item[3]) > INLINE_BYTES_MAX for item in items):
        started = await start(tx, [_unlike(template, item) for item in items], now=now)
    elif await tx.change("start_alike", items, alone=True, **_uniform(template, now)) == len(items):
        return {}
    else:
        born = {row[0] for row in await tx.rows("find_ids", ids=[item[0] for item in items])}
        started = await _with_existing(tx, [_unlike(template, item) for item in items], born)
    pairs = zip(items, started, strict=True)
    return {item[0]: one.id for item, one in pairs if one.existed}


def _unlike(template: NewRun, item: BulkItem) -> NewRun:
    return msgspec.structs.replace(
        template, id=item[0], external_id=item[1], limit_key=item[2], input=item[3]
    )


def _insertion(run: NewRun, now: int) -> Status:
    return Status.SLEEPING if run.available_at > now else Status.PENDING


async def _with_existing(tx: Tx, runs: Sequence[NewRun], born: set[str]) -> list[Started]:
    missing = [run for run in runs if run.id not in born]
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
    """The run that is where this one wanted to be created."""
    holder = holders.get((run.namespace, run.name, run.external_id))
    if holder is None:
        rows = await tx.rows(
            "find_in_the_way", namespace=run.namespace, serial_key=run.serial_key or "",
            retry_of=run.retry_of or "", schedule_id=run.schedule_id or "", due_at=run.due_at or 0,
        )  # fmt: skip
        holder = str(rows[0][0])
    return holder


async def settle(
    tx: Tx, outcomes: Sequence[Outcome], *, now: int, alone: bool = True, continues: bool = False
) -> SettleResult:
    """End what is held: apply each verb under its claim, then what follows from it.

    A run that is no longer ours changes nothing, has no successor, and is not in the answer. Rows
    are locked by id, as renewals do. `continues`: the caller starts the next attempt itself."""
    owner = outcomes[0].claim.lease_owner if outcomes else ""
    kinds: tuple[list[Outcome], list[Outcome]] = ([], [])
    for outcome in outcomes:
        kinds[_is_plain(outcome, owner)].append(outcome)
    others, plain = kinds
    done = await _complete(tx, plain, worker_id=owner, now=now, alone=alone and not others)
    if not others:
        return SettleResult(done, woke=False)
    settled = await _settle_others(tx, others, now, continues)
    return settled._replace(ids=done | settled.ids)


def _is_plain(outcome: Outcome, owner: str) -> bool:
    """A completion by this worker from which nothing follows, with an output that fits into the
    row."""
    claim, output = outcome.claim, outcome.output
    if outcome.verb != "complete" or outcome.reason is not None or claim.lease_owner != owner:
        return False
    if claim.parent_id is not None or claim.schedule_id is not None or record.recovers(claim):
        return False
    return output is None or len(output) <= INLINE_BYTES_MAX


async def _complete(tx: Tx, outcomes: Sequence[Outcome], **shared: Any) -> frozenset[str]:
    items = sorted(map(_completion, outcomes))
    if await tx.change("complete_runs", items, **shared) == len(items):
        return frozenset([item[0] for item in items])
    return frozenset([row[0] for row in await tx.many("completed_of", items, **shared)])


async def _settle_others(
    tx: Tx, outcomes: Sequence[Outcome], now: int, continues: bool
) -> SettleResult:
    bodies = _big(
        (o.claim.id, part, body)
        for o in outcomes
        for part, body in (("output", o.output), ("error", o.error))
    )
    items = sorted((_settle_row(one, now) for one in outcomes), key=itemgetter(0))
    status = {row[0]: row[1] for row in await tx.many("settle_runs", items)}
    if bodies:
        await tx.many("put_payloads", [row for row in bodies if row[0] in status])
    again = [(o.claim.root_id, key) for o in outcomes if o.claim.id in status for key in o.again]
    if again:
        await tx.many("forget_failures", again)
    woke = any(value == Status.PENDING for value in status.values())
    ours = [o for o in outcomes if o.claim.id in status]
    woke |= await _follow(tx, ours, now)
    over = [o.claim.root_id for o in ours if o.verb == "fail" and o.retry is None]
    cancelled = await _cancel_children(tx, over, now)
    woke |= await record.settled(tx, ours, now=now, continues=continues)
    return SettleResult(frozenset(status), woke, bool(cancelled))


async def _cancel_children(tx: Tx, parents: Sequence[str], now: int) -> list[str]:
    """Cancel what is open below chains that ended without a result; detached children stay."""
    below = await tx.rows("chains_below", parents=sorted(parents)) if parents else []
    children = [row[0] for row in below]
    return await cancel(tx, children, reason=PARENT_ENDED, now=now) if children else []


def _settle_row(outcome: Outcome, now: int) -> Row:
    target = RULES[outcome.verb].target
    return (
        outcome.claim.id, outcome.claim.claim_count, outcome.claim.lease_owner, target,
        outcome.reason, outcome.wake_at, _inline(outcome.output), _inline(outcome.error),
        now if target in FINAL else None,
    )  # fmt: skip


async def _follow(tx: Tx, outcomes: Sequence[Outcome], now: int) -> bool:
    """Insert the retries; wake the parents of chains that have ended."""
    retries = [outcome.retry for outcome in outcomes if outcome.retry]
    if retries:
        await start(tx, retries, now=now, alone=False)
    after = [EndedChain.of(o) for o in outcomes if not o.retry and RULES[o.verb].target in FINAL]
    woke = await _after_ends(tx, after, now) or bool(retries)
    return await tell_waits(tx, outcomes, now=now) or woke


async def _after_ends(tx: Tx, ended: Sequence[EndedChain], now: int) -> bool:
    """The consequences of ended chains: parents wake, the next of a schedule is released."""
    parents = [end.parent_id for end in ended if end.parent_id]
    if parents:
        await poke(tx, parents, now=now)
    scheduled = [end for end in ended if end.schedule_id]
    turns = await release_next(tx, scheduled, now) if scheduled else False
    return bool(parents) or turns


async def begin(
    tx: Tx, fresh: Sequence[NewRun], request: ClaimRequest
) -> tuple[list[Started], Claimed]:
    """Insert runs and claim as many, in one commit."""
    started = await start(tx, fresh, now=request.now, alone=False)
    return started, await claim(tx, request, alone=False)


async def turn(
    tx: Tx, outcomes: Sequence[Outcome], request: ClaimRequest
) -> tuple[SettleResult, Claimed]:
    """Settle what ended and claim what comes next, in one commit."""
    [(queue, free), *more] = request.queues
    fuses = tx.dialect.fuses and not more and queue not in request.limited
    if outcomes and fuses and all(_is_plain(o, request.worker_id) for o in outcomes):
        return await _turn_at_once(tx, outcomes, request, queue, min(free, request.room))
    settled = await settle(tx, outcomes, now=request.now, alone=False)
    return settled, await claim(tx, request, alone=False)


async def _turn_at_once(
    tx: Tx, outcomes: Sequence[Outcome], request: ClaimRequest, queue: str, limit: int
) -> tuple[SettleResult, Claimed]:
    """The plain case of a turn as one statement."""
    items = sorted(map(_completion, outcomes))
    values = values_of(request, queue, limit)
    if queue in request.after:
        rows = await tx.many(request.query("complete_and_claim_after"), items, alone=True, **values)
    else:
        rows = await tx.many(request.query("complete_and_claim"), items, alone=True, **values)
    if rows[0][0] == len(items):
        done = frozenset([item[0] for item in items])
    else:
        done = frozenset([row[0] for row in await tx.many("completed_of", items, alone=True)])
    claims = [Claim(*row[1:]) for row in rows if row[1] is not None]
    claims.sort(key=claim_order)
    return SettleResult(done, woke=False), Claimed(claims)


async def renew(tx: Tx, held: Sequence[Claim], *, lease_until: int) -> frozenset[str]:
    """Renew the leases of exactly these claims; what is missing from the answer is lost."""
    items = sorted((claim.id, claim.claim_count, claim.lease_owner) for claim in held)
    rows = await tx.many("renew_leases", items, lease_until=lease_until, alone=True)
    return frozenset(row[0] for row in rows)


async def poke(tx: Tx, root_ids: Sequence[str], *, now: int) -> int:
    """Wake the open run of each chain, at the latest when it next suspends."""
    roots = sorted(set(root_ids))
    await tx.rows("lock_roots", roots=roots)
    poked = len(await tx.rows("poke_runs", roots=roots, now=now))
    if poked < len(roots):
        # While we waited for a row, its attempt may have ended and another one begun.
        poked += len(await tx.rows("poke_runs", roots=roots, now=now))
    return poked


class Woken(NamedTuple):
    """How many sleepers became pending, when the next one is due, and whether one of those that
    became pending is executed alone."""

    total: int
    next_at: int | None
    one_alone: bool = False


async def wake_due(tx: Tx, *, namespace: str, now: int) -> Woken:
    """Make due sleepers pending."""
    rows = await tx.rows("wake_due", namespace=namespace, now=now, limit=WAKE_BATCH)
    upcoming = await tx.rows("next_due", namespace=namespace)
    return Woken(len(rows), upcoming[0][0], any(runs_alone(row[0]) for row in rows))


async def reap(
    tx: Tx,
    *,
    namespace: str,
    now: int,
    gone: list[str],
    held: Sequence[str] = (),
    lapsed_before: int | None = None,
    recoveries_max: int,
    new_ids: Sequence[str],
    kept_kinds: Collection[str] = (),
) -> list[tuple[Run, bool]]:
    """Mark lapsed runs crashed and give each a successor, while it may have one.

    `gone` are workers known to be dead; leases that ended before `lapsed_before` (now, if not
    given) have lapsed. `held` are runs the caller itself executes: a late renewal must not take
    them from itself. `new_ids` bounds the batch and names the successors.
    """
    rows = await tx.rows(
        "lapsed_runs", namespace=namespace, now=now if lapsed_before is None else lapsed_before,
        gone=gone, held=list(held), limit=len(new_ids),
    )  # fmt: skip
    lapsed = [Run(*row) for row in rows]
    if not lapsed:
        return []
    crashed = [
        (run.id, run.claim_count, "lapsed" if run.lease_owner not in gone else "worker gone", None)
        for run in lapsed
    ]
    done = {row[0] for row in await tx.many("crash_runs", crashed, now=now)}
    lapsed = [run for run in lapsed if run.id in done]
    follows = {run.id for run in lapsed if is_recovered(run, recoveries_max, kept_kinds)}
    pairs = zip(lapsed, new_ids, strict=False)
    heirs = [_recovery(run, new_id, now) for run, new_id in pairs if run.id in follows]
    await start(tx, heirs, now=now, alone=False)
    over = [run for run in lapsed if run.id not in follows]
    await _after_ends(tx, [EndedChain(r.parent_id, r.schedule_id, r.root_id) for r in over], now)
    await _cancel_children(tx, [run.root_id for run in over], now)
    await record.crashed(tx, over, now=now)
    return [(run, run.id in follows) for run in lapsed]


def _recovery(run: Run, new_id: str, now: int) -> NewRun:
    # The successor takes the place in the queue of the one it follows, and inherits its deadline.
    began_at = run.started_at or now
    return msgspec.structs.replace(
        successor(
            run, new_id, trigger="recovery", available_at=min(run.available_at or now, now),
            recoveries=run.recoveries + 1,
        ),
        options=StoredRunOptions.read(run.options).begun(began_at).text(),
    )  # fmt: skip


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
    """The next row of a chain. The external id stays with the first, which never leaves."""
    return NewRun(
        id=new_id,
        namespace=run.namespace,
        name=run.name, available_at=available_at, input=run.input, kind=run.kind, queue=run.queue,
        priority=run.priority, trigger=trigger, root_id=run.root_id, retry_of=run.id,
        parent_id=run.parent_id, schedule_id=run.schedule_id, due_at=run.due_at,
        attempt=attempt or run.attempt,
        recoveries=run.recoveries if recoveries is None else recoveries,
        serial_key=run.serial_key, limit_key=run.limit_key, version=run.version, tags=run.tags,
        options=run.options, reason=reason,
    )  # fmt: skip


async def return_strays(tx: Tx, *, namespace: str, worker_id: str, held: Sequence[Claim]) -> int:
    """Hand back runs claimed by an answer that never arrived (a connection broke)."""
    rows = await tx.rows(
        "stray_runs", namespace=namespace, worker_id=worker_id,
        held=[f"{claim.id}:{claim.claim_count}" for claim in held], alone=True,
    )  # fmt: skip
    return len(rows)


async def cancel(tx: Tx, root_ids: Sequence[str], *, reason: str, now: int) -> list[str]:
    """Cancel the open runs of these chains and of all chains below them."""
    cancelled: list[Row] = []
    # Again until none is left: while we waited for a row, a child or a successor may have come.
    while found := await tx.rows("open_of_chains", roots=await _family(tx, root_ids)):
        ids = sorted(row[0] for row in found)
        cancelled += await tx.rows("cancel_runs", ids=ids, reason=reason, now=now)
    await _after_ends(tx, [EndedChain(row[1], row[2], row[3]) for row in cancelled], now)
    return [row[0] for row in cancelled]


async def expire(tx: Tx, ids: Sequence[str], *, now: int) -> list[str]:
    """End runs that waited too long before they began; what was claimed is left alone."""
    rows = await tx.rows("expire_runs", ids=sorted(ids), now=now)
    await _after_ends(tx, [EndedChain(row[1], row[2], row[3]) for row in rows], now)
    await record.skipped(tx, [(row[0], row[2] or row[3], row[4]) for row in rows], now=now)
    return [row[0] for row in rows]


async def _family(tx: Tx, root_ids: Sequence[str]) -> list[str]:
    """These chains and all chains below them."""
    family = parents = set(root_ids)
    while parents:
        below = await tx.rows("chains_below", parents=sorted(parents))
        parents = {row[0] for row in below} - family
        family = family | parents
    return sorted(family)


async def retry_chain(tx: Tx, root_id: str, new_id: str, *, now: int) -> Run | None:
    """Give a chain that ended without a result another attempt; None when it has not ended so."""
    await tx.rows("lock_roots", roots=[root_id])
    attempts = [Run(*row) for row in await tx.rows("chain_of", root_id=root_id)]
    last = attempts[-1] if attempts else None  # None: pruned or archived
    if last is None or last.status not in (Status.FAILED, Status.CANCELLED, Status.CRASHED):
        return None
    heir = successor(
        last, new_id, trigger=Trigger.RETRY, available_at=now, attempt=last.attempt + 1,
        recoveries=0,
    )  # fmt: skip
    heir = msgspec.structs.replace(heir, options=await record.retry_options(tx, last))
    [started] = await start(tx, [heir], now=now, alone=False)
    if started.existed:
        raise WrongState(
            f"run {last.id} cannot be retried: the open run {started.id} has its unique key",
            hint="Wait for that run to end, or cancel it.",
        )
    return last


async def resolve(tx: Tx, run_id: str, *, now: int) -> bool:
    """Let a waiting run continue; what it complained about is forgotten."""
    rows = await tx.rows("resolve_run", id=run_id, now=now)
    for row in rows:
        await record.resumed(tx, *row)
    return bool(rows)
