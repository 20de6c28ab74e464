"""The steps of a pipeline's chain in pages, and open runs that continue."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from rota.core.runs.lifecycle import Status
from rota.core.runs.model import Run, StoredStep
from rota.store.backend.database import Tx
from rota.store.runs.manual_retry import resolve_run


class StepKey(NamedTuple):
    """The fields of a step that show whether it is done."""

    key: str
    position: int
    status: str
    run_attempt: int


MODELS = "md/models"  # the key of the step that records the models of a run
PROVIDER_WAIT = "wt/provider"  # the key of the step that records why a run waits


class ProviderWait(msgspec.Struct, frozen=True):
    """A run waits for its provider."""

    said: str  # by the provider, or about it
    since: int
    until: int  # the next try


async def step(tx: Tx, *, root_id: str, key: str) -> StoredStep | None:
    """One step of a chain."""
    rows = await tx.rows("step_of", root_id=root_id, key=key, alone=True)
    return StoredStep(*rows[0]) if rows else None


async def provider_wait(tx: Tx, *, root_id: str) -> ProviderWait | None:
    """The dependency that a pipeline run waits for, if it does."""
    found = await step(tx, root_id=root_id, key=PROVIDER_WAIT)
    if found is None or found.output in (None, "{}"):
        return None
    return msgspec.json.decode(found.output or "", type=ProviderWait)


async def page(tx: Tx, *, root_id: str, after: str, until: str, limit: int) -> list[StoredStep]:
    """Steps with keys between two texts, in the order of their keys."""
    rows = await tx.rows(
        "steps_page", root_id=root_id, after=after, until=until, limit=limit, alone=True
    )
    return [StoredStep(*row) for row in rows]


async def keys(tx: Tx, *, root_id: str, after: str, until: str, limit: int) -> list[StepKey]:
    """The same without what the steps hold."""
    rows = await tx.rows(
        "keys_page", root_id=root_id, after=after, until=until, limit=limit, alone=True
    )
    return [StepKey(*row) for row in rows]


async def take_up(tx: Tx, run: Run, *, queue: str | None, now: int) -> None:
    """Let an open run continue, in another queue if one is named. A run in progress stays."""
    if run.status == Status.WAITING:
        await resolve_run(tx, run.id, now=now)
    if queue is not None:
        await tx.rows("move_to_queue", root_id=run.root_id, queue=queue)


async def choose_model(tx: Tx, *, root_id: str, model: str, now: int) -> None:
    """Record the model of the calls that are left; the next execution completes the record."""
    known = await step(tx, root_id=root_id, key=MODELS)
    record = {} if known is None else msgspec.json.decode(known.output or "{}")
    record = {name: value for name, value in record.items() if name != "routes"}
    output = msgspec.json.encode(record | {"model": model}).decode()
    await tx.rows("put_models", root_id=root_id, key=MODELS, output=output, now=now)


async def put_correction(tx: Tx, *, root_id: str, key: str, output: str, now: int) -> None:
    """Write the true cost of a call, which a person found on the provider's bill."""
    await tx.rows("put_correction", root_id=root_id, key=key, output=output, now=now)
