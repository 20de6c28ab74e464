"""Whatever a counterpart answers, the result of a tool that Rota ships survives JSON.

`conftest.py` holds each result against what the encoder of the ledger gives back, with its types.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.errors import Rejected
from rota.tools import (
    Applied,
    Command,
    FeedRead,
    FileAppend,
    FileList,
    FileRead,
    FileWrite,
    HttpRead,
    HttpWrite,
    Lookup,
    SendMail,
    SqlRead,
    SqlWrite,
)
from tests.tools.kit import CALL, same
from tests.tools.kit.mail_server import Postbox
from tests.tools.kit.web_site import Site

EXAMPLES = settings(max_examples=60)
CHARSETS = [
    *("utf-8", "utf-16", "utf-32", "latin-1", "cp1252", "gb18030", "shift_jis", "koi8-r"),
    *("utf-7", "unicode_escape", "raw_unicode_escape", "punycode", "idna", "undefined", "hex"),
]
MEDIA = ["application/json", "text/html", "application/problem+json", "image/png", ""]
JSON = [
    *(b'"\\ud800"', b'{"\\udfff": 1}', b'{"a": 1, "a": 2}', b"1e400", b"-0", b"-0.0"),
    *(b"123456789012345678901234567890", b"NaN", b'{"a": [null, 1.5, {}]}', b"[" * 3000),
    *(b"[" * 600 + b"]" * 600, b'{"a":' * 400 + b"1" + b"}" * 400),
]
BODIES = st.one_of(
    st.binary(max_size=60),
    st.sampled_from([*JSON, b"+2AA-", b"\\ud800", b"\xed\xa0\x80", b"\xff\xfeA"]),
    st.text(max_size=20).map(lambda text: text.encode(errors="replace")),
)


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


@EXAMPLES
@given(body=BODIES, media=st.sampled_from(MEDIA), charset=st.sampled_from(CHARSETS))
def test_any_body_of_an_answer(body: bytes, media: str, charset: str) -> None:
    async def work() -> None:
        async with Site().up() as site:
            headers = {"content-type": f"{media}; charset={charset}", "etag": '"a\xe9"'}
            for path in ("/", "/77"):
                site.pages[path] = (200, headers, body)
            sent = {"url": "/", "json": {"id": 77}}
            lookup = Lookup("/{id}", found=lambda answer: True)
            write = HttpWrite(base=site.url, lookup=lookup)
            assert "status" in await write.call(sent, CALL)
            assert isinstance(await write.reconcile(sent, CALL), Applied)
            for kind in ("auto", "text", "base64", "json"):
                try:
                    await HttpRead(base=site.url).call({"url": "/", "kind": kind}, CALL)
                except Rejected:
                    assert kind == "json"

    run(work())


TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=12)


@EXAMPLES
@given(
    title=TEXTS, date=TEXTS, link=TEXTS, encoding=st.sampled_from(["utf-8", "utf-16", "gb18030"])
)
def test_any_feed(title: str, date: str, link: str, encoding: str) -> None:
    async def work() -> None:
        async with Site().up() as site:
            quoted = [
                text.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")
                for text in (title, date, link)
            ]
            feed = (
                f'<?xml version="1.0" encoding="{encoding}"?><rss><channel><item>'
                f"<title>{quoted[0]}</title><pubDate>{quoted[1]}</pubDate><link>{quoted[2]}</link>"
                "</item></channel></rss>"
            )
            site.pages["/"] = (200, {}, feed.encode(encoding))
            with contextlib.suppress(Rejected):  # characters that XML does not have
                await FeedRead(base=site.url).call({"url": "/"}, CALL)

    run(work())


@EXAMPLES
@given(
    raw=st.one_of(st.binary(max_size=60), st.sampled_from(JSON)),
    name=st.binary(min_size=1, max_size=8),
)
def test_any_file(raw: bytes, name: bytes) -> None:
    async def work(folder: Path) -> None:
        path = os.fsencode(folder) + b"/" + name.translate(bytes.maketrans(b"/\0.", b"___"))
        with open(path, "wb") as file:
            file.write(raw)
        [found] = await FileList(folder).call({}, CALL)
        assert found["bytes"] == len(raw)
        (folder / "x").write_bytes(raw)
        for kind in ("auto", "text", "base64", "json"):
            try:
                await FileRead(folder).call({"path": "x", "kind": kind}, CALL)
            except Rejected:
                assert kind == "json"
        await FileAppend(folder).call({"path": "y", "text": raw.decode("latin-1")}, CALL)
        await FileWrite(folder).call({"path": "z", "text": raw.decode("latin-1")}, CALL)

    with tempfile.TemporaryDirectory() as folder:
        run(work(Path(folder)))


@settings(max_examples=15)
@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=30), key=TEXTS)
def test_any_command_and_any_mail(text: str, key: str) -> None:
    async def work() -> None:
        call = CALL._replace(key=key.replace("\0", ""))
        echo = Command(["cat"])
        result = await echo.call({"stdin": text}, call)
        assert result["stdout"] == text
        async with Postbox().up() as box:
            mail = SendMail("127.0.0.1", "a@example.org", tls="none", port=box.port)
            sent = await mail.call({"to": ["b@example.org"], "subject": key, "text": text}, call)
            assert sent["message_id"] == box.ids[0]

    run(work())


async def test_a_command_that_writes_bytes() -> None:
    await Command(["printf", r"\377\200\000a"]).call({}, CALL)


@pytest.fixture
def shop(tmp_path: Path) -> str:
    """A database of a user."""
    path = tmp_path / "shop.db"
    sqlite3.connect(path).close()
    return f"sqlite:///{path}"


SQLITE = "x'ff00' a, 9e999 b, -9e999 c, null d, 1 << 62 e, 'ä' f, zeroblob(3) g, char(0) h, 1.0 i"
INFINITE = {"b": "inf", "c": "-inf"}


async def test_any_value_of_sqlite(shop: str) -> None:
    [row] = (await SqlRead(shop, f"select {SQLITE}").call({}, CALL))["rows"]
    assert same({name: row[name] for name in INFINITE}, INFINITE)
    assert same([row["e"], row["i"]], [1 << 62, 1.0])


async def test_any_value_that_a_write_returns(tmp_path: Path, shop: str) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / "shop.db")) as connection:
        connection.execute("create table t (a)")
    write = SqlWrite(shop, "insert into t values (9e999) returning a")
    for already in (False, True):
        assert await write.call({}, CALL) == {"rows": [{"a": "inf"}], "already": already}


POSTGRES = """'NaN'::float8 a, '-infinity'::float8 b, 'NaN'::numeric c, 1.50::numeric d,
    'infinity'::timestamptz e, '2030-01-01'::date f, '1 day 2 s'::interval g, '23:59'::time h,
    array['NaN'::float8, 1] i, array['\\xff'::bytea] j, '[1,2)'::int4range k, row(1, 'a') l,
    '{"a": [1, null]}'::jsonb m, '10.0.0.0/8'::cidr n, 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid
    o, point(1, 2) p, '101'::bit(3) q, '1.5'::money r, 'a b'::tsvector s, '<a/>'::text t,
    array[row(1, 2.5)] u, '{{1,2},{3,4}}'::int[] v, 9223372036854775807 w, null y,
    12345678901234567890123 z"""


@pytest.mark.pg
async def test_any_value_of_postgresql(postgres_url: str) -> None:
    [row] = (await SqlRead(postgres_url, f"select {POSTGRES}").call({}, CALL))["rows"]
    assert same([row["a"], row["b"], row["d"], row["w"]], ["nan", "-inf", "1.50", (1 << 63) - 1])
    assert same(row["i"], ["nan", 1.0])


@pytest.mark.pg
async def test_a_value_that_python_does_not_have_is_refused_before_the_commit(
    postgres_url: str,
) -> None:
    write = SqlWrite(postgres_url, ["create table never_made (a int)", "select '24:00'::time"])
    with pytest.raises(Rejected, match="hour"):
        await write.call({}, CALL)
    found = await SqlRead(postgres_url, "select to_regclass('never_made')::text a").call({}, CALL)
    assert found["rows"] == [{"a": None}]
