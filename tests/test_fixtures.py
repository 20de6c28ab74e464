"""The ground the other tests use: async tests, both databases, and a server that ends."""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from rota import Client
from rota.errors import SchemaMissing
from scripts.schema import FOLDER, postgres_snapshot
from tests.kit.postgres import PostgresServer
from tests.kit.schema import shared_schema
from tests.kit.tables import for_each
from tests.tidy.tree import ROOT

OWNER = """
from tests.kit.postgres import PostgresServer
server = PostgresServer(durable=False)
server.start()
print(server.home, server.port, flush=True)
input()
"""


async def test_an_async_test_runs_on_a_loop() -> None:
    # Were it not awaited, pytest itself would fail it.
    assert asyncio.get_running_loop().is_running()


async def test_each_test_gets_a_migrated_database_without_rows(database_url: str) -> None:
    async with Client(database_url, migrate=False) as client:
        assert await client.runs.counts() == {}
        await client.start("work")  # Left behind on purpose: the fixture deletes it.


async def test_a_new_database_is_not_migrated(new_database_url: str, tmp_path: Path) -> None:
    assert not (tmp_path / "rota.db").exists()
    with pytest.raises(SchemaMissing):
        async with Client(new_database_url, migrate=False):
            pass


HARMS = (
    "create table more (a int)",
    "drop table migrations",
    "alter table runs add column more int",
    "update migrations set checksum = 'other'",
    "delete from migrations where number = 3",
    "drop index mutations_by_run",
    "alter table queues drop constraint queues_pkey",
    "insert into queues (namespace, name) values ('default', 'q')",
)


@pytest.mark.pg
def test_a_schema_comes_back_as_it_was_made(postgres_url: str) -> None:
    with shared_schema(postgres_url) as schema:
        for harm in HARMS:
            asyncio.run(_execute(postgres_url, f"set search_path = {schema.name}; {harm}"))
            schema.empty()
            made = asyncio.run(postgres_snapshot(postgres_url, schema.name))
            assert made == (FOLDER / "schema.postgres.sql").read_text(), harm
            count = f"select 1 / (1 - (select count(*) from {schema.name}.queues)::int)"
            asyncio.run(_execute(postgres_url, count))
            asyncio.run(_opened(schema.url))


@pytest.mark.pg
async def test_a_commit_survives_an_immediate_stop() -> None:
    with PostgresServer(durable=False) as server:
        url = server.create_database("rota")
        await _execute(url, "create table t (a int)")
        server.restart("immediate")
        await _execute(url, "insert into t values (1)")  # Same URL: the port is kept.
        await _execute(server.url("rota", over_socket=True), "select a from t")
        home = server.home
    assert not home.exists()


@pytest.mark.pg
def test_a_server_does_not_outlive_an_owner_that_was_killed() -> None:
    command = [sys.executable, "-c", OWNER]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        home, port = owner.stdout.readline().split()
        assert _listening(int(port))
        owner.kill()
    # Nothing of ours is left to signal us: the watcher's last act is to remove the directory.
    pause = threading.Event()
    assert any(not Path(home).exists() or pause.wait(0.05) for _ in itertools.repeat(None, 400))
    assert not _listening(int(port))


FAILS_ONCE = """
import pytest
seen = []

TIMED = pytest.mark.wall_clock("it says why")

@pytest.mark.parametrize("name", ["plain", pytest.param("timed", marks=TIMED)])
def test_it(name):
    seen.append(name)
    assert seen.count(name) == 2
"""


def pytest_in(folder: Path, text: str) -> str:
    """The output of pytest about a test file, under the rules of this repository."""
    (folder / "test_it.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", str(folder)]
    done = subprocess.run(
        [*command, f"--rootdir={ROOT}", f"--config-file={ROOT / 'pyproject.toml'}"],
        cwd=ROOT,
        env={**os.environ, "ROTA_NIGHTLY": ""},
        capture_output=True,
        text=True,
    )
    return done.stdout + done.stderr


@pytest.mark.slow
def test_only_a_test_of_the_wall_clock_is_tried_twice(tmp_path: Path) -> None:
    assert "1 failed, 1 passed, 1 rerun in" in pytest_in(tmp_path, FAILS_ONCE)
    assert "--reruns" not in (ROOT / "Makefile").read_text()


@pytest.mark.slow
def test_a_test_that_needs_postgresql_is_tried_once(tmp_path: Path) -> None:
    said = pytest_in(tmp_path, FAILS_ONCE.replace('wall_clock("it says why")', "pg"))
    assert "2 failed in" in said


@pytest.mark.slow
def test_a_mark_of_the_wall_clock_needs_a_reason(tmp_path: Path) -> None:
    said = pytest_in(tmp_path, FAILS_ONCE.replace('("it says why")', ""))
    assert "is marked wall_clock without a reason" in said


def test_a_table_of_checks_names_each_row_that_fails() -> None:
    @for_each([1, 0, 2, "x"])
    def check(row: Any) -> None:
        assert 4 / row > 2

    with pytest.raises(AssertionError) as caught:
        check()
    seen = str(caught.value)
    assert seen.startswith("3 rows fail:\n0: ZeroDivisionError: division by zero\n2: Assertion")
    assert "x: TypeError: unsupported" in seen


async def _opened(url: str) -> None:
    async with Client(url, migrate=False):
        pass


async def _execute(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


def _listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
