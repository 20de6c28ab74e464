"""Records what is worth a notification, in the transaction that causes it.

One statement, and only for work that fails, waits for a person, is skipped or recovers. It writes
nothing unless a rule wants the kind, or the schedule of the run has receivers of its own. A run
that ends well as usual comes here without a statement, unless its schedule has such receivers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from rota.core.automations.model import LedgerRow
from rota.core.notifications.model import (
    ERROR_CHARS_MAX,
    OF_A_CHANGE,
    OWN,
    PARAMS_CHARS_MAX,
    ROUTINE,
    TROUBLES,
    Details,
    Notification,
    NotificationKind,
    ProposedChange,
    kind_of_wait,
    one_line,
)
from rota.core.pipelines.names import PREFIX
from rota.core.redaction import without_secrets
from rota.core.runs.ids import IdMaker, created_at_of
from rota.core.runs.lifecycle import Trigger
from rota.core.runs.model import Claim, Outcome, Run
from rota.core.runs.options import StoredRunOptions, recovers
from rota.core.runs.stored_errors import read_error
from rota.core.schedules.firing_plan import Skip
from rota.core.typed import json_text
from rota.store.backend.database import Tx

# A pipeline's runs are known by its own name, which follows the prefix.
NAMED_FROM = len(PREFIX) + 1


# Classes by which Rota stops a run: their names say nothing to people.
_OF_ROTA = frozenset({"HandlerSuspended", "Host", "NotHappened", "ToolFault", "Unknown"})


class Cause(NamedTuple):
    """Something worth a notification: the run it is about, and what a recovery is looked for by:
    the schedule, or the chain."""

    kind: NotificationKind
    run_id: str
    subject: str
    details: Details
    times: int = 1  # which claim of the run: each may cause one notification of each kind
    since: int | None = None  # if given, only the first of several causes is recorded
    key: str | None = None  # with `since`: the identity of the cause; by default kind and run


class FreshNotification(NamedTuple):
    """A notification that waits for the notification loop."""

    notification: Notification
    for_rules: bool  # no dispatcher has shown it to the rules yet
    sent_to: str | None
    recipients: str | None  # the receivers of its schedule


async def record(tx: Tx, causes: Iterable[Cause], *, now: int) -> bool:
    """Record what a rule wants; returns whether there is something to send."""
    rows = sorted(
        (_id_of(one, now), one.kind, one.run_id, one.subject,
         json_text(one.details), int(one.kind in TROUBLES),
         now if one.kind in ROUTINE else None)
        for one in causes
    )  # fmt: skip
    return bool(
        rows and await tx.many("record_notifications", rows, named_from=NAMED_FROM, now=now)
    )


def _id_of(one: Cause, now: int) -> str:
    """An id derived from the event: it needs no random number to be unique."""
    key = one.key or f"{one.kind}:{one.run_id}:{one.times}"
    chance = int.from_bytes(hashlib.sha256(key.encode()).digest())
    return IdMaker(lambda bits: chance % (1 << bits)).make(now if one.since is None else one.since)


def subject_of(run: Claim | Run) -> str:
    """The subject that recovers: the schedule that started the run, or the run's chain."""
    return run.schedule_id or run.root_id


def is_own_news(run: Claim | Run) -> bool:
    """Whether the end of a run may cause a notification. The end of a child does not: its parent
    handles it."""
    return not _is_attached(run) and not run.name.startswith(OWN)


def _is_attached(run: Claim | Run) -> bool:
    if run.parent_id is None or run.trigger == Trigger.DETACHED:
        return False
    return not StoredRunOptions.read(run.options).detached


def error_text(stored: str | None, *, bare: bool = False) -> str | None:
    """Class and message of a stored error, or the message alone. Settling never fails here: a text
    that is not a stored error is taken unchanged."""
    if not stored:
        return None
    try:
        error = read_error(stored)
        is_bare = bare or error["type"] in _OF_ROTA
        text = error["message"] if is_bare else f"{error['type']}: {error['message']}"
    except (ValueError, TypeError, RecursionError):
        text = stored
    return str(text)[:ERROR_CHARS_MAX].encode("utf-8", "replace").decode()


