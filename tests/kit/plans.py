"""The plans of all statements on PostgreSQL, as Rota's own sessions make them."""

from __future__ import annotations

import asyncpg

from rota.store.backend import queries
from rota.store.backend.database import Tx
from rota.store.backend.postgres import PostgresTx


async def all_plans(tx: Tx) -> dict[str, str]:
    """The generic plans of each statement, by its name; parts of statements have none."""
    assert isinstance(tx, PostgresTx)
    await tx.begin()
    known = queries.compiled("postgres", tx.schema)
    found = {}
    for name in queries.texts("postgres"):
        forms = [known[name], known[queries.served_query(name, "code")]]
        texts = {text for form in forms for text in (form.text, form.single)}
        plans = [plan for text in texts if (plan := await _plan(tx, text)) is not None]
        if plans:
            found[name] = "\n".join(plans)
    return found


async def _plan(tx: PostgresTx, text: str) -> str | None:
    await tx.connection.execute("savepoint plan")
    try:
        statement = await tx.connection.prepare(f"prepare asked as {text}")
        await statement.fetch()
        count = await tx.connection.fetchval(
            "select cardinality(parameter_types) from pg_prepared_statements where name = 'asked'"
        )
        given = f"({', '.join(['null'] * count)})" if count else ""
        rows = await tx.connection.fetch(f"explain execute asked{given}")
        await tx.connection.execute("deallocate asked")
    except (asyncpg.SyntaxOrAccessError, asyncpg.InvalidParameterValueError):
        return None  # `test_every_query_prepares` tells a part from a mistake
    finally:
        await tx.connection.execute("rollback to plan")
    return "\n".join(row[0] for row in rows)
