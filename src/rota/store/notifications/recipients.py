"""The rule that a schedule brings along: the receivers of its own executions, stored beside it.

`record` copies them into each notification about the schedule, in the transaction that causes it.
So a schedule that is deleted or changed afterwards still reports what happened before.
`rota.notifications` knows the meaning of the text, and how to send it.
"""

from __future__ import annotations

from rota.store.backend.database import Tx


async def put(tx: Tx, schedule_id: str, body: str | None) -> None:
    """Set the receivers of a schedule; None: no one."""
    if body is None:
        await tx.rows("delete_notice", schedule_id=schedule_id)
    else:
        await tx.rows("put_notice", schedule_id=schedule_id, body=body)


async def of(tx: Tx, schedule_id: str) -> str | None:
    """The receivers of a schedule."""
    rows = await tx.rows("notice_of", schedule_id=schedule_id)
    return rows[0][0] if rows else None