async def settled(tx: Tx, outcomes: Sequence[Outcome], *, now: int, continues: bool) -> bool:
    """Record the notifications of settled runs. `continues`: the caller starts the next attempt
    itself and records a failure where it is one."""
    causes = [cause for outcome in outcomes if (cause := _cause_of(outcome, continues)) is not None]
    noted = await record(tx, await _with_changes(tx, causes), now=now)
    better = [
        o.claim
        for o in outcomes
        if o.verb == "complete" and o.reason is None and recovers(o.claim.options)
    ]
    return await recovered(tx, better, now=now) or noted


def _cause_of(outcome: Outcome, continues: bool) -> Cause | None:
    claim = outcome.claim
    if claim.name.startswith(OWN):
        return None
    if outcome.verb == "ask":
        kind = kind_of_wait(outcome.reason)
    elif outcome.retry is not None or not is_own_news(claim):
        return None
    elif outcome.verb == "fail" and not continues:
        kind = NotificationKind.FAILED
    elif outcome.verb == "complete" and outcome.reason is not None:
        kind = NotificationKind.FAILED  # a part of its items failed
    elif outcome.verb == "skip":
        kind = NotificationKind.MISSED
    else:
        return None
    return stopped(claim, kind, reason=outcome.reason, error=outcome.error)


async def _with_changes(tx: Tx, causes: Sequence[Cause]) -> list[Cause]:
    """The same; those that ask about a change have it. Each proposal is recorded once."""
    roots = [one.subject for one in causes if one.kind in OF_A_CHANGE]
    rows = await tx.rows("mutations_of_chains", root_ids=roots) if roots else []
    changes = {row.root_id: row for row in (LedgerRow(*row) for row in rows)}
    return [
        _about(one, changes[one.subject])
        if one.kind in OF_A_CHANGE and one.subject in changes
        else one
        for one in causes
    ]


def _about(one: Cause, change: LedgerRow) -> Cause:
    params = one_line(without_secrets(change.params), PARAMS_CHARS_MAX)
    shown = ProposedChange(id=change.id, tool=change.tool, params=params, title=change.title)
    details = replace(one.details, change=shown)
    if one.kind is not NotificationKind.APPROVAL_WANTED:
        return one._replace(details=details)
    key = f"{one.kind}:{change.id}"
    return one._replace(details=replace(details, error=None), since=change.created_at, key=key)


def stopped(
    claim: Claim, kind: NotificationKind, *, reason: str | None, error: str | None
) -> Cause:
    """The cause for a run that a worker holds."""
    text = error_text(error, bare=kind is NotificationKind.MISSED)
    details = Details(reason=reason, error=text, attempt=claim.attempt, due_at=claim.due_at)
    return Cause(kind, claim.id, subject_of(claim), details, claim.claim_count)


async def crashed(tx: Tx, runs: Sequence[Run], *, now: int) -> bool:
    """Record runs that crashed too often to be tried again."""
    news = [run for run in runs if is_own_news(run)]
    return await record(tx, [_quarantined(run) for run in news], now=now)


def _quarantined(run: Run) -> Cause:
    times = f"its worker died {run.recoveries + 1} times while it ran"
    details = Details(reason="crashes", error=times, attempt=run.attempt, due_at=run.due_at)
    return Cause(NotificationKind.QUARANTINED, run.id, subject_of(run), details)


def missed(run_id: str, schedule_id: str, skip: Skip) -> Cause:
    """The cause for occurrences that firing skipped."""
    details = Details(reason=skip.reason, due_at=skip.due_at, occurrences=skip.occurrences)
    return Cause(NotificationKind.MISSED, run_id, schedule_id, details)


def unreadable(schedule_id: str, error: str, due_at: int | None) -> Cause:
    """The cause for a schedule that was quarantined, since it cannot be read."""
    text = error[:ERROR_CHARS_MAX].encode("utf-8", "replace").decode()
    details = Details(reason="unreadable", error=text, due_at=due_at)
    # A schedule that is repaired may be quarantined again at a later time.
    return Cause(NotificationKind.QUARANTINED, schedule_id, schedule_id, details, due_at or 1)


async def skipped(tx: Tx, rows: Sequence[tuple[str, str, int | None]], *, now: int) -> bool:
    """Record runs that did not begin in time: run, subject and due time."""
    causes = [
        Cause(NotificationKind.MISSED, run_id, subject, Details(reason="expired", due_at=due_at))
        for run_id, subject, due_at in rows
    ]
    return await record(tx, causes, now=now)


