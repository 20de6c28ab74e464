"""A run that kills its worker ends as `crashed`; the runs beside it all complete."""

from __future__ import annotations

from pathlib import Path

import pytest

from rota.core.runs.recovery import ALONE_FROM
from tests.crash.kit.killer_life import KILLED, NEIGHBOURS, make_app
from tests.kit import PATIENCE_S, Effects, broken
from tests.kit.children import Child

pytestmark = pytest.mark.timeout(600)

LIVES_MAX = 15


async def test_a_run_that_kills_its_worker_crashes_alone_and_its_neighbours_complete(
    database_url: str, tmp_path: Path
) -> None:
    effects = Effects(tmp_path / "effects")
    app = make_app(database_url, effects)
    async with app.connected():
        neighbours = await app.start_many("neighbour", [(n,) for n in range(NEIGHBOURS)])
        killer = await app.start("killer")
        codes: list[int] = []
        log = tmp_path / "log"
        while len(codes) < LIVES_MAX and 0 not in codes:
            life = Child("tests.crash.kit.killer_life", database_url, effects.path, log=log)
            codes.append(life.wait())
        assert codes == [KILLED] * 6 + [0], log.read_text()
        chain = await app.runs.chain(killer.id)
        assert [run.status for run in chain] == ["crashed"] * 6
        assert await killer.status() == "crashed:worker gone"
        assert [await run.result(timeout=PATIENCE_S) for run in neighbours] == list(
            range(NEIGHBOURS)
        )
        # The two crashes beside the killer are all that a neighbour ever sees.
        for run in neighbours:
            statuses = [attempt.status for attempt in await app.runs.chain(run.id)]
            assert statuses == ["crashed"] * ALONE_FROM + ["completed"]
    beside = [int(effect.mark) for effect in effects.read() if effect.label == "killer"]
    assert beside == [NEIGHBOURS, NEIGHBOURS, 0, 0, 0, 0]
    assert await broken(database_url) == []
