"""Databases that cannot be used: the right error, a hint, and nothing changed."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import pytest

from rota.errors import (
    BadDatabaseUrl,
    RotaError,
    SchemaMissing,
    StoreBusy,
    StoreCorrupt,
    StoreError,
    StoreReadOnly,
    StoreUnreachable,
)
from rota.settings import Settings
from rota.store.backend.database import Tx, open_url, postgres_url
from rota.store.runs import history
from tests.kit.builders import SPACE, new_run, opened, sql, start
from tests.kit.tables import for_each


def _reported(error: RotaError) -> str:
    """The message; every refusal comes with advice and keeps secrets to itself."""
    assert error.advice.strip()
    assert "hunter2" not in f"{error} {error.advice} {error.facts}"
    return str(error)


@pytest.mark.parametrize(
    "url",
    [
        "", "rota.db", "sqlite:", "sqlite://", "sqlite:///", "sqlite:///rota.db?mode=ro",
        "mysql://ann:hunter2@localhost/rota", "postgres", "http://localhost",
        "postgresql://localhost/rota?schema=a-b",
        "postgresql://localhost/rota?schema=a;drop", "postgresql://[::1/rota",
        "postgresql://localhost/rota?statement_cache_size=many",
        "postgresql://db1:many/rota", "postgresql://db1:5432,db2:many/rota",
        "postgresql://db1:99999,db2/rota", "sqlite:///folder-\udcff/rota.db",
        "postgresql://localhost/\udcff",
    ],
)  # fmt: skip
def test_a_url_that_makes_no_sense_is_refused(url: str) -> None:
    with pytest.raises(BadDatabaseUrl) as caught:
        open_url(url, Settings())
    _reported(caught.value)
    assert "sqlite:///" in caught.value.advice


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("sqlite:///rota.db", "rota.db"),
        ("sqlite:////var/lib/rota.db", "/var/lib/rota.db"),
        ("sqlite:///:memory:", ":memory:"),
        ("sqlite:///some where/rota.db", "some where/rota.db"),
        ("postgresql://ann:hunter2@db.example:5433/prod", "db.example/prod schema rota"),
        ("postgres://db.example/prod?schema=mine", "db.example/prod schema mine"),
        ("postgresql://ann:hunter2@db1:5432,db2:5433/prod", "db1,db2/prod schema rota"),
        ("postgresql://ann@/prod?host=db1,db2&port=5432,5433", "db1,db2/prod schema rota"),
    ],
)
def test_a_database_says_where_it_is_without_secrets(url: str, place: str) -> None:
    database = open_url(url, Settings())
    assert place in database.place
    assert "hunter2" not in database.place


@for_each(
    [
        ("postgresql://db1/prod", None),
        ("postgresql://db1:5432,db2:5433/prod", "read-write"),
        ("postgresql://ann@/prod?host=db1,db2", "read-write"),
        ("postgresql://db1,db2/prod?target_session_attrs=any", "any"),
    ]
)
def test_of_several_hosts_the_one_that_accepts_writes_is_used(row: tuple[str, str | None]) -> None:
    url, wanted = row
    assert postgres_url(url)[1].get("target_session_attrs") == wanted


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ann:hunter2@127.0.0.1:{port}/rota",
        "postgresql://ann:hunter2@127.0.0.1:{port}/rota?connect_timeout=1",
        "postgresql://nowhere.invalid/rota",
    ],
)
async def test_a_server_that_does_not_answer_is_unreachable(url: str) -> None:
    with socket.socket() as probe:  # bound but not listening: no other process gets the port
        probe.bind(("127.0.0.1", 0))
        with pytest.raises(StoreUnreachable) as caught:
            await open_url(url.format(port=probe.getsockname()[1]), Settings()).open()
    assert "schema rota" in _reported(caught.value)


@pytest.mark.pg
@pytest.mark.parametrize(
    ("change", "error"),
    [
        (("/rota", "/nobody"), StoreUnreachable),
        (("://rota", "://stranger"), StoreUnreachable),
        (("127.0.0.1:", "127.0.0.1:x"), BadDatabaseUrl),
        (("?", "?nonsense=1&"), StoreError),
    ],
    ids=str,
)
async def test_a_server_that_refuses_says_why(
    postgres_url: str, change: tuple[str, str], error: type[StoreError]
) -> None:
    url = f"{postgres_url}{'&' if '?' in postgres_url else '?'}schema=t_never"
    changed = url.replace(*change, 1) if change[0] != "/rota" else url.replace("/rota?", "/nobody?")
    assert changed != url
    with pytest.raises(error) as caught:
        await open_url(changed, Settings()).open()
    _reported(caught.value)


@pytest.mark.pg
async def test_a_server_that_may_not_be_written_says_so(postgres_url: str) -> None:
    join = "&" if "?" in postgres_url else "?"
    url = f"{postgres_url}{join}schema=t_never&default_transaction_read_only=on"
    with pytest.raises(StoreReadOnly) as caught:
        async with opened(url):
            pass
    _reported(caught.value)


@pytest.mark.pg
async def test_a_statement_that_takes_too_long_says_which_timeout_ended_it(
    own_database_url: str,
) -> None:
    async with opened(f"{own_database_url}?statement_timeout=50") as db:
        with pytest.raises(StoreBusy, match="statement timeout") as caught:
            await sql(db, "select pg_sleep(5)")
    assert "statement_timeout" in caught.value.advice


@pytest.mark.pg
async def test_a_lock_that_is_held_too_long_says_where_to_look(own_database_url: str) -> None:
    async with (
        opened(f"{own_database_url}?lock_timeout=50") as db,
        opened(own_database_url) as other,
    ):

        async def hold(tx: Tx) -> None:
            await tx.script("lock table rota.runs in access exclusive mode")
            with pytest.raises(StoreBusy, match="lock timeout") as caught:
                await db.read(history.counts, namespace=SPACE)
            assert "pg_locks" in caught.value.advice

        await other.write(hold)


@pytest.mark.pg
async def test_a_role_without_grants_is_shown_which_ones_it_lacks(own_database_url: str) -> None:
    async with opened(own_database_url) as db:
        await sql(db, "create role weak login")
        await sql(db, "grant usage on schema rota to weak")
    user = own_database_url.partition("://")[2].partition("@")[0]
    url = own_database_url.replace(f"://{user}@", "://weak@", 1)
    async with opened(url, migrated=False) as db:
        with pytest.raises(StoreReadOnly, match="permission denied") as caught:
            await db.read(history.counts, namespace=SPACE)
    assert "Roles and grants" in caught.value.advice


async def test_tables_that_are_not_there_are_a_missing_schema(new_database_url: str) -> None:
    async with opened(new_database_url, migrated=False) as db:
        with pytest.raises(SchemaMissing) as caught:
            await db.read(history.counts, namespace=SPACE)
        assert "rota migrate" in caught.value.advice


async def test_a_folder_that_does_not_exist_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(StoreUnreachable) as caught:
        await open_url(f"sqlite:///{tmp_path}/no/rota.db", Settings()).open()
    assert "folder" in _reported(caught.value)
    assert list(tmp_path.iterdir()) == []


async def test_a_folder_is_no_database(tmp_path: Path) -> None:
    with pytest.raises(StoreUnreachable) as caught:
        await open_url(f"sqlite:///{tmp_path}", Settings()).open()
    _reported(caught.value)


@pytest.mark.parametrize(
    "content", [b"hello, world\n" * 100, b"SQLite format 3\x00" + b"\xff" * 5000]
)
async def test_a_file_that_is_no_database_is_refused_and_kept(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "rota.db"
    path.write_bytes(content)
    with pytest.raises(StoreCorrupt) as caught:
        async with opened(f"sqlite:///{path}"):
            pass
    assert "rota.db" in _reported(caught.value)
    assert path.read_bytes() == content


async def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rota.db"
    async with opened(f"sqlite:///{path}") as db:
        await start(db, *(new_run() for _ in range(200)))
    damaged = bytearray(path.read_bytes())
    damaged[4096:] = b"\xa5" * (len(damaged) - 4096)  # the first page keeps its good looks
    path.write_bytes(damaged)
    with pytest.raises(StoreCorrupt) as caught:
        async with opened(f"sqlite:///{path}") as db:
            await db.read(history.counts, namespace=SPACE)
    _reported(caught.value)
    assert path.read_bytes() == damaged


async def test_an_empty_file_is_a_new_database(tmp_path: Path) -> None:
    (tmp_path / "rota.db").touch()
    async with opened(f"sqlite:///{tmp_path}/rota.db") as db:
        await start(db, new_run())


async def test_a_file_that_another_process_keeps_locked_is_busy(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/rota.db"
    async with opened(url, busy_s=0.05) as db:
        other = apsw.Connection(str(tmp_path / "rota.db"))
        other.execute("begin immediate")
        try:
            with pytest.raises(StoreBusy) as caught:
                await start(db, new_run())
            assert "another process" in _reported(caught.value)
            assert await db.read(history.counts, namespace=SPACE) == {}, "readers continue"
        finally:
            other.execute("rollback")
            other.close()
        await start(db, new_run())
        assert await sql(db, "select count(*) from runs") == [(1,)]


async def test_a_file_that_is_locked_while_opening_is_busy(tmp_path: Path) -> None:
    other = apsw.Connection(str(tmp_path / "rota.db"))
    other.execute("create table t (a); begin exclusive")
    try:
        with pytest.raises(StoreBusy) as caught:
            await open_url(f"sqlite:///{tmp_path}/rota.db", Settings(busy_s=0.05)).open()
        _reported(caught.value)
    finally:
        other.close()


@contextmanager
def _as_ordinary_user() -> Iterator[None]:
    """Permissions bind everyone but root."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(pwd.getpwnam("nobody").pw_uid)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user can enter; those of pytest belong to one."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