async def recovered(tx: Tx, claims: Sequence[Claim], *, now: int) -> bool:
    """Record recoveries of those of these runs with a subject in trouble."""
    by_subject = {subject_of(claim): claim for claim in claims}
    rows = await tx.rows("close_troubles", subjects=sorted(by_subject)) if by_subject else []
    better = {row[0] for row in rows}
    causes = [
        Cause(NotificationKind.RECOVERED, claim.id, subject, Details(attempt=claim.attempt))
        for subject, claim in by_subject.items()
        if subject in better
    ]
    return await record(tx, causes, now=now)


async def completed(
    tx: Tx, claims: Sequence[Claim], *, with_receivers: set[str], troubled: set[str], now: int
) -> bool:
    """Record completed runs of schedules: a recovery for those in trouble, a success for those
    with receivers of their own."""
    better = {claim.schedule_id: claim for claim in claims if claim.schedule_id in troubled}
    usual = [
        Cause(
            NotificationKind.SUCCEEDED, claim.id, subject_of(claim), Details(attempt=claim.attempt)
        )
        for claim in claims
        if claim.schedule_id in with_receivers and better.get(claim.schedule_id) is not claim
    ]
    noted = await record(tx, usual, now=now)
    return await recovered(tx, list(better.values()), now=now) or noted


async def began(tx: Tx, claim: Claim, *, now: int) -> bool:
    """Record that an execution of a schedule began; once, however often it is claimed."""
    cause = Cause(
        NotificationKind.BEGAN, claim.root_id, subject_of(claim), Details(due_at=claim.due_at),
        since=created_at_of(claim.root_id),
    )  # fmt: skip
    return await record(tx, [cause], now=now)


async def retry_options(tx: Tx, last: Run, options: str | None) -> str | None:
    """The options for a further attempt of a chain that had ended, made of those it inherits. Its
    timeout begins again: a person (or the parent) has decided to spend more time."""
    kept = replace(StoredRunOptions.read(options), began_at=None)
    if await tx.rows("open_troubles", subjects=[subject_of(last)]):
        kept = replace(kept, recovers=1)
    return kept.text()


async def resumed(tx: Tx, run_id: str, subject: str, kept: str | None) -> None:
    """Forget the error of a run that a person lets continue; note whether its end is a recovery."""
    await tx.rows("forget_error", run_id=run_id)
    if await tx.rows("open_troubles", subjects=[subject]):
        noted = replace(StoredRunOptions.read(kept), recovers=1)
        await tx.rows("set_options", id=run_id, options=noted.text())


async def listing(
    tx: Tx, *, namespace: str, kinds: Sequence[str], before_id: str, limit: int
) -> list[tuple[Notification, str | None]]:
    """Notifications, newest first, each with the rules it went to; None: not dispatched yet."""
    rows = await tx.rows(
        "list_notifications", namespace=namespace, kinds=kinds, before_id=before_id, limit=limit
    )
    return [(read(row[:-1]), row[-1]) for row in rows]


async def latest(tx: Tx, run: Run) -> tuple[Notification, str | None] | None:
    """The newest notification about a run that has not recovered, as `listing` gives it."""
    rows = await tx.rows("latest_notification", subject=subject_of(run), run_id=run.id)
    return (read(rows[0][:-1]), rows[0][-1]) if rows else None


async def fresh(tx: Tx, *, namespace: str, limit: int) -> list[FreshNotification]:
    """Notifications that are not dispatched yet, oldest first, locked."""
    rows = await tx.rows("new_notifications", namespace=namespace, limit=limit)
    return [FreshNotification(read(row[:-3]), row[-3] is None, row[-2], row[-1]) for row in rows]


async def dispatched(tx: Tx, sent: Sequence[tuple[str, str]], *, now: int) -> None:
    """Note which rules took which notifications."""
    await tx.change("dispatch_notifications", sent, now=now)


async def prune(tx: Tx, *, namespace: str, before: int, limit: int) -> int:
    """Delete old notifications that are dispatched; returns how many."""
    return len(
        await tx.rows("prune_notifications", namespace=namespace, before=before, limit=limit)
    )


def read(row: Sequence[object]) -> Notification:
    """A row of the table as a record."""
    (id_, kind, source, name, schedule, queue, tags, run_id, details, at) = row
    return msgspec.convert(
        {
            "id": id_, "kind": kind, "source": source, "name": name, "schedule": schedule,
            "queue": queue, "run_id": run_id, "at": at,
            "tags": msgspec.json.decode(str(tags)) if tags else {},
            "details": msgspec.json.decode(str(details)),
        },
        Notification,
    )  # fmt: skip
