"""Attachments, addresses in any script, and subjects with odd characters, on a real server."""

from __future__ import annotations

import base64
import email.policy
from email.header import decode_header, make_header
from email.message import EmailMessage, Message
from typing import Any

import pytest

from rota.errors import BadInput, Rejected
from rota.tools import SendMail
from tests.tools.kit import CALL
from tests.tools.kit.mail_server import Postbox

HELLO = {"to": ["bob@example.org"], "subject": "Tea", "text": "At five?\nAnn"}


def mailer(box: Postbox, sender: str = "Ann <ann@example.org>") -> SendMail:
    return SendMail("127.0.0.1", sender, tls="none", port=box.port)


def read_again(mail: Message) -> EmailMessage:
    """The mail as a modern program reads it."""
    raw = mail.as_bytes()
    return email.message_from_bytes(raw, policy=email.policy.default)


async def test_attachments_arrive_with_their_names_and_bytes() -> None:
    raw = bytes(range(256))
    files: list[dict[str, Any]] = [
        {"name": "Rechnung – März.pdf", "base64": base64.b64encode(raw).decode(),
         "media": "application/pdf"},
        {"name": "a.csv", "text": "x;ä\n.\n", "media": "text/csv"},
        {"name": "b", "text": ""},
    ]  # fmt: skip
    async with Postbox().up() as box:
        await mailer(box).call({**HELLO, "html": "<p>Five</p>", "attachments": files}, CALL)
        mail = read_again(box.mails[0])
        found = [
            (part.get_filename(), part.get_content_type(), part.get_payload(decode=True))
            for part in mail.iter_attachments()
        ]
        assert found == [
            ("Rechnung – März.pdf", "application/pdf", raw),
            ("a.csv", "text/csv", "x;ä\n.\n".encode()),
            ("b", "application/octet-stream", b""),
        ]
        body = mail.get_body(("plain",))
        assert body is not None
        assert body.get_content().split() == ["At", "five?", "Ann"]
        assert mail.get_body(("html",)) is not None


WRONG: list[dict[str, Any]] = [
    {"name": "a"}, {"name": "a", "text": "x", "base64": "eA=="}, {"name": "", "text": "x"},
    {"name": "a", "base64": "eA"}, {"name": "a", "text": "x", "media": "text"},
    {"name": "a", "text": "x", "media": "text/csv\r\nBcc: eve@evil.example"},
    {"name": "a\r\nBcc: eve@evil.example", "text": "x"}, {"name": "../a", "text": "x"},
    {"name": "..", "text": "x"}, {"name": "a\\b", "text": "x"}, {"name": "a\0", "text": "x"},
    {"name": "a", "text": "x", "path": "/etc/passwd"},
]  # fmt: skip


@pytest.mark.parametrize("attachment", WRONG, ids=str)
def test_an_attachment_that_cannot_be_written_is_refused(attachment: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        SendMail("h", "a@b.org").check({**HELLO, "attachments": [attachment]})


async def test_a_domain_in_any_script_is_asked_for_by_its_dns_name() -> None:
    async with Postbox().up() as box:
        to = ["Jörg <info@bücher.example>", "a@例え.テスト"]
        result = await mailer(box, "us@münchen.example").call({**HELLO, "to": to}, CALL)
        assert box.recipients == [["info@xn--bcher-kva.example", "a@xn--r8jz45g.xn--zckzah"]]
        assert result["message_id"].endswith("@xn--mnchen-3ya.example>")
        assert result["recipients"] == to
        [mail] = box.mails
        assert "xn--bcher-kva.example" in mail["To"]
        assert "xn--mnchen-3ya.example" in mail["From"]


async def test_a_name_in_any_script_needs_a_server_that_takes_it() -> None:
    to = ["jörg@bücher.example", "bob@example.org"]
    async with Postbox().up(enable_SMTPUTF8=True) as box:
        await mailer(box).call({**HELLO, "to": to, "cc": ["用户@例え.テスト"]}, CALL)
        assert box.recipients[0][::2] == [
            "jörg@xn--bcher-kva.example",
            "用户@xn--r8jz45g.xn--zckzah",
        ]
        assert "jörg@" in str(make_header(decode_header(read_again(box.mails[0])["To"])))
    async with Postbox().up() as box:
        for field in ("to", "cc", "bcc"):
            with pytest.raises(Rejected, match="SMTPUTF8"):
                await mailer(box).call({**HELLO, field: to}, CALL)
        assert box.mails == []


async def test_a_mail_in_ascii_asks_nothing_new_of_the_server() -> None:
    async with Postbox().up(enable_SMTPUTF8=True) as box:
        await mailer(box).call({**HELLO, "text": "Grüße, ☕"}, CALL)
        assert box.options == [[]]
        assert box.mails[0].as_bytes().isascii()


ADDRESSES = [
    *("straße@faß.example", "a@faß.example", "jörg@", "@bücher.example", "jö rg@example.org"),
    *("jörg@exa mple.org", "jö\r\nrg@example.org", "jörg\u2028@example.org", "jö<rg@example.org"),
    *(
        "Bob <bob@example.org",
        "jörg,eve@example.org",
        "jörg.@example.org",
        "a@bü\u2028cher.example",
        "a@ü..example",
    ),
    "a@" + "ü" * 70 + ".example",
]


@pytest.mark.parametrize("address", ADDRESSES)
def test_an_address_that_may_be_of_somebody_else_is_refused(address: str) -> None:
    with pytest.raises(BadInput, match="not a mail address"):
        SendMail("h", "a@b.org").check({**HELLO, "to": [address]})


@pytest.mark.parametrize("odd", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\x1e"])
async def test_a_separator_of_unicode_is_a_space_in_a_header(odd: str) -> None:
    async with Postbox().up() as box:
        params = {**HELLO, "subject": f"One{odd}two", "to": [f"Bob{odd}B <bob@example.org>"]}
        await mailer(box).call(params, CALL)
        mail = read_again(box.mails[0])
        assert (mail["Subject"], mail["To"].addresses[0].display_name) == ("One two", "Bob B")


@pytest.mark.parametrize("subject", ["a\nBcc: eve@evil.example", "a\rb", "a\r\n\r\nbody"])
def test_a_line_break_in_a_subject_is_refused(subject: str) -> None:
    with pytest.raises(BadInput):
        SendMail("h", "a@b.org").check({**HELLO, "subject": subject})
