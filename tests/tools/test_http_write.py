"""HTTP writes: every fault of a real server, and what each says about the effect."""

from __future__ import annotations

import itertools
import socket
from typing import Any

import pytest

from rota.errors import (
    BadInput,
    NeedsLogin,
    NeedsPermission,
    NotSent,
    OutcomeUnknown,
    Rejected,
    UsageError,
)
from rota.tools import Applied, Call, HttpWrite, Lookup, NotApplied, Safety, Unknown, secret
from tests.tools.kit import CALL, PERSON, settle
from tests.tools.kit.web_site import Site

QUICK = Call("key-1", 1.0)
IN_TIME = pytest.mark.wall_clock("the request must arrive within the second that the call has")
FAULTS = ["drop", "applied-drop", "half", "500", "applied-500", "applied-503", "429", "408"]
PAIRS = list(itertools.product(FAULTS, repeat=2))


def idempotent(site: Site) -> HttpWrite:
    return HttpWrite("send", base=site.url, key_header="Idempotency-Key")


def reconcilable(site: Site) -> HttpWrite:
    return HttpWrite("send", base=site.url, lookup=Lookup("/effects/{id}"))


def params(name: str = "a") -> dict[str, Any]:
    return {"url": "/things", "json": {"id": name}}


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("400", Rejected),
        ("401", NeedsLogin),
        ("402", Rejected),
        ("403", NeedsPermission),
        ("404", Rejected),
        ("405", Rejected),
        ("407", NeedsLogin),
        ("408", NotSent),
        ("409", Rejected),
        ("410", Rejected),
        ("412", Rejected),
        ("422", Rejected),
        ("425", NotSent),
        ("429", NotSent),
        ("307", Rejected),
        ("308", Rejected),
        ("301", OutcomeUnknown),
        ("302", OutcomeUnknown),
        ("500", OutcomeUnknown),
        ("502", OutcomeUnknown),
        ("503", OutcomeUnknown),
        ("504", OutcomeUnknown),
        ("drop", OutcomeUnknown),
        pytest.param("hang", OutcomeUnknown, marks=IN_TIME),
    ],
)
async def test_each_answer_has_one_meaning(fault: str, error: type[Exception]) -> None:
    async with Site().up() as site:
        site.faults = [fault]
        with pytest.raises(error) as raised:
            await HttpWrite(base=site.url).call(params(), QUICK if fault == "hang" else CALL)
        assert type(raised.value) is error
        assert site.url in str(raised.value)


@pytest.mark.parametrize("status", [200, 201, 202, 204, 303])
async def test_a_success_is_an_effect(status: int) -> None:
    async with Site().up() as site:
        site.faults = [f"applied-{status}"]
        result = await HttpWrite(base=site.url).call(params(), CALL)
        assert result["status"] == status


UNREADABLE = {
    "not UTF-8": ("application/json", '{"name": "caf\xe9"}'.encode("latin-1")),
    "an undefined charset": ("application/json; charset=undefined", b"[1, 2"),
    "an unknown charset": ("text/plain; charset=no-such", b"ok"),
    "a charset that is no text": ("text/plain; charset=base64", b"b2s="),
    "idna": ("text/plain; charset=idna", b"\xff\xfe"),
    "nested too deeply": ("application/json", b"[" * 100_000),
    "cut JSON": ("application/json", b'{"id": '),
    "bytes": ("application/octet-stream", bytes(range(256))),
    "nothing": ("", b""),
}


@pytest.mark.parametrize("kind", UNREADABLE)
async def test_a_success_whose_body_cannot_be_read_has_happened(kind: str) -> None:
    media, body = UNREADABLE[kind]
    async with Site().up() as site:
        site.pages["/things"] = (201, {"content-type": media}, body)
        result = await HttpWrite(base=site.url).call(params(), CALL)
        assert result["status"] == 201
        assert {"text", "json", "base64"} & set(result)


