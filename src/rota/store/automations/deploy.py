"""Deploys automations: new ones together in a few statements, a changed one under its lock."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

import msgspec

from rota.core.automations.graph import AutomationGraph, TopicNode
from rota.core.automations.model import AutomationVersion, DeployedAutomation, serial_key
from rota.core.automations.planner import DeployedHandler
from rota.core.runs.lifecycle import Status, Trigger
from rota.core.typed import json_text
from rota.store.automations import refused, state
from rota.store.automations.events import AutomationKey
from rota.store.backend.database import Row, Tx

# The questions that wait for a person, and that a new version of the code answers.
CURED_BY_CODE = frozenset({"logic", "internal", "transient", "timeout", "fatal", "crashes"})


class NewHandler(NamedTuple):
    """A handler as the code declares it."""

    name: str
    kind: str
    digest: str
    spec: str | None
    written: str | None
    renamed_from: str | None = None


class TopicRow(NamedTuple):
    """A topic as it is stored."""

    name: str
    consumer: str | None
    external: int
    shape: str | None


class NewVersion(NamedTuple):
    """An automation as the code declares it, checked."""

    name: str
    queue: str
    digest: str
    graph: str
    handlers: Sequence[NewHandler]
    topics: Sequence[TopicRow]
    source: str | None

    @property
    def first_trigger(self) -> str:
        """Why its first run begins."""
        consumes = any(one.kind == "consumer" for one in self.handlers)
        return Trigger.EVENT if consumes else Trigger.SCHEDULE


class Deployment(NamedTuple):
    """The result of a deploy: the version in force, the one before it, and the handlers that are
    gone with their state. `held_back`: a rollback holds, so the version was not put in force."""

    version: int
    before: int | None
    lost: tuple[str, ...] = ()
    held_back: bool = False


class VersionParts(msgspec.Struct, frozen=True):
    """The parts of a stored version beside its graph that put it in force again."""

    queue: str
    handlers: list[NewHandler]


def _definition(fresh: NewVersion, number: int) -> Row:
    parts = json_text(VersionParts(fresh.queue, list(fresh.handlers)))
    return (fresh.name, number, fresh.digest, fresh.graph, fresh.source, parts)


def topic_rows(graph: AutomationGraph) -> list[TopicRow]:
    """A graph's topics as the store keeps them."""

    def row(topic: TopicNode) -> TopicRow:
        shape = None if topic.shape is None else json_text(topic.shape)
        return TopicRow(topic.name, graph.consumer_of(topic.name), int(topic.external), shape)

    return [row(topic) for topic in graph.topics]


async def deploy_new(
    tx: Tx, namespace: str, fresh: Sequence[NewVersion], *, now: int, new_ids: Iterator[str]
) -> frozenset[str]:
    """Put first versions in force, every handler of theirs due at once. Returns the names; rows
    that are missing were there already, and are left unchanged.
    """
    rows = await tx.many(
        "add_automations", [(one.name, one.queue, one.digest) for one in fresh],
        namespace=namespace, now=now,
    )  # fmt: skip
    names = frozenset(row[0] for row in rows)
    created = [one for one in fresh if one.name in names]
    await tx.many(
        "put_definitions", [_definition(one, 1) for one in created], namespace=namespace,
        made_by="deploy", comment=None, restores=None, now=now,
    )  # fmt: skip
    parts = [row for one in created for row in _handler_rows(one, {}, now)]
    await tx.many("put_handlers", parts, namespace=namespace)
    await tx.many(
        "put_topics", [row for one in created for row in _topics(one)], namespace=namespace
    )
    open_runs = [
        (new_id, one.name, one.queue, Status.PENDING, None, now, None, new_id, 1,
         one.first_trigger, serial_key(one.name))
        for one, new_id in zip(created, islice(new_ids, len(created)), strict=True)
    ]  # fmt: skip
    await tx.many("insert_open_runs", open_runs, namespace=namespace, now=now)
    if names:
        await refused.forget(tx, namespace, sorted(names))
    return names


async def deploy(
    tx: Tx,
    namespace: str,
    fresh: NewVersion,
    *,
    now: int,
    new_ids: Iterator[str],
    at_start: bool = False,
) -> Deployment:
    """Put a version in force: new and changed handlers are due at once, the others keep their
    times and state; handlers that are gone are removed. After a rollback the start of a worker does
    not put a version in force again that was there before: only new code, or an operator, does."""
    if await deploy_new(tx, namespace, [fresh], now=now, new_ids=new_ids):
        return Deployment(1, None)
    old = await state.lock(tx, namespace, fresh.name)
    key = AutomationKey(namespace, fresh.name)
    if old.digest == fresh.digest:
        await state.ensure_open_run(tx, old, now=now, new_id=next(new_ids))
        return Deployment(old.version, old.version)
    [newest] = await state.versions(tx, key, limit=1)
    if at_start and newest.restores is not None:
        was_there = await tx.rows("has_digest", **key._asdict(), digest=fresh.digest)
        if was_there:
            return Deployment(old.version, old.version, held_back=True)
    lost = await put_in_force(tx, fresh, newest.version + 1, key, now, new_ids)
    return Deployment(newest.version + 1, old.version, lost)


