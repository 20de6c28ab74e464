"""Automations: what is in force, and the one open run of each.

The automation itself is what is claimed. Its open run sleeps until the earliest due time of its
handlers; a busy or blocked automation costs nothing. Every function that could make work takes
the automation's lock first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from rota.core.automations.failure_policy import Outage
from rota.core.automations.model import AutomationVersion, DeployedAutomation, serial_key
from rota.core.automations.planner import DeployedHandler, next_due
from rota.core.runs.lifecycle import Status, Trigger
from rota.core.runs.model import Run
from rota.errors import UnknownAutomation
from rota.store.automations.events import AutomationKey
from rota.store.backend.database import Tx

_SOURCES = msgspec.json.Decoder(dict[str, dict[str, str]])
# Why an open run sleeps when there is nothing to do: until a time, or until an event.
IDLE, EVENT, PAUSED = "idle", "event", "paused"


async def lock(tx: Tx, namespace: str, name: str) -> DeployedAutomation:
    """The automation, locked until the transaction ends; or UnknownAutomation."""
    rows = await tx.rows("lock_automation", namespace=namespace, name=name)
    if not rows:
        raise UnknownAutomation(f"there is no automation {name!r}", name=name)
    return DeployedAutomation(*rows[0])


async def find(tx: Tx, *, namespace: str, name: str) -> DeployedAutomation | None:
    """One automation."""
    rows = await tx.rows("get_automation", namespace=namespace, name=name)
    return DeployedAutomation(*rows[0]) if rows else None


async def listing(
    tx: Tx,
    *,
    namespace: str,
    archived: bool = False,
    after: str = "",
    limit: int = 1000,
    search: str = "",
) -> list[DeployedAutomation]:
    """Automations by name, after one, with a text in their names."""
    rows = await tx.rows(
        "list_automations", namespace=namespace, after=after, archived=int(archived), limit=limit,
        search=search,
    )  # fmt: skip
    return [DeployedAutomation(*row) for row in rows]


async def digests(tx: Tx, *, namespace: str) -> dict[str, str]:
    """The digest of the deployed version of each automation, by name."""
    return {row[0]: row[1] for row in await tx.rows("automation_digests", namespace=namespace)}


class CodeOfWorker(NamedTuple):
    """The code that a worker has of an automation; `version` is None if it was never deployed."""

    worker_id: str
    digest: str
    version: int | None


async def code_of_workers(
    tx: Tx, *, namespace: str, names: Sequence[str]
) -> dict[str, list[CodeOfWorker]]:
    """Which code the workers that are not offline have of these automations."""
    found: dict[str, list[CodeOfWorker]] = {}
    for row in await tx.rows("code_of_workers", namespace=namespace, names=list(names)):
        found.setdefault(row[0], []).append(CodeOfWorker(*row[1:]))
    return found


async def versions_without_worker(
    tx: Tx, *, namespace: str, workers: Sequence[str], limit: int
) -> list[tuple[str, int]]:
    """Active automations, each with its version, of which none of these workers has the code."""
    rows = await tx.rows(
        "versions_without_worker", namespace=namespace, workers=list(workers), limit=limit
    )
    return [(row[0], row[1]) for row in rows]


async def handlers(tx: Tx, key: AutomationKey) -> list[DeployedHandler]:
    """The deployed handlers, in the order of their declaration."""
    found = await handlers_of_all(tx, namespace=key.namespace, names=[key.automation])
    return found[key.automation]


async def handlers_of_all(
    tx: Tx, *, namespace: str, names: Sequence[str]
) -> dict[str, list[DeployedHandler]]:
    """The same for several automations, by name."""
    found: dict[str, list[DeployedHandler]] = {name: [] for name in names}
    for row in await tx.rows("handlers_of", namespace=namespace, automations=list(names)):
        found[row[0]].append(DeployedHandler(*row[1:]))
    return found


class TopicSchema(NamedTuple):
    """The facts about a topic that a publisher needs."""

    external: bool
    shape: str | None


async def topics(tx: Tx, key: AutomationKey) -> dict[str, TopicSchema]:
    """The declared topics: whether others may publish to them, and what fits."""
    rows = await tx.rows("topics_of", **key._asdict())
    return {row[0]: TopicSchema(bool(row[1]), row[2]) for row in rows}


async def versions(tx: Tx, key: AutomationKey, *, limit: int = 100) -> list[AutomationVersion]:
    """Every version, newest first."""
    rows = await tx.rows("definitions_of", **key._asdict(), limit=limit)
    return [AutomationVersion(*row) for row in rows]


async def fix_sources(
    tx: Tx, deployed: Sequence[DeployedAutomation]
) -> list[dict[str, dict[str, str]]]:
    """The source that fixes since the last deploy have written for each of these automations of
    one namespace, by handler and phase; nothing where the version in force is not a fix."""
    items = [(one.namespace, one.name, one.version) for one in deployed]
    rows = await tx.many("fix_sources", items, alone=True)
    found = {row[0]: _SOURCES.decode(row[1] or "{}") for row in rows}
    return [found.get(one.name, {}) for one in deployed]


# -- the open run ----------------------------------------------------------------------------------


async def read_open_run(tx: Tx, key: AutomationKey) -> Run | None:
    """The automation's one open run."""
    found = await read_open_runs(tx, namespace=key.namespace, names=[key.automation])
    return found.get(key.automation)


