"""A run that kills its worker ends as `crashed`; the runs beside it all complete."""

from __future__ import annotations

from pathlib import Path

from tests.crash.kit.killer_life import INNOCENTS, make_app
from tests.kit import Child, Effects, broken

LIVES_MAX = 15


async def test_a_run_that_kills_its_worker_takes_no_innocent_run_along(
    database_url: str, tmp_path: Path
) -> None:
    effects = Effects(tmp_path / "effects")
    app = make_app(database_url, effects)
    async with app.connected():
        innocents = await app.start_many("innocent", [(number,) for number in range(INNOCENTS)])
        killer = await app.start("killer")
        codes: list[int] = []
        log = tmp_path / "log"
        while len(codes) < LIVES_MAX and 0 not in codes:
            life = Child("tests.crash.kit.killer_life", database_url, effects.path, log=log)
            codes.append(life.wait(60))
        chain = await app.chain(killer.id)
        assert [run.status for run in chain] == ["crashed"] * 6, log.read_text()
        assert await killer.status() == "crashed:worker gone"
        assert [await run.result(timeout=5) for run in innocents] == list(range(INNOCENTS))
        assert codes == [-9] * 6 + [0]
    # In company twice; from then on the killer had the worker for itself.
    company = [int(effect.mark) for effect in effects.read() if effect.label == "killer"]
    assert company == [INNOCENTS, INNOCENTS, 0, 0, 0, 0]
    per_life = [effect for effect in effects.read() if effect.label == "innocent"]
    assert len(per_life) == 3 * INNOCENTS
    assert await broken(database_url) == []
