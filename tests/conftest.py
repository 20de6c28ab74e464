"""Fixtures that every test may use, and the one PostgreSQL server of a test run."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import secrets
import signal
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from hypothesis import settings

from rota import testing
from tests.kit import drop_schemas, own_database, schema
from tests.kit.memory_disk import memory_disk
from tests.kit.postgres import URL_VARIABLE, PostgresServer, PostgresUnavailable

DATABASE = "rota"
os.environ.setdefault("ROTA_NO_HTTP", "1")  # A daemon of a test serves only if the test asks.

if (_place := memory_disk()) is not None:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_place))

# A test run answers for the change available, so it draws the same examples each time; new ones are
# looked for every night (`make test-nightly`), with a seed that is printed.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("explore", deadline=None, print_blob=True)
settings.register_profile("quick", derandomize=True, deadline=None, max_examples=20)
settings.load_profile(os.environ.get("ROTA_TEST_PROFILE", "repeatable"))

_server = PostgresServer(durable=False)


def _postgres_url() -> str:
    """The URL of the run's database; starts the server if no other process has."""
    if URL_VARIABLE not in os.environ:
        _server.start()
        os.environ[URL_VARIABLE] = _server.create_database(DATABASE)
    return os.environ[URL_VARIABLE]


def pytest_xdist_auto_num_workers() -> int:
    """Tests wait for disks, servers and child processes half of their time: two for each core."""
    return 2 * (os.cpu_count() or 1)


def pytest_configure(config: pytest.Config) -> None:
    """Start the server before xdist starts its workers: they inherit its URL by environment."""
    # A job in the background ignores Ctrl-C, and so would every child that a test interrupts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    controls_workers = bool(config.getoption("numprocesses", None))
    if not controls_workers or "not pg" in config.option.markexpr or config.option.collectonly:
        return
    try:
        _postgres_url()
    except PostgresUnavailable as error:
        raise pytest.UsageError(str(error)) from error


HERE = Path(__file__).parent
# Every test of these folders counts as marked `wall_clock` until its waits are understood: it gives
# daemons, browsers, processes or models real seconds.
REAL_TIME = ("browser", "cli", "examples", "faults", "pipelines")


@cache
def _in_real_time(path: Path) -> bool:
    return any(path.is_relative_to(HERE / name) for name in REAL_TIME)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Try a test of real time up to three times; any other that fails has failed."""
    for item in items:
        mark = item.get_closest_marker("wall_clock")
        if mark is not None and not mark.args:
            raise pytest.UsageError(f"{item.nodeid} is marked wall_clock without a reason")
        timed = mark is not None or _in_real_time(item.path)
        if timed and not os.environ.get("ROTA_NIGHTLY"):
            item.add_marker(pytest.mark.flaky(reruns=2))


def pytest_collection_finish() -> None:
    """Thousands of test items live until the end: the collector need not look at them again."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """Stop the server, if this process is the one that started it."""
    _server.close()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run `async def` tests on a fresh event loop; all fixtures are plain functions."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


@pytest.fixture
def hanging_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """The virtual clock does not wait for threads that hang on purpose."""
    monkeypatch.setattr(testing, "REAL_WORK_S", 0.2)


@pytest.fixture(scope="session")
def postgres_url() -> str:
    """A database on a real server, shared by the run: make your own schema in it."""
    return _postgres_url()


@pytest.fixture(scope="session")
def shared_schema(postgres_url: str) -> Iterator[schema.SharedSchema]:
    """One migrated PostgreSQL schema for the process; a test that used it empties it."""
    with schema.shared_schema(postgres_url) as shared:
        yield shared


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated SQLite file, to be copied."""
    path = tmp_path_factory.mktemp("template") / "rota.db"
    schema.migrated(f"sqlite:///{path}")
    return path


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.pg)])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A migrated database without rows: a SQLite file, then a schema on PostgreSQL."""
    if request.param == "sqlite":
        schema.copied(request.getfixturevalue("sqlite_template"), tmp_path / "rota.db")
        yield f"sqlite:///{tmp_path / 'rota.db'}"
        return
    shared = request.getfixturevalue("shared_schema")
    yield shared.url
    shared.empty()


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.pg)])
def new_database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database without a schema, before the first migration."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'rota.db'}"
        return
    base = request.getfixturevalue("postgres_url")
    own = f"t_{secrets.token_hex(6)}"
    yield f"{base}{'&' if '?' in base else '?'}schema={own}"
    asyncio.run(drop_schemas(base, own))


@pytest.fixture
def own_database_url(postgres_url: str) -> Iterator[str]:
    """A PostgreSQL database of the test's own, for tests that change its settings or roles."""
    with own_database(postgres_url) as url:
        yield url