async def test_a_success_whose_body_was_lost_on_the_way_has_happened() -> None:
    async with Site().up() as site:
        site.faults = ["half", "half", "half"]
        result = await HttpWrite(base=site.url).call(params(), CALL)
        assert (result["status"], result["cut"]) == (200, True)
        wary = HttpWrite(base=site.url, accept=lambda answer: True)
        with pytest.raises(OutcomeUnknown, match="needs the whole answer"):
            await wary.call(params(), CALL)
        busy = HttpWrite(base=site.url, pending_statuses=[200])
        with pytest.raises(OutcomeUnknown):
            await busy.call(params(), CALL)


async def test_a_tool_may_say_which_answers_mean_not_sent() -> None:
    async with Site().up() as site:
        site.pages["/things"] = (503, {"retry-after": "120"}, b"down for maintenance")
        with pytest.raises(OutcomeUnknown) as unsure:
            await HttpWrite(base=site.url).call(params(), CALL)
        assert unsure.value.retry_after_s == 120
        sure = HttpWrite(base=site.url, not_sent_statuses=[502, 503])
        with pytest.raises(NotSent, match="down for maintenance") as raised:
            await sure.call(params(), CALL)
        assert raised.value.retry_after_s == 120
    with pytest.raises(UsageError, match="status 409 is in more than one of"):
        HttpWrite(applied_statuses=[409], not_sent_statuses=[409])


async def test_a_lookup_that_is_asked_to_wait_says_so() -> None:
    async with Site().up() as site:
        site.pages["/effects/a"] = (503, {"retry-after": "60"}, b"busy")
        verdict = await reconcilable(site).reconcile(params(), CALL)
        assert isinstance(verdict, Unknown)
        assert verdict.retry_after_s == 60


async def test_a_refused_connection_and_an_unknown_host_are_not_sent() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(NotSent):
        await HttpWrite().call({"url": f"http://127.0.0.1:{port}/", "body": "x"}, CALL)
    with pytest.raises(NotSent):
        await HttpWrite().call({"url": "http://no-such-host.invalid/", "body": "x"}, CALL)


async def test_a_connection_that_never_opens_is_not_sent() -> None:
    with socket.socket() as full:  # its queue is full, so the kernel lets later ones wait
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        with socket.socket() as first, socket.socket() as second:
            for each in (first, second):
                each.setblocking(False)
                each.connect_ex(full.getsockname())
            with pytest.raises(NotSent, match="no connection"):
                await HttpWrite().call({"url": f"http://127.0.0.1:{full.getsockname()[1]}/"}, QUICK)


async def test_retry_after_is_reported_in_seconds_from_a_number_and_from_a_date() -> None:
    async with Site().up() as site:
        dated = {
            "date": "Wed, 01 Jan 2025 10:00:00 GMT",
            "retry-after": "Wed, 01 Jan 2025 10:01:30 GMT",
        }
        for headers, seconds in (({"retry-after": "7"}, 7), (dated, 90), ({}, None)):
            site.pages["/things"] = (429, headers, b"slow down")
            with pytest.raises(NotSent, match="slow down") as raised:
                await HttpWrite(base=site.url).call(params(), CALL)
            assert raised.value.retry_after_s == seconds


async def test_a_login_error_names_the_site_and_the_account() -> None:
    async with Site().up() as site:
        site.faults = ["401", "401"]
        with pytest.raises(NeedsLogin) as raised:
            await HttpWrite(base=site.url, account="ann").call(params(), CALL)
        assert raised.value.facts["service"] == "127.0.0.1"
        assert raised.value.facts["account"] == "ann"


@pytest.mark.parametrize("make", [idempotent, reconcilable])
@pytest.mark.parametrize("faults", PAIRS)
async def test_the_effect_happens_exactly_once_after_any_two_faults(
    make: Any, faults: tuple[str, ...]
) -> None:
    async with Site(honours_key=make is idempotent).up() as site:
        site.faults = list(faults)
        result = await settle(make(site), params())
        assert result.get("cut") or result["json"]["id"] == "a"
        assert site.effects == {"a": 1}


@pytest.mark.parametrize("faults", PAIRS)
async def test_an_unknowable_effect_never_happens_twice(faults: tuple[str, ...]) -> None:
    async with Site().up() as site:
        site.faults = list(faults)
        ended = await settle(HttpWrite(base=site.url), params())
        assert site.effects["a"] <= 1
        assert ended == PERSON or site.effects["a"] == 1


