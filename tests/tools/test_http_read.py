"""HTTP reads and feeds from a real server."""

from __future__ import annotations

import gzip
from typing import Any

import pytest

from rota.errors import (
    NeedsLogin,
    NeedsPermission,
    NotSent,
    PayloadTooBig,
    Rejected,
)
from rota.tools import Call, FeedRead, HttpRead, Safety, secret
from rota.tools.feed import parse
from tests.tools.kit import CALL
from tests.tools.kit.web_site import Site

RSS = b"""<?xml version="1.0"?>
<!DOCTYPE rss PUBLIC "-//Netscape Communications//DTD RSS 0.91//EN" "http://127.0.0.1:1/rss.dtd">
<rss version="2.0" xmlns:dc="http://purl.org/dc/elements/1.1/"
     xmlns:atom="http://www.w3.org/2005/Atom">
<channel><title>News&nbsp;today</title><atom:link rel="self" href="http://x/feed"/>
<link>http://site.example/</link>
<item><title>One &amp; only</title><link>/one</link><guid isPermaLink="false">id-1</guid>
  <pubDate>Wed, 01 Jan 2025 10:00:00 +0200</pubDate><dc:creator>Ann</dc:creator>
  <description><![CDATA[<b>bold</b>]]></description></item>
<item><title>Two</title><guid>http://site.example/two</guid><pubDate>rubbish</pubDate></item>
<item><description>neither id nor link nor title</description></item>
</channel></rss>"""

ATOM = b"""<feed xmlns="http://www.w3.org/2005/Atom"><title>Log</title>
<link rel="self" href="/feed"/><link href="/"/>
<entry><id>tag:x,2025:1</id><title type="html">First</title><link rel="edit" href="/e"/>
<link href="/first"/><published>2025-01-01T10:00:00Z</published>
<updated>2025-01-02T10:00:00+01:00</updated><author><name>Bob</name></author>
<summary>short</summary></entry></feed>"""

BOMB = (
    b'<!DOCTYPE x [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;">]>'
    b"<rss><channel><title>&b;</title></channel></rss>"
)
THIEF = (
    b'<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]>'
    b"<rss><channel><title>&a;</title></channel></rss>"
)

TITLED = "{head}<rss><channel><title>{title}</title></channel></rss>"


@pytest.mark.parametrize(
    "head",
    ["", '<?xml version="1.0"?>', "<!DOCTYPE rss>", '<!DOCTYPE rss SYSTEM "http://127.0.0.1:1/x">'],
)
def test_html_entities_in_a_feed_are_read_without_a_document_type(head: str) -> None:
    raw = TITLED.format(head=head, title="a&nbsp;b &eacute; &amp; &nope;").encode()
    assert parse(raw, url="http://h/feed")["title"] == "a\xa0b é & &nope;"


@pytest.mark.parametrize(
    "encoding", ["Shift_JIS", "euc-jp", "iso-2022-jp", "gb18030", "big5", "utf-16", "utf-8"]
)
def test_feeds_in_east_asian_encodings_are_read(encoding: str) -> None:
    head = f'<?xml version="1.0" encoding="{encoding}"?>'
    raw = TITLED.format(head=head, title="日本&nbsp;中").encode(encoding)
    assert parse(raw, url="http://h/feed")["title"] == "日本\xa0中"


@pytest.mark.parametrize("encoding", ["utf-7", "idna", "rot13", "nope", "shift_jis"])
def test_a_feed_whose_encoding_cannot_be_read_is_rejected(encoding: str) -> None:
    head = f'<?xml version="1.0" encoding="{encoding}"?>'
    raw = TITLED.format(head=head, title="é").encode() + b"\xff\xfe\x81"
    with pytest.raises(Rejected, match="encoding"):
        parse(raw, url="http://h/feed")