async def read_open_runs(tx: Tx, *, namespace: str, names: Sequence[str]) -> dict[str, Run]:
    """The same for several automations, by name."""
    keys = [serial_key(name) for name in names]
    rows = await tx.rows("open_runs", namespace=namespace, serial_keys=keys)
    return {run.name: run for run in (Run(*row) for row in rows)}


class NextStart(NamedTuple):
    """How an open run begins: claimable now, or asleep until a time or an event."""

    status: Status
    reason: str | None
    available_at: int | None
    trigger: str


def next_start_of(
    automation: DeployedAutomation, found: Iterable[DeployedHandler], now: int
) -> NextStart:
    """When this automation next has work."""
    if automation.status != "active":
        return NextStart(Status.SLEEPING, PAUSED, None, Trigger.EVENT)
    due = next_due(list(found))
    if due.at is None:
        return NextStart(Status.SLEEPING, EVENT, None, Trigger.EVENT)
    if due.at <= now:
        return NextStart(Status.PENDING, None, now, due.cause)
    return NextStart(Status.SLEEPING, IDLE, due.at, due.cause)


class NewOpenRun(NamedTuple):
    """An open run to insert; of a chain that continues, with what it continues."""

    automation: DeployedAutomation
    id: str
    at: NextStart
    retry_of: str | None = None
    root_id: str | None = None
    attempt: int = 1


async def put_open_runs(tx: Tx, open_runs: Sequence[NewOpenRun], *, now: int) -> None:
    """Insert open runs of one namespace; an automation that has one open gets none."""
    items = [
        (one.id, one.automation.name, one.automation.queue, one.at.status, one.at.reason,
         one.at.available_at, one.retry_of, one.root_id or one.id, one.attempt, one.at.trigger,
         one.automation.serial_key)
        for one in open_runs
    ]  # fmt: skip
    if open_runs:
        await tx.many(
            "insert_open_runs", items, namespace=open_runs[0].automation.namespace, now=now
        )


class OrphanedChain(NamedTuple):
    """The last run of a chain that has ended, although its change or its events are open."""

    automation: str
    run_id: str
    root_id: str
    attempt: int


async def orphaned_chains(tx: Tx, *, namespace: str, automation: str = "") -> list[OrphanedChain]:
    """The chains that no open run continues, oldest first; of one automation if it is given."""
    rows = await tx.rows("orphaned_chains", namespace=namespace, automation=automation)
    return [OrphanedChain(*row) for row in rows]


