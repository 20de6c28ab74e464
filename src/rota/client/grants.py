"""The doctor's findings about the grants of a PostgreSQL role, with the statement to type."""

from __future__ import annotations

from rota.client.findings import Finding
from rota.store.backend.grants import RoleGrants

READ = ("select",)
WORK = ("select", "insert", "update", "delete")
NAMED_MAX = 5


def grant_findings(found: RoleGrants) -> list[Finding]:
    """A worker needs to read and write every table, a reader to read; the owner migrates."""
    role, owner = found.role, found.tables[0].owner
    writes = any(one.insert or one.update or one.delete for one in found.tables)
    needs = WORK if writes else READ
    lacking = [one for one in found.tables if set(one.missing) & set(needs)]
    if lacking:
        verbs = [verb for verb in needs if any(verb in one.missing for one in lacking)]
        says = f"role {role} lacks {', '.join(verbs)} on {_some([one.table for one in lacking])}"
        tables = f"all tables in schema {found.schema}"
        hint = f"As {owner}: grant {', '.join(needs)} on {tables} to {role};"
        return [Finding("bad", "grants", says, hint)]
    if all(one.is_owner for one in found.tables):
        return [_owner(found)]
    says = f"role {role} has what a worker needs; {owner} migrates"
    if not writes:
        says = f"role {role} may only read: enough for lists, why, metrics and the doctor"
    return [Finding("ok", "grants", says), *_later(found, needs)]


def _owner(found: RoleGrants) -> Finding:
    if found.may_create:
        says = f"role {found.role} has what a worker needs, and may migrate"
        return Finding("ok", "grants", says)
    says = f"role {found.role} owns the tables, but may not migrate: it creates none in the schema"
    hint = f"As the schema's owner: grant create on schema {found.schema} to {found.role};"
    return Finding("warn", "grants", says, hint)


def _later(found: RoleGrants, needs: tuple[str, ...]) -> list[Finding]:
    if set(needs) <= found.later:
        return []
    owner = found.tables[0].owner
    says = f"role {found.role} gets no grants on tables that a later migration makes"
    hint = (
        f"As {owner}: alter default privileges in schema {found.schema} grant {', '.join(needs)}"
        f" on tables to {found.role};"
    )
    return [Finding("warn", "grants", says, hint)]


def _some(names: list[str]) -> str:
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return ", ".join(names[:NAMED_MAX]) + more