@pytest.mark.parametrize(
    ("content_type", "body", "kind", "read"),
    [
        ("application/json", b'{"a": 1}', "auto", {"json": {"a": 1}}),
        ("application/problem+json; x=y", b"[1]", "auto", {"json": [1]}),
        ("text/plain", b'{"a": 1}', "auto", {"text": '{"a": 1}'}),
        ("text/plain", b'{"a": 1}', "json", {"json": {"a": 1}}),
        ("text/html; charset=latin-1", "é".encode("latin-1"), "auto", {"text": "é"}),
        ("application/json", b"not json", "auto", {"text": "not json"}),
        ("image/png", b"\x89PNG\xff", "auto", {"base64": "iVBOR/8="}),
        ("image/png", b"\xff", "text", {"text": "�"}),
        ("text/plain", b"hi", "base64", {"base64": "aGk="}),
    ],
)
async def test_a_page_is_read_as_what_it_is(
    content_type: str, body: bytes, kind: str, read: dict[str, Any]
) -> None:
    async with Site().up() as site:
        site.pages["/page"] = (200, {"content-type": content_type, "etag": '"v1"'}, body)
        page = await HttpRead(base=site.url).call({"url": "/page", "kind": kind}, CALL)
        assert read.items() <= page.items()
        assert page["changed"] is True
        assert page["etag"] == '"v1"'


async def test_an_unchanged_page_is_not_read_again() -> None:
    async with Site().up() as site:
        site.pages["/page"] = (304, {}, b"")
        asked = {"url": "/page", "etag": '"v1"', "last_modified": "Wed, 01 Jan 2025 10:00:00 GMT"}
        page = await HttpRead(base=site.url).call(asked, CALL)
        assert page["changed"] is False
        assert page["etag"] == '"v1"'
        assert site.asked[-1].headers["if-none-match"] == '"v1"'
        assert site.asked[-1].headers["if-modified-since"] == "Wed, 01 Jan 2025 10:00:00 GMT"


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, Rejected),
        (401, NeedsLogin),
        (403, NeedsPermission),
        (404, Rejected),
        (429, NotSent),
        (500, NotSent),
        (503, NotSent),
    ],
)
async def test_each_status_has_one_meaning_for_a_read(status: int, error: type[Exception]) -> None:
    async with Site().up() as site:
        site.pages["/page"] = (status, {}, b"no")
        with pytest.raises(error) as raised:
            await HttpRead(base=site.url).call({"url": "/page"}, CALL)
        assert type(raised.value) is error


async def test_a_lost_connection_and_a_slow_site_are_transient_for_a_read() -> None:
    async with Site().up() as site:
        site.pages["/cut"] = (200, {"content-length": "99"}, b"x")
        with pytest.raises(NotSent):
            await HttpRead(private=True).call({"url": f"{site.url}/cut"}, CALL)
    with pytest.raises(NotSent):
        await HttpRead().call({"url": "http://127.0.0.1:1/"}, CALL)


async def test_json_that_is_none_is_refused_when_asked_for() -> None:
    async with Site().up() as site:
        site.pages["/page"] = (200, {}, b"<html>")
        with pytest.raises(Rejected, match="no JSON"):
            await HttpRead(base=site.url).call({"url": "/page", "kind": "json"}, CALL)


async def test_a_page_beyond_the_limit_is_refused_packed_or_not() -> None:
    async with Site().up() as site:
        packed = gzip.compress(b"x" * 10_000_000)
        site.pages["/big"] = (200, {}, b"x" * 1001)
        site.pages["/bomb"] = (200, {"content-encoding": "gzip"}, packed)
        small = HttpRead(base=site.url, bytes_max=1000)
        for page in ("/big", "/bomb"):
            with pytest.raises(PayloadTooBig, match="1,000 bytes"):
                await small.call({"url": page}, CALL)
        site.pages["/fine"] = (200, {"content-encoding": "gzip"}, gzip.compress(b"hello"))
        assert (await small.call({"url": "/fine"}, CALL))["text"] == "hello"


