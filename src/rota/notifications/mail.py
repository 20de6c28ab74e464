"""Notifications by mail, sent by the mail tool. The Message-ID follows from the message's id, so a
mail server or a reader can drop one that comes twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rota.core.notifications.rules import NotificationMessage
from rota.errors import NeedsLogin, NotSent, OutcomeUnknown, Transient
from rota.net.secret import Secret

if TYPE_CHECKING:
    from rota.notifications.definition import Mail
    from rota.tools.mail import SendMail

TIMEOUT_S = 30.0


def mailer(name: str, mail: Mail) -> SendMail:
    """The tool that sends the mails of a rule."""
    from rota.tools.mail import SendMail

    password = None if mail.password_env is None else Secret(mail.password_env)
    return SendMail(
        mail.host, mail.sender, name=f"mail of {name}", tls=mail.tls, port=mail.port,
        user=mail.user, password=password,
    )  # fmt: skip


async def send(name: str, mail: Mail, message: NotificationMessage, link: str | None) -> None:
    """Send one message. Transient: it may work later, and may have worked now."""
    from rota.tools.base import Call

    params = {"to": mail.to, "subject": f"[rota] {message.title}", "text": body(message, link)}
    try:
        await mailer(name, mail).call(params, Call(message.id, TIMEOUT_S))
    except (NotSent, OutcomeUnknown, NeedsLogin) as error:
        raise Transient(error.message) from None


def body(message: NotificationMessage, link: str | None = None) -> str:
    """The text of the mail."""
    lines = [message.text, ""]
    notification = message.single
    if notification is not None:
        if notification.error:
            lines += [notification.error, ""]
        lines += [*notification.commands, *([link] if link else [])]
        lines += [f"Run: {notification.run_id}   (rota run show {notification.run_id})"]
    return "\n".join([*lines, f"Message: {message.id}", ""])
