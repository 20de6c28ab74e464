"""Rules about notifications as code and `rota.toml` declare them, checked when they are read.

[notifications.ops]
webhook = "env:OPS_HOOK"     # or command, mail or ping
kinds = ["failed", "needs_attention"]
names = ["billing-*"]
limit = "20/10m"
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias, TypedDict, get_args

import msgspec

from rota.core.notifications.model import (
    KINDS,
    SOURCES,
    KindName,
    Notification,
    NotificationKind,
    Source,
)
from rota.core.notifications.rules import (
    EVERY_US,
    LIMIT,
    OUTAGE_AFTER_US,
    WAITING_AFTER_US,
    NotificationFilters,
    NotificationRule,
)
from rota.core.runs.names import checked_name
from rota.core.suggest import did_you_mean
from rota.core.time.instants import micros
from rota.errors import BadInput, UsageError
from rota.notifications.receivers import Notice
from rota.notifications.webhook import ENV, is_address, is_variable

Hook: TypeAlias = Callable[[Notification], Awaitable[None] | None]
Tls: TypeAlias = Literal["starttls", "ssl", "none"]
Keys: TypeAlias = tuple[str | int, ...]
CHANNELS = ("webhook", "command", "mail", "ping")


class NotificationFilterOptions(TypedDict, total=False):
    """The filters of a rule besides its kinds, for type checkers."""

    sources: Sequence[Source]
    names: Sequence[str]
    queues: Sequence[str]
    tags: Mapping[str, str]
    outage_after: str
    waiting_after: str


class NotificationOptions(NotificationFilterOptions, total=False):
    """The filters of a rule, for type checkers."""

    kinds: Sequence[KindName]


class Mail(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A mail server and the recipients of its mails. The environment holds the password."""

    host: str
    sender: str
    to: list[str]
    tls: Tls = "starttls"
    port: int | None = None
    user: str | None = None
    password_env: str | None = None


class NotificationTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One `[notifications.NAME]`: a channel, filters, and a limit such as `20/10m`."""

    webhook: str | None = None
    secret_env: str | None = None
    command: str | None = None
    pass_env: list[str] = []
    mail: Mail | None = None
    ping: str | None = None
    kinds: list[str] = []
    sources: list[str] = []
    names: list[str] = []
    queues: list[str] = []
    tags: dict[str, str] = {}
    limit: str | None = None
    outage_after: str | None = None
    waiting_after: str | None = None


class DeclaredRule(NamedTuple):
    """A rule of this process: where its messages go stays in memory."""

    name: str
    origin: str
    rule: NotificationRule
    channel: NotificationTable
    hook: Hook | None = None


def declared(name: str, origin: str, table: NotificationTable) -> DeclaredRule:
    """A rule with a channel, or UsageError."""
    checked_name(name, "notification rule")
    given = [way for way in CHANNELS if getattr(table, way) is not None]
    if len(given) != 1:
        raise UsageError(
            f"notification rule {name} has {' and '.join(given) or 'no channel'}",
            hint=f"Give it exactly one of: {', '.join(CHANNELS)}.",
        )
    _check_channel(name, table)
    limit, every_us = _rate(name, table.limit)
    return DeclaredRule(name, origin, _rule(name, table, limit, every_us), table)


def hooked(name: str, origin: str, table: NotificationTable, hook: Hook) -> DeclaredRule:
    """A rule that calls a function of this process, once for each notification."""
    checked_name(name, "notification rule")
    return DeclaredRule(name, origin, _rule(name, table, None, EVERY_US), table, hook)


def _rule(
    name: str, table: NotificationTable, limit: int | None, every_us: int
) -> NotificationRule:
    return NotificationRule(
        filters=_filters(name, table), limit=limit, every_us=every_us,
        outage_after_us=_time(name, "outage_after", table.outage_after, OUTAGE_AFTER_US),
        waiting_after_us=_time(name, "waiting_after", table.waiting_after, WAITING_AFTER_US),
    )  # fmt: skip


def _time(name: str, option: str, text: str | None, otherwise: int) -> int:
    if text is None:
        return otherwise
    try:
        time_us = micros(text)
    except BadInput:
        time_us = 0
    if time_us < 1:
        raise UsageError(
            f"notification rule {name}: {option} {text!r} is not a time",
            hint=f'Write {option} = "15m".',
        )
    return time_us


def table_of(options: Mapping[str, Any], **more: Any) -> NotificationTable:
    """Filters as a table."""
    times = {key: options[key] for key in ("outage_after", "waiting_after") if key in options}
    lists: dict[str, Any] = {
        key: list(options[key]) for key in options if key != "tags" and key not in times
    }
    return NotificationTable(**lists, **times, tags=dict(options.get("tags", {})), **more)


def _filters(name: str, table: NotificationTable) -> NotificationFilters:
    for given, known, what in ((table.kinds, KINDS, "kind"), (table.sources, SOURCES, "source")):
        for value in given:
            if value not in known:
                raise UsageError(
                    f"notification rule {name}: there is no {what} {value!r}"
                    f"{did_you_mean(value, known)}",
                    hint=f"Use one of: {', '.join(known)}.",
                )
    return NotificationFilters(
        kinds=tuple(NotificationKind(kind) for kind in table.kinds),
        sources=tuple(table.sources), names=tuple(table.names), queues=tuple(table.queues),
        tags=table.tags,
    )  # fmt: skip


def channel_problems(channel: Notice | NotificationTable) -> Iterator[tuple[Keys, str]]:
    """The mistakes of a channel: the place of each option, and a sentence about it."""
    for way in ("webhook", "ping"):
        address = getattr(channel, way, None)
        if address is not None and not is_address(address):
            form = f"write it as https://host/path, or {ENV}NAME"
            if address.startswith(ENV):
                form = f"{ENV} is followed by the name of a variable"
            yield (way,), f"is not an address; {form}"
    if channel.command is not None and not channel.command.strip():
        yield ("command",), "is empty"
    if channel.pass_env and channel.command is None:
        yield ("pass_env",), "is for a command, and there is none"
    for index, variable in enumerate(channel.pass_env):
        if not is_variable(variable):
            yield ("pass_env", index), "is not the name of an environment variable"
    if channel.secret_env is not None and channel.webhook is None:
        yield ("secret_env",), "signs a webhook, and there is none"
    if channel.secret_env is not None and not is_variable(channel.secret_env):
        yield ("secret_env",), "is the name of an environment variable, not the key itself"


def _check_channel(name: str, table: NotificationTable) -> None:
    for (option, *_), problem in channel_problems(table):
        raise UsageError(f"notification rule {name}: {option} {problem}", hint="Correct the rule.")
    if table.mail is not None:
        _check_mail(name, table.mail)


def _check_mail(name: str, mail: Mail) -> None:
    from rota.notifications.mail import mailer

    if mail.password_env is not None and not is_variable(mail.password_env):
        raise UsageError(
            f"notification rule {name}: password_env is not the name of an environment variable",
            hint="Put the secret into a variable, and the name of the variable here.",
        )
    if mail.tls not in get_args(Tls):
        raise UsageError(f"notification rule {name}: tls is one of {', '.join(get_args(Tls))}")
    try:
        mailer(name, mail).check({"to": mail.to, "subject": "check", "text": "check"})
    except BadInput as error:
        raise UsageError(f"notification rule {name}: {error.message}") from error


def _rate(name: str, text: str | None) -> tuple[int, int]:
    if text is None:
        return LIMIT, EVERY_US
    count, _, span = text.partition("/")
    try:
        limit, every_us = int(count), micros(span)
    except (ValueError, BadInput):
        limit, every_us = 0, 0
    if limit < 1 or every_us < 1:
        raise UsageError(
            f"notification rule {name}: {text!r} is not a rate", hint='Write limit = "20/10m".'
        )
    return limit, every_us
