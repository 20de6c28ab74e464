"""A lookup asks about exactly one thing, and "applied" needs an answer about exactly that thing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rota.errors import BadInput, UsageError
from rota.tools import (
    Applied,
    FileAppend,
    FileRead,
    FileWrite,
    HttpRead,
    HttpWrite,
    Lookup,
    NotApplied,
    Unknown,
)
from tests.tools.kit import CALL
from tests.tools.kit.web_site import Site

SITE = "https://shop.example"
# A path part with one of these names no thing, another thing, or the whole collection.
NO_NAMES = [
    *(
        "",
        " ",
        ".",
        "..",
        "a/b",
        "../a",
        "a\\b",
        "a\nb",
        "\0",
        "\x7f",
        "\u2028",
        "\u200b",
        "\ud800",
    ),
    *(None, True, 1.5, ["a"], {"a": 1}),
]


def sender(url: str = "/orders/{id}", **options: Any) -> HttpWrite:
    return HttpWrite("send", base=SITE, lookup=Lookup(url, **options))


def by_search() -> HttpWrite:
    return sender("/orders?ref={id}", found=lambda answer: bool(answer["items"]))


@pytest.mark.parametrize("value", NO_NAMES)
def test_a_lookup_that_names_no_single_thing_is_refused_before_the_call(value: Any) -> None:
    for url in ("/orders/{id}", "/{id}", "/orders/{id}/", "/o/{key}/{id}"):
        with pytest.raises((BadInput, UsageError)):
            sender(url).check({"url": "/orders", "json": {"id": value}})


@pytest.mark.parametrize("value", ["", " ", None, True, ["a"], {"a": 1}, "a\nb"])
def test_a_search_for_nothing_is_refused_before_the_call(value: Any) -> None:
    with pytest.raises(BadInput, match="lookup"):
        by_search().check({"url": "/orders", "json": {"id": value}})


@pytest.mark.parametrize(
    "value", ["77", 77, "a b", "ä", "a:b", "...", "a.b", "a%2Fb", "?", "{key}"]
)
def test_a_lookup_that_names_one_thing_is_allowed(value: Any) -> None:
    sender().check({"url": "/orders", "json": {"id": value}})
    by_search().check({"url": "/orders", "json": {"id": value}})


def test_a_search_may_hold_what_a_path_may_not() -> None:
    by_search().check({"url": "/orders", "json": {"id": "../a"}})


def test_a_field_that_is_missing_is_refused_before_the_call() -> None:
    for params in ({"json": {"name": "a"}}, {"json": [1]}, {"body": "a"}, {}):
        with pytest.raises(BadInput, match="id"):
            sender().check({"url": "/orders", **params})


def test_a_lookup_that_leads_away_is_refused_before_the_call() -> None:
    with pytest.raises(BadInput, match="leads away"):
        sender("https://other.example/{id}").check({"url": "/orders", "json": {"id": "a"}})


PATTERNS = [
    *("/orders/{id}/items", "/orders/{id.real}", "/o/{id[0]}", "/o/{id:.0}", "/o/{id!r}", "/o/{}"),
    "/o/{0}",
]


@pytest.mark.parametrize("url", PATTERNS)
def test_a_pattern_that_may_name_another_thing_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="lookup"):
        Lookup(url)


ABOUT_77 = [b'{"id": "77"}', b'{"id": 77}', b'{"data": {"attributes": {"ref": "77"}}}']
ABOUT_OTHERS = [
    *(b"{}", b'{"id": "7"}', b'{"id": "770"}', b'{"id": 77.0}', b'{"77": "id"}', b"[]", b'"77"'),
    *(b'{"items": [{"id": "77"}]}', b'[{"id": "77"}]', b"<html>77</html>", b""),
]


@pytest.mark.parametrize("body", ABOUT_77)
@pytest.mark.parametrize("value", ["77", 77])
async def test_an_answer_about_the_thing_proves_that_it_is_there(body: bytes, value: Any) -> None:
    assert isinstance(await verdict(200, body, value), Applied)


@pytest.mark.parametrize("body", ABOUT_OTHERS)
async def test_an_answer_about_anything_else_proves_nothing(body: bytes) -> None:
    found = await verdict(200, body, "77")
    assert isinstance(found, Unknown)
    assert "found=" in found.why


@pytest.mark.parametrize("status", [201, 202, 203, 204, 206, 304])
async def test_only_a_whole_answer_of_now_proves_that_it_is_there(status: int) -> None:
    body = b"" if status in (204, 304) else b'{"id": "77"}'
    assert isinstance(await verdict(status, body, "77"), Unknown)


@pytest.mark.parametrize("status", [404, 410])
async def test_no_such_thing_means_that_it_did_not_happen(status: int) -> None:
    assert isinstance(await verdict(status, b"", "77"), NotApplied)


@pytest.mark.parametrize("status", [404, 410])
async def test_a_search_that_is_not_there_proves_nothing(status: int) -> None:
    found = await verdict(status, b"", "77", lookup=Lookup("/orders?ref={id}", found=bool))
    assert isinstance(found, Unknown)
    with_both = Lookup("/orders/{id}", found=lambda answer: True)
    assert isinstance(await verdict(status, b"", "77", lookup=with_both), Unknown)


async def verdict(status: int, body: bytes, value: Any, *, lookup: Lookup | None = None) -> Any:
    """The verdict of a lookup with one answer."""
    async with Site().up() as site:
        headers = {"content-type": "text/html" if body.startswith(b"<") else "application/json"}
        for path in ("/orders/77", "/orders?ref=77"):
            site.pages[path] = (status, headers, body)
        send = HttpWrite(base=site.url, lookup=lookup or Lookup("/orders/{id}"))
        return await send.reconcile({"url": "/orders", "json": {"id": value}}, CALL)


UNCLEAR = [
    *("/a/..", "/a/../b", "/./b", "/a/%2e%2E", "/a/.%2e/b", "/a/%2E", "/a\\b", "/a\nb", "/a\tb"),
    "/a\x7f",
]


@pytest.mark.parametrize("url", UNCLEAR)
def test_a_path_that_means_another_one_is_refused(url: str) -> None:
    for tool in (HttpWrite(base=SITE, method="DELETE"), HttpRead(base=SITE), HttpRead()):
        with pytest.raises(BadInput, match="path"):
            tool.check({"url": url if tool.service else SITE + url})


def test_a_write_has_no_empty_part_in_its_path() -> None:
    for url in ("/orders//items", f"{SITE}//orders"):
        with pytest.raises(BadInput, match="path"):
            HttpWrite(base=SITE).check({"url": url})
    HttpWrite(base=SITE).check({"url": "/orders/?next=../a//b"})
    HttpRead().check({"url": "https://archive.example/2020/https://shop.example/"})


@pytest.mark.parametrize("path", ["a/../b", "./a", "a//b", "a/./b", "a/", "a\nb", "a\x1fb", "a/.."])
def test_a_file_is_named_in_one_way(tmp_path: Path, path: str) -> None:
    (tmp_path / "a").mkdir()
    for tool in (FileRead(tmp_path), FileWrite(tmp_path), FileAppend(tmp_path)):
        with pytest.raises(BadInput):
            tool.check({"path": path} | ({} if isinstance(tool, FileRead) else {"text": "x"}))
