"""Server processes of connections that were given up in the middle of a statement.

PostgreSQL notices a closed connection only when it next reads from it. A process that waits for a
synchronous standby, or behind the locks of one that does, stays; replaced without a bound, such
processes would use up the connections of the server.
"""

from __future__ import annotations

import asyncio
from typing import Any

from rota.errors import StoreUnreachable

STILL_THERE = """select pid, coalesce(wait_event, state, 'unknown') from pg_stat_activity
    where pid = any($1::int[]) order by pid"""
# A process with a slow statement ends within this.
PAUSES_S = (0.0, 0.05, 0.2, 0.75)
ANSWER_S = 10.0
HINT = (
    "If it waits for SyncRep, a synchronous standby is gone: start it, or take it out of"
    " synchronous_standby_names. Otherwise see pg_stat_activity and pg_locks."
)


class AbandonedProcesses:
    """Knows the processes that may still be there, and refuses connections beyond a bound."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._pids: set[int] = set()
        self.lock = asyncio.Lock()  # one connection at a time looks

    def __bool__(self) -> bool:
        return bool(self._pids)

    def abandon(self, connection: Any) -> None:
        """Close a connection from this side; its process may stay."""
        if not connection.is_closed():
            self._pids.add(connection.get_server_pid())
            connection.terminate()

    async def admit(self, connection: Any, most: int) -> None:
        """Raise if more than `most` of the processes are still there."""
        found: list[tuple[int, str]] = []
        for pause_s in PAUSES_S:
            await asyncio.sleep(pause_s)
            asked = set(self._pids)
            async with asyncio.timeout(ANSWER_S):
                found = await connection.fetch(STILL_THERE, sorted(asked))
            self._pids -= asked - {pid for pid, _ in found}
            if len(self._pids) <= most:
                return
        waits = ", ".join(sorted({event for _, event in found}))
        raise StoreUnreachable(
            f"{self._place}: {len(self._pids)} server processes of this worker do not answer"
            f" ({waits}), so it opens no more connections",
            hint=HINT,
        )