async def test_redirects_are_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THE_TOKEN", "s3cr3t-value")
    async with Site().up() as home, Site().up() as away:
        home.pages["/a"] = (302, {"location": "/b"}, b"")
        home.pages["/b"] = (200, {}, b"there")
        home.pages["/away"] = (301, {"location": f"{away.url}/c"}, b"")
        away.pages["/c"] = (200, {}, b"elsewhere")
        read = HttpRead(base=home.url, headers={"X-Key": secret("THE_TOKEN")})
        page = await read.call({"url": "/a"}, CALL)
        assert (page["text"], page["url"]) == ("there", f"{home.url}/b")
        assert [asked.headers.get("x-key") for asked in home.asked] == ["s3cr3t-value"] * 2
        anywhere = HttpRead(private=True, headers={"X-Other": "1"})
        page = await anywhere.call({"url": f"{home.url}/away"}, CALL)
        assert (page["text"], page["url"]) == ("elsewhere", f"{away.url}/c")
        assert "x-other" not in away.asked[0].headers
        home.pages["/loop"] = (302, {"location": "/loop"}, b"")
        with pytest.raises(Rejected, match="redirects"):
            await read.call({"url": "/loop"}, CALL)
        home.pages["/file"] = (302, {"location": "file:///etc/passwd"}, b"")
        with pytest.raises(Rejected, match="not an http"):
            await read.call({"url": "/file"}, CALL)


async def _feed(raw: bytes, **headers: str) -> Any:
    async with Site().up() as site:
        site.pages["/feed"] = (200, headers, raw)
        feed = await FeedRead(base=site.url).call({"url": "/feed"}, CALL)
        text = str(feed).replace(site.url, "http://site.example")
        return eval(text)  # plain values only, with the port of the day taken out


async def test_an_rss_feed_is_read() -> None:
    feed = await _feed(RSS, etag='"v1"')
    assert feed["title"] == "News\xa0today"
    assert feed["link"] == "http://site.example/"
    assert feed["etag"] == '"v1"'
    first, second, third = feed["entries"]
    assert third["summary"] == "neither id nor link nor title"
    assert first == {
        "id": "id-1",
        "title": "One & only",
        "link": "http://site.example/one",
        "published_at": "2025-01-01T08:00:00Z",
        "updated_at": "2025-01-01T08:00:00Z",
        "author": "Ann",
        "summary": "<b>bold</b>",
    }
    assert second["id"] == second["link"] == "http://site.example/two"
    assert second["published_at"] is None


async def test_an_atom_feed_is_read() -> None:
    feed = await _feed(ATOM)
    assert feed["link"] == "http://site.example/"
    assert feed["entries"] == [
        {
            "id": "tag:x,2025:1",
            "title": "First",
            "link": "http://site.example/first",
            "published_at": "2025-01-01T10:00:00Z",
            "updated_at": "2025-01-02T09:00:00Z",
            "author": "Bob",
            "summary": "short",
        }
    ]


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (BOMB, "entity"),
        (THIEF, "entity"),
        (b"<rss><channel>", "well-formed"),
        (b"", "well-formed"),
        (b"<html><body/></html>", "neither RSS nor Atom"),
        (b"<rss>" + b"<a>" * 200, "nested"),
        (b'<?xml version="1.0" encoding="klingon"?><rss/>', "encoding"),
    ],
)
async def test_what_is_no_feed_is_refused(raw: bytes, said: str) -> None:
    with pytest.raises(Rejected, match=said):
        await _feed(raw)


def test_a_long_feed_has_all_entries() -> None:
    items = "".join(f"<item><guid>{number}</guid></item>" for number in range(1_500))
    feed = parse(f"<rss><channel>{items}</channel></rss>".encode(), url="http://h/feed")
    assert [entry["id"] for entry in feed["entries"]] == [str(number) for number in range(1_500)]


async def test_an_unchanged_feed_has_no_entries() -> None:
    async with Site().up() as site:
        site.pages["/feed"] = (304, {}, b"")
        feed = await FeedRead(base=site.url).call({"url": "/feed", "etag": '"v1"'}, CALL)
        assert feed["changed"] is False
        assert feed["entries"] == []


def test_reads_are_reads() -> None:
    assert HttpRead().safety is FeedRead().safety is Safety.READ


async def test_a_slow_page_gives_up_in_time() -> None:
    async with Site().up() as site:
        site.pages["/far"] = (302, {"location": "/hang"}, b"")
        with pytest.raises(NotSent, match=r"no page within|no whole answer"):
            await HttpRead(base=site.url).call({"url": "/far"}, Call("k", 0.2))
