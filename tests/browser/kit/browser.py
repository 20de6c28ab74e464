"""One Chromium for a test process, driven from a thread of its own; and pages that are watched.

Playwright's event loop must not be that of the tests: each of them has a loop of its own.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import shutil
import threading
from collections.abc import Coroutine, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from playwright.async_api import Browser, Page, Playwright, async_playwright

T = TypeVar("T")
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = ("--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu")
AXE = "axe_playwright_python"  # The package has no types; only its axe.min.js is read.
CALL_S = 100
WAIT_MS = 15_000


def chromium() -> str | None:
    """The path of the browser, if there is one."""
    found = os.environ.get("ROTA_CHROMIUM")
    return found or next((path for name in NAMES if (path := shutil.which(name))), None)


@cache
def _axe() -> str:
    spec = importlib.util.find_spec(AXE)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).with_name("axe.min.js").read_text(encoding="utf-8")


class BrowserThread:
    """A browser, and the thread with its event loop."""

    def __init__(self, path: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._playwright: Playwright
        self._browser: Browser
        self.run(self._start(path))

    async def _start(self, path: str) -> None:
        self._playwright = await async_playwright().start()
        self._browser = await self._playwright.chromium.launch(
            executable_path=path, args=list(FLAGS)
        )

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run something in the browser's loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(CALL_S)

    async def open(self, address: str, **options: Any) -> WatchedPage:
        """A page in a context of its own."""
        given: dict[str, Any] = {
            "viewport": {"width": 1280, "height": 900}, "locale": "en-GB",
            "timezone_id": "Europe/Berlin", "reduced_motion": "reduce", "base_url": address,
        }  # fmt: skip
        context = await self._browser.new_context(**(given | options))
        zone = {"name": "rota_zone", "value": "Europe/Berlin", "url": address}
        await context.add_cookies([zone])  # type: ignore[list-item]
        context.set_default_timeout(WAIT_MS)
        return WatchedPage(await context.new_page(), address)

    def close(self) -> None:
        """End the browser and the thread."""
        self.run(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _stop(self) -> None:
        await self._browser.close()
        await self._playwright.stop()


class WatchedPage:
    """A page that notes what must not happen: console errors, CSP reports, foreign requests."""

    def __init__(self, page: Page, address: str) -> None:
        self.page = page
        self.address = address
        self.complaints: list[str] = []
        self._expected: tuple[str, ...] = ()
        page.on("console", lambda message: self._said(message.type, message.text))
        page.on("pageerror", lambda error: self.complaints.append(f"script: {error}"))
        page.on("request", lambda request: self._asked(request.url))

    def expect_status(self, *statuses: int) -> None:
        """Chromium logs every refused request as an error; these are what the test is about."""
        self._expected = tuple(f"status of {status}" for status in statuses)

    def _said(self, kind: str, text: str) -> None:
        if kind in ("error", "warning") and not any(one in text for one in self._expected):
            self.complaints.append(f"console {kind}: {text}")

    def _asked(self, url: str) -> None:
        if not url.startswith((self.address, "data:")):
            self.complaints.append(f"request to another host: {url}")

    async def go(self, path: str) -> None:
        """Open a page of the site."""
        await self.page.goto(path, wait_until="load")

    async def text(self) -> str:
        """The text of the main part."""
        return await self.page.inner_text("main")

    async def axe(self) -> list[str]:
        """The findings of axe. A script tag would be refused by our policy, evaluation is not."""
        await self.page.evaluate(_axe())
        found = await self.page.evaluate("axe.run({resultTypes: ['violations']})")
        return [
            f"{one['id']}: {', '.join(node['html'][:120] for node in one['nodes'][:3])}"
            for one in found["violations"]
        ]

    async def overflow(self) -> Sequence[str]:
        """Elements that reach beyond their card, and the page itself if it scrolls sideways."""
        return await self.page.evaluate(_OVERFLOW)

    async def close(self) -> None:
        """Close the context, and complain."""
        await self.page.context.close()
        assert not self.complaints, self.complaints


_OVERFLOW = """() => {
  const found = [];
  if (document.documentElement.scrollWidth > innerWidth) found.push("the page");
  for (const one of document.querySelectorAll(".card td, .card th, .card p, .card li, .card dd")) {
    const card = one.closest(".card").getBoundingClientRect();
    const box = one.getBoundingClientRect();
    if (box.width && !one.closest(".vh") && box.right > card.right + 1)
      found.push(one.className + ": " + one.textContent.slice(0, 40));
  }
  return found.slice(0, 5);
}"""