async def _take_up(
    tx: Tx, automation: DeployedAutomation, open_run: Run | None, *, now: int, new_id: str
) -> bool:
    """Continue the oldest orphaned chain, so that nothing that it left open is forgotten. Returns
    whether there was one, and the open run had nothing else to do."""
    found = await orphaned_chains(tx, namespace=automation.namespace, automation=automation.name)
    if not found or automation.status != "active":
        return False
    orphan = found[0]
    if open_run is not None:
        joined = await tx.rows(
            "join_chain", id=open_run.id, retry_of=orphan.run_id, root_id=orphan.root_id,
            attempt=orphan.attempt + 1, now=now,
        )  # fmt: skip
        return bool(joined)
    at = NextStart(Status.PENDING, None, now, Trigger.RETRY)
    planned = NewOpenRun(automation, new_id, at, orphan.run_id, orphan.root_id, orphan.attempt + 1)
    await put_open_runs(tx, [planned], now=now)
    return True


async def ensure_open_run(tx: Tx, automation: DeployedAutomation, *, now: int, new_id: str) -> None:
    """Make sure that there is an open run, and that it is awake when there is work."""
    key = AutomationKey(automation.namespace, automation.name)
    at = next_start_of(automation, await handlers(tx, key), now)
    open_run = await read_open_run(tx, key)
    if await _take_up(tx, automation, open_run, now=now, new_id=new_id):
        return
    if open_run is None:
        await put_open_runs(tx, [NewOpenRun(automation, new_id, at)], now=now)
    elif open_run.status == Status.SLEEPING and open_run.reason == PAUSED and at.reason != PAUSED:
        # It may have been in the middle of something; the claim finds out.
        await retime(tx, open_run, NextStart(Status.PENDING, None, now, open_run.trigger))
    elif open_run.status == Status.SLEEPING and open_run.reason in (IDLE, EVENT):
        await retime(tx, open_run, at)


async def suspend(tx: Tx, open_run: Run) -> None:
    """Suspend an open run that has not begun, until it is resumed."""
    if open_run.status == Status.PENDING or open_run.reason in (IDLE, EVENT):
        await retime(tx, open_run, NextStart(Status.SLEEPING, PAUSED, None, open_run.trigger))


async def retime(tx: Tx, open_run: Run, at: NextStart) -> None:
    """Move an open run that is not running."""
    await tx.rows(
        "retime_open_run", id=open_run.id, status=at.status, reason=at.reason,
        available_at=at.available_at,
    )  # fmt: skip


async def poke(tx: Tx, automation: DeployedAutomation, *, now: int) -> None:
    """Wake an open run that sleeps without work."""
    await tx.rows(
        "poke_open_run", namespace=automation.namespace, serial_key=automation.serial_key, now=now
    )


async def set_status(tx: Tx, automation: DeployedAutomation, status: str, *, now: int) -> None:
    """The user's decision: active, paused or archived."""
    await tx.rows(
        "set_automation_status", namespace=automation.namespace, name=automation.name,
        status=status, now=now,
    )  # fmt: skip


async def count_troubles(
    tx: Tx,
    automation: DeployedAutomation,
    *,
    failures: int,
    fixes: int,
    outage: Outage | None = None,
) -> None:
    """How often its code failed in a row, how often that was fixed, and what it waits for."""
    before = (automation.failures, automation.fixes, automation.outage)
    if (failures, fixes, outage) == before:
        return
    waits_for, waits_since, waits_count = outage or (None, None, 0)
    await tx.rows(
        "count_troubles", namespace=automation.namespace, name=automation.name,
        failures=failures, fixes=fixes, waits_for=waits_for, waits_since=waits_since,
        waits_count=waits_count,
    )  # fmt: skip


async def resolve(tx: Tx, run_id: str, *, now: int) -> None:
    """Let a waiting open run continue."""
    if await tx.rows("resolve_open_run", id=run_id, now=now):
        await tx.rows("forget_error", run_id=run_id)


async def queue_producers(tx: Tx, key: AutomationKey, *, now: int) -> list[str]:
    """Make every producer due."""
    rows = await tx.rows("queue_producers", **key._asdict(), now=now)
    return [row[0] for row in rows]
