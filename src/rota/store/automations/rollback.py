"""Earlier versions of automations: deploy one again, delete old ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from rota.core.automations.graph import AutomationGraph
from rota.core.automations.model import AutomationVersion
from rota.errors import UsageError
from rota.store.automations import state
from rota.store.automations.deploy import (
    Deployment,
    NewHandler,
    NewVersion,
    VersionParts,
    put_in_force,
    topic_rows,
)
from rota.store.automations.events import AutomationKey
from rota.store.backend.database import Tx

VERSIONS_MAX = 1000  # that a rollback looks at
_GRAPH = msgspec.json.Decoder(AutomationGraph)
_PARTS = msgspec.json.Decoder(VersionParts)


async def rollback(
    tx: Tx, namespace: str, name: str, version: int, *, now: int, new_ids: Iterator[str]
) -> Deployment:
    """Put an earlier version in force again, as a new version with its code."""
    old = await state.lock(tx, namespace, name)
    key = AutomationKey(namespace, name)
    made = await state.versions(tx, key, limit=VERSIONS_MAX)
    target = next((one for one in made if one.version == version), None)
    listed = f"List the versions with `rota automation versions {name}`."
    if target is None:
        raise UsageError(f"automation {name} has no version {version}", hint=listed)
    if target.version == old.version:
        return Deployment(old.version, old.version)
    if target.parts is None:
        raise UsageError(
            f"version {version} of automation {name} cannot be restored: it was deployed by an "
            "older version of Rota, which did not store its handlers",
            hint="Deploy the code of that version.",
        )
    parts, graph = _PARTS.decode(target.parts), _GRAPH.decode(target.graph)
    handlers = renamed_back(parts.handlers, _renames_since(made, version))
    fresh = NewVersion(
        name, parts.queue, target.digest, target.graph, handlers, topic_rows(graph), target.source
    )
    number = made[0].version + 1
    lost = await put_in_force(tx, fresh, number, key, now, new_ids, restored=target)
    return Deployment(number, old.version, lost)


def _renames_since(made: Sequence[AutomationVersion], version: int) -> list[dict[str, str]]:
    """The renamed handlers of each later version, old names to new, oldest version first."""
    later = [one for one in reversed(made) if one.version > version and one.parts]
    handlers = [_PARTS.decode(one.parts or "").handlers for one in later]
    return [{one.renamed_from: one.name for one in each if one.renamed_from} for each in handlers]


def renamed_back(
    handlers: Sequence[NewHandler], renames: Sequence[dict[str, str]]
) -> list[NewHandler]:
    """The handlers of an earlier version, each renamed from what it is called now."""
    found = []
    for one in handlers:
        now_called = one.name
        for each in renames:
            now_called = each.get(now_called, now_called)
        found.append(one._replace(renamed_from=None if now_called == one.name else now_called))
    return found


async def prune_versions(
    tx: Tx,
    namespace: str,
    name: str,
    *,
    keep: int,
    now: int,  # noqa: ARG001 - every command has it
) -> list[int]:
    """Delete all but the newest versions; the one in force is the newest. Returns their numbers."""
    await state.lock(tx, namespace, name)
    made = await state.versions(tx, AutomationKey(namespace, name), limit=keep + 1)
    if len(made) <= keep:
        return []
    rows = await tx.rows(
        "prune_definitions", namespace=namespace, automation=name, until=made[keep].version
    )
    return sorted(row[0] for row in rows)
