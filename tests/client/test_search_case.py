"""A search for runs, schedules and pipelines ignores the case of ASCII letters and of no others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rota.client.client import Client
from rota.pipelines.client import PipelineClient
from tests.kit import own_database
from tests.kit.builders import sql

NAME = "Über-JOB"
FINDS = {"Über": True, "Ü": True, "Über-job": True, "BER-JOB": True, "über": False, "ü": False}


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.pg)])
def located_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A new database; on PostgreSQL one with a locale that knows the case of all letters."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'rota.db'}"
        return
    server = request.getfixturevalue("postgres_url")
    with own_database(server, "template template0 locale 'C.UTF-8'") as url:
        yield url


async def test_a_search_ignores_the_case_of_ascii_letters_only(located_url: str) -> None:
    async with Client(located_url, migrate=True) as client:
        pipelines = PipelineClient(client)
        await client.schedules.create(NAME, "work", "1h")
        run = await client.start("work")
        await sql(
            client.connection.database,
            f"update runs set kind = 'pipeline', name = 'pipeline:{NAME}' where id = '{run.id}'",
        )
        for text, found in FINDS.items():
            lengths = [
                len(await client.schedules.list(search=text)),
                (await client.schedules.count(search=text))[0],
                len(await pipelines.known(search=text)),
                len((await client.runs.page(search=text)).runs),
            ]
            assert lengths == [int(found)] * 4, text
