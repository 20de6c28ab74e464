"""Notifications as JSON, for webhooks and commands. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from rota.core.notifications.model import Notification
from rota.core.notifications.rules import NotificationMessage
from rota.core.time.instants import iso


def payload(message: NotificationMessage) -> bytes:
    """A message: `text` says all of it to people; a digest has `entries`."""
    fields: dict[str, Any] = {
        "id": message.id, "kind": message.kind, "text": message.text, "count": message.count,
    }  # fmt: skip
    if message.single is not None:
        return msgspec.json.encode(fields | _fields(message.single))
    entries = [
        {"count": one.count, "since": iso(one.since), "text": one.last.text, **_fields(one.last)}
        for one in message.entries
    ]
    more = {"since": iso(message.since), "entries": entries, "others": message.others}
    return msgspec.json.encode(fields | more)


def _fields(one: Notification) -> dict[str, Any]:
    details = one.details
    return {
        "kind": one.kind, "source": one.source, "name": one.name, "schedule": one.schedule,
        "run": one.run_id, "queue": one.queue, "tags": one.tags, "at": iso(one.at),
        "reason": details.reason, "error": details.error, "attempt": details.attempt,
        "dueAt": None if details.due_at is None else iso(details.due_at),
        "occurrences": details.occurrences,
    }  # fmt: skip
