"""Secrets of HTTP tools in addresses, queries and bodies: the counterpart gets them, and no other
server does: no result, no error, no log, no database.
"""

from __future__ import annotations

import base64
import logging
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest

from rota import Rota
from rota.automations import Change, Context, Prepared
from rota.errors import (
    BadInput,
    NeedsLogin,
    NeedsPermission,
    OutcomeUnknown,
    Rejected,
    RotaError,
    UsageError,
)
from rota.net.http import HttpRequest
from rota.net.secret import hide, hide_bytes
from rota.testing import virtual
from rota.tools import FeedRead, HttpRead, HttpWrite, Lookup, secret
from tests.kit.builders import raw
from tests.tools.kit import CALL
from tests.tools.kit.web_site import Site

VALUE = "s3cr3t/val ue"
HOOK = "/services/T00/B00/s3cr3tpath"


@pytest.fixture(autouse=True)
def values(monkeypatch: pytest.MonkeyPatch) -> None:
    """A token, and a word of three letters."""
    monkeypatch.setenv("THE_TOKEN", VALUE)
    monkeypatch.setenv("THE_PIN", "427")


def hook(site: Site, monkeypatch: pytest.MonkeyPatch, path: str = HOOK) -> None:
    """Put the address of a webhook into the environment."""
    monkeypatch.setenv("THE_HOOK", site.url + path)


# -- the counterpart gets them -----------------------------------------------------------------


async def test_a_tool_sends_secrets_in_its_json_at_any_depth() -> None:
    async with Site().up() as site:
        own = {"token": secret("THE_TOKEN"), "more": [{"key": secret("THE_TOKEN", prefix="k:")}]}
        send = HttpWrite(base=site.url, json=own)
        result = await send.call({"url": "/x", "json": {"id": "a"}}, CALL)
        body = msgspec.json.decode(site.asked[-1].body)
        assert body == {"id": "a", "token": VALUE, "more": [{"key": f"k:{VALUE}"}]}
        assert VALUE not in str(result)


async def test_a_tool_sends_secrets_in_a_form_and_in_the_query() -> None:
    async with Site().up() as site:
        site.pages["/x?a=1&key=s3cr3t%2Fval+ue"] = (200, {}, b"ok")
        own: Any = {"client_secret": secret("THE_TOKEN")}
        send = HttpWrite(base=site.url, form=own, query={"key": secret("THE_TOKEN")})
        await send.call({"url": "/x?a=1", "form": {"name": "Ann & Bob"}}, CALL)
        [asked] = site.asked
        assert asked.headers["content-type"] == "application/x-www-form-urlencoded"
        form = parse_qs(asked.body.decode())
        assert form == {"client_secret": [VALUE], "name": ["Ann & Bob"]}
        read = HttpRead(base=site.url, query={"key": secret("THE_TOKEN")})
        page = await read.call({"url": "/x?a=1"}, CALL)
        assert (page["text"], page["url"]) == ("ok", f"{site.url}/x?a=1&key=<THE_TOKEN>")


async def test_a_whole_address_may_be_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Site().up() as site:
        hook(site, monkeypatch)
        site.pages[HOOK] = (200, {}, b"ok")
        assert (await HttpWrite(base=secret("THE_HOOK")).call({"json": {}}, CALL))["text"] == "ok"
        assert urlsplit(site.asked[-1].path).path == HOOK
        page = await HttpRead(base=secret("THE_HOOK")).call({}, CALL)
        assert (page["text"], page["url"]) == ("ok", "<THE_HOOK>")


async def test_a_secret_may_be_a_part_of_an_address() -> None:
    async with Site().up() as site:
        site.pages["/bots3cr3t/val%20ue/send"] = (200, {}, b"ok")
        base = secret("THE_TOKEN", prefix=f"{site.url}/bot", suffix="/")
        assert (await HttpWrite(base=base).call({"url": "send"}, CALL))["text"] == "ok"
        with pytest.raises(BadInput, match="not a page below <THE_TOKEN>"):
            HttpWrite(base=base).check({"url": "https://elsewhere.example/x"})


# -- no other server --------------------------------------------------------------------------


