"""Signature schemes of inbound webhooks. Signatures are made here by a few lines of their own, from
the public documents of each sender."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable
from typing import Any, cast

import pytest

from rota import Rota
from rota.core.webhook_signatures import SignatureVerdict as V
from rota.core.webhook_signatures import check
from rota.errors import BadSetting
from rota.notifications import webhook as notification
from rota.testing import VirtualClock
from tests.http.kit import API, app_on, browsing, seed

NOW = 1_700_000_000
SECRET = "topsecret-1"
OLD = "topsecret-0"
WHSEC = "whsec_" + base64.b64encode(b"a key of 24 bytes or so..").decode()
Headers = dict[str, str]


def mac(key: bytes, text: bytes) -> bytes:
    return hmac.new(key, text, hashlib.sha256).digest()


def github(body: bytes, at: int = NOW, key: str = SECRET) -> Headers:
    return {"X-Hub-Signature-256": "sha256=" + mac(key.encode(), body).hex()}


def stripe(body: bytes, at: int = NOW, key: str = SECRET) -> Headers:
    made = mac(key.encode(), str(at).encode() + b"." + body).hex()
    return {"Stripe-Signature": f"t={at},v0=abc,v1={'0' * 64},v1={made}"}


def slack(body: bytes, at: int = NOW, key: str = SECRET) -> Headers:
    made = mac(key.encode(), b"v0:%d:" % at + body).hex()
    return {"X-Slack-Request-Timestamp": str(at), "X-Slack-Signature": f"v0={made}"}


def standard(body: bytes, at: int = NOW, key: str = SECRET, name: str = "msg_1") -> Headers:
    raw = base64.b64decode(key[6:]) if key.startswith("whsec_") else key.encode()
    made = base64.b64encode(mac(raw, name.encode() + b".%d." % at + body)).decode()
    return {"Webhook-Id": name, "Webhook-Timestamp": str(at),
            "Webhook-Signature": f"v1a,xyz v1,{made}"}  # fmt: skip


SIGNERS: dict[str, Callable[..., Headers]] = {
    "github": github, "stripe": stripe, "slack": slack, "standard": standard,
}  # fmt: skip
TIMED = ["stripe", "slack", "standard"]


def verdict(scheme: Any, headers: Headers, body: bytes, *keys: str, now: float = NOW) -> V:
    lower = {name.lower(): value for name, value in headers.items()}
    return check(scheme, keys or [SECRET], lower, body, now_s=now, tolerance_s=300)


PUBLISHED: list[tuple[str, str, int, bytes, Headers]] = [
    (
        "github", "It's a Secret to Everybody", 0, b"Hello, World!",
        {"X-Hub-Signature-256":
         "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"},
    ),
    (
        "slack", "8f742231b10e8888abcd99yyyzzz85a5", 1531420618,
        (b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow"
        b"&channel_id=G8PSS9T3V&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner"
        b"&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands"
        b"%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN"
        b"&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"),
        {"X-Slack-Request-Timestamp": "1531420618", "X-Slack-Signature":
         "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"},
    ),
    (
        "standard", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", 1614265330,
        b'{"test": 2432232314}',
        {"Webhook-Id": "msg_p5jXN8AQM9LWM0D4loKWxJek", "Webhook-Timestamp": "1614265330",
         "Webhook-Signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("scheme", "key", "at", "body", "headers"), PUBLISHED)
def test_the_published_examples_are_genuine(
    scheme: str, key: str, at: int, body: bytes, headers: Headers
) -> None:
    assert verdict(scheme, headers, body, key, now=at) is V.GENUINE
    assert verdict(scheme, headers, body + b" ", key, now=at) is V.WRONG


@pytest.mark.parametrize("scheme", SIGNERS)
def test_each_part_of_a_signature_counts(scheme: str) -> None:
    body = b'{"a": 1}'
    headers = SIGNERS[scheme](body)
    assert verdict(scheme, headers, body) is V.GENUINE
    assert verdict(scheme, headers, b'{"a": 2}') is V.WRONG
    assert verdict(scheme, headers, body, OLD) is V.WRONG
    assert verdict(scheme, headers, body, OLD, SECRET) is V.GENUINE  # a secret is changed
    assert check(scheme, [], {}, body, now_s=NOW, tolerance_s=300) is V.WRONG  # type: ignore[arg-type]
    for name in headers:
        without = {key: value for key, value in headers.items() if key != name}
        assert verdict(scheme, without, body) is V.WRONG
        for value in ("", "é", headers[name] + "0", headers[name].upper()):
            if value != headers[name]:
                assert verdict(scheme, {**headers, name: value}, body) is V.WRONG
    for other in SIGNERS.keys() - {scheme}:
        assert verdict(other, headers, body) is V.WRONG


@pytest.mark.parametrize("scheme", TIMED)
@pytest.mark.parametrize(("late_s", "expected"), [
    (0, V.GENUINE), (300, V.GENUINE), (-300, V.GENUINE),
    (301, V.STALE), (-301, V.STALE), (86_400, V.STALE),
])  # fmt: skip
def test_a_delivery_counts_near_its_signed_time(scheme: str, late_s: int, expected: V) -> None:
    assert verdict(scheme, SIGNERS[scheme](b"x"), b"x", now=NOW + late_s) is expected


@pytest.mark.parametrize("scheme", TIMED)
@pytest.mark.parametrize(
    "at", ["", "soon", "-1", "1e9", "９", "9" * 30, " 1700000000", "1700000000.0"]
)
def test_a_signed_time_that_is_no_time_is_stale(scheme: str, at: str) -> None:
    body = b"x"
    text = at.encode()
    headers = {
        "stripe": {"Stripe-Signature": f"t={at},v1={mac(SECRET.encode(), text + b'.x').hex()}"},
        "slack": {"X-Slack-Request-Timestamp": at, "X-Slack-Signature":
                  "v0=" + mac(SECRET.encode(), b"v0:" + text + b":x").hex()},
        "standard": {"Webhook-Id": "m", "Webhook-Timestamp": at, "Webhook-Signature": "v1,"
                     + base64.b64encode(mac(SECRET.encode(), b"m." + text + b".x")).decode()},
    }[scheme]  # fmt: skip
    assert verdict(scheme, headers, body) is V.STALE


def test_a_key_that_is_no_base64_fits_nothing() -> None:
    body = b"x"
    assert verdict("standard", standard(body), body, "whsec_?!") is V.WRONG
    assert verdict("standard", standard(body, key=WHSEC), body, "whsec_?!", WHSEC) is V.GENUINE


# -- by HTTP, on both databases ----------------------------------------------------------------


def hooked(url: str, monkeypatch: pytest.MonkeyPatch) -> Rota:
    """An app with one webhook of each scheme for a topic, and one of each for a workflow."""
    monkeypatch.setenv("NEW_SECRET", SECRET)
    monkeypatch.setenv("OLD_SECRET", OLD)
    monkeypatch.setenv("OWN_SECRET", WHSEC)
    app = app_on(url)
    app.clock = VirtualClock(NOW * 1_000_000)
    for scheme in SIGNERS:
        app.webhook(scheme, topic="inbox.letters", scheme=cast(Any, scheme),
                    secret_env=["NEW_SECRET", "OLD_SECRET"])  # fmt: skip
    app.webhook("own", topic="inbox.letters", scheme="standard", secret_env="OWN_SECRET")
    app.webhook("plain", topic="inbox.letters", secret_env="NEW_SECRET")
    app.webhook("one", topic="inbox.letters", secret_env="NEW_SECRET", id_header="X-Id")
    app.webhook("two", topic="inbox.letters", secret_env="NEW_SECRET", id_header="X-Id")
    app.webhook("run", workflow="add", secret_env="NEW_SECRET", scheme="stripe")
    return app


BODIES = {
    "github": b'{"action": "opened"}', "stripe": b'{"id": "evt_7", "object": "event"}',
    "slack": b'{"type": "event_callback", "event_id": "Ev7"}', "standard": b'{"type": "a"}',
}  # fmt: skip
IDS = {"stripe": "stripe:evt_7", "slack": "slack:Ev7", "standard": "standard:msg_1"}
BEARER = {"authorization": f"Bearer {SECRET}"}


@pytest.mark.parametrize("scheme", SIGNERS)
async def test_a_repeated_delivery_is_one_event_and_says_of_which(
    database_url: str, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    app = hooked(database_url, monkeypatch)
    body = BODIES[scheme]
    async with app.connected(), browsing(app) as http:
        await seed(app)
        first = await http.post(f"/hooks/{scheme}", content=body, headers=SIGNERS[scheme](body))
        again = SIGNERS[scheme](body, NOW + 60, OLD)  # a sender signs each try, with its secret
        # Nothing that is not signed makes another event of it.
        again |= {"X-GitHub-Delivery": "other", "X-Slack-Retry-Num": "1", "X-Id": "other"}
        second = await http.post(f"/hooks/{scheme}", content=body, headers=again)
        events = await app.automations.events("inbox", topic="letters")
    delivery_id = IDS.get(scheme, "github:" + hashlib.sha256(body).hexdigest())
    assert (first.status_code, second.status_code) == (202, 200)
    assert first.json() == {"id": delivery_id, "existed": False, "duplicate_of": None}
    assert second.json() == {"id": delivery_id, "existed": True, "duplicate_of": delivery_id}
    assert {one.message_id for one in events} == {"m-1", delivery_id}


async def test_a_captured_delivery_is_refused_after_the_window(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = hooked(database_url, monkeypatch)
    async with app.connected(), browsing(app) as http:
        await seed(app)
        cast(VirtualClock, app.clock).jump("301s")
        for scheme in TIMED:
            body = BODIES[scheme]
            late = await http.post(f"/hooks/{scheme}", content=body, headers=SIGNERS[scheme](body))
            assert (late.status_code, late.json()["code"]) == (401, "stale_delivery")
        events = await app.automations.events("inbox", topic="letters")
    assert {one.message_id for one in events} == {"m-1"}


async def test_equal_bodies_of_a_sender_without_ids_are_two_events(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = hooked(database_url, monkeypatch)
    async with app.connected(), browsing(app) as http:
        await seed(app)
        sent = [
            await http.post("/hooks/plain", content=b'{"state": "open"}', headers=BEARER)
            for _ in range(2)
        ]
        events = await app.automations.events("inbox", topic="letters")
    assert [one.status_code for one in sent] == [202, 202]
    assert len(events) == 3


async def test_two_webhooks_of_one_topic_share_no_ids(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = hooked(database_url, monkeypatch)
    async with app.connected(), browsing(app) as http:
        await seed(app)
        sent = [
            await http.post(f"/hooks/{name}", content=b"1", headers=BEARER | {"X-Id": "1"})
            for name in ("one", "two", "one")
        ]
        missing = await http.post("/hooks/one", content=b"1", headers=BEARER)
    assert [one.status_code for one in sent] == [202, 202, 200]
    assert [one.json()["id"] for one in sent] == ["one:1", "two:1", "one:1"]
    assert (missing.status_code, missing.json()["code"]) == (422, "bad_input")


async def test_a_repeated_start_names_its_run(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = hooked(database_url, monkeypatch)
    body = b'{"a": 1}'
    async with app.connected(), browsing(app) as http:
        sent = [
            await http.post("/hooks/run", content=body, headers=stripe(body, NOW + late_s))
            for late_s in (0, 5)
        ]
        [run] = (await http.get(f"{API}/runs")).json()["runs"]
    assert [one.json()["duplicate_of"] for one in sent] == [None, run["id"]]


async def test_a_question_about_the_address_is_answered_and_no_event(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = hooked(database_url, monkeypatch)
    asked = b'{"token": "x", "challenge": "3eZbrw1aB", "type": "url_verification"}'
    ping = b'{"zen": "Design for failure.", "hook_id": 1}'
    async with app.connected(), browsing(app) as http:
        await seed(app)
        answer = await http.post("/hooks/slack", content=asked, headers=slack(asked))
        pong = await http.post(
            "/hooks/github", content=ping, headers=github(ping) | {"X-GitHub-Event": "ping"}
        )
        forged = await http.post("/hooks/slack", content=asked, headers=slack(asked, key="no"))
        other = await http.post("/hooks/plain", content=asked, headers=BEARER)
        events = await app.automations.events("inbox", topic="letters")
    assert (answer.status_code, answer.json()) == (200, {"challenge": "3eZbrw1aB"})
    assert (pong.status_code, forged.status_code, other.status_code) == (200, 401, 202)
    assert len(events) == 2


async def test_rota_receives_the_messages_that_it_signs(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sender of notifications, over HTTP calls, without its network."""
    app = hooked(database_url, monkeypatch)
    body = b'{"event": "failed"}'
    async with app.connected(), browsing(app) as http:
        await seed(app)

        async def deliver(method: str, url: str, *, headers: Headers, body: bytes) -> int:
            answer = await http.request(method, url, headers=headers, content=body)
            statuses.append(answer.status_code)
            return answer.status_code

        statuses: list[int] = []
        monkeypatch.setattr(notification, "call", deliver)
        for at in (NOW, NOW + 10, NOW - 301):
            await notification.post("http://127.0.0.1:8420/hooks/own", "OWN_SECRET",
                                    message_id="run-1", timestamp=at, body=body)  # fmt: skip
        events = await app.automations.events("inbox", topic="letters")
    assert statuses == [202, 200, 401]
    assert {one.message_id for one in events} == {"m-1", "own:run-1"}


WRONG: list[dict[str, Any]] = [
    {"scheme": "stripes"}, {"scheme": "stripe", "id_header": "X-Id"},
    {"scheme": "github", "signature_header": "X-Sig"}, {"scheme": "github", "tolerance_s": 60},
    {"scheme": "slack", "tolerance_s": 0}, {"scheme": "slack", "tolerance_s": 86_401},
    {"tolerance_s": 60}, {"secret_env": []}, {"secret_env": ""},
]  # fmt: skip


@pytest.mark.parametrize("options", WRONG, ids=str)
def test_a_webhook_that_contradicts_itself_is_refused(options: dict[str, Any]) -> None:
    app = app_on("sqlite://")
    with pytest.raises(BadSetting, match="webhook x"):
        app.webhook("x", **{"topic": "inbox.letters", "secret_env": "S", **options})
    app.webhook("x", topic="inbox.letters", secret_env=["S", "T"], scheme="stripe", tolerance_s=60)
