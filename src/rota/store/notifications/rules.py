"""Rules about notifications as they are stored: filters, limits and progress; never an address."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from rota.core.notifications.model import ASKS, RULE_KINDS, TROUBLES, NotificationKind
from rota.core.notifications.rules import NotificationRule, RuleProgress
from rota.core.typed import json_text
from rota.store.backend.database import Tx


class StoredRule(NamedTuple):
    """One rule and its progress."""

    name: str
    rule: NotificationRule
    progress: RuleProgress


def recorded_kinds(rule: NotificationRule) -> str:
    """The kinds that are recorded for a rule, for `like`: a recovery needs the trouble before."""
    kinds = set(rule.filters.kinds or RULE_KINDS)
    if NotificationKind.RECOVERED in kinds:
        kinds |= TROUBLES
    if NotificationKind.WAITING in kinds:
        kinds |= ASKS
    return f",{','.join(sorted(kinds))},"


async def put(
    tx: Tx,
    declared: Mapping[str, tuple[str, NotificationRule]],
    *,
    namespace: str,
    origins: Sequence[str],
) -> None:
    """Make the rules of these origins what they declare; the progress of rules that stay is kept.
    `declared` maps names to origin and rule."""
    await tx.rows("delete_rules", namespace=namespace, origins=origins, names=sorted(declared))
    rows = [
        (namespace, name, origin, recorded_kinds(rule), json_text(rule))
        for name, (origin, rule) in sorted(declared.items())
    ]
    await tx.change("put_rules", rows)


async def lock(tx: Tx, *, namespace: str) -> list[StoredRule]:
    """All rules, locked: one process at a time dispatches."""
    rows = await tx.rows("lock_rules", namespace=namespace)
    return [
        StoredRule(
            row[0],
            msgspec.json.decode(row[1], type=NotificationRule),
            msgspec.json.decode(row[2], type=RuleProgress) if row[2] else RuleProgress(),
        )
        for row in rows
    ]


async def advance(tx: Tx, progress: Mapping[str, RuleProgress], *, namespace: str) -> None:
    """Store what rules have sent and hold."""
    rows = [(namespace, name, json_text(one)) for name, one in sorted(progress.items())]
    await tx.change("advance_rules", rows)