@pytest.mark.parametrize("status", [200, 302, 400, 401, 500])
async def test_what_the_counterpart_echoes_holds_no_secret(
    monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    in_base64 = base64.b64encode(f"user:{VALUE}".encode()).decode()
    echo = f'"{VALUE}" s3cr3t%2Fval%20ue s3cr3t%2Fval+ue {in_base64} {HOOK} {{"pin": "427"}} 427000'
    async with Site().up() as site:
        hook(site, monkeypatch)
        site.pages[HOOK] = (status, {"location": f"{site.url}{HOOK}"}, echo.encode())
        own = {"token": secret("THE_TOKEN"), "pin": secret("THE_PIN")}
        send = HttpWrite(base=secret("THE_HOOK"), json=own)
        seen = ""
        try:
            seen = str(await send.call({}, CALL))
        except RotaError as error:
            seen = f"{error} {error.advice} {vars(error)}"
        assert "<THE_TOKEN>" in seen
        assert "427000" in seen
        for word in ("s3cr3t", "czNjcj", "N0L3Z", "B00", '"427"'):
            assert word not in seen


@pytest.mark.parametrize("service", [None, ""])
@pytest.mark.parametrize(("status", "kind"), [(401, NeedsLogin), (403, NeedsPermission)])
async def test_a_refusal_names_a_secret_address_by_its_variable(
    monkeypatch: pytest.MonkeyPatch, service: str | None, status: int, kind: type[RotaError]
) -> None:
    async with Site().up() as site:
        hook(site, monkeypatch)
        site.pages[HOOK] = (status, {}, b"no")
        with pytest.raises(kind) as refused:
            await HttpRead(base=secret("THE_HOOK"), service=service).call({}, CALL)
        assert refused.value.facts["service"] == "THE_HOOK"


def test_a_request_shows_neither_its_content_nor_its_query() -> None:
    request = HttpRequest("POST", f"https://api.example/x?key={VALUE}", {}, VALUE.encode())
    assert repr(request) == "HttpRequest(POST https://api.example/x)"


async def test_lost_connections_and_bad_addresses_show_the_name_of_a_secret_address_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Site().up() as site:
        hook(site, monkeypatch)
        site.faults = ["drop"]
        send = HttpWrite(base=secret("THE_HOOK"), lookup=Lookup("look/{key}"))
        with pytest.raises(OutcomeUnknown, match="<THE_HOOK>: ") as lost:
            await send.call({"json": {"id": "a"}}, CALL)
        assert "s3cr3t" not in f"{lost.value} {lost.value.__cause__}"
        assert "s3cr3t" not in str(await send.reconcile({"json": {"id": "a"}}, CALL))
        site.pages[HOOK] = (302, {"location": f"{HOOK}/more"}, b"")
        site.pages[f"{HOOK}/more"] = (302, {"location": "https://away.example/s3cr3tpath"}, b"")
        with pytest.raises(Rejected, match="<THE_HOOK> redirects") as away:
            await HttpRead(base=secret("THE_HOOK")).call({}, CALL)
        assert HOOK not in str(away.value)
    monkeypatch.setenv("THE_HOOK", "ftp://s3cr3t")
    with pytest.raises(NeedsLogin, match="THE_HOOK does not hold an http") as bad:
        send.check({})
    assert "s3cr3t" not in str(bad.value)
    monkeypatch.delenv("THE_HOOK")
    with pytest.raises(NeedsLogin, match="environment variable THE_HOOK is not set"):
        await send.call({}, CALL)


async def test_a_feed_at_a_secret_address_shows_links_and_errors_without_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Site().up() as site:
        hook(site, monkeypatch)
        item = b"<item><guid>1</guid><link>?page=2</link></item>"
        feed = b"<rss><channel>%s</channel></rss>" % item
        site.pages[HOOK] = (200, {}, feed)
        read = FeedRead(base=secret("THE_HOOK"))
        assert "s3cr3t" not in str(await read.call({}, CALL))
        site.pages[HOOK] = (200, {}, b"<html/>")
        with pytest.raises(Rejected, match="<THE_HOOK> is XML, but neither"):
            await read.call({}, CALL)


async def test_no_logger_reports_the_calls_of_a_tool(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Those of the HTTP library would log whole addresses, and the headers of answers."""
    caplog.set_level(logging.DEBUG)
    async with Site().up() as site:
        hook(site, monkeypatch)
        site.pages[HOOK] = (200, {"set-cookie": "s3cr3t"}, b"ok")
        send = HttpWrite(base=secret("THE_HOOK"), query={"key": secret("THE_TOKEN")})
        site.pages[f"{HOOK}?key=s3cr3t%2Fval+ue"] = site.pages[HOOK]
        await send.call({}, CALL)
    assert len(site.asked) == 1
    assert [one for one in caplog.records if "http" in one.name] == []
    assert "s3cr3t" not in caplog.text


async def test_the_database_never_holds_a_secret(
    database_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    app = Rota(database_url, keep_days=0)
    line = app.automation("line", timezone="UTC")
    work = line.topic("work", external=True)
    own = {"token": secret("THE_TOKEN")}
    send = HttpWrite("send", base=secret("THE_HOOK"), json=own)

    async def prepare(ctx: Context, state: Any) -> Prepared:
        return Prepared((await ctx.peek(work))[:1])

    async def mutate(ctx: Context, prepared: Prepared) -> Change:
        return send.change(json={"id": prepared.events[0].id})

    line.consumer("worker", subscribes=[work], prepare=prepare, mutate=mutate)
    async with Site().up() as site, virtual(app, url=database_url) as world:
        hook(site, monkeypatch)
        echo = f"{VALUE} {site.url}{HOOK}".encode()
        for number, status in enumerate([200, 400, 500]):
            site.pages[HOOK] = (status, {}, echo)
            await app.automations.publish("line", "work", f"e{number}")
            await world.settle()
            if status != 200:
                await app.automations.resolve("line", "skip")
                await world.settle()
        assert len(site.asked) == 3
        tables = ("mutations", "runs", "handler_runs", "payloads", "definitions", "events")
        for table in tables:
            rows = await app.connection.database.write(raw, f"select * from {table}")
            assert "s3cr3t" not in str([tuple(row) for row in rows]), table
    assert "s3cr3t" not in caplog.text


# -- what is refused ---------------------------------------------------------------------------


def test_secrets_in_bodies_and_queries_need_a_base() -> None:
    for given in ({"json": {"a": [secret("X")]}}, {"form": {"a": secret("X")}}):
        with pytest.raises(UsageError, match=r"the body holds secret.*would go to any site"):
            HttpWrite(**given)
    with pytest.raises(UsageError, match="the query holds secret"):
        HttpRead(query={"key": secret("X")})


@pytest.mark.parametrize(
    ("own", "params", "says"),
    [
        ({}, {"json": {"token": secret("X")}}, "cannot hold a secret"),
        ({}, {"form": {"token": secret("X")}}, "cannot hold a secret"),
        ({}, {"url": secret("X")}, "cannot hold a secret"),
        ({"json": {"a": 1}}, {"json": {"a": 2}}, "the field a is the tool's own"),
        ({"form": {"a": "1"}}, {"form": {"a": "2"}}, "the field a is the tool's own"),
        ({"json": {"a": 1}}, {"json": [1]}, "json is an object"),
        ({"json": {"a": 1}}, {"form": {"b": "1"}}, "give one of json, form and body"),
        ({"form": {"a": "1"}}, {"body": "b"}, "give one of json, form and body"),
    ],
)
def test_what_a_call_may_not_say(own: Any, params: dict[str, Any], says: str) -> None:
    with pytest.raises(BadInput, match=says):
        HttpWrite(base="https://example.org", **own).check({"url": "/x"} | params)


def test_what_a_tool_may_not_say() -> None:
    with pytest.raises(UsageError, match="not both"):
        HttpWrite(json={"a": 1}, form={"b": "1"})
    with pytest.raises(UsageError, match="of a form is text"):
        HttpWrite(form={"a": 1})  # type: ignore[dict-item]
    with pytest.raises(UsageError, match="json= of"):
        HttpWrite(json={"a": object()})


# -- how values are found in texts -------------------------------------------------------------


@pytest.mark.parametrize("around", ["", "u", "us", "use", "user:"])
def test_base64_of_a_secret_is_hidden_wherever_it_begins(around: str) -> None:
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        text = encode(f"{around}{VALUE}{around}".encode()).decode()
        shown = hide(f"Basic {text}", [secret("THE_TOKEN")])
        assert "<THE_TOKEN>" in shown
        assert VALUE.encode()[3:-3] not in base64.b64decode(shown.partition("<")[0][6:] + "==")


def test_a_short_secret_is_hidden_where_it_is_alone() -> None:
    pin = [secret("THE_PIN")]
    assert hide("PIN 427, not 4270 or a-427", pin) == "PIN <THE_PIN>, not 4270 or a-427"
    assert hide_bytes(b'{"pin": "427", "count": 427}', pin) == b'{"pin": "<THE_PIN>", "count": 427}'


def test_of_two_secrets_the_longer_is_masked_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the shorter would leave the rest of the longer one readable."""
    monkeypatch.setenv("SHORT", "s3cr3t-abc")
    monkeypatch.setenv("LONG", "s3cr3t-abc-and-more")
    for names in (("SHORT", "LONG"), ("LONG", "SHORT")):
        texts = [secret(name) for name in names]
        assert hide("x s3cr3t-abc-and-more y s3cr3t-abc", texts) == "x <LONG> y <SHORT>"
        found = hide_bytes(b"x s3cr3t-abc-and-more y s3cr3t-abc", texts)
        assert found == b"x <LONG> y <SHORT>"
