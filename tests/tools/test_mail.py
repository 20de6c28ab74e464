"""Mail to a real server on loopback."""

from __future__ import annotations

import itertools
import socket
import ssl
from typing import Any, cast

import pytest

from rota.errors import BadInput, NeedsLogin, NotSent, OutcomeUnknown, Rejected, UsageError
from rota.tools import Applied, Call, NotApplied, Safety, SendMail, Unknown, secret
from tests.tools.kit import CALL, PERSON, settle
from tests.tools.kit.mail_server import Postbox, ann_only, client_tls, server_tls

QUICK = Call("key-1", 1.0)
IN_TIME = pytest.mark.wall_clock("the mail must arrive within the second that the call has")
HELLO = {"to": ["bob@example.org"], "subject": "Tea", "text": "At five?\n.\nAnn"}
FAULTS = ["mail-451", "rcpt-450", "drop", "body-452", "body-drop", "applied-drop"]


def mailer(box: Postbox, **options: Any) -> SendMail:
    return SendMail("127.0.0.1", "Ann <ann@example.org>", tls="none", port=box.port, **options)


def with_lookup(box: Postbox) -> SendMail:
    async def lookup(message_id: str) -> bool:
        return message_id in box.ids

    return mailer(box, lookup=lookup)


async def test_a_mail_arrives_as_it_was_written() -> None:
    async with Postbox().up() as box:
        params = {
            **HELLO,
            "subject": "Tée – ☕",
            "html": "<p>At five?</p>",
            "cc": ["Eve Ünal <eve@example.org>"],
            "bcc": ["zoe@example.org", "bob@example.org"],
            "reply_to": "ann@example.net",
        }
        result = await mailer(box).call(params, CALL)
        [mail] = box.mails
        assert box.recipients == [["bob@example.org", "eve@example.org", "zoe@example.org"]]
        assert mail["Message-ID"] == result["message_id"]
        assert "zoe" not in str(mail)
        assert mail["Reply-To"] == "ann@example.net"
        text, html = cast(Any, mail.get_payload())
        assert text.get_payload(decode=True).decode().splitlines() == ["At five?", ".", "Ann"]
        assert "<p>At five?</p>" in html.get_payload()


async def test_the_message_id_is_the_same_for_the_same_key() -> None:
    async with Postbox().up() as box:
        for key in ("a", "a", "b"):
            await mailer(box).call(HELLO, Call(key, 60))
        first, second, third = box.ids
        assert first == second != third
        assert first.endswith("@example.org>")


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("mail-550", Rejected),
        ("mail-451", NotSent),
        ("mail-421", NotSent),
        ("mail-530", NeedsLogin),
        ("rcpt-550", Rejected),
        ("rcpt-450", NotSent),
        pytest.param("rcpt-hang", NotSent, marks=IN_TIME),
        ("drop", NotSent),
        ("body-554", Rejected),
        ("body-452", NotSent),
        ("body-drop", OutcomeUnknown),
        ("applied-drop", OutcomeUnknown),
        pytest.param("applied-hang", OutcomeUnknown, marks=IN_TIME),
    ],
)
async def test_each_end_of_a_mail_has_one_meaning(fault: str, error: type[Exception]) -> None:
    async with Postbox().up() as box:
        box.faults = [fault]
        with pytest.raises(error) as raised:
            await mailer(box).call(HELLO, QUICK if "hang" in fault else CALL)
        assert type(raised.value) is error
        assert len(box.mails) == fault.startswith("applied")


async def test_one_refused_recipient_means_that_nobody_gets_it() -> None:
    async with Postbox().up() as box:
        box.faults = ["rcpt-550"]
        with pytest.raises(Rejected, match="about bob"):
            await mailer(box).call({**HELLO, "cc": ["eve@example.org"]}, CALL)
        assert box.mails == []


async def test_a_server_that_is_not_there_is_not_sent() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        box = Postbox()
        box.port = free.getsockname()[1]
    with pytest.raises(NotSent):
        await mailer(box).call(HELLO, CALL)


@pytest.mark.parametrize("faults", list(itertools.product(FAULTS, repeat=2)))
async def test_a_mail_with_a_lookup_is_sent_exactly_once(faults: tuple[str, ...]) -> None:
    async with Postbox().up() as box:
        box.faults = list(faults)
        result = await settle(with_lookup(box), HELLO)
        assert box.ids == [result["message_id"]]


