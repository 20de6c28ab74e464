"""The gate: every rule of docs/guides/http.md, one test each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from rota.client.client import Client
from rota.http import dispatch
from rota.http.auth import allowed_hosts
from rota.http.options import HttpOptions, load
from rota.http.request import Answer, WebRequest
from rota.http.router import Page
from rota.http.routes import ROUTES
from rota.settings import Settings
from rota.testing import VirtualClock
from tests.http.kit import API, BASE, browsing

LOCKED: dict[str, Any] = {"require_login": True}


@pytest.fixture
def client(tmp_path: Path) -> Client:
    return Client(f"sqlite:///{tmp_path}/rota.db", clock=VirtualClock())


def bearer(text: str) -> dict[str, str]:
    return {"authorization": f"Bearer {text}"}


@pytest.mark.parametrize(
    "host",
    ["evil.example", "127.0.0.1", "127.0.0.1:1", "localhost.evil:8420", "", "[::1]", "a, b",
     "127.0.0.1:8420, evil.example"],
)  # fmt: skip
async def test_a_name_that_is_not_ours_is_refused(client: Client, host: str) -> None:
    async with client, browsing(client) as http:
        for path in ("/", "/static/x.js", "/health/live", f"{API}/runs"):
            answer = await http.get(path, headers={"host": host})
            assert (answer.status_code, answer.json()["code"]) == (421, "unknown_host")
        for ours in ("LOCALHOST:8420", "[::1]:8420"):
            assert (await http.get(f"{API}/runs", headers={"host": ours})).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": f"{BASE}.evil.example"},
        {"origin": BASE, "sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"content-type": "application/x-www-form-urlencoded"},
    ],
)
async def test_a_page_of_another_site_cannot_write(client: Client, headers: dict[str, str]) -> None:
    async with client, browsing(client) as http:
        answer = await http.post(f"{API}/queues/default/pause", headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (403, "other_origin")
        for ours in ({"origin": BASE}, {"sec-fetch-site": "same-origin"}, {}):
            sent = await http.post(f"{API}/queues/default/pause", headers=ours)
            assert sent.status_code == 204
            assert "access-control-allow-origin" not in sent.headers


async def test_tokens_let_in_by_role_until_they_end(client: Client) -> None:
    clock = client.clock
    assert isinstance(clock, VirtualClock)
    async with client, browsing(client, **LOCKED) as http:
        read = await client.tokens.create("reader")
        operate = await client.tokens.create("operator", role="operate")
        short = await client.tokens.create("short", expires_in="1m")

        async def status(text: str, method: str = "GET", path: str = "/runs") -> int:
            answer = await http.request(method, f"{API}{path}", headers=bearer(text))
            return answer.status_code

        none = await http.get(f"{API}/runs")
        assert (none.status_code, none.headers["www-authenticate"]) == (401, "Bearer")
        assert await status(read.text) == await status(short.text) == 200
        assert await status(read.text, "POST", "/queues/default/pause") == 403
        assert await status(operate.text, "POST", "/queues/default/pause") == 204
        assert await status(operate.text, "GET", "/tokens") == 403
        await client.tokens.revoke("reader")
        clock.jump("2m")
        for wrong in (read.text, short.text, read.text[:-1], "rota_x_y", ""):
            assert await status(wrong) in (401, 429)


async def test_wrong_tokens_are_counted_per_address_and_lock_nobody_out(client: Client) -> None:
    async with (
        client,
        browsing(client, **LOCKED) as http,
        browsing(client, peer="192.0.2.9", **LOCKED) as other,
    ):
        good = await client.tokens.create("reader")
        wrong = [
            (await http.get(f"{API}/me", headers=bearer(f"rota_{n}_x"))).status_code
            for n in range(11)
        ]
        assert wrong == [401] * 10 + [429]
        # A proxy has one address for many people: a right token passes.
        assert (await http.get(f"{API}/me", headers=bearer(good.text))).status_code == 200
        assert (await other.get(f"{API}/me", headers=bearer("rota_0_x"))).status_code == 401
        clock = client.clock
        assert isinstance(clock, VirtualClock)
        clock.jump("2m")
        assert (await http.get(f"{API}/me", headers=bearer("rota_0_x"))).status_code == 401


async def test_a_link_logs_in_once_and_its_cookie_cannot_be_read_or_sent_along(
    client: Client,
) -> None:
    async with client, browsing(client, **LOCKED) as http:
        secret = await client.sessions.link()
        link, page = f"/open/{secret}", {"origin": BASE}
        previews = [await http.get(link), await http.head(link), await http.get(link)]
        foreign_login = [
            await http.post(link),
            await http.post(link, headers={"origin": "http://evil.example"}),
            await http.post(link, headers={"sec-fetch-site": "cross-site"}),
        ]
        opened = await http.post(link, headers=page)
        cookie = opened.headers["set-cookie"]
        again = await http.post(link, headers={**page, "cookie": ""})
        me = await http.get(f"{API}/me")
        foreign = await http.post(f"{API}/queues/default/pause")
        own = await http.post(f"{API}/queues/default/pause", headers={"origin": BASE})
        out = await http.post("/logout", headers={"origin": BASE})
        after = await http.get(f"{API}/me", headers={"cookie": cookie.partition(";")[0]})
    assert [one.status_code for one in previews] == [200] * 3
    assert not any("set-cookie" in one.headers for one in previews)
    assert '<form class="form" method="post">' in previews[0].text
    assert secret not in previews[0].text
    assert [one.status_code for one in foreign_login] == [403] * 3
    assert (opened.status_code, opened.headers["location"]) == (303, "/")
    assert {"HttpOnly", "SameSite=Lax", "Path=/"} <= set(cookie.split("; "))
    assert again.status_code == 401
    assert me.json()["role"] == "admin"
    assert (foreign.status_code, own.status_code) == (403, 204)
    assert out.status_code == 303
    assert after.status_code == 401


async def test_a_cookie_over_https_is_bound_to_the_host(client: Client) -> None:
    async with client, browsing(client, url="https://rota.example.org") as http:
        http.headers["host"] = "rota.example.org"
        own = {"origin": "https://rota.example.org"}
        opened = await http.post(f"/open/{await client.sessions.link()}", headers=own)
        nobody = await http.get(f"{API}/me", headers={"cookie": ""})
    assert opened.headers["set-cookie"].startswith("__Host-rota=")
    assert "; Secure" in opened.headers["set-cookie"]
    assert "strict-transport-security" in opened.headers
    assert nobody.status_code == 401, "behind a proxy everybody would be local"


async def test_a_proxy_is_believed_by_address_and_secret(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROTA_PROXY_SECRET", "s3cret")
    proxy = {
        "user_header": "Remote-User", "secret_header": "X-Proxy-Secret",
        "peers": ["10.0.0.0/8"], "users": {"ann": "operate"},
    }  # fmt: skip
    options = load({"proxy": proxy}, source="test").proxy
    ann = {"remote-user": "ann", "x-proxy-secret": "s3cret"}
    async with (
        client,
        browsing(client, peer="10.1.2.3", proxy=options) as http,
        browsing(client, peer="192.0.2.1", proxy=options) as elsewhere,
    ):
        known = await http.get(f"{API}/me", headers=ann)
        answers = [
            (await http.get(f"{API}/me", headers=ann | {"remote-user": "eve"})).status_code,
            (await http.get(f"{API}/me", headers=ann | {"remote-user": "annx"})).status_code,
            (await http.get(f"{API}/me", headers=ann | {"x-proxy-secret": "no"})).status_code,
            (await http.get(f"{API}/me", headers={"remote-user": "ann"})).status_code,
            (await elsewhere.get(f"{API}/me", headers=ann)).status_code,
        ]
    assert known.json()["role"] == "operate"
    assert answers == [403, 403, 401, 401, 401]


async def test_ids_of_another_namespace_look_unknown(database_url: str) -> None:
    theirs = Client(database_url, settings=Settings(namespace="theirs"))
    ours = Client(database_url, settings=Settings(namespace="ours"), migrate=False)
    async with theirs, ours, browsing(ours) as http:
        run = await theirs.start("add", a=1)
        token = await theirs.tokens.create("reader")
        there = await http.get(f"{API}/runs/{run.id}")
        nowhere = await http.get(f"{API}/runs/{'0' * len(run.id)}")
        foreign = await http.get(f"{API}/me", headers=bearer(token.text))
    assert there.status_code == nowhere.status_code == 404
    assert there.json()["code"] == nowhere.json()["code"] == "unknown_run"
    assert foreign.status_code == 401


async def test_a_body_of_ten_megabytes_is_not_kept(client: Client) -> None:
    big = b'{"workflow": "' + b"x" * 10_000_000 + b'"}'

    async def chunks() -> AsyncIterator[bytes]:
        for at in range(0, len(big), 65536):
            yield big[at : at + 65536]

    async with client, browsing(client) as http:
        reported = await http.post(f"{API}/runs", content=big)
        streamed = await http.post(f"{API}/runs", content=chunks())
        heads = await http.get("/health/live", headers={"x-big": "x" * 20_000})
    assert reported.status_code == streamed.status_code == 413
    assert reported.json()["code"] == "payload_too_big"
    assert heads.status_code == 431


async def test_a_sender_that_is_too_slow_loses_its_connection(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "BODY_S", 0.2)

    async def drops() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.sleep(30)
        yield b"}"

    async with client, browsing(client) as http, asyncio.timeout(10):
        slow = await http.post(f"{API}/runs", content=drops())
    assert (slow.status_code, slow.json()["code"]) == (408, "slow_body")
    assert slow.headers["connection"] == "close"


async def test_a_look_that_takes_too_long_is_given_up(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hangs(request: WebRequest) -> Answer:
        await asyncio.sleep(30)
        raise AssertionError("unreachable")

    monkeypatch.setattr(dispatch, "READ_S", 0.2)
    table = [Page("GET", "/hangs", "read", hangs)]
    async with client, browsing(client, table) as http, asyncio.timeout(10):
        late = await http.get("/hangs")
    assert (late.status_code, late.json()["code"]) == (503, "timeout")


def test_a_server_for_all_addresses_answers_this_machine() -> None:
    everywhere = allowed_hosts(HttpOptions(host="0.0.0.0", hosts=["rota.example"]), 8420)
    assert everywhere == {"localhost:8420", "127.0.0.1:8420", "[::1]:8420", "rota.example:8420"}


def test_every_route_has_a_role_and_only_the_bare_ones_are_open() -> None:
    assert {one.path for one in ROUTES if one.role == "open"} == {"/health/live"}
    writes = {one.name for one in ROUTES if one.method != "GET" and one.role == "read"}
    assert writes == {"preview_timing", "diff_schedule"}, "a preview changes nothing"
