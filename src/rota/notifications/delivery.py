"""Delivers the messages of rules: the workflow `rota.notification`, one run for each message.

The engine's notification loop inserts the run. Sending is one step with its own retries. So a
channel that is down costs no slot while the run waits, and a message that was taken is not sent
again. Runs have a queue of their own: a slow channel delays no other work.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec

from rota.core.notifications.model import Notification, NotificationKind, one_line
from rota.core.notifications.rules import NotificationMessage
from rota.core.runs.failures import names_of
from rota.core.time.instants import SECOND, iso, iso_if_known
from rota.engine.notification_loop import DELIVERY
from rota.errors import Rejected, RotaError, Transient
from rota.notifications import command, mail, webhook
from rota.notifications.definition import DeclaredRule
from rota.notifications.webhook import Ping

if TYPE_CHECKING:
    from rota.engine.clock import Clock
    from rota.notifications.registry import DeclaredRules

log = logging.getLogger("rota.notify")

_PINGS: dict[str, Ping] = {
    NotificationKind.RECOVERED: "success", NotificationKind.MISSED: "missed",
}  # fmt: skip


def install(
    rules: DeclaredRules,
    clock: Clock,
    step: Callable[..., Any],
    workflow: Callable[..., Any],
) -> None:
    """Register the workflow that delivers, by the decorators of an app."""
    from rota.notifications.workflow import RETRIES

    async def send(rule: str, message: NotificationMessage) -> None:
        await deliver(rules, rule, message, now_s=clock.now() // SECOND)

    sent = step(name="rota.deliver", retries=RETRIES)(send)

    async def notification(rule: str, message: NotificationMessage) -> str:
        """Send one message by the channel of its rule."""
        await sent(rule, message)
        return message.kind

    workflow(name=DELIVERY)(notification)


async def deliver(
    rules: DeclaredRules, name: str, message: NotificationMessage, *, now_s: int
) -> None:
    """Send one message; returns once the receiver has taken it."""
    rule = rules.get(name)
    if rule is None:
        raise Transient(f"this process declares no notification rule {name!r}")
    try:
        await _send(rule, message, now_s, rules.page_url)
    except Exception as error:
        log.warning(
            "notification rule %s could not send message %s: %s", name, message.id,
            names_of(error)[0],
        )  # fmt: skip
        if isinstance(error, Rejected | Transient):
            raise
        later = Transient(one_line(f"{type(error).__name__}: {error}"))
        if isinstance(error, RotaError):
            later.advice = error.advice  # a missing package needs an operator
        raise later from error


async def _send(
    rule: DeclaredRule, message: NotificationMessage, now_s: int, page_url: str
) -> None:
    channel = rule.channel
    if rule.hook is not None:
        await _call(rule, message)
    elif channel.webhook is not None:
        body = _payload(message, page_url)
        await webhook.post(
            channel.webhook, channel.secret_env, message_id=message.id, timestamp=now_s, body=body
        )
    elif channel.command is not None:
        await _run(channel.command, channel.pass_env, message, _payload(message, page_url))
    elif channel.mail is not None:
        await mail.send(rule.name, channel.mail, message, _link(message, page_url))
    elif channel.ping is not None:
        event = _PINGS.get(message.kind, "fail")
        await webhook.call_ping(channel.ping, event, run_id=message.entries[0].last.run_id)


async def _call(rule: DeclaredRule, message: NotificationMessage) -> None:
    assert rule.hook is not None
    for entry in message.entries:
        if inspect.iscoroutinefunction(rule.hook):
            await rule.hook(entry.last)
            continue
        answer = await asyncio.to_thread(rule.hook, entry.last)
        if inspect.isawaitable(answer):  # an object with an async call
            await answer


async def _run(
    command_line: str, pass_env: Sequence[str], message: NotificationMessage, payload: bytes
) -> None:
    notification = message.entries[0].last
    env = {
        "ROTA_KIND": message.kind, "ROTA_NAME": one_line(notification.name),
        "ROTA_SOURCE": notification.source, "ROTA_MESSAGE_ID": message.id,
    }  # fmt: skip
    try:
        ended = await command.run(
            command_line, Path(os.getcwd()), stdin=payload.decode(), env=env,
            pass_env=pass_env,
        )  # fmt: skip
    except Transient as error:  # errors are stored, and the line may hold a secret
        raise Transient(error.message.replace(f"`{command_line}`", "the command")) from None
    if ended.code != 0:
        raise Transient(ended.end_text("the command"))


def _link(message: NotificationMessage, page_url: str) -> str | None:
    """The page of its work, if the address of the dashboard is configured."""
    one = message.single
    if one is None or not page_url:
        return None
    is_automation = one.source == "automation"
    path = f"automations/{quote(one.name, safe='')}" if is_automation else f"runs/{one.run_id}"
    return f"{page_url.rstrip('/')}/{path}"


def _payload(message: NotificationMessage, page_url: str) -> bytes:
    """A message as JSON. `text` is the whole message for people; a digest has `entries`."""
    link = _link(message, page_url)
    fields: dict[str, Any] = {
        "id": message.id, "kind": message.kind, "count": message.count, "link": link,
        "text": message.text if link is None else f"{message.text} {link}",
    }  # fmt: skip
    if message.single is not None:
        return msgspec.json.encode(fields | _fields(message.single))
    entries = [
        {
            "count": entry.count,
            "since": iso(entry.since),
            "text": entry.last.text,
            **_fields(entry.last),
        }
        for entry in message.entries
    ]
    more = {"since": iso(message.since), "entries": entries, "others": message.others}
    return msgspec.json.encode(fields | more)


def _fields(notification: Notification) -> dict[str, Any]:
    details = notification.details
    return {
        "kind": notification.kind, "source": notification.source, "name": notification.name,
        "schedule": notification.schedule, "run": notification.run_id,
        "queue": notification.queue, "tags": notification.tags, "at": iso(notification.at),
        "reason": details.reason, "error": details.error, "attempt": details.attempt,
        "dueAt": iso_if_known(details.due_at),
        "occurrences": details.occurrences, "since": iso_if_known(details.since),
        "waitsFor": details.waits_for, "change": details.change,
        "items": details.items, "deadLetters": details.dead_letters,
        "commands": notification.commands,
    }  # fmt: skip
