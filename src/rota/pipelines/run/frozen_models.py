"""The models of a run: recorded at its first execution, the same until a person chooses another.

The record is a step of the chain. Workers, shards and readers of results mean the same model by a
name, although each process has a default model of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from rota.ai.base import Invoker
from rota.ai.routes import Routes, routes_of
from rota.core.runs.model import Run
from rota.errors import UsageError, WrongState
from rota.pipelines import snapshot as snapshots
from rota.pipelines.preview.validation import models_of
from rota.pipelines.run.run_store import RunReader, RunStore
from rota.pipelines.snapshot import Snapshot
from rota.store.pipelines import steps
from rota.store.pipelines.steps import MODELS

if TYPE_CHECKING:
    from rota.client.client import Client


EARLIER_MAX = 50  # attempts; without a completed run among them, less is reused


class FrozenModels(msgspec.Struct, frozen=True, omit_defaults=True):
    """The content of the step."""

    routes: Routes | None = None  # None: the next execution records those of its process
    model: str | None = None  # for every call that is left, chosen at a resume or retry
    reused: tuple[str, ...] = ()  # runs that give their answers to an execution of a schedule


async def freeze(store: RunStore, snapshot: Snapshot, client: Client, ai: Invoker) -> Snapshot:
    """The snapshot with the models of the run; its first execution records them."""
    known = FrozenModels() if store.claim.is_fresh else await _read(store)
    if known.routes is None:
        reused = known.reused or await _earlier(store, snapshot, client)
        known = msgspec.structs.replace(known, routes=routes_of(ai), reused=reused)
        # The store replaces a completed step only if `started_at` is the same.
        await store.put([store.made(MODELS, kind="models", output=known, started_at=0)])
    return _with(snapshot, known)


async def _earlier(store: RunStore, snapshot: Snapshot, client: Client) -> tuple[str, ...]:
    """The runs of the pipeline since the last one that completed, that one included."""
    claim, block = store.claim, snapshot.pipeline.schedule
    if claim.schedule_id is None or block is None or block.reuse is None:
        return ()
    roots: dict[str, None] = {}
    for run in await client.runs.list(name=claim.name, limit=EARLIER_MAX):
        if run.root_id != claim.root_id and run.started_at is not None:
            roots[run.root_id] = None
            if run.status == "completed":
                break
    return tuple(roots)


async def frozen(reader: RunReader, snapshot: Snapshot) -> Snapshot:
    """The snapshot with the models of a run, as far as they are recorded."""
    return _with(snapshot, await _read(reader))


async def choose(client: Client, run: Run, here: Routes, model: str | None) -> None:
    """Record the model that a person chose for the calls that are left of a run.

    Without a choice, this process must mean the models that the run began with.
    """
    database = client.connection.database
    snapshot = await frozen(RunReader(database, run.root_id), snapshots.read(run.input))
    own = snapshot.overrides.model
    named = [own] if own else models_of(snapshot.pipeline, snapshot.prompts)
    if model is None:
        _must_agree(snapshot.routes, here, named, run.root_id)
        return
    chosen = here.route(model)
    known = snapshot.routes if snapshot.routes.providers else here
    if {known.route(name) for name in named} != {chosen}:
        now = client.clock.now()
        await database.write(steps.choose_model, root_id=run.root_id, model=chosen.text, now=now)


def _must_agree(began: Routes, here: Routes, models: list[str], run_id: str) -> None:
    if here.is_single or not here.default or not began.providers:
        return
    for model in models:
        before = began.route(model)
        try:
            now = here.route(model)
        except UsageError:
            continue  # its provider is not known here: the calls say so
        if before != now:
            raise WrongState(
                f"run {run_id} began with the model {before.text}; here it would be {now.text}",
                hint=f"Choose the model of the calls that are left: --model {before.text} or "
                f"--model {now.text}.",
            )


async def _read(reader: RunReader) -> FrozenModels:
    step = await reader.step(MODELS)
    if step is None:
        return FrozenModels()
    return msgspec.json.decode(step.output or "{}", type=FrozenModels)


def _with(snapshot: Snapshot, known: FrozenModels) -> Snapshot:
    overrides = snapshot.overrides
    if known.model is not None:
        overrides = msgspec.structs.replace(overrides, model=known.model)
    return msgspec.structs.replace(
        snapshot, routes=known.routes or Routes(), overrides=overrides, reused=known.reused
    )
