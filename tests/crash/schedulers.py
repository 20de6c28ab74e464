"""Schedulers killed at work: N schedules due every second, three processes, one of them killed.

`python -m tests.crash.schedulers --schedules 500 --seconds 60 --database URL` is the full form; it
prints a closing summary and ends with 1 when an occurrence has no run, or two, or is not
accounted for. `--serve` is one of the processes: scheduler and worker until SIGTERM.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rota import Rota
from rota.client.doctor import examine
from rota.core.time.instants import SECOND, moment
from rota.errors import RotaError
from rota.settings import Settings
from tests.kit import select
from tests.kit.children import Child, end_all

EVERY_SECOND = "* * * * * *"
SETTINGS: dict[str, Any] = {
    "heartbeat_s": 0.5, "poll_s": 1, "stop_s": 10, "keep_days": 0, "slots": 200,
    "recoveries_max": 1000,
}  # fmt: skip
# Rows of the ledger: what became of each occurrence, and how late it was created.
LEDGER = """
select schedule_id, due_at, status, created_at - due_at from runs
where schedule_id is not null and retry_of is null
"""
LEFT = """
select count(*) from runs
where status in ('scheduled', 'pending', 'running', 'sleeping', 'waiting')
"""
ENDS = """
select status, count(*) from runs
where schedule_id is not null
    and not exists (select 1 from runs as later where later.retry_of = runs.id)
group by status
"""


class Summary(NamedTuple):
    """The state after the schedulers ended."""

    schedules: int
    seconds: int
    kills: int
    took_s: float
    runs: int
    missing: int
    doubled: int
    skipped: int
    ends: dict[str, int]
    late_ms: tuple[float, float, float]
    complaints: list[str]

    @property
    def expected(self) -> int:
        """How many occurrences there were."""
        return self.schedules * self.seconds

    @property
    def good(self) -> bool:
        """Exactly one completed run per occurrence, and the doctor has nothing to say."""
        return (
            self.runs == self.expected
            and not (self.missing or self.doubled or self.skipped or self.complaints)
            and self.ends == {"completed": self.expected}
        )

    def text(self) -> str:
        """For people."""
        p50, p99, most = self.late_ms
        lines = [
            f"schedules        {self.schedules}, one-second cron, {self.seconds} s",
            f"occurrences      {self.expected}",
            f"runs             {self.runs}, ends {self.ends}",
            f"kills            {self.kills} in {self.took_s:.1f} s",
            f"missing          {self.missing}",
            f"doubled          {self.doubled}",
            f"skipped          {self.skipped}",
            f"created late by     p50 {p50:.0f} ms, p99 {p99:.0f} ms, at most {most:.0f} ms",
            f"doctor           {self.complaints or 'clean'}",
            f"verdict          {'good' if self.good else 'BAD'}",
        ]
        return "\n".join(lines)


def make_app(url: str) -> Rota:
    """An app with one workflow that does nothing."""
    app = Rota(url, migrate=True, **SETTINGS)

    @app.workflow
    async def beat() -> None:
        pass

    return app


async def serve(url: str) -> None:
    """Fire and work until SIGTERM."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await make_app(url).run_forever(stop)


class Crew:
    """The processes, replaced as they die."""

    def __init__(self, url: str, folder: Path, count: int) -> None:
        self._url, self._folder = url, folder
        self._started_at = 0
        self.complaints: list[str] = []
        self.members = [self._hire() for _ in range(count)]

    def _hire(self) -> Child:
        self._started_at += 1
        log = self._folder / f"scheduler-{self._started_at}.log"
        return Child("tests.crash.schedulers", "--serve", "--database", self._url, log=log)

    def strike(self, chance: random.Random) -> None:
        """Kill one at random and put a new one in its place."""
        place = chance.randrange(len(self.members))
        self._bury(self.members[place])
        self.members[place].kill()
        self.members[place] = self._hire()

    def _bury(self, member: Child) -> None:
        """One that ended by itself before we came to end it is a complaint."""
        if member.code is not None:
            self.complaints.append(f"process {member.pid} ended by itself: {member.tail(3)}")

    @property
    def all_dead(self) -> bool:
        """Whether no process is left to wait for."""
        return all(member.code is not None for member in self.members)

    def dismiss(self) -> None:
        """Ask all to end, and see to it."""
        for member in self.members:
            self._bury(member)
            if member.code is None:
                member.send(signal.SIGTERM)
        for member in self.members:
            member.wait()


