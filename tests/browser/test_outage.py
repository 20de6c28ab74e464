"""The database is away: the page says so, and comes back by itself."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.kit.browser import BrowserThread, WatchedPage
from tests.browser.kit.server import ShopServer
from tests.browser.kit.shop import Shop


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The path of the database."""
    return tmp_path_factory.mktemp("away") / "rota.db"


@pytest.fixture(scope="module")
def shop(browser: BrowserThread, shop_template: Path, place: Path) -> Iterator[ShopServer]:
    """A shop of which the file can be moved."""
    shutil.copy(shop_template, place)
    with ShopServer(lambda: Shop(f"sqlite:///{place}"), works=False) as server:
        yield server


async def test_a_page_says_that_the_database_is_away_and_recovers(
    page: WatchedPage, place: Path
) -> None:
    page.expect_status(503)
    view = page.page
    moved = place.with_name("moved.db")
    place.rename(moved)
    await page.go("/runs")
    assert "The database does not answer" in await view.inner_text("h1")
    assert not await page.axe()
    moved.rename(place)
    await view.wait_for_selector("h1:text-is('Runs')")


async def test_what_was_typed_survives_an_outage(page: WatchedPage, place: Path) -> None:
    page.expect_status(503)
    view = page.page
    await page.go("/schedules/sync-orders")
    await view.click("#fold-pause summary")
    await view.fill("#p-note", "provider outage")
    moved = place.with_name("moved.db")
    place.rename(moved)
    for _ in range(2):
        await view.click("[data-hold-live]")  # to follow again means to look at once
    await view.wait_for_selector("#away >> text=The database does not answer.")
    assert await view.locator("#fold-pause button").is_disabled()
    assert not await page.axe()
    moved.rename(place)
    await view.wait_for_selector("#away", state="detached")
    assert await view.input_value("#p-note") == "provider outage"
    await view.click("#fold-pause summary")
    await view.click("#fold-pause button")
    await view.wait_for_selector("text=“provider outage”")
