"""RSS and Atom feeds, read with a parser that follows no reference and expands no entity."""

from __future__ import annotations

import codecs
import hashlib
import html
import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Unpack
from urllib.parse import urljoin
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from rota.errors import Rejected
from rota.net.secret import hide_deep
from rota.tools.base import Call
from rota.tools.http import HttpRead, HttpReadOptions, HttpReadParams, change_of

DEPTH_MAX = 100
TITLE_CHARS_MAX = 500
_DECLARED = re.compile(rb"""<\?xml[^>]*?encoding\s*=\s*["']([A-Za-z0-9._-]+)["']""")
_FEED = {
    *("", "http://www.w3.org/2005/Atom", "http://purl.org/atom/ns#", "http://purl.org/rss/1.0/"),
    *("http://my.netscape.com/rdf/simple/0.9/", "http://backend.userland.com/rss2"),
    *("http://blogs.law.harvard.edu/tech/rss", "http://purl.org/net/rss1.1#"),
}
_MODULES = {
    "http://purl.org/dc/elements/1.1/": "dc",
    "http://purl.org/rss/1.0/modules/content/": "content",
}
_DECODED_HERE = {
    "big5", "big5hkscs", "cp932", "cp949", "cp950", "euc_jp", "euc_kr", "gb18030", "gb2312", "gbk",
    "iso2022_jp", "iso2022_kr", "shift_jis",
}  # fmt: skip


class FeedRead(HttpRead):
    """Reads an RSS or Atom feed; with `etag` or `last_modified`, only if it has changed."""

    def __init__(self, name: str = "feed_read", **options: Unpack[HttpReadOptions]) -> None:
        super().__init__(name, **options)

    async def perform(self, params: HttpReadParams, call: Call) -> Any:
        """The feed, its entries in its own order, and what to ask with next time."""
        answer = await self.get(params, call)
        known = change_of(answer, params)
        if not known["changed"]:
            return known | {"title": None, "link": None, "entries": []}
        request = answer.request
        feed = parse(answer.body, url=request.url, shown=request.shown or request.url)
        return known | hide_deep(feed, self._site.secrets)


def parse(raw: bytes, *, url: str, shown: str = "") -> dict[str, Any]:
    """Title, link and entries; ids, links and dates in one form whatever the format. `shown`
    represents the address in errors."""
    shown = shown or url
    root = _tree(raw, shown)
    feed = root if root.tag == "feed" else root.find("channel")
    if feed is None:
        raise Rejected(f"{shown} is XML, but neither RSS nor Atom: it begins with <{root.tag}>")
    entries = [_entry(each, url) for each in root.iter() if each.tag in ("item", "entry")]
    return {
        "title": _text(feed, "title"),
        "link": _link(feed, url),
        "entries": [entry for entry in entries if entry["id"]],  # the others are empty
    }


def _entry(item: Element, url: str) -> dict[str, Any]:
    link = _link(item, url)
    title = _text(item, "title", "dc:title")
    summary = _text(item, "description", "summary", "content", "content:encoded", "dc:description")
    published = _instant(_text(item, "pubDate", "published", "dc:date", "issued"))
    return {
        # The part that stays the same when the text is edited: its own id, otherwise its address,
        # otherwise its name. An item without these is its text.
        "id": _text(item, "guid", "id") or link or title or _digest(summary),
        "title": (title or "")[:TITLE_CHARS_MAX],
        "link": link,
        "published_at": published,
        "updated_at": _instant(_text(item, "updated", "modified")) or published,
        "author": _author(item),
        "summary": summary,
    }


def _text(item: Element, *names: str) -> str | None:
    """The text of the first child of one of these names that has some."""
    for name in names:
        for child in item.findall(name):
            text = "".join(child.itertext()).strip()
            if text:
                return text
    return None


def _author(item: Element) -> str | None:
    for author in item.findall("author"):
        if name := _text(author, "name", "email"):
            return name
    return _text(item, "author", "dc:creator")


def _digest(text: str | None) -> str | None:
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}" if text else None


def _link(item: Element, url: str) -> str | None:
    """RSS writes the address as text, Atom as an attribute; `alternate` is the page itself."""
    links = item.findall("link")
    for link in sorted(links, key=lambda each: each.get("rel", "alternate") != "alternate"):
        target = (link.get("href") or link.text or "").strip()
        if target and link.get("rel", "alternate") in ("alternate", "self"):
            return _joined(url, target)
    guid = item.find("guid")
    if guid is not None and guid.get("isPermaLink", "true") == "true":
        text = (guid.text or "").strip()
        return text if text.startswith(("http://", "https://")) else None
    return None


def _joined(url: str, target: str) -> str:
    try:
        return urljoin(url, target)
    except ValueError:
        return target


def _instant(text: str | None) -> str | None:
    """A date of either format as ISO text in UTC; None if it is not a date."""
    if not text:
        return None
    for read in (datetime.fromisoformat, parsedate_to_datetime):
        try:
            when = read(text)
            when = when if when.tzinfo else when.replace(tzinfo=UTC)
            return when.astimezone(UTC).isoformat().replace("+00:00", "Z")
        except (ValueError, TypeError, OverflowError):
            continue
    return None


def _tree(raw: bytes, url: str) -> Element:
    """The document with the names of `_local`; entities other than those of HTML are refused."""
    builder = TreeBuilder()
    parser = expat.ParserCreate(namespace_separator=" ")
    depth = 0

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        if depth > DEPTH_MAX:
            raise Rejected(f"{url} is nested more than {DEPTH_MAX} deep")
        builder.start(_local(name), {_local(key): text for key, text in attributes.items()})

    def end(name: str) -> None:
        nonlocal depth
        depth -= 1
        builder.end(_local(name))

    def entity(name: str, *_: object) -> None:
        raise Rejected(f"{url} declares the entity {name!r}, which no feed needs")

    def skipped(name: str, _: bool) -> None:
        builder.data(html.unescape(f"&{name};"))

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = builder.data
    parser.EntityDeclHandler = entity
    parser.SkippedEntityHandler = skipped
    # An empty DTD in the place of any other, which is not fetched: expat then skips &nbsp;.
    parser.UseForeignDTD(True)
    parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_ALWAYS)
    parser.ExternalEntityRefHandler = lambda context, *_: parser.ExternalEntityParserCreate(
        context
    ).Parse(b"", True)
    try:
        parser.Parse(_readable(raw.lstrip()), True)
    except expat.ExpatError as error:
        raise Rejected(f"{url} is not well-formed XML: {error}") from error
    except (LookupError, ValueError) as error:  # ValueError: bytes that are not in the encoding
        raise Rejected(f"{url} is in an encoding that cannot be read: {error}") from error
    return builder.close()


def _readable(raw: bytes) -> bytes | str:
    """Text for encodings of several bytes a character, which expat does not know."""
    declared = _DECLARED.match(raw)
    name = declared.group(1).decode("ascii") if declared else "utf-8"
    return raw.decode(name) if codecs.lookup(name).name in _DECODED_HERE else raw


def _local(name: str) -> str:
    """The plain name of an element of a feed, `dc:` or `content:` before those of the modules that
    are read. Any other element keeps its namespace, so that it counts for nothing."""
    space, _, local = name.rpartition(" ")
    if space in _FEED:
        return local
    return f"{_MODULES[space]}:{local}" if space in _MODULES else name
