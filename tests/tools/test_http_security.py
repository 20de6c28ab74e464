"""HTTP tools and data from outside: it names no secret, leads nowhere it should not, and fills no
memory."""

from __future__ import annotations

import tracemalloc
import zlib
from typing import Any

import pytest

from rota.errors import BadInput, NotSent, OutcomeUnknown, Rejected, UsageError
from rota.net import addresses
from rota.net.secret import Secret
from rota.tools import FeedRead, HttpRead, HttpWrite, Lookup, Tool, secret, tool
from tests.tools.kit import CALL
from tests.tools.kit.web_site import Site

METHODS = ["POST", "PUT", "PATCH", "DELETE"]
FORGED = {"secret": "THE_TOKEN", "prefix": ""}


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    """A secret that may not leave."""
    monkeypatch.setenv("THE_TOKEN", "s3cr3t-value")


@pytest.mark.parametrize("make", [HttpWrite, HttpRead, FeedRead])
async def test_data_from_outside_cannot_name_a_secret(make: Any) -> None:
    """Headers of a call may come from an event; the developer sets those of the tool."""
    async with Site().up() as site:
        send: Tool = make(base=site.url)
        for value in (FORGED, {"secret": "THE_TOKEN"}, secret("THE_TOKEN")):
            with pytest.raises(BadInput, match="header"):
                await send.call({"url": "/things", "headers": {"x": value}}, CALL)
        assert site.asked == []


def test_no_type_decodes_a_secret_from_json() -> None:
    @tool(safety="unknowable")
    def send(token: Secret) -> None: ...

    for given in (FORGED, secret("THE_TOKEN")):
        with pytest.raises(UsageError):
            send.check({"token": given})


def test_a_secret_shows_its_name_only() -> None:
    one = secret("THE_TOKEN", prefix="Bearer ")
    assert "s3cr3t" not in repr(one)
    assert (one, hash(one)) == (Secret("THE_TOKEN", "Bearer "), hash(one))
    assert one != secret("THE_TOKEN")


@pytest.mark.parametrize("make", [HttpWrite, HttpRead, FeedRead])
def test_secret_headers_need_a_base(make: Any) -> None:
    headers = {"Authorization": secret("THE_TOKEN")}
    with pytest.raises(UsageError, match="Authorization") as raised:
        make(headers=headers)
    assert "base=" in raised.value.advice
    make(base="https://example.org", headers=headers)
    make(headers={"X-Plain": "1"})


def test_secret_headers_of_a_lookup_need_a_base() -> None:
    lookup = Lookup("/x/{key}", headers={"X-Key": secret("THE_TOKEN")})
    with pytest.raises(UsageError, match="X-Key"):
        HttpWrite(lookup=lookup)
    HttpWrite(base="https://example.org", lookup=lookup)


# -- where requests go -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("base", "url"),
    [
        ("https://a.example", "http://a.example/x"),
        ("https://a.example", "https://a.example:444/x"),
        ("https://a.example:8443", "https://a.example/x"),
        ("http://a.example", "https://a.example/x"),
        ("https://a.example", "https://b.example/x"),
        ("https://a.example", "https://a.example.evil.example/x"),
        ("https://a.example", "//b.example/x"),
        ("https://a.example", "https://a.example\\@b.example/x"),
        ("https://a.example", "https://b.example#@a.example/x"),
    ],
)
def test_scheme_host_and_port_of_the_base_are_kept(base: str, url: str) -> None:
    for make in (HttpWrite, HttpRead):
        with pytest.raises(BadInput):
            make(base=base).check({"url": url})


def test_the_default_port_may_be_written_or_left_out() -> None:
    HttpRead(base="https://a.example").check({"url": "https://a.example:443/x"})
    HttpRead(base="http://a.example:80").check({"url": "/x"})


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_that_leads_away_from_the_base_is_refused(status: int) -> None:
    async with Site().up() as home, Site().up() as away:
        home.pages["/a"] = (status, {"location": f"{away.url}/c"}, b"")
        away.pages["/c"] = (200, {}, b"inside")
        for make in (HttpRead, FeedRead):
            with pytest.raises(Rejected, match="leads away"):
                await make(base=home.url).call({"url": "/a"}, CALL)
        assert away.asked == []


async def test_a_lookup_at_another_site_than_the_base_asks_nothing() -> None:
    async with Site().up() as home, Site().up() as away:
        headers = {"X-Key": secret("THE_TOKEN")}
        lookup = Lookup(f"{away.url}/effects/{{key}}")
        send = HttpWrite(base=home.url, headers=headers, lookup=lookup)
        with pytest.raises(UsageError, match="leads away"):
            await send.reconcile({"url": "/things"}, CALL)
        assert away.asked == []


async def test_a_lookup_gets_the_headers_of_the_tool() -> None:
    async with Site().up() as home:
        headers = {"X-Key": secret("THE_TOKEN")}
        send = HttpWrite(base=home.url, headers=headers, lookup=Lookup("/effects/{key}"))
        await send.reconcile({"url": "/things"}, CALL)
        assert home.asked[-1].headers["x-key"] == "s3cr3t-value"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "0x7f.1"])