@IN_TIME
@pytest.mark.parametrize("fault", ["hang", "applied-hang"])
@pytest.mark.parametrize("make", [idempotent, reconcilable])
async def test_a_slow_site_is_asked_again(make: Any, fault: str) -> None:
    async with Site(honours_key=make is idempotent).up() as site:
        site.faults = [fault]
        await settle(make(site), params(), QUICK)
        assert site.effects == {"a": 1}


async def test_a_site_that_says_200_and_means_no_is_not_believed() -> None:
    async with Site().up() as site:
        wary = HttpWrite(base=site.url, accept=lambda answer: answer["ok"])
        site.faults = ["lie"]
        with pytest.raises(Rejected, match="out of stock"):
            await wary.call(params(), CALL)
        assert (await wary.call(params(), CALL))["json"] == {"ok": True, "id": "a"}
        confused = HttpWrite(base=site.url, accept=lambda answer: answer["nonsense"])
        with pytest.raises(OutcomeUnknown, match="accept= failed"):
            await confused.call(params(), CALL)


async def test_a_409_may_be_set_to_mean_that_the_first_call_is_still_at_work() -> None:
    async with Site(honours_key=True).up() as site:
        patient = HttpWrite(base=site.url, key_header="Idempotency-Key", pending_statuses=[409])
        site.faults = ["applied-409", "409"]
        assert (await settle(patient, params()))["status"] == 200
        assert site.effects == {"a": 1}
        gone = HttpWrite(base=site.url, method="DELETE", applied_statuses=[404])
        site.faults = ["404"]
        assert (await gone.call({"url": "/things/a"}, CALL))["status"] == 404


async def test_a_lookup_by_search_needs_to_know_what_finding_means() -> None:
    with pytest.raises(UsageError, match="searches"):
        Lookup("/search?id={id}")
    with pytest.raises(UsageError, match="the same for every effect"):
        Lookup("/search")
    async with Site().up() as site:
        search = Lookup("/search?id={id}", found=lambda answer: bool(answer["items"]))
        send = HttpWrite(base=site.url, lookup=search)
        assert isinstance(await send.reconcile(params(), CALL), NotApplied)
        await send.call(params(), CALL)
        verdict = await send.reconcile(params(), CALL)
        assert isinstance(verdict, Applied)
        assert verdict.result["json"] == {"items": [{"id": "a"}]}


async def test_a_value_cannot_change_the_question_of_a_lookup() -> None:
    async with Site().up() as site:
        evil = {"url": "/things", "json": {"id": "a?x=1&y={key}#%2F"}}
        await reconcilable(site).reconcile(evil, CALL)
        assert site.asked[-1].path == "/effects/a%3Fx%3D1%26y%3D%7Bkey%7D%23%252F"


async def test_a_lookup_that_fails_leaves_it_unknown() -> None:
    async with Site().up() as site:
        for status in (500, 429, 400, 302):
            site.pages["/effects/a"] = (status, {}, b"no")
            assert isinstance(await reconcilable(site).reconcile(params(), CALL), Unknown)
        site.pages["/effects/a"] = (401, {}, b"who are you")
        with pytest.raises(NeedsLogin):
            await reconcilable(site).reconcile(params(), CALL)
        wobbly = Lookup("/effects/{id}", found=lambda answer: answer["no such field"])
        site.pages["/effects/a"] = (200, {}, b"{}")
        verdict = await HttpWrite(base=site.url, lookup=wobbly).reconcile(params(), CALL)
        assert isinstance(verdict, Unknown)


def test_safety_follows_from_the_configuration() -> None:
    lookup = Lookup("/x/{key}")
    assert HttpWrite().safety is Safety.UNKNOWABLE
    assert HttpWrite(lookup=lookup).safety is Safety.RECONCILABLE
    assert HttpWrite(lookup=lookup).settle_s == 10
    assert HttpWrite(key_header="K").safety is Safety.IDEMPOTENT
    assert HttpWrite(key_header="K", lookup=lookup).safety is Safety.IDEMPOTENT
    assert HttpWrite(method="PUT").safety is Safety.IDEMPOTENT
    assert HttpWrite(method="PATCH").safety is Safety.UNKNOWABLE
    with pytest.raises(UsageError):
        HttpWrite(method="GET")


