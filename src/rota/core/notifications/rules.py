"""Who wants which notifications, and how many messages they become. Pure.

A rule sends the first notification of each key at once. Within `every_us` after the first message
it sends no second message for the same key, and at most `limit` messages in all; it holds what
comes on top and sends that as one digest when the time is over. Approvals are not limited.
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

import msgspec

from rota.core.notifications.model import ROUTINE, Notification, NotificationKind, one_line
from rota.core.runs.rate_limit import set_back_us
from rota.core.time.instants import HOUR, MINUTE, iso

EVERY_US = 10 * MINUTE
LIMIT = 20
OUTAGE_AFTER_US = 15 * MINUTE
WAITING_AFTER_US = 4 * HOUR
# A digest names this many; the rest is a number. It bounds what a rule holds, whatever happens.
HELD_MAX = 50
HELD_ERROR_CHARS = 300


class NotificationFilters(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which notifications a rule wants; an empty filter lets everything but routine pass."""

    kinds: tuple[NotificationKind, ...] = ()
    sources: tuple[str, ...] = ()
    names: tuple[str, ...] = ()  # patterns such as `billing-*`, of names or of schedules
    queues: tuple[str, ...] = ()
    tags: dict[str, str] = {}

    def wants(self, one: Notification) -> bool:
        """Whether a notification passes every filter."""
        return (
            (one.kind in self.kinds if self.kinds else one.kind not in ROUTINE)
            and (not self.sources or one.source in self.sources)
            and (not self.queues or one.queue in self.queues)
            and all(one.tags.get(key) == value for key, value in self.tags.items())
            and (not self.names or any(_named(one, pattern) for pattern in self.names))
        )


def _named(one: Notification, pattern: str) -> bool:
    return fnmatchcase(one.name, pattern) or fnmatchcase(one.schedule or "", pattern)


class NotificationRule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A rule as the database stores it: no address and no secret."""

    filters: NotificationFilters = NotificationFilters()
    limit: int | None = LIMIT  # None: every notification is a message of its own
    every_us: int = EVERY_US
    outage_after_us: int = OUTAGE_AFTER_US
    waiting_after_us: int = WAITING_AFTER_US

    def wants(self, one: Notification) -> bool:
        """Whether a notification passes the filters, after the time that this rule sets."""
        after = one.details.after_us
        return self.filters.wants(one) and after in (None, self.after_us(one.kind))

    def after_us(self, kind: NotificationKind) -> int | None:
        """The time after which this rule wants this kind; None for kinds without one."""
        if kind is NotificationKind.WAITING:
            return self.waiting_after_us
        is_outage = kind in (NotificationKind.OUTAGE, NotificationKind.STRANDED)
        return self.outage_after_us if is_outage else None


class DigestEntry(msgspec.Struct, frozen=True):
    """Equal notifications: held for the digest, then one line of it."""

    count: int
    since: int
    last: Notification


class RuleProgress(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The messages of a rule since `began_at`, and those it holds."""

    began_at: int = 0
    sent_count: int = 0
    sent: frozenset[str] = frozenset()
    held: dict[str, DigestEntry] = {}
    others: int = 0  # held beyond HELD_MAX


class NotificationMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One message to one receiver: one notification, or a digest of several."""

    id: str
    entries: tuple[DigestEntry, ...]
    others: int = 0

    @property
    def count(self) -> int:
        """How many notifications it represents."""
        return sum(entry.count for entry in self.entries) + self.others

    @property
    def single(self) -> Notification | None:
        """The notification, if it is one alone."""
        return self.entries[0].last if self.count == 1 else None

    @property
    def kind(self) -> str:
        """The kind of the notification, or `digest`."""
        return self.single.kind if self.single else "digest"

    @property
    def title(self) -> str:
        """A line for the subject of a mail."""
        if self.single is not None:
            return one_line(self.single.text, 150)
        return f"{self.count} notifications since {iso(self.since)}"

    @property
    def since(self) -> int:
        """When the first of them happened."""
        return min(entry.since for entry in self.entries)

    @property
    def text(self) -> str:
        """All of it for people: a sentence, or a line for each entry of a digest."""
        if self.single is not None:
            return self.single.text
        lines = [f"{entry.count} × {entry.last.text}" for entry in self.entries]
        if self.others:
            lines.append(f"{self.others} × other notifications")
        return "\n".join([f"{self.title}:", *lines])


def alone(one: Notification) -> NotificationMessage:
    """A message of one notification."""
    return NotificationMessage(id=one.id, entries=(DigestEntry(1, one.at, one),))


class DispatchPlan(NamedTuple):
    """The messages to send now, the state to remember, and when to look again."""

    messages: list[NotificationMessage]
    state: RuleProgress
    due_at: int | None


def dispatch(
    rule: NotificationRule,
    state: RuleProgress,
    fresh: Sequence[Notification],
    *,
    now: int,
    digest_id: str,
) -> DispatchPlan:
    """Turn new notifications into messages, by the limits of the rule."""
    wanted = [one for one in fresh if rule.wants(one)]
    if rule.limit is None:
        return DispatchPlan([alone(one) for one in wanted], state, None)
    messages: list[NotificationMessage] = []
    # A window that begins in the future is from before the clock was set back.
    if now >= state.began_at + rule.every_us or set_back_us(seen_at=state.began_at, now=now):
        messages, state = _next_window(state, now, digest_id)
    sent, held, others = set(state.sent), dict(state.held), state.others
    count = state.sent_count
    for one in wanted:
        if one.kind is NotificationKind.APPROVAL_WANTED:  # a person is waited for: never held
            messages.append(alone(one))
        elif one.key not in sent and count < rule.limit:
            sent.add(one.key)
            count += 1
            messages.append(alone(one))
        elif one.key in held or len(held) < HELD_MAX:
            held[one.key] = _one_more(held.get(one.key), one)
        else:
            others += 1
    began_at = state.began_at or now
    if not sent and not held:
        return DispatchPlan(messages, RuleProgress(), None)
    state = RuleProgress(
        began_at=began_at, sent_count=count, sent=frozenset(sent), held=held, others=others
    )
    return DispatchPlan(messages, state, began_at + rule.every_us if held else None)


def _next_window(
    state: RuleProgress, now: int, digest_id: str
) -> tuple[list[NotificationMessage], RuleProgress]:
    """The time is over: send what was held as one digest, which begins the next span."""
    if not state.held:
        return [], RuleProgress()
    entries = sorted(state.held.values(), key=lambda held: (-held.count, held.since))
    digest = NotificationMessage(id=digest_id, entries=tuple(entries), others=state.others)
    return [digest], RuleProgress(began_at=now, sent_count=1, sent=frozenset(state.held))


def _one_more(before: DigestEntry | None, one: Notification) -> DigestEntry:
    error = one.details.error
    if error and len(error) > HELD_ERROR_CHARS:
        details = msgspec.structs.replace(one.details, error=f"{error[:HELD_ERROR_CHARS]}…")
        one = msgspec.structs.replace(one, details=details)
    if before is None:
        return DigestEntry(1, one.at, one)
    return DigestEntry(before.count + 1, before.since, one)