@pytest.mark.parametrize("make", [HttpWrite, HttpRead, FeedRead])
async def test_a_private_address_is_refused_unless_the_developer_named_it(
    make: Any, host: str
) -> None:
    async with Site().up() as site:
        url = f"http://{host}:{site.url.rpartition(':')[2]}/things"
        with pytest.raises(Rejected, match="not a public address") as raised:
            await make().call({"url": url}, CALL)
        assert "private=True" in raised.value.advice
        assert site.asked == []
        with pytest.raises(Rejected, match="not a public address"):
            await make(base=site.url, private=False).call({"url": "/things"}, CALL)
        assert site.asked == []


async def test_a_private_address_is_asked_when_it_is_allowed() -> None:
    async with Site().up() as site:
        site.pages["/things"] = (200, {}, b"hello")
        for read in (HttpRead(private=True), HttpRead(base=site.url)):
            assert (await read.call({"url": f"{site.url}/things"}, CALL))["text"] == "hello"
        result = await HttpWrite(private=True).call({"url": f"{site.url}/things"}, CALL)
        assert result["status"] == 200


async def test_a_redirect_from_a_public_to_a_private_address_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The address that is connected to decides, at every hop."""
    monkeypatch.setattr(addresses, "is_public", lambda address: address == "127.0.0.1")
    async with Site().up() as public, Site("127.0.0.2").up() as private:
        public.pages["/a"] = (302, {"location": f"{private.url}/meta-data"}, b"")
        private.pages["/meta-data"] = (200, {}, b"credentials")
        with pytest.raises(Rejected, match=r"127\.0\.0\.2"):
            await HttpRead().call({"url": f"{public.url}/a"}, CALL)
        assert len(public.asked) == 1
        assert private.asked == []


async def test_a_proxy_may_be_private_and_what_is_asked_of_it_may_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Site().up() as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        for host in ("169.254.169.254", "localhost", "10.0.0.7", "[fd00::1]"):
            with pytest.raises(Rejected, match="not a public address"):
                await HttpRead().call({"url": f"http://{host}/x"}, CALL)
        assert proxy.asked == []
        proxy.pages["http://example.org/x"] = (200, {}, b"through the proxy")
        page = await HttpRead().call({"url": "http://example.org/x"}, CALL)
        assert page["text"] == "through the proxy"


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("93.184.216.34", True),
        ("2606:2800:220:1:248:1893:25c8:1946", True),
        ("127.0.0.1", False),
        ("10.1.2.3", False),
        ("172.16.0.1", False),
        ("192.168.1.1", False),
        ("169.254.169.254", False),
        ("100.64.0.1", False),
        ("0.0.0.0", False),
        ("224.0.0.1", False),
        ("255.255.255.255", False),
        ("::1", False),
        ("::", False),
        ("fe80::1%eth0", False),
        ("fd00::1", False),
        ("ff02::1", False),
        ("::ffff:10.0.0.1", False),
        ("64:ff9b::a9fe:a9fe", False),
        ("64:ff9b::5db8:d822", True),
        ("2002:7f00:1::", False),
        ("fec0::1", False),
        ("64:ff9b:1::a9fe:a9fe", False),
        ("64:ff9b:1::5db8:d822", False),
        ("::127.0.0.1", False),
        ("::93.184.216.34", False),
        ("::ffff:0:127.0.0.1", False),
        ("::ffff:0:5db8:d822", False),
        ("4000::1", False),
        ("2001:db8::1", False),
        ("2001::1", False),
        ("2002:5db8:d822::1", True),
        ("not an address", False),
    ],
)
def test_which_addresses_are_public(address: str, public: bool) -> None:
    assert addresses.is_public(address) is public


# -- what is sent, and how much is read --------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("content", [{"json": {"id": "a"}}, {"body": '{"id": "a"}'}, {}], ids=str)
async def test_the_key_goes_along_with_every_method_and_every_kind_of_body(
    method: str, content: dict[str, Any]
) -> None:
    async with Site().up() as site:
        site.pages["/things"] = (200, {}, b"")
        send = HttpWrite(base=site.url, method=method, key_header="Idempotency-Key")
        await send.call({"url": "/things", **content}, CALL)
        assert site.asked[-1].method == method
        assert site.asked[-1].headers["idempotency-key"] == CALL.key


@pytest.mark.parametrize("method", METHODS)
async def test_a_request_that_was_sent_may_have_happened_whatever_its_method(method: str) -> None:
    async with Site().up() as site:
        site.faults = ["drop", "500"]
        send = HttpWrite(base=site.url, method=method)
        for _ in range(2):
            with pytest.raises(OutcomeUnknown):
                await send.call({"url": "/things", "json": {"id": "a"}}, CALL)
    with pytest.raises(NotSent):
        await send.call({"url": "/things", "json": {"id": "a"}}, CALL)


async def test_a_packed_answer_fills_no_memory() -> None:
    packer = zlib.compressobj(wbits=31)
    zeros = bytes(1_000_000)
    packed = b"".join(packer.compress(zeros) for _ in range(200)) + packer.flush()
    async with Site().up() as site:
        site.pages["/things"] = (200, {"content-encoding": "gzip"}, packed)
        tracemalloc.start()
        try:
            await HttpWrite(base=site.url, bytes_max=1000).call({"url": "/things"}, CALL)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 8_000_000
