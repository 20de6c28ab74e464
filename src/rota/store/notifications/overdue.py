"""Records troubles that last: outages, work without a worker that has its code, and waits for a
person. No transaction causes them, so the notification loop looks for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rota.core.notifications.model import Details, NotificationKind
from rota.core.notifications.rules import NotificationRule
from rota.store.backend.database import Tx
from rota.store.notifications.record import Cause, error_text, record

# The statement that finds each kind.
STATEMENTS = {
    NotificationKind.OUTAGE: "long_outages",
    NotificationKind.STRANDED: "stranded_automations",
    NotificationKind.WAITING: "long_waits",
}


class LastingTrouble(NamedTuple):
    """A run in trouble, and since when."""

    run_id: str
    subject: str
    since: int
    of: str | None
    reason: str | None
    before: str | None  # the run that failed before this one


async def look(
    tx: Tx, known: Sequence[NotificationRule], *, namespace: str, alive_after: int, now: int
) -> int | None:
    """Record what has lasted longer than a rule allows. Returns the time of the next one, if
    nothing changes until then. A worker lives if its heartbeat is younger than `alive_after`."""
    later: list[int] = []
    for kind, statement in STATEMENTS.items():
        wanting = [one for one in known if not one.filters.kinds or kind in one.filters.kinds]
        times = sorted({one.after_us(kind) or 0 for one in wanting})
        if not times:
            continue
        of_workers = kind is NotificationKind.STRANDED
        params: dict[str, Any] = {"alive_after": alive_after} if of_workers else {}
        rows = await tx.rows(statement, namespace=namespace, **params)
        found = [LastingTrouble(*row) for row in rows]
        due = [(one, after_us) for one in found for after_us in times]
        lasting = [each for each in due if each[0].since + each[1] <= now]
        errors = await _errors_of(tx, [one for one, _ in lasting])
        await record(tx, [_cause(kind, *each, errors) for each in lasting], now=now)
        later += [one.since + after_us for one, after_us in due if one.since + after_us > now]
    return min(later, default=None)


async def _errors_of(tx: Tx, found: Sequence[LastingTrouble]) -> dict[str, str]:
    ids = sorted({id_ for one in found for id_ in (one.run_id, one.before) if id_ is not None})
    rows = await tx.rows("errors_of_runs", ids=ids) if ids else []
    return {row[0]: row[1] for row in rows if row[1] is not None}


def _cause(
    kind: NotificationKind, one: LastingTrouble, after_us: int, errors: Mapping[str, str]
) -> Cause:
    error = errors.get(one.subject)
    details = Details(
        reason=one.reason, error=error_text(error), waits_for=one.of, since=one.since,
        after_us=after_us,
    )  # fmt: skip
    key = f"{kind}:{one.subject}:{one.since}:{after_us}"
    return Cause(kind, one.run_id, one.subject, details, since=one.since + after_us, key=key)
