"""A run is found among 100,000, by its index and in a few clicks."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.kit.browser import BrowserThread, WatchedPage
from tests.browser.kit.server import ShopServer
from tests.browser.kit.shop import Shop

COUNT = 100_000
COPIES = """
with recursive n(i) as (select 1 union all select i + 1 from n where i < :count)
insert into runs ({columns})
select {values} from runs, n where runs.id = :id
"""


def multiply(path: Path, run_id: str) -> None:
    """Copies of one run, each with an id of its own, earlier than all others."""
    with sqlite3.connect(path) as database:
        columns = [row[1] for row in database.execute("pragma table_info(runs)")]
        own = "printf('01a0%08x7000800000000000', i) || '0000'"
        values = {"id": own, "root_id": own, "external_id": "'bulk-' || i"}
        database.execute(
            COPIES.format(
                columns=", ".join(columns),
                values=", ".join(values.get(name, name) for name in columns),
            ),
            {"count": COUNT, "id": run_id},
        )


@pytest.fixture(scope="module")
def shop(
    browser: BrowserThread, shop_template: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ShopServer]:
    """A shop with 100,000 runs more."""
    path = tmp_path_factory.mktemp("many") / "rota.db"
    shutil.copy(shop_template, path)
    with sqlite3.connect(path) as database:
        query = "select id from runs where name = 'quick' and status = 'completed' limit 1"
        [(run_id,)] = database.execute(query)
    multiply(path, run_id)
    with ShopServer(lambda: Shop(f"sqlite:///{path}"), works=False) as server:
        yield server


async def test_find_a_run_among_100_000(page: WatchedPage) -> None:
    view = page.page
    await page.go("/runs")
    await view.fill("#f-q", "bulk-77123")
    await view.press("#f-q", "Enter")
    await view.wait_for_selector("text=1 run shown")
    await view.click("#rows a")
    await view.wait_for_url("**/runs/*")
    assert "bulk-77123" in await page.text()


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("bulk-7712", "quick"),  # the beginning of an external id, as one looks for it
        (f"01a0{77_123:08x}", "quick"),  # the beginning of an id
        ("lose_bo", "close_books"),  # a part of a name
        ("LOSE_BO", "close_books"),
    ],
)
async def test_find_by_the_part_that_one_remembers(page: WatchedPage, text: str, name: str) -> None:
    view = page.page
    await page.go("/runs")
    await view.fill("#f-q", text)
    await view.press("#f-q", "Enter")
    await view.wait_for_url("**q=*")
    names = await view.locator("#rows .what > a:first-of-type").all_inner_texts()
    assert names
    assert {*names} == {name}


async def test_a_search_that_finds_nothing_says_how_far_it_looked(page: WatchedPage) -> None:
    view = page.page
    await page.go("/runs?q=deadbeef01")
    assert "No run fits these filters" in await page.text()
    assert "Looked back to" in await page.text()
    assert await view.locator("text=Look through all ids").count() == 1
    await view.click("text=Look further back")
    await view.wait_for_url("**before=*")
    assert "Looked back to" in await page.text()


async def test_filters_live_in_the_address_and_pages_have_cursors(page: WatchedPage) -> None:
    view = page.page
    await page.go("/runs?q=quick")
    await view.click("text=Older")
    assert "before=" in view.url
    second = await view.get_attribute("#rows tr", "data-key")
    await view.go_back()
    assert await view.get_attribute("#rows tr", "data-key") != second
    await view.click(".chips >> text=Failed")
    await view.wait_for_selector("text=No run fits these filters")
    assert "status=failed" in view.url
    await view.click("text=Clear filters")
    await view.wait_for_selector("text=close_books")
    await view.click("tr:has-text('close_books') >> nth=0 >> a >> nth=0")
    await view.click("text=/^Runs with /")
    await view.wait_for_selector(".chips >> text=/error /")
    assert "close_books" in await page.text()