async def put_in_force(
    tx: Tx,
    fresh: NewVersion,
    number: int,
    key: AutomationKey,
    now: int,
    new_ids: Iterator[str],
    restored: AutomationVersion | None = None,
) -> tuple[str, ...]:
    """Change an automation that is locked. Returns the handlers that are gone with their state."""
    await tx.rows(
        "change_automation", namespace=key.namespace, name=fresh.name, queue=fresh.queue,
        version=number, digest=fresh.digest, now=now,
    )  # fmt: skip
    await tx.many(
        "put_definitions", [_definition(fresh, number)], namespace=key.namespace,
        made_by=restored.made_by if restored else "deploy",
        comment=f"restores version {restored.version}" if restored else None,
        restores=restored.version if restored else None, now=now,
    )  # fmt: skip
    lost = await _change_parts(tx, key, fresh, now)
    await refused.forget(tx, key.namespace, [fresh.name])
    await _go_on(tx, key, now, next(new_ids))
    return lost


async def _go_on(tx: Tx, key: AutomationKey, now: int, new_id: str) -> None:
    """Let the changed automation run, even if new code is what was waited for."""
    automation = await state.find(tx, namespace=key.namespace, name=key.automation)
    assert automation is not None
    open_run = await state.read_open_run(tx, key)
    if (
        open_run is not None
        and open_run.status == Status.WAITING
        and open_run.reason in CURED_BY_CODE
    ):
        await state.resolve(tx, open_run.id, now=now)
    await state.ensure_open_run(tx, automation, now=now, new_id=new_id)


async def put_fix(
    tx: Tx, automation: DeployedAutomation, graph: str, source: str, comment: str, *, now: int
) -> None:
    """Record a version made by a fix and put it in force; the declared graph stays."""
    key = AutomationKey(automation.namespace, automation.name)
    [newest] = await state.versions(tx, key, limit=1)
    number, parts = newest.version + 1, newest.parts  # a fix changes functions, no declaration
    await tx.many(
        "put_definitions", [(key.automation, number, automation.digest, graph, source, parts)],
        namespace=key.namespace, made_by="fix", comment=comment, restores=None, now=now,
    )  # fmt: skip
    await tx.rows(
        "set_automation_version", namespace=automation.namespace, name=automation.name,
        version=number, fixes=automation.fixes + 1, now=now,
    )  # fmt: skip


async def _change_parts(tx: Tx, key: AutomationKey, fresh: NewVersion, now: int) -> tuple[str, ...]:
    namespace, automation = key
    before = {one.name: one for one in await state.handlers(tx, key)}
    names = [one.name for one in fresh.handlers]
    renames = _renames(fresh, before)
    if renames:
        await _rename(tx, key, renames)
        before = {renames.get(name, name): one for name, one in before.items()}
    await tx.rows("drop_handlers", namespace=namespace, automation=automation, names=names)
    await tx.many("put_handlers", _handler_rows(fresh, before, now), namespace=namespace)
    topics = [one.name for one in fresh.topics]
    await tx.rows("drop_topics", namespace=namespace, automation=automation, names=topics)
    await tx.many("put_topics", _topics(fresh), namespace=namespace)
    return tuple(name for name, one in before.items() if name not in names and one.state)


def _renames(fresh: NewVersion, before: Mapping[str, DeployedHandler]) -> dict[str, str]:
    """Deployed handlers that continue under another name, old names to new."""
    declared = {one.name for one in fresh.handlers}
    found: dict[str, str] = {}
    for one in fresh.handlers:
        was = before.get(one.renamed_from or "")
        if was and was.kind == one.kind and one.name not in before and was.name not in declared:
            found[was.name] = one.name
    return found


async def _rename(tx: Tx, key: AutomationKey, renames: Mapping[str, str]) -> None:
    items = [(name, before) for before, name in renames.items()]
    await tx.change("rename_handlers", items, **key._asdict())
    open_run = await state.read_open_run(tx, key)
    if open_run is not None:
        await tx.change("rename_handlers_of_chain", items, root_id=open_run.root_id)


def _topics(fresh: NewVersion) -> list[Row]:
    return [(fresh.name, *one) for one in fresh.topics]


def _handler_rows(fresh: NewVersion, before: dict[str, DeployedHandler], now: int) -> list[Row]:
    rows: list[Row] = []
    for position, one in enumerate(fresh.handlers):
        was = before.get(one.name)
        same_kind = was is not None and was.kind == one.kind
        changed = was is None or not same_kind or was.digest != one.digest
        next_run_at, spec = None, one.spec
        if one.kind == "producer" and was is not None and same_kind and was.written == one.written:
            spec = was.spec  # with the zone and the anchor it was first given
            next_run_at = now if changed else was.next_run_at
        elif one.kind == "producer":
            next_run_at = now
        marked = (was.marked if was else 0) + int(changed and one.kind == "consumer")
        rows.append(
            (fresh.name, one.name, one.kind, position, one.digest, spec, one.written, next_run_at,
             marked)
        )  # fmt: skip
    return rows
