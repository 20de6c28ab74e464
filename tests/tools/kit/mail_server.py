"""A mail server on loopback that keeps what it gets and misbehaves on demand."""

from __future__ import annotations

import asyncio
import contextlib
import email
import ssl
from collections.abc import AsyncIterator
from email.message import Message
from typing import Any

import trustme
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

AUTHORITY = trustme.CA()  # for this test run alone


class Postbox:
    """`faults` are used up one by one, by mails:

    mail-NNN, rcpt-NNN     that reply to MAIL or RCPT    body-NNN    that reply to the body
    drop                   hang up at MAIL               body-drop   hang up instead of a reply
    applied-drop           take it, then hang up         applied-hang   take it, never reply
    rcpt-hang              never reply to RCPT
    """

    def __init__(self) -> None:
        self.mails: list[Message] = []
        self.recipients: list[list[str]] = []
        self.options: list[list[str]] = []
        self.faults: list[str] = []
        self.port = 0
        self._over = asyncio.Event()
        self._visits: list[SMTP] = []

    @property
    def ids(self) -> list[str]:
        return [mail["Message-ID"] for mail in self.mails]

    @contextlib.asynccontextmanager
    async def up(
        self, *, ssl_context: ssl.SSLContext | None = None, **options: Any
    ) -> AsyncIterator[Postbox]:
        def visit() -> SMTP:
            self._visits.append(SMTP(self, hostname="localhost", loop=loop, **options))
            return self._visits[-1]

        loop = asyncio.get_running_loop()
        server = await loop.create_server(visit, "127.0.0.1", 0, ssl=ssl_context)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            self._over.set()
            server.close()
            await asyncio.gather(*(self._ended(each) for each in self._visits))

    async def _ended(self, visit: SMTP) -> None:
        _hang_up(visit)
        task = visit._handler_coroutine
        if task is not None:
            task.cancel()
            await asyncio.wait({task})

    async def handle_MAIL(  # noqa: N802
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        fault = self._fault("mail", "drop")
        if fault == "drop":
            _hang_up(server)
        if fault.startswith("mail"):
            return f"{fault[5:]} not from you"
        envelope.mail_from = address
        self.options.append([one for one in options if not one.startswith("size=")])
        return "250 OK"

    async def handle_RCPT(  # noqa: N802
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        fault = self._fault("rcpt")
        if fault == "rcpt-hang":
            await self._over.wait()
        if fault:
            return f"{fault[5:]} no such person"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(  # noqa: N802
        self, server: SMTP, session: Session, envelope: Envelope
    ) -> str:
        fault = self._fault("body", "applied")
        if fault.startswith("body-") and fault[5:].isdigit():
            return f"{fault[5:]} no thanks"
        if not fault.startswith("body"):
            assert isinstance(envelope.content, bytes)
            self.mails.append(email.message_from_bytes(envelope.content))
            self.recipients.append(list(envelope.rcpt_tos))
        if fault.endswith("drop"):
            _hang_up(server)
        if fault.endswith("hang"):
            await self._over.wait()
        return "250 taken"

    def _fault(self, *kinds: str) -> str:
        if self.faults and self.faults[0].startswith(kinds):
            return self.faults.pop(0)
        return ""


def _hang_up(visit: SMTP) -> None:
    if isinstance(visit.transport, asyncio.Transport):
        visit.transport.abort()


def server_tls() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    AUTHORITY.issue_cert("localhost", "127.0.0.1").configure_cert(context)
    return context


def client_tls() -> ssl.SSLContext:
    context = ssl.create_default_context()
    AUTHORITY.configure_trust(context)
    return context


def ann_only(
    server: SMTP, session: Session, envelope: Envelope, mechanism: str, login: Any
) -> AuthResult:
    good = isinstance(login, LoginPassword) and login == LoginPassword(b"ann", b"s3cr3t-word")
    return AuthResult(success=good, handled=False)
