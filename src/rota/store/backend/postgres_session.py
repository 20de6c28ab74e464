"""The settings of Rota's sessions on PostgreSQL. Behind a pooler those of the role are in force."""

from __future__ import annotations

from typing import NamedTuple

from rota.store.backend.database import Tx

SESSION = {
    # Our statements are few and simple; planning them again costs more than they do.
    "plan_cache_mode": "force_generic_plan",
    # The first plan is kept. One that was made for an empty table reads the whole table.
    "enable_seqscan": "off",
    # Compiling takes longer than any of our statements, and the server repeats it each time.
    "jit": "off",
    # A stricter isolation level of the role or database would cause needless serialization errors.
    "default_transaction_isolation": "read committed",
}
# Milliseconds. Those of the role are meant for people: the engine ends a connection that does not
# answer by itself. Locks of a machine that has disappeared must not stay.
TIMEOUTS = {
    "statement_timeout": "0",
    "lock_timeout": "0",
    "idle_in_transaction_session_timeout": "60000",
}
# A shorter timeout of the role may end statements of a busy worker.
TIMEOUT_MS_MIN = 30_000


class RoleSettings(NamedTuple):
    """A role, and the settings in force that slow down or end its statements."""

    role: str
    has_jit: bool
    short_timeouts: list[str]


async def role_settings(tx: Tx) -> RoleSettings | None:
    """The role of this session and its settings; None where there are no sessions."""
    if tx.dialect.name != "postgres":
        return None
    rows = await tx.rows("session_settings", names=["jit", *TIMEOUTS])
    found = {name: setting for _, name, setting in rows}
    short = [name for name in TIMEOUTS if 0 < int(found[name]) < TIMEOUT_MS_MIN]
    return RoleSettings(str(rows[0][0]), found["jit"] == "on", short)
