"""Fixtures of the browser tests. Their `async def` bodies run in the loop of the browser."""

from __future__ import annotations

import asyncio
import inspect
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.kit.shop import Shop, fill

pytest.importorskip("playwright", reason="the browser tests need playwright (extra dev)")

from tests.browser.kit.browser import BrowserThread, WatchedPage, chromium
from tests.browser.kit.server import ShopServer

HISTORY_DAYS = 2
MISSING = "no Chromium on this machine: install it, or set ROTA_CHROMIUM to its path"
_browsers: list[BrowserThread] = []


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run the body of a test in the browser's loop."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj) or not _browsers:
        return None
    names = pyfuncitem._fixtureinfo.argnames
    _browsers[0].run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


@pytest.fixture(scope="package")
def browser() -> Iterator[BrowserThread]:
    """One browser for this process, closed after the last test that uses it: an open one uses
    the processor even without a page."""
    path = chromium()
    if path is None:
        pytest.skip(MISSING)
    _browsers.append(BrowserThread(path))
    yield _browsers[0]
    _browsers.pop().close()


@pytest.fixture(scope="session")
def shop_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A shop with a history, to be copied."""
    folder = tmp_path_factory.mktemp("shop")
    asyncio.run(fill(Shop(f"sqlite:///{folder / 'rota.db'}"), folder, days=HISTORY_DAYS))
    return folder / "rota.db"


@pytest.fixture(scope="module")
def shop(
    browser: BrowserThread, shop_template: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ShopServer]:
    """A shop with a worker and a server, for one module."""
    path = tmp_path_factory.mktemp("served") / "rota.db"
    shutil.copy(shop_template, path)
    with ShopServer(lambda: Shop(f"sqlite:///{path}")) as server:
        yield server


@pytest.fixture
def page(browser: BrowserThread, shop: ShopServer) -> Iterator[WatchedPage]:
    """A watched page: after the test it must have nothing to complain about."""
    opened = browser.run(browser.open(shop.address))
    yield opened
    browser.run(opened.close())