async def test_a_secret_reaches_the_site_and_no_error_or_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("THE_TOKEN", "s3cr3t-value")
    async with Site().up() as site:
        headers = {"Authorization": secret("THE_TOKEN", prefix="Bearer ")}
        send = HttpWrite(base=site.url, headers=headers)
        site.pages["/things"] = (500, {}, b"your header: Bearer s3cr3t-value")
        with pytest.raises(OutcomeUnknown, match="Bearer <THE_TOKEN>") as raised:
            await send.call(params(), CALL)
        assert site.asked[-1].headers["authorization"] == "Bearer s3cr3t-value"
        assert "s3cr3t" not in str(raised.value)
        site.pages["/things"] = (200, {}, b"your header: Bearer s3cr3t-value")
        assert "s3cr3t" not in str(await send.call(params(), CALL))


async def test_a_missing_secret_waits_for_a_person_and_sends_nothing() -> None:
    async with Site().up() as site:
        send = HttpWrite(base=site.url, headers={"X-Token": secret("NOT_SET_ANYWHERE")})
        with pytest.raises(NeedsLogin, match="NOT_SET_ANYWHERE"):
            await send.call(params(), CALL)
        assert site.asked == []


async def test_a_secret_with_a_line_break_sends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THE_TOKEN", "s3cr3t-value\n")
    async with Site().up() as site:
        send = HttpWrite(base=site.url, headers={"X-Token": secret("THE_TOKEN")})
        with pytest.raises(Rejected, match="on one line") as raised:
            await send.call(params(), CALL)
        assert "s3cr3t" not in str(raised.value)
        assert site.asked == []


async def test_any_key_fits_into_a_header() -> None:
    async with Site().up() as site:
        await idempotent(site).call(params(), Call("order:7/ä\n", 60))
        assert site.asked[-1].headers["idempotency-key"] == "order:7/%C3%A4%0A"


async def test_text_that_looks_like_a_secret_stays_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THE_TOKEN", "s3cr3t-value")
    async with Site().up() as site:
        sly = {"url": "/things", "json": {"id": "a", "note": {"secret": "THE_TOKEN"}}}
        await HttpWrite(base=site.url).call(sly, CALL)
        assert b"s3cr3t" not in site.asked[-1].body


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ({}, "url"),
        ({"url": "/x", "josn": 1}, "josn"),
        ({"url": "/x", "asked": "/y"}, "asked"),
        ({"url": "/x", "json": 1, "body": "x"}, "one of json, form and body"),
        ({"url": "http://elsewhere.example/x"}, "leads away"),
        ({"url": "//elsewhere.example/x"}, "leads away"),
        ({"url": "/x", "headers": {"a": "b\r\nc: d"}}, "one line"),
        ({"url": "/x", "headers": {"a b": "c"}}, "name of a header"),
        ({"url": "http://[broken"}, "not a URL"),
    ],
)
async def test_bad_parameters_send_nothing(bad: dict[str, Any], said: str) -> None:
    async with Site().up() as site:
        send = HttpWrite(base=site.url)
        with pytest.raises(BadInput, match=said):
            await send.call(bad, CALL)
        with pytest.raises(BadInput, match=said):
            send.check(bad)
        assert site.asked == []


@pytest.mark.parametrize("url", ["ftp://x/", "file:///etc/passwd", "x", "http://ann:pw@host/"])
def test_only_plain_http_urls_are_taken(url: str) -> None:
    with pytest.raises(BadInput) as raised:
        HttpWrite().check({"url": url})
    assert "pw@" not in str(raised.value)


async def test_a_huge_answer_to_a_write_is_cut_not_lost() -> None:
    async with Site().up() as site:
        site.pages["/things"] = (200, {"content-type": "text/plain"}, b"x" * 5000)
        result = await HttpWrite(base=site.url, bytes_max=1000).call(params(), CALL)
        assert result == {"status": 200, "text": "x" * 1000, "cut": True}