async def _declare(app: Rota, schedules: int, seconds: int, lead_s: int) -> None:
    """Schedules that fire at each of the same `seconds` seconds, and then have ended."""
    first = (app.clock.now() // SECOND + lead_s) * SECOND
    bounds: dict[str, Any] = {"start": moment(first), "end": moment(first + (seconds - 1) * SECOND)}
    rules: dict[str, Any] = {"overlap": "allow", "missed": "all", "missed_max": 1000}
    for begin in range(0, schedules, 50):
        names = [f"s{n:04d}" for n in range(begin, min(begin + 50, schedules))]
        await asyncio.gather(
            *(
                app.schedules.create(name, "beat", EVERY_SECOND, timezone="UTC", **bounds, **rules)
                for name in names
            )
        )


async def _done(url: str, deadline: float) -> None:
    """Wait until nothing is scheduled or open any more."""
    while time.monotonic() < deadline:
        await asyncio.sleep(0.5)
        try:
            if await select(url, LEFT) == [(0,)]:
                return
        except RotaError:
            continue


async def load(
    url: str,
    folder: Path,
    *,
    schedules: int,
    seconds: int,
    every_s: float,
    seed: int = 1,
    count: int = 3,
    timeout_s: float = 600.0,
) -> Summary:
    """Let them fire, kill one every so often, and count what happened."""
    chance = random.Random(seed)
    app = make_app(url)
    async with app.connected():
        await _declare(app, schedules, seconds, lead_s=3 + schedules // 100)
    began = time.monotonic()
    crew = Crew(url, folder, count)
    kills = 0
    try:
        done = asyncio.create_task(_done(url, began + timeout_s))
        while not done.done() and not crew.all_dead:
            await asyncio.wait([done], timeout=every_s * chance.uniform(0.5, 1.5))
            if not done.done() and time.monotonic() - began < seconds + 5:
                await asyncio.to_thread(crew.strike, chance)
                kills += 1
        done.cancel()
        await asyncio.to_thread(crew.dismiss)
    finally:
        end_all(crew.members)
    took_s = time.monotonic() - began
    summary = await examined(url, schedules, seconds, kills, took_s)
    return summary._replace(complaints=crew.complaints + summary.complaints)


async def examined(url: str, schedules: int, seconds: int, kills: int, took_s: float) -> Summary:
    """Hold the ledger against the clock."""
    rows = await select(url, LEDGER)
    seen = Counter((schedule_id, due_at) for schedule_id, due_at, _, _ in rows)
    per_schedule = Counter(schedule_id for schedule_id, _ in seen)
    late = sorted(late_us / 1000 for _, _, _, late_us in rows) or [0.0]
    missing = sum(seconds - n for n in per_schedule.values() if n < seconds)
    missing += (schedules - len(per_schedule)) * seconds
    report = await examine(url, Settings(keep_days=0))
    return Summary(
        schedules, seconds, kills, took_s, len(rows), missing,
        sum(n - 1 for n in seen.values() if n > 1),
        sum(status == "skipped" for _, _, status, _ in rows),
        dict(await select(url, ENDS)),
        (late[len(late) // 2], late[len(late) * 99 // 100], late[-1]),
        [f"{one.what}: {one.says}" for one in report.findings if one.level == "bad"],
    )  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """The full form, for people; and one of its processes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--schedules", type=int, default=500)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--every", type=float, default=4.0, help="seconds between kills, about")
    parser.add_argument("--database", default="", help="an empty database; default: a new file")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--serve", action="store_true")
    options = parser.parse_args(arguments)
    if options.serve:
        logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(message)s")
        asyncio.run(serve(options.database))
        return 0
    with tempfile.TemporaryDirectory(prefix="rota-schedulers-") as folder:
        url = options.database or f"sqlite:///{folder}/rota.db"
        summary = asyncio.run(
            load(
                url, Path(folder), schedules=options.schedules, seconds=options.seconds,
                every_s=options.every, seed=options.seed,
            )
        )  # fmt: skip
    print(summary.text())  # noqa: T201
    return 0 if summary.good else 1


if __name__ == "__main__":
    sys.exit(main())
