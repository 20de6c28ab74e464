"""Feeds: namespaces are kept apart, no item is dropped, and ids stay the same."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from rota.tools.feed import parse

SPACES = (
    'xmlns:media="http://search.yahoo.com/mrss/" xmlns:dc="http://purl.org/dc/elements/1.1/" '
    'xmlns:content="http://purl.org/rss/1.0/modules/content/" '
    'xmlns:itunes="http://www.itunes.com/dtds/podcast-1.0.dtd" xmlns:x="urn:example:strange" '
    'xmlns:atom="http://www.w3.org/2005/Atom"'
)


def entries(items: str, *, url: str = "https://news.example/feed") -> list[dict[str, Any]]:
    rss = f"<rss version='2.0' {SPACES}><channel><title>T</title>{items}</channel></rss>"
    found: list[dict[str, Any]] = parse(rss.encode(), url=url)["entries"]
    return found


def test_elements_of_other_namespaces_are_not_those_of_the_feed() -> None:
    [one] = entries(
        "<item><media:title>Picture</media:title><itunes:title>Short</itunes:title>"
        "<x:guid>strange</x:guid><media:description>Alt</media:description><x:link>no</x:link>"
        "<atom:link rel='self' href='/self'/><itunes:author>Pod</itunes:author>"
        "<x:pubDate>Tue, 01 Jan 2030 00:00:00 GMT</x:pubDate>"
        "<title>Real</title><link>/real</link><guid isPermaLink='false'>g-1</guid>"
        "<description>Text</description><dc:creator>Ann</dc:creator></item>"
    )
    assert (one["title"], one["link"], one["id"]) == ("Real", "https://news.example/real", "g-1")
    assert (one["summary"], one["author"], one["published_at"]) == ("Text", "Ann", None)


def test_the_known_modules_fill_what_the_item_leaves_out() -> None:
    [one] = entries(
        "<item><guid>g</guid><content:encoded>Whole</content:encoded>"
        "<dc:date>2030-01-01T00:00:00Z</dc:date><dc:title>Named</dc:title></item>"
    )
    assert (one["title"], one["summary"]) == ("Named", "Whole")
    assert one["published_at"] == "2030-01-01T00:00:00Z"


@pytest.mark.parametrize("space", [
    "http://www.w3.org/2005/Atom", "http://purl.org/atom/ns#",
])  # fmt: skip
def test_atom_is_read_under_each_of_its_names_and_prefixes(space: str) -> None:
    for prefix, declared in (("", f'xmlns="{space}"'), ("a:", f'xmlns:a="{space}"')):
        text = (
            f"<{prefix}feed {declared}><{prefix}title>T</{prefix}title><{prefix}entry>"
            f"<{prefix}id>e-1</{prefix}id><{prefix}title>One</{prefix}title>"
            f"<{prefix}link href='/1'/></{prefix}entry></{prefix}feed>"
        )
        feed = parse(text.encode(), url="https://news.example/feed")
        [one] = feed["entries"]
        assert (feed["title"], one["id"], one["title"]) == ("T", "e-1", "One")
        assert one["link"] == "https://news.example/1"


def test_rss_1_is_read_with_its_namespace() -> None:
    text = (
        '<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" '
        'xmlns="http://purl.org/rss/1.0/"><channel><title>T</title></channel>'
        "<item><title>One</title><link>https://a.example/1</link></item></rdf:RDF>"
    )
    feed = parse(text.encode(), url="https://a.example/")
    assert (feed["title"], feed["entries"][0]["id"]) == ("T", "https://a.example/1")


def test_an_item_with_only_a_description_is_an_item() -> None:
    found = entries(
        "<item><description>Rain</description></item><item><description>Sun</description></item>"
        "<item><content:encoded>Sun</content:encoded></item><item></item>"
    )
    digest = "sha256:" + hashlib.sha256(b"Rain").hexdigest()
    assert found[0]["id"] == digest
    assert [one["summary"] for one in found] == ["Rain", "Sun", "Sun"]
    assert found[1]["id"] == found[2]["id"] != digest


def test_an_id_is_the_guid_then_the_link_then_the_title() -> None:
    parts = ["<guid isPermaLink='false'>g</guid>", "<link>https://a.example/l</link>",
             "<title>t</title>", "<description>d</description>"]  # fmt: skip
    ids = [entries(f"<item>{''.join(reversed(parts[n:]))}</item>")[0]["id"] for n in range(4)]
    assert ids[:3] == ["g", "https://a.example/l", "t"]
    assert ids[3].startswith("sha256:")
