"""Headers of a call stay at the site that it named, and Rota alone frames messages."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from rota.errors import BadInput, Rejected, UsageError
from rota.net import http
from rota.net.secret import Text
from rota.tools import FeedRead, HttpRead, HttpWrite, Lookup, secret
from tests.tools.kit import CALL
from tests.tools.kit.mail_server import client_tls, server_tls
from tests.tools.kit.web_site import Site

CARRIED = {
    "Authorization": "Bearer s3cr3t", "Cookie": "a=s3cr3t", "X-Api-Key": "s3cr3t",
    "PRIVATE-TOKEN": "s3cr3t",
}  # fmt: skip
FEED = b"<rss><channel><title>T</title></channel></rss>"
OPEN: dict[str, Any] = {"private": True, "headers": {"User-Agent": "us", "X-Plain": "s3cr3t"}}


def names(site: Site) -> set[str]:
    return set(site.asked[-1].headers)


def secrets_at(site: Site) -> list[str]:
    """The secrets that a site received."""
    return [
        text
        for asked in site.asked
        for text in (asked.path, *asked.headers.values())
        if "s3cr3t" in text
    ]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("make", [HttpRead, FeedRead])
async def test_no_header_of_a_call_follows_a_redirect_to_another_host(
    make: Any, status: int
) -> None:
    async with Site().up() as home, Site().up() as away:
        home.pages["/a?key=s3cr3t"] = (status, {"location": f"{away.url}/b"}, b"")
        away.pages["/b"] = (200, {}, FEED)
        params = {"url": f"{home.url}/a?key=s3cr3t", "headers": CARRIED, "etag": '"1"'}
        await make(**OPEN).call(params, CALL)
        assert names(home) >= {name.lower() for name in (*CARRIED, "X-Plain")}
        assert secrets_at(away) == []
        # Those of the tool that say who asks go along, and the question whether it changed.
        assert names(away) >= {"user-agent", "if-none-match"}


async def test_headers_that_were_dropped_do_not_come_back() -> None:
    async with Site().up() as home, Site().up() as away:
        home.pages["/a"] = (302, {"location": f"{away.url}/b"}, b"")
        away.pages["/b"] = (302, {"location": f"{home.url}/c"}, b"")
        home.pages["/c"] = (200, {}, b"")
        await HttpRead(**OPEN).call({"url": f"{home.url}/a", "headers": CARRIED}, CALL)
        assert [len(asked.headers) > 6 for asked in home.asked] == [True, False]


async def test_headers_of_a_call_follow_a_redirect_at_the_same_site() -> None:
    async with Site().up() as home:
        home.pages["/a"] = (302, {"location": "/b"}, b"")
        home.pages["/b"] = (200, {}, b"")
        await HttpRead(**OPEN).call({"url": f"{home.url}/a", "headers": CARRIED}, CALL)
        assert names(home) >= {name.lower() for name in CARRIED}


@contextlib.asynccontextmanager
async def protected(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Site]:
    """A site with TLS that the client trusts."""
    monkeypatch.setattr(http, "_trust", client_tls)
    async with Site().up(tls=server_tls()) as site:
        yield site


async def test_no_redirect_leads_from_https_to_http(monkeypatch: pytest.MonkeyPatch) -> None:
    async with protected(monkeypatch) as home, Site().up() as away:
        home.pages["/a"] = (302, {"location": f"{away.url}/b"}, b"")
        home.pages["/ok"] = (200, {}, b"fine")
        with pytest.raises(Rejected, match="https to http"):
            await HttpRead(**OPEN).call({"url": f"{home.url}/a"}, CALL)
        assert (await HttpRead(**OPEN).call({"url": f"{home.url}/ok"}, CALL))["text"] == "fine"
        assert away.asked == []


def test_the_same_host_by_its_usual_https_port_is_the_same_site() -> None:
    assert http.is_same_site("http://a.example/x", "https://a.example/y")
    assert http.is_same_site("http://A.example:80", "https://a.example:443")
    for other in ("https://a.example:8443", "https://b.example", "http://a.example:81",
                  "https://a.example.", "https://www.a.example"):  # fmt: skip
        assert not http.is_same_site("http://a.example/x", other)
    assert not http.is_same_site("https://a.example", "http://a.example")


FRAMING = [
    *("Host", "content-length", "Transfer-Encoding", "connection", "Keep-Alive", "TE", "Trailer"),
    *("Upgrade", "Expect", "Proxy-Connection", "Proxy-Authorization", "Accept-Encoding"),
    "Content-Encoding",
]


@pytest.mark.parametrize("name", FRAMING)
def test_framing_headers_are_not_for_a_call_nor_for_a_tool(name: str) -> None:
    for tool in (HttpWrite(base="https://a.example"), HttpRead(), FeedRead()):
        with pytest.raises(BadInput, match="set by Rota"):
            tool.check({"url": "https://a.example/x", "headers": {name: "1"}})
    with pytest.raises(UsageError, match="set by Rota"):
        HttpRead(headers={name: "1"})
    with pytest.raises(UsageError, match="set by Rota"):
        HttpWrite(key_header=name)
    with pytest.raises(UsageError, match="set by Rota"):
        HttpWrite(base="https://a.example", lookup=Lookup("/{key}", headers={name: "1"}))


def test_a_call_cannot_replace_a_header_of_the_tool() -> None:
    own: dict[str, Text] = {"Authorization": secret("TOKEN"), "X-Tenant": "good"}
    tools = [
        HttpWrite(base="https://a.example", headers=own, key_header="X-Key"),
        HttpRead(base="https://a.example", headers=own),
    ]
    for tool in tools:
        for name in ("authorization", "X-TENANT", "x-key"):
            if name == "x-key" and isinstance(tool, HttpRead):
                continue
            with pytest.raises(BadInput, match="the tool's own"):
                tool.check({"url": "/x", "headers": {name: "evil"}})
        tool.check({"url": "/x", "headers": {"X-Other": "1", "Content-Type": "text/csv"}})


QUERIES = ["tenant=evil", "a=1&tenant=", "%74enant=evil", "tenant", "a;tenant=evil"]


@pytest.mark.parametrize("url", [f"/x?{query}" for query in QUERIES])
def test_a_call_cannot_add_to_the_query_of_the_tool(url: str) -> None:
    for make in (HttpWrite, HttpRead):
        with pytest.raises(BadInput, match="the tool's own"):
            make(base="https://a.example", query={"tenant": "good"}).check({"url": url})
        make(base="https://a.example", query={"tenant": "good"}).check({"url": "/x?tenants=1"})


def test_a_lookup_cannot_add_to_the_query_of_the_tool() -> None:
    lookup = Lookup("/x?tenant={id}", found=bool)
    send = HttpWrite(base="https://a.example", query={"tenant": "good"}, lookup=lookup)
    with pytest.raises(BadInput, match="the tool's own"):
        send.check({"url": "/x", "json": {"id": "evil"}})
