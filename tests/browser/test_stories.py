"""Tasks of people with the dashboard, in a real browser."""

from __future__ import annotations

import re

from tests.browser.kit.browser import BrowserThread, WatchedPage
from tests.browser.kit.server import ShopServer


async def test_see_what_needs_a_person_and_what_comes(page: WatchedPage) -> None:
    view = page.page
    await page.go("/")
    inbox = await view.inner_text(".inbox")
    for part in ("Outcome unknown", "Waiting for your approval", "LedgerMismatch", "missed"):
        assert part in inbox
    assert (
        await view.locator(".inbox .actions > *").count()
        == await view.locator(".inbox > li").count()
    )  # one action each
    lanes = await view.inner_text("table.lanes")
    assert "sync-orders" in lanes
    assert "Paused" in lanes
    assert await view.locator("tr[data-key='sync-orders'] rect").count() >= 24
    badge = await view.inner_text(".nav .count.hot")
    await view.click(".nav >> text=Runs")
    await view.wait_for_url("**/runs")
    assert await view.inner_text(".nav .count.hot") == badge


async def test_from_a_missed_hour_to_its_reason(page: WatchedPage) -> None:
    view = page.page
    await page.go("/schedules/sync-orders")
    await view.click(".cal td.o-missed a >> nth=0")
    await view.wait_for_url("**day=*")
    assert "no scheduler ran to fire it" in await view.inner_text("#ledger")
    # "00:15 to 04:15", or "Mon 22:15 to 01:15" of the next day.
    hours = (await view.inner_text("#ledger tr.row-bad td >> nth=0")).split()
    due = hours[0] if ":" in hours[0] else hours[-1]
    day = view.url.partition("day=")[2].partition("#")[0]
    await view.fill("#at", f"{day} {due}")
    await view.click("button:text-is('Why?')")
    await view.wait_for_selector("#why .hit b:text-is('Workers')")
    assert await view.locator("#why .c-ok").count() == 4  # times, clock, bounds, pause


async def test_a_run_says_what_it_waits_for(page: WatchedPage, shop: ShopServer) -> None:
    view = page.page
    shop.call(shop.app.pause_queue("heavy"))
    run = shop.call(shop.app.options(queue="heavy").start("quick", "held"))
    await page.go(f"/runs/{run.id}")
    await view.wait_for_selector("#why .hit b:text-is('Queue')")
    assert "queue heavy is paused" in await view.inner_text("#why .hit")
    shop.call(shop.app.pause_queue("heavy", paused=False))
    await view.wait_for_selector(".pill:has-text('Completed')")
    assert await view.locator("#why").count() == 0


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
    assert (
        await view.locator("#backfill >> text=/^Backfill \\d/").count() == 0
    )  # nothing is missing
    await page.go("/schedules/sync-orders")
    await view.click("text=Count first")
    await view.wait_for_selector("#backfill >> text=/of them without a run/")
    await view.click("#backfill button:has-text('Backfill')")
    await view.wait_for_selector("text=The backfill was started.")
    await view.wait_for_selector("#ledger >> text=Backfilled")


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
    await view.wait_for_selector("text=Your answer is recorded")
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
    await page.go("/schedules/nightly-report")
    await view.click("#fold-pause summary")
    await view.fill("#p-note", "audit week")
    await view.click("#fold-pause button")
    assert "“audit week”" in await page.text()
    await view.click("#fold-resume summary")
    await view.click("#fold-resume button")
    assert "It is resumed." in await page.text()
    await page.go("/schedules/nightly-report/edit")
    await view.fill("#e-when", "daily at 03:00")
    await view.click("button:text-is('Preview')")
    assert "Difference in the next 24 hours" in await page.text()
    assert "Nothing is saved yet." in await page.text()
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
    await page.go("/schedules")
    await view.keyboard.press("j")
    await view.keyboard.press("j")
    second = await view.evaluate("document.activeElement.textContent")
    assert second == await view.inner_text("tbody tr >> nth=1 >> a")
    await view.keyboard.press("?")
    await view.wait_for_selector("dialog[open] >> text=No key approves")
    await view.keyboard.press("Escape")
    await view.wait_for_selector("dialog[open]", state="detached")
    await view.keyboard.press("Enter")
    await view.wait_for_url(f"**/schedules/{second}")
