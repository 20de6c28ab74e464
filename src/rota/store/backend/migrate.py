"""Forward-only migrations: numbered files, each recorded with its checksum, in one transaction."""

from __future__ import annotations

import hashlib
import re
from importlib.resources import files
from typing import NamedTuple

from rota.errors import SchemaMissing, SchemaTooNew, StoreCorrupt
from rota.store.backend.database import Database, Tx
from rota.store.backend.dialect import Dialect

_FILE = re.compile(r"^(\d{4})_(\w+)\.sql$")
_LOG = """create table if not exists migrations (
    number {int} primary key, name {text} not null, checksum {text} not null,
    applied_at {int} not null
) {strict}"""


class Migration(NamedTuple):
    """One numbered file."""

    number: int
    name: str
    text: str

    @property
    def checksum(self) -> str:
        """Of the text as shipped; a change to an applied migration is found out."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:16]


def shipped() -> list[Migration]:
    """The migrations of this version, in order."""
    found = []
    for path in (files("rota.store") / "migrations").iterdir():
        if match := _FILE.match(path.name):
            found.append(Migration(int(match.group(1)), match.group(2), path.read_text()))
    return sorted(found)


async def applied(tx: Tx) -> dict[int, str]:
    """Numbers and checksums already in the database; empty when it is new."""
    if not (await tx.rows("has_migrations"))[0][0]:
        return {}
    return {int(number): str(checksum) for number, checksum in await tx.rows("list_migrations")}


async def check(tx: Tx) -> None:
    """Raise unless the schema is exactly what this version needs."""
    missing = _missing(await applied(tx))
    if missing:
        raise SchemaMissing(
            f"the database lacks migration {missing[0].number:04d} ({missing[0].name})"
        )


async def apply(tx: Tx, *, now: int) -> list[str]:
    """Bring the schema up to date; returns the names of what was applied."""
    await tx.rows("lock_migrations")
    await tx.rows("make_schema")
    missing = _missing(await applied(tx))
    if not missing:
        return []
    await tx.script(tx.dialect.render(_LOG))
    # Views first go and last come, so that a migration may change what they read.
    for row in await tx.rows("list_views"):
        await tx.script(f"drop view {row[0]}")
    for migration in missing:
        await tx.script(tx.dialect.render(migration.text))
        await tx.rows(
            "record_migration",
            number=migration.number,
            name=migration.name,
            checksum=migration.checksum,
            now=now,
        )
    await tx.script(_views(tx.dialect))
    return [f"{migration.number:04d}_{migration.name}" for migration in missing]


def _missing(done: dict[int, str]) -> list[Migration]:
    ours = {migration.number: migration for migration in shipped()}
    newer = sorted(set(done) - set(ours))
    if newer:
        raise SchemaTooNew(
            f"the database has migration {newer[-1]:04d}; this Rota knows up to {max(ours):04d}"
        )
    for number, checksum in done.items():
        if ours[number].checksum != checksum:
            raise StoreCorrupt(
                f"migration {number:04d} was applied with another text than this Rota ships",
                hint="Use the Rota version that made this database, or a fresh database.",
            )
    return [ours[number] for number in sorted(set(ours) - set(done))]


def _views(dialect: Dialect) -> str:
    """Readable times for people who look with SQL."""
    return (files("rota.store") / "migrations" / f"views.{dialect.name}.sql").read_text()


async def prepare(database: Database, *, migrate: bool, now: int) -> list[str]:
    """Migrate when allowed, then make sure the schema fits."""
    if migrate:
        done = await database.write(apply, now=now)
    else:
        done = []
    await database.read(check)
    return done
