"""A part of a big run: neighbouring chunks of its items, mapped on this machine."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import msgspec

from rota.core.failures import describe, kind_of
from rota.core.model import Claim, Outcome
from rota.engine.base import Base
from rota.engine.journal import Journal
from rota.errors import RunCancelled
from rota.pipelines import snapshot as snapshots
from rota.pipelines.running.asking import LOST, Asker
from rota.pipelines.running.linear import map_stage
from rota.pipelines.running.notebook import Notebook, Placed, Reader, chunk_items
from rota.pipelines.running.parting import PartInput, PartOutput
from rota.pipelines.running.room import Board, Cache, Room
from rota.pipelines.snapshot import Snapshot
from rota.store import history

if TYPE_CHECKING:
    from rota.pipelines.serving import AppPipelines

log = logging.getLogger("rota.pipelines")


async def perform_part(
    pipelines: AppPipelines, base: Base, journal: Journal, claim: Claim
) -> Outcome:
    """Map the items of the part. What it cannot do is left to the run it is a part of."""
    given = msgspec.json.decode(claim.input or "", type=PartInput)
    try:
        snapshot = await _snapshot(base, given)
        room = _room(pipelines, base, Notebook(base.database, journal, claim), snapshot)
        part = snapshot.pipeline.map
        assert part is not None
        stage = map_stage(room, part, given.end)
        await stage.perform(_items(Reader(base.database, given.whole), given))
    except LOST:
        raise
    except Exception as error:
        log.warning("part %s of run %s stopped: %s", claim.id, given.whole, error)
        return Outcome(claim, "fail", kind_of(error), error=describe(error))
    done = PartOutput(room.board.done, room.board.failed)
    return Outcome(claim, "complete", output=msgspec.json.encode(done).decode())


async def _snapshot(base: Base, given: PartInput) -> Snapshot:
    chain = await base.database.read(history.chain, root_id=given.whole)
    if not chain:
        raise RunCancelled(f"run {given.whole} is gone, so there is nothing to take part in")
    return snapshots.read(chain[0].input)


def _room(pipelines: AppPipelines, base: Base, notebook: Notebook, snapshot: Snapshot) -> Room:
    board = Board(notebook.claim, snapshot.pipeline_id, ())
    earlier = snapshot.overrides.cache_from
    caches = (Cache(notebook.of(earlier)),) if earlier is not None else ()
    asker = Asker(pipelines.ai(), base.clock)
    return Room(snapshot, notebook, asker, board, snapshot.place, caches, None, [])


async def _items(reader: Reader, given: PartInput) -> AsyncIterator[Placed]:
    for key in given.chunks:
        step = await reader.step(key)
        if step is None:
            return  # the run was pruned meanwhile
        for number, item in enumerate(chunk_items(step)):
            yield Placed(step.position + number, item)
