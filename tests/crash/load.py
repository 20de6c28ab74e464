"""Workers killed under load: N runs, some worker processes, one of them killed every so often.

`python -m tests.crash.load --runs 10000 --workers 4 --every 1 --database URL` is the full form;
it prints a closing summary and ends with 1 when anything was lost, doubled or broken.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from rota import Client, Start
from rota.errors import RotaError
from tests.crash.kit.worker import make_app
from tests.kit import Effects, broken, select
from tests.kit.children import Child, end_all

STEPS = """
select runs.external_id, steps.key, steps.status, steps.output
from steps join runs on runs.id = steps.root_id
"""
LAST = """
select runs.status, count(*) from runs
where not exists (select 1 from runs as later where later.retry_of = runs.id) group by runs.status
"""
KINDS = "select status, reason, count(*) from runs group by status, reason"


class Summary(NamedTuple):
    """The state after a load with kills."""

    runs: int
    kills: int
    seconds: float
    ends: dict[str, int]
    recoveries: int
    executions: int
    repeated_unrecorded: int
    repeated_recorded: list[str]
    missing: list[str]
    broken: list[str]

    @property
    def good(self) -> bool:
        """Whether every run completed and nothing was doubled or broken."""
        whole = self.ends == {"completed": self.runs}
        return whole and not (self.repeated_recorded or self.missing or self.broken)

    def text(self) -> str:
        """For people."""
        lines = [
            f"runs             {self.runs}, ends {self.ends}",
            f"kills            {self.kills} in {self.seconds:.1f} s",
            f"recoveries       {self.recoveries}",
            f"step executions  {self.executions} for {2 * self.runs} steps",
            f"  again, killed before the record     {self.repeated_unrecorded}",
            f"  again, after the record (must be 0) {len(self.repeated_recorded)}",
            f"steps missing    {len(self.missing)}",
            f"broken           {self.broken or 'nothing'}",
            f"verdict          {'good' if self.good else 'BAD'}",
        ]
        return "\n".join(lines)


class Crew:
    """Worker processes on one database, replaced as they die."""

    def __init__(self, url: str, folder: Path, count: int, *arguments: object) -> None:
        self._command = ("--database", url, "--effects", folder / "effects", *arguments)
        self._folder = folder
        self._started_at = 0
        self.members = [self.hire() for _ in range(count)]

    def hire(self) -> Child:
        """One more worker process."""
        self._started_at += 1
        log = self._folder / f"worker-{self._started_at}.log"
        return Child("tests.crash.kit.worker", *self._command, log=log)

    def strike(self, chance: random.Random) -> bool:
        """Kill one at random and put a new one in its place; False while none has signed on yet.
        Otherwise no worker of a busy machine would live long enough to do anything."""
        if not any("ready" in member.log.read_text() for member in self.members):
            return False
        place = chance.randrange(len(self.members))
        self.members[place].kill()
        self.members[place] = self.hire()
        return True

    def dismiss(self) -> None:
        """Kill all."""
        end_all(self.members)


async def load(
    url: str, folder: Path, *, runs: int, workers: int, every_s: float, seed: int, timeout_s: float
) -> Summary:
    """Start the runs, kill workers until all are done, and count what happened."""
    effects = Effects(folder / "effects")
    app = make_app(url, effects)
    chance = random.Random(seed)
    async with app.connected():
        items = [Start((f"r{n}",), external_id=f"r{n}") for n in range(runs)]
        refs = await app.start_many("two", items)
        began = time.monotonic()
        crew = Crew(url, folder, workers, "--set", "slots=50")
        kills = 0
        try:
            left = asyncio.create_task(_all_done(app, len(refs)))
            while not left.done() and time.monotonic() - began < timeout_s:
                await asyncio.wait([left], timeout=every_s)
                if not left.done():
                    kills += crew.strike(chance)
            left.cancel()
        finally:
            crew.dismiss()
        return await examine(url, effects, runs, kills, time.monotonic() - began)


async def _all_done(app: Client, count: int) -> None:
    counts: dict[str, int] = {}
    while counts.get("completed", 0) < count:
        await asyncio.sleep(0.1)
        try:
            counts = await app.runs.counts()
        except RotaError:
            continue


async def examine(url: str, effects: Effects, runs: int, kills: int, seconds: float) -> Summary:
    """Hold the effects against what the database remembers.

    A step's recorded result names the execution it came from. Whatever was written to the file
    after that one was executed although the step was on record.
    """
    recorded = {
        f"{external_id}/{key}": json.loads(output)
        for external_id, key, status, output in await select(url, STEPS)
        if status == "completed"
    }
    lines = effects.read()
    last = {effect.label: effect.token for effect in lines}
    wanted = {f"r{n}/note#{k}" for n in range(runs) for k in range(2)}
    kinds = await select(url, KINDS)
    return Summary(
        runs, kills, seconds, dict(await select(url, LAST)),
        sum(count for status, _, count in kinds if status == "crashed"),
        len(lines), len(lines) - len(last),
        sorted(label for label, token in recorded.items() if last.get(label) != token),
        sorted(wanted - recorded.keys()) + sorted(wanted - last.keys()),
        [str(problem) for problem in await broken(url)],
    )  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """The full form, for people."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--every", type=float, default=1.0, help="seconds between two kills")
    parser.add_argument("--database", default="", help="an empty database; default: a new file")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--timeout", type=float, default=600.0)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="rota-load-") as folder:
        url = options.database or f"sqlite:///{folder}/rota.db"
        summary = asyncio.run(
            load(
                url, Path(folder), runs=options.runs, workers=options.workers,
                every_s=options.every, seed=options.seed, timeout_s=options.timeout,
            )
        )  # fmt: skip
    print(summary.text())  # noqa: T201
    return 0 if summary.good else 1


if __name__ == "__main__":
    sys.exit(main())
