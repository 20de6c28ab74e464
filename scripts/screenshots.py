"""Take the pictures of docs/images: every page of the dashboard, in both themes.

    python -m scripts.screenshots

Needs Chromium and playwright; with Pillow the files get a palette, which makes them small.
"""

from __future__ import annotations

import asyncio
import importlib.util
import tempfile
from pathlib import Path

from tests.browser.kit.browser import BrowserThread, WatchedPage, chromium
from tests.browser.kit.server import ShopServer
from tests.browser.kit.shop import Shop, fill

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
DAYS = 14
WIDTH, HEIGHT = 1280, 800
PHONE = 380
COLOURS = 256
PAGES = {
    "overview": "/", "runs": "/runs", "schedules": "/schedules",
    "schedule": "/schedules/sync-orders", "schedule-edit": "/schedules/sync-orders/edit",
    "automations": "/automations", "automation": "/automations/supplier-invoices",
    "unknown-outcome": "/automations/refunds", "pipelines": "/pipelines", "workers": "/workers",
    "run-start": "/runs/new?workflow=fulfil", "bulk": "/runs/bulk?status=failed",
    "login": "/login", "not-found": "/schedules/nothing",
}  # fmt: skip
# A picture shows no path of the machine it was taken on.
HIDE = """(root) => {
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode())
    walk.currentNode.nodeValue = walk.currentNode.nodeValue.replaceAll(root, "shop");
}"""


def main() -> None:
    """Fill a shop, serve it, look at every page."""
    path = chromium()
    if path is None:
        raise SystemExit("no Chromium on this machine: install it, or set ROTA_CHROMIUM")
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/rota.db"
        asyncio.run(fill(Shop(url), Path(folder), days=DAYS))
        with ShopServer(lambda: Shop(url)) as server:
            server.call(busy(server.app))
            browser = BrowserThread(path)
            for theme in ("light", "dark"):
                browser.run(shoot(browser, server, theme))
            browser.close()
            server.app.pause_s = 0


async def busy(app: Shop) -> None:
    """Runs under way, and one that a limit holds back."""
    app.pause_s, app.books_differ = 0.4, True
    await app.start("import_catalog", 4)
    failing = await app.start("close_books", "2026-10")
    await app.runs.wait(failing.id, timeout="1m")
    app.books_differ = False
    app.pause_s = 60
    await app.start("import_catalog", 3)
    for _ in range(3):
        await app.options(queue="heavy").start("import_catalog", 3)
    await asyncio.sleep(2)


async def shoot(browser: BrowserThread, server: ShopServer, theme: str) -> None:
    """All pages in one theme."""
    view = {"width": WIDTH, "height": HEIGHT}
    page = await browser.open(server.address, color_scheme=theme, viewport=view)
    for name, path in PAGES.items():
        await take(page, path, name, theme)
    for name, selector in (
        ("run", "/runs?q=close_books"),
        ("run-completed", "/runs?q=import_catalog&status=completed"),
        ("run-waiting", "/runs?q=import_catalog&status=pending"),
    ):
        await page.go(selector)
        await page.page.click("#rows a[href^='/runs/']")
        await page.page.wait_for_url("**/runs/*")
        await take(page, page.page.url, name, theme)
    await page.go("/pipelines")
    href = await page.page.get_attribute("a[href^='/pipeline-runs/']", "href")
    await take(page, href or "", "pipeline-run", theme)
    await page.page.set_viewport_size({"width": PHONE, "height": HEIGHT})
    await take(page, "/", "phone", theme)
    await page.page.context.close()  # the page that is not found complains, and should


async def take(page: WatchedPage, path: str, name: str, theme: str) -> None:
    """One picture."""
    await page.go(path)
    if name == "schedule-edit":
        await page.page.fill("#e-when", "30 6-22 * * 1-6")
        await page.page.wait_for_selector(".diff .add")
    await page.page.evaluate(HIDE, str(ROOT / "tests" / "browser" / "kit"))
    target = IMAGES / f"{name}-{theme}.png"
    await page.page.screenshot(path=target)
    if importlib.util.find_spec("PIL"):
        shrink(target)


def shrink(path: Path) -> None:
    """The same picture with a palette."""
    from PIL import Image  # type: ignore[import-not-found, unused-ignore]

    Image.open(path).convert("RGB").quantize(COLOURS, method=1, dither=0).save(path, optimize=True)


if __name__ == "__main__":
    main()
