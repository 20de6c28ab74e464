"""The watched page of these tests complains: each complaint is provoked here."""

from __future__ import annotations

import pytest

from tests.browser.kit.browser import BrowserThread
from tests.browser.kit.server import ShopServer


@pytest.mark.parametrize(
    ("script", "complaint"),
    [
        ("console.error('broken')", "console error: broken"),
        ("setTimeout(() => { throw new Error('thrown') })", "script: "),
        ("document.body.setAttribute('style', 'color: red')", "Content Security Policy"),
        ("document.body.append(Object.assign(new Image(), {src: 'http://other.test/x.png'}))",
            "Content Security Policy"),
        ("window.open('http://other.test/', '_self')", "request to another host"),
    ],
)  # fmt: skip
async def test_a_fault_of_a_page_is_a_complaint(
    browser: BrowserThread, shop: ShopServer, script: str, complaint: str
) -> None:
    page = await browser.open(shop.address)
    await page.go("/runs")
    assert not page.complaints
    await page.page.evaluate(script)
    await page.page.wait_for_timeout(500)
    assert any(complaint in one for one in page.complaints), page.complaints
    with pytest.raises(AssertionError):
        await page.close()


async def test_axe_and_the_check_for_clipped_text_find_what_is_wrong(
    browser: BrowserThread, shop: ShopServer
) -> None:
    page = await browser.open(shop.address)
    await page.go("/runs")
    assert not await page.axe()
    assert not await page.overflow()
    # Without this id a live refresh finds nothing to restore while axe looks.
    await page.page.evaluate("document.getElementById('main').id = 'still'")
    await page.page.evaluate("document.querySelector('label[for=f-q]').remove()")
    assert any("label" in one for one in await page.axe())
    await page.page.evaluate(
        "document.querySelector('#rows a').textContent = 'x'.repeat(900)",
    )
    await page.page.evaluate(
        "document.querySelector('#rows td.what').className = 'nowrap'",
    )
    assert await page.overflow()
    await page.close()
