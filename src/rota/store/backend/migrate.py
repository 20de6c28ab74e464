"""Forward-only migrations: numbered files, each recorded with its checksum.

SQLite, and a new database on PostgreSQL, get all of them in one transaction. On a PostgreSQL
database that has rows, each has its own, so that its locks end with it. One with long parts
(`migration_plan`) is recorded as unfinished. The long parts follow while work continues, and the
next `rota migrate` continues after a crash.
"""

from __future__ import annotations

import hashlib
import re
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from rota.errors import SchemaMissing, SchemaTooNew, StoreCorrupt
from rota.store.backend.database import Database, Tx
from rota.store.backend.dialect import Dialect
from rota.store.backend.migration_plan import PlannedStatement, planned

_FILE = re.compile(r"^(\d{4})_(\w+)\.sql$")
_LOG = """create table if not exists migrations (
    number {int} primary key, name {text} not null, checksum {text} not null,
    applied_at {int} not null
) {strict}"""
# Every view that a version of Rota has shipped; all others belong to the user.
VIEWS = ("readable_runs", "readable_steps", "readable_workers")
# PostgreSQL: a statement that waits for a lock on a table blocks all later ones.
LOCK_TIMEOUT = "5s"
# Before the checksum of a migration with unfinished long parts.
_UNFINISHED = "unfinished "


