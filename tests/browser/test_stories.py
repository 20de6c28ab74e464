"""What people do with the dashboard, each as one story in a real browser."""

from __future__ import annotations

import re

from tests.browser.kit.browser import BrowserThread, WatchedPage
from tests.browser.kit.server import ShopServer


async def test_create_a_schedule_with_a_preview_that_follows_the_typing(page: WatchedPage) -> None:
    view = page.page
    await page.go("/schedules/new")
    await view.fill("#e-name", "stock-count")
    await view.fill("#e-work", "quick")
    await view.fill("#e-zone", "Europe/Berlin")
    await view.fill("#e-when", "weekdays at 07:30")
    await view.wait_for_selector("#preview :text('Monday to Friday')")
    assert "5 firings" in await view.inner_text("#preview")
    await view.fill("#e-when", "sometimes")
    await view.wait_for_selector("#preview .banner.bad")
    await view.fill("#e-when", "weekdays at 07:30")
    await view.click("text=Create")
    await view.wait_for_url("**/schedules/stock-count?done=created")
    assert "Fires at 07:30, Monday to Friday in Berlin" in await page.text()


async def test_an_edit_shows_which_firings_come_and_go(page: WatchedPage) -> None:
    view = page.page
    await page.go("/schedules/sync-orders/edit")
    await view.fill("#e-when", "45 * * * *")
    await view.wait_for_selector(".diff .add")
    signs = await view.locator(".diff .sign").all_inner_texts()
    assert {sign[0] for sign in signs} == {"−", "+"}
    await view.click("button:text-is('Save')")
    await view.wait_for_url("**/schedules/sync-orders?done=saved")
    assert "minute 45" in await page.text()


async def test_pause_with_a_note_and_resume(page: WatchedPage) -> None:
    view = page.page
    await page.go("/schedules/poll-carrier")
    await view.click("#fold-pause summary")
    await view.fill("#p-note", "provider outage")
    await view.click("#fold-pause button")
    await view.wait_for_selector("text=“provider outage”")
    await page.go("/schedules?show=paused")
    assert "provider outage" in await page.text()
    await page.go("/schedules/poll-carrier")
    await view.click("#fold-resume summary")
    await view.click("#fold-resume button")
    await view.wait_for_selector("text=It is resumed.")


async def test_trigger_with_another_input(page: WatchedPage) -> None:
    view = page.page
    await page.go("/schedules/fx-rates")
    await view.click("#fold-trigger summary")
    await view.fill("#t-input", '{"text": "GBP"}')
    await view.click("#fold-trigger button")
    await view.wait_for_url(re.compile(r"/runs/[0-9a-f]{32}\?done=triggered"))
    await view.wait_for_selector(".pill:has-text('Completed')")
    assert "GBP" in await page.text()


async def test_a_backfill_is_counted_first(page: WatchedPage) -> None:
    view = page.page
    await page.go("/schedules/nightly-report")
    await view.click("text=Count first")
    await view.wait_for_selector("text=/\\d of them without a run/")


async def test_watch_a_run_live(page: WatchedPage, shop: ShopServer) -> None:
    view = page.page
    run = shop.call(shop.app.start("fulfil", "order-live"))
    await page.go(f"/runs/{run.id}")
    await view.wait_for_selector(".pill:has-text('Sleeping')")
    await view.click("#fold-signal summary")
    assert await view.input_value("#sig-name") == "paid"
    await view.fill("#sig-value", '"half typed')  # typed text survives what arrives meanwhile
    shop.call(shop.app.runs.signal(run.id, "paid", "by card"))
    await view.wait_for_selector(".pill:has-text('Completed')")
    assert "order-live by card" in await page.text()


async def test_approve_a_change_with_its_exact_parameters(page: WatchedPage) -> None:
    view = page.page
    await page.go("/")
    await view.click("text=Review and approve")
    assert "1,240.00 EUR" in await view.inner_text(".params")
    await view.fill("#a-note", "amounts match")
    await view.click("text=/^Approve: Pay/")
    await view.wait_for_selector("text=Approved. The change is made once")
    await view.wait_for_selector(".flow:has-text('NL-2211') >> text=Applied")


async def test_an_answer_to_something_else_changes_nothing(
    page: WatchedPage, shop: ShopServer
) -> None:
    view = page.page
    page.expect_status(409)
    await page.go("/automations/refunds")
    await view.evaluate("document.querySelector('[name=expected]').value = 'another-change'")
    await view.click("text=It did not happen")
    await view.wait_for_selector("#said.bad")
    seen = shop.call(shop.app.automations.show("refunds"))
    assert seen.status == "Needs attention"


async def test_answer_an_unknown_outcome(page: WatchedPage, shop: ShopServer) -> None:
    view = page.page
    await page.go("/automations/refunds")
    assert "84.50 EUR" in await view.inner_text(".params")
    await view.click("text=It did not happen")
    await view.wait_for_selector("text=Answered.")
    await view.wait_for_selector(".flow:has-text('Ticket of 10492') >> text=Applied")
    assert {"84.50 EUR", "12.00 EUR"} <= {one["amount"] for one in shop.app.payments.made}


async def test_retry_failed_items(page: WatchedPage) -> None:
    view = page.page
    await page.go("/pipelines")
    await view.click("a[href^='/pipeline-runs/']")
    await view.wait_for_selector("text=Failed item and why")
    await view.click("text=Retry 6 failed items")
    await view.wait_for_selector("text=All 48 items are done.")


async def test_retry_all_runs_that_filters_select(page: WatchedPage) -> None:
    view = page.page
    await page.go("/runs?status=failed&q=fulfil")
    await view.click("text=Retry or cancel these…")
    await view.click("button:text-is('Retry 1 run')")
    await view.wait_for_selector("text=Done. The list shows")
    assert "q=fulfil" in view.url


async def test_a_queue_is_paused_and_resumed(page: WatchedPage) -> None:
    view = page.page
    await page.go("/workers")
    await view.click("tr[data-key=mail] button")
    await view.wait_for_selector("tr[data-key=mail] td.p2 >> text=Paused")
    await view.click("tr[data-key=mail] button")
    await view.wait_for_selector("tr[data-key=mail] td.p2 >> text=Open")


async def test_forms_work_without_javascript(browser: BrowserThread, shop: ShopServer) -> None:
    page = await browser.open(shop.address, java_script_enabled=False)
    view = page.page
    await page.go("/runs/new")
    await view.fill("#n-name", "quick")
    await view.fill("#n-input", '{"text": "by hand"}')
    await view.click("main button:text-is('Start')")
    await view.wait_for_url("**/runs/*?done=started")
    assert "The run was started." in await page.text()
    await page.close()


async def test_keys_move_and_find(page: WatchedPage) -> None:
    view = page.page
    await page.go("/")
    await view.keyboard.press("g")
    await view.keyboard.press("s")
    await view.wait_for_url("**/schedules")
    await view.keyboard.press("/")
    await view.keyboard.type("sync-orders")
    await view.keyboard.press("Enter")
    await view.wait_for_url("**/schedules/sync-orders")
