"""Mail by SMTP. Before the body nothing is sent; after it, the server's answer decides."""

from __future__ import annotations

import base64
import contextlib
import re
import smtplib
import ssl
import threading
import unicodedata
from collections.abc import Awaitable, Callable, Iterator
from email.errors import MessageError
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import formatdate
from typing import Any, Literal, cast

import msgspec

from rota import faults
from rota.errors import BadInput, NeedsLogin, NotSent, OutcomeUnknown, Rejected, UsageError
from rota.net.secret import Text, hide, reveal
from rota.tools.base import (
    SETTLE_S,
    Applied,
    Call,
    NotApplied,
    Safety,
    Tool,
    Unknown,
    Verdict,
    checked_settle_s,
    read_params,
)
from rota.tools.paths import mark_of
from rota.tools.threads import in_thread

RECIPIENTS_MAX = 100
# Seven bits pass every server; Python would send eight without asking whether they do.
POLICY = SMTP.clone(cte_type="7bit")
_MEDIA = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]*/[a-z0-9][a-z0-9!#$&^_.+-]*", re.IGNORECASE)
_LOCAL = re.compile(r"[\w!#$%&'*+/=?^`{|}~-]+(\.[\w!#$%&'*+/=?^`{|}~-]+)*")
_DOMAIN = re.compile(r"[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*")
# Python takes these for line breaks. They are none for SMTP, and titles of feeds hold them.
_SPACED = str.maketrans(dict.fromkeys("\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029", " "))
PORTS = {"none": 25, "starttls": 587, "ssl": 465}

# Given the Message-ID: True if the mail is in the sent folder, False if not, None if unclear.
MailLookup = Callable[[str], Awaitable[bool | None]]


class Attachment(msgspec.Struct, forbid_unknown_fields=True):
    """A file of a mail; its content is `text` or `base64`."""

    name: str
    text: str | None = None
    base64: str | None = None
    media: str = "application/octet-stream"

    def raw(self, tool: str) -> bytes:
        """The content as bytes, or BadInput."""
        is_name = self.name.isprintable() and not set(self.name) & set("/\\")
        if not is_name or self.name.strip() in ("", ".", ".."):
            raise BadInput(f"parameters of {tool}: {self.name!r} cannot be the name of a file")
        if not _MEDIA.fullmatch(self.media):
            raise BadInput(f"parameters of {tool}: {self.media!r} is not a media type")
        if (self.text is None) == (self.base64 is None):
            raise BadInput(f"parameters of {tool}: give text or base64 of {self.name}, one of them")
        if self.text is not None:
            return self.text.encode()
        try:
            return base64.b64decode(self.base64 or "", validate=True)
        except ValueError as error:
            raise BadInput(f"parameters of {tool}: base64 of {self.name}: {error}") from error


class MailParams(msgspec.Struct, forbid_unknown_fields=True):
    """The arguments of one call of a SendMail."""

    to: list[str]
    subject: str
    text: str
    html: str | None = None
    cc: list[str] = []
    bcc: list[str] = []
    reply_to: str | None = None
    attachments: list[Attachment] = []

    def recipients(self) -> list[str]:
        """Each address once, in order."""
        return list(dict.fromkeys([*self.to, *self.cc, *self.bcc]))


class SendMail(Tool):
    """Sends one mail to all its recipients or to none; its Message-ID is made of the key.

    Unknowable, unless `lookup` can tell whether a mail with that Message-ID was sent.
    """

    def __init__(
        self,
        host: str,
        sender: str,
        *,
        name: str = "send_mail",
        tls: Literal["starttls", "ssl", "none"] = "starttls",
        port: int | None = None,
        user: Text | None = None,
        password: Text | None = None,
        lookup: MailLookup | None = None,
        trust: ssl.SSLContext | None = None,
        settle_s: float = SETTLE_S,
    ) -> None:
        if tls not in PORTS:
            raise UsageError(f"{name}: tls is one of {', '.join(PORTS)}, not {tls!r}")
        if password is not None and tls == "none":
            raise UsageError(
                f"{name}: a password would cross the network unprotected",
                hint='Use tls="starttls" or tls="ssl".',
            )
        self.name = name
        self.safety = Safety.RECONCILABLE if lookup else Safety.UNKNOWABLE
        self.settle_s = checked_settle_s(settle_s, tool=name)
        self._host, self._port = host, port or PORTS[tls]
        self._sender = _address(sender, name)
        self._tls = tls
        self._user, self._password = user, password
        self._lookup = lookup
        self._trust = trust

    def read(self, params: dict[str, Any]) -> MailParams:
        """The parameters, typed and checked: a mail that can be written."""
        values = read_params(MailParams, params, tool=self.name)
        if not 1 <= len(values.recipients()) <= RECIPIENTS_MAX:
            raise BadInput(f"parameters of {self.name}: 1 to {RECIPIENTS_MAX} recipients")
        self._message(values, "check")
        return values

    async def perform(self, params: MailParams, call: Call) -> Any:
        """Send it, and let the answer to its body decide."""
        message = self._message(params, call.key)
        begun = threading.Event()

        def work(late: threading.Event) -> None:
            def go() -> None:
                begun.set()  # before the look at `late`: one of the two sides sees the other
                if late.is_set():
                    raise NotSent(f"{self._host} was not ready in time")

            with self._classified():
                self._send(message, params.recipients(), go, call.timeout_s)

        try:
            await in_thread(work, timeout_s=call.timeout_s)
        except TimeoutError as error:
            problem = f"{self._host} did not answer within {call.timeout_s:g} s"
            if not begun.is_set():
                raise NotSent(problem) from error
            raise OutcomeUnknown(problem, tool=self.name) from error
        return {"message_id": self._message_id(call.key), "recipients": params.recipients()}

    async def look_up(self, params: MailParams, call: Call) -> Verdict:
        """Ask the lookup, if there is one."""
        if self._lookup is None:
            return await super().look_up(params, call)
        message_id = self._message_id(call.key)
        match await self._lookup(message_id):
            case True:
                return Applied({"message_id": message_id, "recipients": params.recipients()})
            case False:
                return NotApplied(f"no mail {message_id} was sent")
            case _:
                return Unknown(f"the lookup could not find out whether {message_id} was sent")

    def _message_id(self, key: str) -> str:
        return f"<{mark_of(key)}.rota@{self._sender.domain or 'localhost'}>"

    def _message(self, params: MailParams, key: str) -> EmailMessage:
        named = [self._sender, *(_address(each, self.name) for each in params.recipients())]
        is_utf8 = not all(each.username.isascii() for each in named)
        message = EmailMessage(policy=POLICY.clone(utf8=is_utf8))
        try:
            message["From"] = self._sender
            message["To"] = [_address(each, self.name) for each in params.to]
            if params.cc:
                message["Cc"] = [_address(each, self.name) for each in params.cc]
            if params.reply_to:
                message["Reply-To"] = _address(params.reply_to, self.name)
            message["Subject"] = params.subject.translate(_SPACED)
            message["Date"] = formatdate()
            message["Message-ID"] = self._message_id(key)
            message.set_content(params.text)
            if params.html is not None:
                message.add_alternative(params.html, subtype="html")
            for each in params.attachments:
                main, _, sub = each.media.partition("/")
                raw = each.raw(self.name)
                message.add_attachment(raw, maintype=main, subtype=sub, filename=each.name)
            message.as_bytes()
        except (ValueError, MessageError, UnicodeError) as error:
            raise BadInput(f"parameters of {self.name}: {error}") from error
        return message

    def _send(
        self, message: EmailMessage, recipients: list[str], go: Callable[[], None], timeout_s: float
    ) -> None:
        with self._connected(timeout_s) as server:
            if self._user is not None and self._password is not None:
                server.login(reveal(self._user), reveal(self._password))
            addresses = [_address(each, self.name).addr_spec for each in recipients]
            # A server that does not know SMTPUTF8 would guess at the letters: it is refused here.
            options = ["SMTPUTF8"] if cast(Any, message.policy).utf8 else []
            self._expect(server.mail(self._sender.addr_spec, options))
            for address in addresses:
                # A refused recipient would get nothing. So no recipient gets the mail, and the
                # error says so.
                self._expect(server.rcpt(address), about=address)
            self._expect(server.docmd("DATA"), good=3)
            go()
            faults.reach("mail-before-body")
            self._expect(self._deliver(server, message))

    def _deliver(self, server: smtplib.SMTP, message: EmailMessage) -> tuple[int, bytes]:
        """From here on the server may have the mail, whatever it answers."""
        body = re.sub(rb"(?m)^\.", b"..", message.as_bytes())  # a single dot would be the end
        try:
            server.send(body + (b".\r\n" if body.endswith(b"\r\n") else b"\r\n.\r\n"))
            return server.getreply()
        except (OSError, smtplib.SMTPException) as error:
            problem = f"{self._host}: {error} (after the mail was sent to it)"
            raise OutcomeUnknown(problem, tool=self.name) from error

    @contextlib.contextmanager
    def _connected(self, timeout_s: float) -> Iterator[smtplib.SMTP]:
        trust = self._trust or (ssl.create_default_context() if self._tls != "none" else None)
        if self._tls == "ssl":
            server: smtplib.SMTP = smtplib.SMTP_SSL(
                self._host, self._port, timeout=timeout_s, context=trust
            )
        else:
            server = smtplib.SMTP(self._host, self._port, timeout=timeout_s)
        try:
            server.ehlo_or_helo_if_needed()
            if self._tls == "starttls":
                self._expect(server.starttls(context=trust))
                server.ehlo()
            yield server
            with contextlib.suppress(OSError, smtplib.SMTPException):
                server.docmd("QUIT")  # the server has the mail; an error of QUIT changes nothing
        finally:
            server.close()

    def _expect(self, reply: tuple[int, bytes], *, good: int = 2, about: str = "") -> None:
        """Any other reply means that the mail was not taken: SMTP leaves no doubt here."""
        code, text = reply
        if code // 100 == good:
            return
        raise self._refused(code, text, about)

    def _refused(self, code: int, text: bytes | str, about: str = "") -> Exception:
        shown = text.decode(errors="replace") if isinstance(text, bytes) else text
        shown = hide(shown, [self._user, self._password])
        problem = f"{self._host} answered {code} {shown}" + (f" about {about}" if about else "")
        if code in (530, 534, 535, 538):
            user = self._user if isinstance(self._user, str) else None
            return NeedsLogin(problem, service=self._host, account=user)
        if code // 100 == 5:
            return Rejected(problem, status=code)
        return NotSent(problem)

    @contextlib.contextmanager
    def _classified(self) -> Iterator[None]:
        """Foreign errors in here came before the body: nothing was sent."""
        try:
            yield
        except smtplib.SMTPResponseException as error:
            raise self._refused(error.smtp_code, error.smtp_error) from error
        except smtplib.SMTPNotSupportedError as error:
            raise Rejected(f"{self._host}: {error}") from error
        except (smtplib.SMTPException, OSError) as error:
            raise NotSent(f"{self._host}: {error}") from error


def _address(text: str, tool: str) -> Address:
    """One address, with or without a name before it."""
    name, _, spec = text.rpartition("<")
    bare = spec.removesuffix(">").strip() if name or text.startswith("<") else text.strip()
    is_closed = not (name or text.startswith("<")) or text.rstrip().endswith(">")
    shown = name.translate(_SPACED).strip().strip('"')
    try:
        if bare.isascii():
            address = Address(display_name=shown, addr_spec=bare)
        else:
            local, _, domain = bare.rpartition("@")
            if not _LOCAL.fullmatch(local):
                raise ValueError("its name holds something else than letters")
            address = Address(display_name=shown, username=local, domain=_ascii_domain(domain))
    except (ValueError, IndexError, MessageError) as error:
        raise BadInput(f"{tool}: {text!r} is not a mail address") from error
    if not (address.username and address.domain and bare.isprintable() and is_closed):
        raise BadInput(f"{tool}: {text!r} is not a mail address")
    return address


def _ascii_domain(domain: str) -> str:
    """A domain as DNS has it. Python's rules of 2003 turn some letters into others (ß into ss),
    which would be another domain: those are refused."""
    encoded = domain.encode("idna").decode()
    if not _DOMAIN.fullmatch(encoded):
        raise ValueError("its domain holds something else than letters")
    if encoded.encode().decode("idna") != unicodedata.normalize("NFC", domain.lower()):
        raise ValueError("its domain has to be given as xn--")
    return encoded
