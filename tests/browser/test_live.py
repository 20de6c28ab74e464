"""Pages follow what happens, and do not disturb a reader or a typist."""

from __future__ import annotations

from rota.store.runs import logs
from rota.store.runs.logs import NewLogLine
from tests.browser.kit.browser import WatchedPage
from tests.browser.kit.server import ShopServer
from tests.browser.kit.shop import HOSTILE


async def test_steps_of_a_run_appear_while_it_runs(page: WatchedPage, shop: ShopServer) -> None:
    view = page.page
    shop.app.pause_s = 3
    run = shop.call(shop.app.start("import_catalog", 3))
    await page.go(f"/runs/{run.id}")
    await view.wait_for_selector("#steps tbody tr >> nth=1")
    assert "Running" in await view.inner_text(".pill")
    await view.wait_for_selector(".pill:has-text('Completed')")
    assert await view.locator("#steps tbody tr").count() == 3
    shop.app.pause_s = 0.01


async def test_log_lines_of_a_run_are_text_with_their_level(
    page: WatchedPage, shop: ShopServer
) -> None:
    view = page.page
    run = shop.call(shop.app.start("quick", "logged"))
    shop.call(shop.app.runs.wait(run.id, timeout="10s"))
    now = shop.app.clock.now()
    lines = [
        NewLogLine(run.id, now, level, "shop", text)
        for level, text in (("INFO", "begun"), ("WARNING", HOSTILE), ("ERROR", "x" * 900))
    ]

    async def write() -> None:
        await shop.app.connection.database.write(logs.append, lines)

    shop.call(write())
    await page.go(f"/runs/{run.id}")
    assert await view.locator("#log li").count() == 3
    assert HOSTILE in await view.inner_text("#log li.w")
    assert await view.locator("#log li.e").count() == 1
    assert not await page.overflow()


async def test_new_rows_wait_until_the_reader_asks_for_them(
    page: WatchedPage, shop: ShopServer
) -> None:
    view = page.page
    await page.go("/runs")
    first = await view.get_attribute("#rows tr", "data-key")
    top = await view.locator("#rows tr >> nth=0").bounding_box()
    run = shop.call(shop.app.start("quick", "arrives"))
    await view.wait_for_selector("button.newer:has-text('1 newer, show')")
    assert await view.get_attribute("#rows tr", "data-key") == first
    await view.click("button.newer")
    await view.wait_for_selector(f"#rows tr[data-key='{run.id}']")
    assert await view.locator("button.newer").is_hidden()
    assert await view.locator("#rows tr >> nth=0").bounding_box() == top  # nothing has moved


async def test_a_reader_can_hold_the_page(page: WatchedPage, shop: ShopServer) -> None:
    view = page.page
    run = shop.call(shop.app.start("fulfil", "order-held"))
    await page.go(f"/runs/{run.id}")
    await view.wait_for_selector(".pill:has-text('Sleeping')")
    await view.click("[data-hold-live]")
    await view.wait_for_selector(".live:has-text('Paused')")
    shop.call(shop.app.runs.signal(run.id, "paid", "by card"))
    shop.call(shop.app.runs.wait(run.id, timeout="10s"))
    await view.wait_for_timeout(1_000)
    assert await view.locator(".pill:has-text('Sleeping')").count() == 1
    await view.click("[data-hold-live]")
    await view.wait_for_selector(".pill:has-text('Completed')")
    assert await view.inner_text(".live") == "Live"


async def test_an_open_form_and_its_text_survive_a_change(
    page: WatchedPage, shop: ShopServer
) -> None:
    view = page.page
    await page.go("/schedules/sync-orders")
    await view.click("#fold-pause summary")
    await view.fill("#p-note", "half a sen")
    shop.call(shop.app.schedules.trigger("sync-orders"))
    await view.wait_for_selector("#ledger >> text=By hand")
    assert await view.input_value("#p-note") == "half a sen"
    assert await view.evaluate("document.activeElement.id") == "p-note"
    await view.fill("#p-until", "some day")
    await view.click("#fold-pause button")
    page.expect_status(422)
    await view.wait_for_selector("#said.bad")
    assert await view.input_value("#p-note") == "half a sen"  # a refusal takes nothing away
    assert await view.locator("#fold-pause[open]").count() == 1