class Migration(NamedTuple):
    """One numbered file."""

    number: int
    name: str
    text: str

    @property
    def checksum(self) -> str:
        """The checksum of the text as shipped; a change to an applied migration is found out."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:16]

    @property
    def title(self) -> str:
        """Number and name, as the file is called."""
        return f"{self.number:04d}_{self.name}"


class MigrationState(NamedTuple):
    """The missing parts of a database: the migration with unfinished long parts, and those to
    come."""

    unfinished: Migration | None
    missing: list[Migration]
    is_new: bool


class PlannedMigration(NamedTuple):
    """A migration that is to come, and what it does."""

    migration: Migration
    statements: list[PlannedStatement]

    @property
    def long(self) -> list[PlannedStatement]:
        """The statements of which a part comes after the transaction."""
        return [one for one in self.statements if one.long]


@cache
def shipped() -> tuple[Migration, ...]:
    """The migrations of this version, in order."""
    found = []
    for path in (files("rota.store") / "migrations").iterdir():
        if match := _FILE.match(path.name):
            found.append(Migration(int(match.group(1)), match.group(2), path.read_text()))
    return tuple(sorted(found))


async def applied(tx: Tx) -> dict[int, str]:
    """Numbers and checksums already in the database; empty when it is new."""
    if not (await tx.rows("has_migrations"))[0][0]:
        return {}
    return {int(number): str(checksum) for number, checksum in await tx.rows("list_migrations")}


async def check(tx: Tx) -> None:
    """Raise unless the schema is exactly what this version needs."""
    state = _compared(await applied(tx))
    if state.unfinished is not None:
        raise SchemaMissing(
            f"migration {state.unfinished.title} is not finished",
            hint="Wait for the `rota migrate` that is in progress, or run it again: it continues.",
        )
    if state.missing:
        raise SchemaMissing(
            f"the database lacks migration {state.missing[0].number:04d} ({state.missing[0].name})"
        )


async def plan(tx: Tx) -> list[PlannedMigration]:
    """The plan of `rota migrate`."""
    state = _compared(await applied(tx))
    if state.unfinished is None and not state.missing:
        return []
    existing = set() if state.is_new else await _tables(tx)
    rest = [_long_parts(tx, state.unfinished, existing)] if state.unfinished else []
    return rest + [_planned(tx, one, existing) for one in state.missing]


async def unfinished(tx: Tx) -> PlannedMigration | None:
    """The long parts that an applied migration still lacks."""
    half = _compared(await applied(tx)).unfinished
    return None if half is None else _long_parts(tx, half, await _tables(tx))


async def _tables(tx: Tx) -> set[str]:
    return {row[0] for row in await tx.rows("list_tables")}


def _long_parts(tx: Tx, one: Migration, existing: set[str]) -> PlannedMigration:
    whole = _planned(tx, one, existing)
    return whole._replace(statements=whole.long)


def _planned(tx: Tx, one: Migration, existing: set[str]) -> PlannedMigration:
    script = tx.dialect.render(one.text)
    return PlannedMigration(
        one, planned(script, existing=existing, concurrent=tx.dialect.concurrent)
    )


async def apply(tx: Tx, *, now: int) -> list[str]:
    """Apply what is missing; returns the names. On a PostgreSQL with rows: the next one only."""
    await tx.rows("prepare_migration", lock_timeout=LOCK_TIMEOUT)
    await tx.rows("make_schema")
    to_come = await plan(tx)
    if not to_come:
        return []
    one_by_one = tx.dialect.concurrent and bool(await applied(tx))
    await tx.script(tx.dialect.render(_LOG))
    # Views are dropped before and created after it: a migration may change what they read.
    await tx.script("".join(f'drop view if exists "{name}";' for name in VIEWS))
    done = []
    for one in to_come:
        for statement in one.statements:
            if statement.brief is not None:
                await tx.script(statement.brief)
        done.append(one.migration.title)
        await _record(tx, one.migration, _UNFINISHED if one.long else "", now)
        if one_by_one:
            break
    if len(done) == len(to_come):
        await tx.script(_views(tx.dialect))
    return done


async def _record(tx: Tx, one: Migration, prefix: str, now: int) -> None:
    await tx.rows(
        "record_migration", number=one.number, name=one.name, checksum=prefix + one.checksum,
        now=now,
    )  # fmt: skip


async def _finish(database: Database, *, now: int) -> None:
    """Do the long parts of the migration that is recorded as unfinished, if there is one."""
    half = await database.read(unfinished)
    if half is None:
        return
    for statement in half.statements:
        for text in statement.long:
            await database.write(_script, text, alone=True)
        if statement.swap is not None:
            await database.write(_script, statement.swap)
    await database.write(_record, half.migration, "", now)


async def _script(tx: Tx, text: str, *, alone: bool = False) -> None:
    await tx.script(text.replace("{schema}", tx.schema), alone=alone)


def _compared(done: dict[int, str]) -> MigrationState:
    """The recorded migrations, beside those that this version ships."""
    ours = {migration.number: migration for migration in shipped()}
    newer = sorted(set(done) - set(ours))
    if newer:
        raise SchemaTooNew(
            f"the database has migration {newer[-1]:04d}; this Rota knows up to {max(ours):04d}"
        )
    for number, checksum in done.items():
        if checksum.removeprefix(_UNFINISHED) != ours[number].checksum:
            raise StoreCorrupt(
                f"migration {number:04d} was applied with another text than this Rota ships",
                hint="Use the Rota version that made this database, or a fresh database.",
            )
    halves = [ours[number] for number in sorted(done) if done[number].startswith(_UNFINISHED)]
    missing = [ours[number] for number in sorted(set(ours) - set(done))]
    return MigrationState(halves[0] if halves else None, missing, not done)


def _views(dialect: Dialect) -> str:
    """Readable times for people who look with SQL."""
    return (files("rota.store") / "migrations" / f"views.{dialect.name}.sql").read_text()


async def prepare(database: Database, *, migrate: bool, now: int) -> list[str]:
    """Migrate when allowed, then make sure the schema fits."""

    async def bring_up_to_date() -> list[str]:
        done: list[str] = []
        while True:
            await _finish(database, now=now)
            if not (more := await database.write(apply, now=now)):
                return done
            done += more

    if migrate and not await database.read(plan):
        return []
    done = await database.migrating(bring_up_to_date) if migrate else []
    await database.read(check)
    return done
