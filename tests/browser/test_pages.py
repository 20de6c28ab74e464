"""Every page in both themes: axe finds nothing, nothing is clipped, hostile names are text."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from tests.browser.kit.browser import BrowserThread, WatchedPage
from tests.browser.kit.server import ShopServer
from tests.browser.kit.shop import HOSTILE

PATHS = (
    "/", "/runs", "/runs?status=failed", "/runs/bulk?status=failed",
    "/runs/new", "/schedules", "/schedules/new",
    "/schedules/sync-orders", "/schedules/sync-orders/edit", "/automations",
    "/automations/supplier-invoices", "/automations/refunds", "/automations/refunds?tab=events",
    "/automations/refunds?tab=inputs", "/automations/refunds?tab=outputs",
    "/automations/refunds?tab=runs", "/automations/refunds?tab=versions",
    "/schedules/sync-orders?only=not-run", "/runs/new?workflow=fulfil",
    "/pipelines", "/workers", "/runs?q=nothing-like-it", "/runs?q=clos&queue=default",
    "/schedules?q=orders", "/schedules?show=bad", "/automations?q=refu", "/automations?q=none",
    "/pipelines?q=none", "/workers?q=none",
)  # fmt: skip


async def every_path(page: WatchedPage) -> list[str]:
    """The pages with fixed addresses, and one of each kind of run."""
    found = [*PATHS]
    await page.go("/runs?q=close_books")
    found.append(await page.page.get_attribute("#rows a[href^='/runs/']", "href") or "")
    await page.go("/pipelines")
    pipeline_run = await page.page.get_attribute("a[href^='/pipeline-runs/']", "href") or ""
    return [*found, pipeline_run, f"{pipeline_run}?status=failed"]


@pytest.mark.parametrize("half", [0, 1])
@pytest.mark.parametrize("theme", ["light", "dark"])
async def test_axe_finds_nothing_and_nothing_is_clipped(
    browser: BrowserThread, shop: ShopServer, theme: str, half: int
) -> None:
    page = await browser.open(shop.address, color_scheme=theme)
    found = []
    for path in (await every_path(page))[half::2]:
        await page.go(path)
        found += [f"{path}: {one}" for one in await page.axe()]
        for width in (380, 820, 1440) if theme == "light" else ():  # colours move nothing
            await page.page.set_viewport_size({"width": width, "height": 900})
            found += [f"{path} at {width} px: {one}" for one in await page.overflow()]
    await page.close()
    assert not found, "\n".join(found)


async def test_an_open_form_fits_a_phone(browser: BrowserThread, shop: ShopServer) -> None:
    page = await browser.open(shop.address, viewport={"width": 380, "height": 800})
    await page.go("/schedules/sync-orders")
    for form in ("#fold-trigger", "#fold-pause"):
        await page.page.click(f"{form} summary")
        assert not await page.overflow(), form
        assert not await page.axe(), form
    await page.close()


async def test_a_hostile_name_is_text(page: WatchedPage) -> None:
    await page.go("/runs?q=quick")
    assert HOSTILE[:40] in await page.text()
    assert not await page.page.query_selector("main script")


NAMES = (
    "x" * 200, "<b>bold</b><script>alert(1)</script>", "שלום עולם \u202eabc",
    "\U0001f680 deploy \U0001f469\u200d\U0001f469\u200d\U0001f467", "a name of many words " * 6,
)  # fmt: skip


async def test_odd_names_fit_every_width(browser: BrowserThread, shop: ShopServer) -> None:
    app = shop.app
    for name in NAMES:
        shop.call(app.schedules.create(name, "quick", "every 1h", input={"text": name}))
    shop.call(app.schedules.pause(NAMES[0], note="n" * 300))
    run = shop.call(
        app.options(external_id=NAMES[0], tags={NAMES[4]: NAMES[2]}).start("quick", NAMES[4])
    )
    page = await browser.open(shop.address)
    found = []
    shown = [f"/schedules/{quote(name, safe='')}" for name in NAMES]
    for path in ("/", "/runs", "/schedules", *shown, f"{shown[4]}/edit", f"/runs/{run.id}"):
        await page.go(path)
        for width in (380, 820, 1440):
            await page.page.set_viewport_size({"width": width, "height": 900})
            found += [f"{path[:40]} at {width} px: {one}" for one in await page.overflow()]
    await page.close()
    for name in NAMES:
        shop.call(app.schedules.delete(name))
    assert not found, "\n".join(found)


async def test_pages_can_be_read_without_javascript(
    browser: BrowserThread, shop: ShopServer
) -> None:
    page = await browser.open(shop.address, java_script_enabled=False)
    for path in PATHS:
        await page.go(path)
        assert len(await page.text()) > 100, path
    await page.close()


async def test_an_unknown_address_is_a_page_that_says_so(page: WatchedPage) -> None:
    page.expect_status(404)
    await page.go("/schedules/nothing-of-that-name")
    assert "Not found" in await page.text()
    await page.page.click("main a:has-text('All schedules')")
    await page.page.wait_for_url("**/schedules")


async def test_a_long_word_in_an_error_fits_every_width(
    browser: BrowserThread, shop: ShopServer
) -> None:
    shop.app.books_differ = True
    run = shop.call(shop.app.options(retries=0).start("close_books", month="m" * 200))
    ended = shop.call(shop.app.runs.wait(run.id, timeout=60))
    shop.app.books_differ = False
    assert ended.status == "failed"
    page = await browser.open(shop.address)
    await page.go(f"/runs/{run.id}")
    await page.page.set_viewport_size({"width": 390, "height": 900})
    wide = await page.page.evaluate(
        "[...document.querySelectorAll('main p')].filter(p => p.scrollWidth > p.clientWidth).length"
    )
    await page.close()
    assert wide == 0
