"""Loads the named queries of `sql/*.sql`; one in `sql/<dialect>.sql` replaces its namesake."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

from rota.core.model import Claim, Run, Schedule, Step, Worker
from rota.store.dialect import POSTGRES, SQLITE, Compiled, Dialect

_NAME = re.compile(r"^-- name: (\w+)\s*$", re.MULTILINE)

# Column lists come from the records that read them, so the two cannot drift apart.
_RECORDS = {"run": Run, "claim": Claim, "step": Step, "worker": Worker, "schedule": Schedule}
_TABLES = {"run": "runs", "claim": "runs", "step": "steps", "worker": "workers", "schedule": "runs"}


def parse(text: str) -> dict[str, str]:
    """Blocks of `-- name: …` by name."""
    parts = _NAME.split(text)[1:]
    return {
        name: body.strip().rstrip(";") for name, body in zip(parts[::2], parts[1::2], strict=True)
    }


def _columns(record: str) -> str:
    table = _TABLES[record]
    names = [f"{table}.{name}" for name in _RECORDS[record].__struct_fields__]
    return ", ".join(_WIDE.get(name, name) for name in names)


# Payloads over the inline limit live in `payloads`; readers see one column either way.
_WIDE = {
    # The external id stays with the first attempt; the others are known by it too.
    "runs.external_id": "case when runs.retry_of is null then runs.external_id else (select"
    " first.external_id from runs as first where first.id = runs.root_id) end as external_id",
    "runs.input": "coalesce(runs.input, (select body from payloads"
    " where run_id = runs.root_id and part = 'input')) as input",
    "runs.output": "coalesce(runs.output, (select body from payloads"
    " where run_id = runs.id and part = 'output')) as output",
    "runs.error": "coalesce(runs.error, (select body from payloads"
    " where run_id = runs.id and part = 'error')) as error",
}


@cache
def texts(dialect_name: str) -> dict[str, str]:
    """Every query's text for one dialect, before tokens are replaced."""
    folder = files("rota.store") / "sql"
    shared: dict[str, str] = {}
    for path in sorted(folder.iterdir(), key=lambda path: path.name):
        if path.name.endswith(".sql") and path.name not in ("sqlite.sql", "postgres.sql"):
            shared.update(parse(path.read_text()))
    return shared | parse((folder / f"{dialect_name}.sql").read_text())


@cache
def compiled(dialect_name: str) -> dict[str, Compiled]:
    """Every query ready for one database."""
    dialect: Dialect = SQLITE if dialect_name == "sqlite" else POSTGRES
    return {name: dialect.compile(_expand(text)) for name, text in texts(dialect_name).items()}


def _expand(text: str) -> str:
    for record in _RECORDS:
        if f"{{{record} columns}}" in text:
            text = text.replace(f"{{{record} columns}}", _columns(record))
    return text