@pytest.mark.parametrize("faults", list(itertools.product(FAULTS, repeat=2)))
async def test_a_mail_without_a_lookup_is_never_sent_twice(faults: tuple[str, ...]) -> None:
    async with Postbox().up() as box:
        box.faults = list(faults)
        ended = await settle(mailer(box), HELLO)
        assert len(box.mails) <= 1
        assert ended == PERSON or len(box.mails) == 1


async def test_a_lookup_gives_all_three_verdicts() -> None:
    async with Postbox().up() as box:
        look = with_lookup(box)
        assert isinstance(await look.reconcile(HELLO, CALL), NotApplied)
        await look.call(HELLO, CALL)
        assert isinstance(await look.reconcile(HELLO, CALL), Applied)
        assert look.safety is Safety.RECONCILABLE

        async def unclear(message_id: str) -> bool | None:
            return None

        assert isinstance(await mailer(box, lookup=unclear).reconcile(HELLO, CALL), Unknown)
        assert isinstance(await mailer(box).reconcile(HELLO, CALL), Unknown)
        assert mailer(box).safety is Safety.UNKNOWABLE


async def test_a_login_goes_over_tls_and_a_bad_one_needs_a_person(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MAIL_PASSWORD", "s3cr3t-word")
    options: dict[str, Any] = {
        "authenticator": ann_only,
        "auth_required": True,
        "tls_context": server_tls(),
    }
    async with Postbox().up(**options) as box:
        send = SendMail(
            "127.0.0.1",
            "ann@example.org",
            port=box.port,
            user="ann",
            password=secret("MAIL_PASSWORD"),
            trust=client_tls(),
        )
        await send.call(HELLO, CALL)
        assert len(box.mails) == 1
        monkeypatch.setenv("MAIL_PASSWORD", "wr0ng-word")
        with pytest.raises(NeedsLogin) as raised:
            await send.call(HELLO, CALL)
        assert raised.value.facts["account"] == "ann"
        assert "wr0ng" not in str(raised.value)
        monkeypatch.delenv("MAIL_PASSWORD")
        with pytest.raises(NeedsLogin, match="MAIL_PASSWORD"):
            await send.call(HELLO, CALL)


async def test_a_certificate_nobody_vouches_for_is_not_trusted() -> None:
    async with Postbox().up(tls_context=server_tls()) as box:
        send = SendMail("127.0.0.1", "ann@example.org", port=box.port)
        with pytest.raises(NotSent, match="certificate"):
            await send.call(HELLO, CALL)
        assert box.mails == []


async def test_mail_over_tls_from_the_first_byte() -> None:
    async with Postbox().up(ssl_context=server_tls()) as box:
        trust: ssl.SSLContext = client_tls()
        send = SendMail("127.0.0.1", "ann@example.org", tls="ssl", port=box.port, trust=trust)
        await send.call(HELLO, CALL)
        assert len(box.mails) == 1


@pytest.mark.parametrize(
    "bad",
    [
        {"to": []},
        {"to": ["nobody"]},
        {"to": ["a@b\r\nRCPT TO:<eve@example.org>"]},
        {"to": ["a@example.org, b@example.org"]},
        {"bcc": ["two@at@signs"]},
        {"subject": "x\nBcc: eve@example.org"},
        {"reply_to": "x"},
        {"body": "x"},
    ],
)
async def test_a_mail_that_cannot_be_written_is_refused_before_anything_is_sent(
    bad: dict[str, Any],
) -> None:
    async with Postbox().up() as box:
        with pytest.raises(BadInput):
            await mailer(box).call({**HELLO, **bad}, CALL)
        assert box.mails == []


def test_a_password_does_not_cross_the_network_unprotected() -> None:
    with pytest.raises(UsageError, match="unprotected"):
        SendMail("h", "a@example.org", tls="none", user="u", password=secret("P"))
    with pytest.raises(UsageError, match="tls is one of"):
        SendMail("h", "a@example.org", tls="maybe")  # type: ignore[arg-type]
    with pytest.raises(BadInput):
        SendMail("h", "no address")
