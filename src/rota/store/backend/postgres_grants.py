"""The rights of a connection's role on Rota's tables on PostgreSQL."""

from __future__ import annotations

from typing import NamedTuple

from rota.store.backend.database import Tx
from rota.store.backend.queries import table_names


class TableGrant(NamedTuple):
    """The rights of the role on one table."""

    table: str
    owner: str
    is_owner: bool
    select: bool
    insert: bool
    update: bool
    delete: bool

    @property
    def missing(self) -> list[str]:
        """The rights that a worker needs and the role lacks."""
        return [
            verb for verb in ("select", "insert", "update", "delete") if not getattr(self, verb)
        ]


class RoleGrants(NamedTuple):
    """A role, its rights on each table, and those it gets on tables that the owner adds."""

    role: str
    schema: str
    may_create: bool
    tables: list[TableGrant]
    later: frozenset[str]


async def role_grants(tx: Tx) -> RoleGrants | None:
    """The rights of this connection's role; None where there are no roles or no tables."""
    if tx.dialect.name != "postgres":
        return None
    ours = table_names()
    tables = [TableGrant(*row) for row in await tx.rows("table_grants") if row[0] in ours]
    if not tables:
        return None
    [[role, may_create]] = await tx.rows("role_state")
    later = await tx.rows("default_grants", owner=tables[0].owner)
    return RoleGrants(role, tx.schema, may_create, tables, frozenset(row[0] for row in later))
