"""Signing in with a token, what a role may do, and what happens to a wrong token."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.kit.browser import BrowserThread, WatchedPage
from tests.browser.kit.server import ShopServer
from tests.browser.kit.shop import Shop


@pytest.fixture(scope="module")
def shop(
    browser: BrowserThread, shop_template: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ShopServer]:
    """A shop that asks every visitor for a token."""
    path = tmp_path_factory.mktemp("guarded") / "rota.db"
    shutil.copy(shop_template, path)
    make = lambda: Shop(f"sqlite:///{path}")  # noqa: E731
    with ShopServer(make, works=False, require_login=True) as server:
        yield server


async def enter(page: WatchedPage, token: str) -> None:
    await page.page.fill("#tok", token)
    await page.page.click("button:text-is('Sign in')")


async def test_log_in_look_and_log_out(page: WatchedPage, shop: ShopServer) -> None:
    view = page.page
    token = shop.call(shop.app.tokens.create("anna", role="operate")).text
    await page.go("/schedules?show=paused")
    await view.wait_for_url(re.compile("/login[?]next="))
    assert not await page.axe()
    await enter(page, token)
    await view.wait_for_url("**/schedules*")
    assert "fx-rates" in await page.text()
    assert "anna (operate)" in await view.inner_text(".side-foot")
    await view.click(".side-foot button:text-is('Sign out')")
    await view.wait_for_url("**/login*")
    await page.go("/")
    await view.wait_for_url(re.compile("/login[?]next="))


async def test_a_wrong_and_a_revoked_token_are_refused(page: WatchedPage, shop: ShopServer) -> None:
    page.expect_status(401)
    made = shop.call(shop.app.tokens.create("left", role="read"))
    shop.call(shop.app.tokens.revoke("left"))
    await page.go("/login")
    for token in ("rota_wrong", made.text):
        await enter(page, token)
        await page.page.wait_for_selector("#tok-e")
    assert "revoked" in await page.page.inner_text("#tok-e")
    assert not await page.axe()


async def test_a_reader_sees_no_buttons_and_is_refused(page: WatchedPage, shop: ShopServer) -> None:
    view = page.page
    page.expect_status(403)
    token = shop.call(shop.app.tokens.create("reader", role="read")).text
    await page.go("/login")
    await enter(page, token)
    await view.wait_for_url("**/")
    await page.go("/automations/supplier-invoices")
    assert await view.locator(".ask button").count() == 0
    assert "A person with the role operate can answer" in await page.text()
    await page.go("/schedules/new")
    assert "Not allowed" in await page.text()


async def test_the_link_after_login_stays_on_this_site(page: WatchedPage, shop: ShopServer) -> None:
    token = shop.call(shop.app.tokens.create("careful", role="read")).text
    await page.go("/login?next=//example.org/")
    await enter(page, token)
    await page.page.wait_for_url("**/")
    assert page.page.url == f"{shop.address}/"


async def test_a_login_link_signs_in_when_its_button_is_pressed(
    page: WatchedPage, shop: ShopServer
) -> None:
    view = page.page
    secret = shop.call(shop.app.sessions.link())
    for _ in range(2):  # a preview does not spend it
        await page.go(f"/open/{secret}")
    assert not await page.axe()
    await view.click("button:text-is('Sign in')")
    await view.wait_for_url(f"{shop.address}/")
    assert "login link (admin)" in await view.inner_text(".side-foot")
    page.expect_status(401)
    await page.go(f"/open/{secret}")
    await view.click("button:text-is('Sign in')")
    await view.wait_for_selector("text=used already")
