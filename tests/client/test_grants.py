"""The doctor names the grant that a PostgreSQL role lacks, and the statement to type."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import AsyncIterator

import pytest

from rota import Rota
from rota.client.doctor import examine
from rota.client.findings import Finding
from rota.settings import Settings
from tests.kit import execute
from tests.kit.builders import opened

pytestmark = pytest.mark.pg


@contextlib.asynccontextmanager
async def role(owner_url: str, *grants: str) -> AsyncIterator[tuple[str, str]]:
    """A role with these grants, and a URL for it; {role} and {schema} are replaced."""
    name = f"r_{secrets.token_hex(4)}"
    async with opened(owner_url):
        pass
    texts = [
        one.replace("{role}", name) for one in ("grant usage on schema rota to {role}", *grants)
    ]
    await execute(owner_url, f"create role {name} login", *texts)
    user = owner_url.partition("://")[2].partition("@")[0]
    try:
        yield owner_url.replace(f"://{user}@", f"://{name}@", 1), name
    finally:
        await execute(owner_url, f"drop owned by {name}", f"drop role {name}")


async def findings(url: str) -> list[Finding]:
    report = await examine(url, Settings())
    return [one for one in report.findings if one.what == "grants"]


async def statement(found: Finding, name: str) -> str:
    """The statement of a hint, without who is to type it."""
    assert found.hint is not None
    assert name in found.hint
    return found.hint.partition(": ")[2]


async def test_the_owner_may_migrate(own_database_url: str) -> None:
    async with opened(own_database_url):
        [found] = await findings(own_database_url)
    assert (found.level, found.says.endswith("and may migrate")) == ("ok", True)


async def test_a_worker_role_works_with_the_statements_that_the_doctor_names(
    own_database_url: str,
) -> None:
    some = "grant select, insert, update, delete on rota.runs, rota.steps to {role}"
    async with role(own_database_url, some) as (url, name):
        [lacks] = await findings(url)
        assert lacks.level == "bad"
        assert f"role {name} lacks select, insert, update, delete on " in lacks.says
        await execute(own_database_url, await statement(lacks, name))
        [fine, later] = await findings(url)
        assert (fine.level, "has what a worker needs" in fine.says) == ("ok", True)
        assert (later.level, "later migration" in later.says) == ("warn", True)
        await execute(own_database_url, await statement(later, name))
        await execute(own_database_url, "create table rota.later (id int)")
        assert [one.level for one in await findings(url)] == ["ok"]
        await works(url)


async def works(url: str) -> None:
    app = Rota(url, migrate=False)

    @app.workflow
    async def flow() -> str:
        return "done"

    async with app:
        assert await (await flow.start()).result(timeout=60) == "done"


async def test_a_role_that_reads_is_enough_for_the_doctor(own_database_url: str) -> None:
    grants = (
        "grant select on all tables in schema rota to {role}",
        "alter default privileges in schema rota grant select on tables to {role}",
    )
    async with role(own_database_url, *grants) as (url, _):
        [found] = await findings(url)
        assert (found.level, "may only read" in found.says) == ("ok", True)
        report = await examine(url, Settings(), full=True)
        assert report.code is None
        assert {one.what for one in report.findings if one.level == "bad"} == set()


async def test_a_role_that_may_read_nothing_is_reported_what_to_grant(
    own_database_url: str,
) -> None:
    async with role(own_database_url) as (url, name):
        [found] = await findings(url)
        assert found.level == "bad"
        assert await statement(found, name) == (
            f"grant select on all tables in schema rota to {name};"
        )
