"""A new installation: every page says what it is for, and what to do next."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.kit.browser import BrowserThread, WatchedPage
from tests.browser.kit.server import ShopServer
from tests.browser.kit.shop import EmptyShop

NEXT = {
    "/": "Nothing needs you",
    "/runs": "rota run start NAME",
    "/schedules": "rota schedule create",
    "/automations": "rota up --project",
    "/pipelines": "rota pipeline run FOLDER",
    "/workers": "rota up",
    "/runs/new": "No worker is alive",
}


@pytest.fixture(scope="module")
def shop(browser: BrowserThread, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShopServer]:
    """A shop without anything."""
    path: Path = tmp_path_factory.mktemp("empty") / "rota.db"
    with ShopServer(lambda: EmptyShop(f"sqlite:///{path}"), works=False) as server:
        yield server


@pytest.mark.parametrize("theme", ["light", "dark"])
async def test_empty_pages_say_what_to_do_next(
    browser: BrowserThread, shop: ShopServer, theme: str
) -> None:
    page = await browser.open(shop.address, color_scheme=theme)
    for path, text in NEXT.items():
        await page.go(path)
        assert text in await page.text(), path
        assert not await page.axe(), path
        for width in (380, 1440):
            await page.page.set_viewport_size({"width": width, "height": 900})
            assert not await page.overflow(), (path, width)
    await page.close()


async def test_a_start_of_unknown_code_is_refused_and_keeps_the_form(page: WatchedPage) -> None:
    page.expect_status(422)
    view = page.page
    await page.go("/runs")
    await view.click(".empty >> text=Start a run")
    await view.fill("#n-name", "hello")
    await view.fill("#n-input", '{"name": "you"}')
    await view.click("main button:text-is('Start')")
    await view.wait_for_selector("#said.bad >> text=hello")
    assert await view.input_value("#n-input") == '{"name": "you"}'
