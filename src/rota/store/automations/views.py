"""Views of automations: inputs and their outcomes, outputs, activity. Only reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rota.core.automations.model import (
    EventName,
    HandlerRun,
    InputRow,
    LedgerRow,
    SeenInput,
    SeenRun,
    StoredEvent,
    Touched,
)
from rota.core.automations.phases import DECIDED, UNCERTAIN, EventStatus
from rota.core.automations.text import can_skip
from rota.core.runs.model import Run
from rota.core.runs.stored_errors import read_error
from rota.store.automations import answers
from rota.store.automations.events import AutomationKey
from rota.store.backend.database import Row, Tx

LATEST = 1 << 62
LATE_MAX = 100
OPEN = (EventStatus.PENDING, EventStatus.RESERVED)


async def to_skip(
    tx: Tx, namespace: str, open_runs: Sequence[Run], ledger: Mapping[str, LedgerRow]
) -> dict[str, list[EventName]]:
    """The events that a skip would leave out, by automation, if a skip could let it continue: those
    that the stopped run has pinned or could not read. If it took nothing, the oldest event that it
    would read. `ledger` has the live change of each chain."""
    settled = UNCERTAIN | DECIDED
    wanted = {
        open_run.root_id: open_run
        for open_run in open_runs
        if can_skip(open_run)
        and not (open_run.root_id in ledger and ledger[open_run.root_id].status in settled)
    }
    if not wanted:
        return {}
    rows = await tx.rows("last_handler_runs", root_ids=list(wanted))
    return await events_in_the_way(tx, namespace, [HandlerRun(*row) for row in rows])


async def events_in_the_way(
    tx: Tx, namespace: str, runs: Sequence[HandlerRun]
) -> dict[str, list[EventName]]:
    """The events that these failed runs had pinned or could not read, by automation; for one that
    took nothing, the oldest event that it would read. A producer has none."""
    last = [run for run in runs if run.kind == "consumer"]
    taken: dict[str, list[Row]] = {}
    for row in await tx.rows("taken_by_runs", run_ids=[run.run_id for run in last]):
        taken.setdefault(row[0], []).append(row)
    empty = [run.automation for run in last if run.run_id not in taken]
    rows = await tx.rows("oldest_named", namespace=namespace, automations=empty) if empty else []
    oldest = {(row[0], row[1]): [EventName(*row[2:])] for row in rows}
    return {
        run.automation: [EventName(*row[2:]) for row in taken[run.run_id] if row[1] in OPEN]
        if run.run_id in taken
        else oldest.get((run.automation, run.handler), [])
        for run in last
    }


async def list_events(
    tx: Tx,
    key: AutomationKey,
    *,
    topic: str,
    status: str,
    before: str,
    limit: int,
) -> list[StoredEvent]:
    """Events, newest first."""
    rows = await tx.rows(
        "list_events", **key._asdict(), topic=topic, status=status, before=before, limit=limit
    )
    return [StoredEvent(*row) for row in rows]


async def list_inputs(
    tx: Tx, key: AutomationKey, *, before: str = "", limit: int = 50, input_id: str = ""
) -> list[SeenInput]:
    """The inputs, newest first."""
    rows = await tx.rows("list_inputs", **key._asdict(), before=before, id=input_id, limit=limit)
    return [_seen(row) for row in rows]


async def unfinished_inputs(
    tx: Tx, key: AutomationKey, *, until: int = LATEST, limit: int = 50
) -> list[SeenInput]:
    """The inputs before an instant that are not done, oldest first."""
    rows = await tx.rows("list_unfinished_inputs", **key._asdict(), until=until, limit=limit)
    return [_seen(row) for row in rows]


def _seen(row: Row) -> SeenInput:
    width = len(InputRow.__struct_fields__)
    return SeenInput(InputRow(*row[:width]), *(int(count) for count in row[width:]))


async def outputs_of_input(tx: Tx, input_id: str) -> list[LedgerRow]:
    """The changes an input led to."""
    return [LedgerRow(*row) for row in await tx.rows("outputs_of_input", input_id=input_id)]


async def count_forgotten(tx: Tx, input_id: str) -> int:
    """How many used events of an input have lost the run that used them to retention."""
    return int((await tx.rows("count_forgotten_events", input_id=input_id))[0][0])


async def users_of(tx: Tx, event_ids: Sequence[str]) -> dict[str, str]:
    """Which run used or skipped each event, as far as that run is kept."""
    rows = await tx.rows("users_of_events", ids=list(event_ids)) if event_ids else []
    return {row[0]: row[1] for row in rows}


async def inputs_of_output(tx: Tx, mutation_id: str, *, namespace: str) -> list[InputRow]:
    """The inputs that led to a change."""
    rows = await tx.rows("inputs_of_output", id=mutation_id, namespace=namespace)
    return [InputRow(*row) for row in rows]


async def list_outputs(
    tx: Tx, key: AutomationKey, *, status: str, before: str, limit: int
) -> list[LedgerRow]:
    """Side effects, newest first."""
    rows = await tx.rows("list_outputs", **key._asdict(), status=status, before=before, limit=limit)
    return [LedgerRow(*row) for row in rows]


async def list_activity(tx: Tx, key: AutomationKey, *, before: str, limit: int) -> list[SeenRun]:
    """Handler runs, newest first."""
    rows = await tx.rows("list_activity", **key._asdict(), before=before, limit=limit)
    return await _with_changes(tx, rows)


async def find_activity(tx: Tx, run_id: str) -> SeenRun | None:
    """One handler run; None for a run that is not one."""
    found = await _with_changes(tx, await tx.rows("find_activity", run_id=run_id))
    return found[0] if found else None


async def _with_changes(tx: Tx, rows: Sequence[Row]) -> list[SeenRun]:
    width = len(HandlerRun.__struct_fields__)
    seen = [SeenRun(HandlerRun(*row[:width]), *row[width:]) for row in rows]
    ids = [one.run.run_id for one in seen if one.run.reserved_count]
    found = await tx.rows("mutations_of_runs", run_ids=ids) if ids else []
    changes = {entry.run_id: entry for entry in (LedgerRow(*row) for row in found)}
    given = await answers.of_runs(tx, [one.run.run_id for one in seen])
    return [
        one._replace(change=changes.get(one.run.run_id), answers=given.get(one.run.run_id, ()))
        for one in seen
    ]


async def count_pending(
    tx: Tx, *, namespace: str, names: Sequence[str]
) -> dict[str, dict[str, int]]:
    """How many events are pending, by automation and topic."""
    found: dict[str, dict[str, int]] = {name: {} for name in names}
    rows = await tx.rows("count_pending", namespace=namespace, automations=list(names))
    for automation, topic, count in rows:
        found[automation][topic] = int(count)
    return found


async def last_errors(tx: Tx, open_runs: Sequence[Run]) -> dict[str, str]:
    """The error of each of these open runs, or otherwise of the attempt before it, by chain.
    The attempts before that are not read: an outage may have a thousand of them."""
    return await _errors_of(
        tx, [one for open_run in open_runs for one in (open_run.retry_of, open_run.id)]
    )


async def _errors_of(tx: Tx, runs: Iterable[str | None]) -> dict[str, str]:
    ids = [one for one in runs if one is not None]
    rows = await tx.rows("errors_of_runs", ids=ids) if ids else []
    return {row[0]: row[1] for row in rows if row[1]}


async def hung_handlers(tx: Tx, *, namespace: str) -> list[tuple[str, str]]:
    """Automations that could not continue because a thread of theirs hangs, and the message."""
    open_runs = await tx.rows("late_open_runs", namespace=namespace, limit=LATE_MAX)
    errors = await _errors_of(tx, [one for row in open_runs for one in (row[3], row[2])])
    failed = {name: read_error(errors[root]) for name, root, *_ in open_runs if root in errors}
    return [(name, one["message"]) for name, one in failed.items() if one["type"] == "HandlerHung"]


async def touched(tx: Tx, run_id: str) -> list[Touched]:
    """The events of a run and what it did to them, in order."""
    return [Touched(*row) for row in await tx.rows("reservations_of_run", run_id=run_id)]