@pytest.mark.parametrize(("file_mode", "folder_mode"), [(0o444, 0o755), (0o666, 0o555), (0, 0o755)])
async def test_a_file_that_may_not_be_written_says_so(
    open_folder: Path, file_mode: int, folder_mode: int
) -> None:
    path = open_folder / "rota.db"
    async with opened(f"sqlite:///{path}") as db:
        await start(db, new_run())
    for wake in open_folder.glob("*-wake"):
        shutil.rmtree(wake)
    content = path.read_bytes()
    path.chmod(file_mode)
    open_folder.chmod(folder_mode)
    # A file that cannot even be read may be called unreachable, if the advice is about files.
    refused = StoreReadOnly if file_mode else (StoreReadOnly, StoreUnreachable)
    with _as_ordinary_user(), pytest.raises(refused) as caught:
        async with opened(f"sqlite:///{path}") as db:
            await start(db, new_run())
    assert "permissions" in caught.value.advice
    _reported(caught.value)
    path.chmod(stat.S_IRUSR)
    assert path.read_bytes() == content


async def test_a_folder_that_may_not_be_written_is_no_place_for_a_new_file(
    open_folder: Path,
) -> None:
    open_folder.chmod(0o555)
    with _as_ordinary_user(), pytest.raises(StoreError) as caught:
        await open_url(f"sqlite:///{open_folder}/rota.db", Settings()).open()
    _reported(caught.value)
    assert list(open_folder.iterdir()) == []


async def test_a_database_that_would_not_open_can_be_closed(tmp_path: Path) -> None:
    database = open_url(f"sqlite:///{tmp_path}/no/rota.db", Settings())
    with pytest.raises(StoreUnreachable):
        await database.open()
    await database.close()
