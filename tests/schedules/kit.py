"""The kit of the tests of schedules: an app that notes its runs, times, and the ledger as lines.

Virtual time begins on Tuesday, 2030-01-01, at midnight in UTC.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from rota import Fatal, Rota, sleep, this_run
from rota.core.runs.model import Run, Schedule
from rota.core.time.instants import Duration, micros, moment
from rota.schedules.ledger_check import LedgerFault, ledger_faults
from rota.store import invariants
from rota.testing import World
from tests.kit.builders import raw

HOURLY = "0 * * * *"
PLAIN: dict[str, Any] = {"timezone": "UTC"}


class Noted(Rota):
    """An app with workflows that note when and why they were started.

    `report` ends at once, `long` rests for an hour and a half, `shaky` fails while the test wants
    it.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**({"keep_days": 0} | settings))
        self.seen: list[tuple[str, str]] = []
        self._begun: set[str] = set()
        self.broken = False
        self.workflow(name="report")(self._report)
        self.workflow(name="long")(self._long)
        self.workflow(name="shaky")(self._shaky)

    def _note(self) -> None:
        run = this_run()
        due = "-" if run.due_at is None else f"{run.due_at:%d %H:%M:%S}"
        self.seen.append((due, run.trigger))

    async def _report(self, label: str = "") -> str:
        self._note()
        return label

    async def _long(self) -> None:
        if this_run().root_id not in self._begun:  # a replay after the rest is not a new run
            self._begun.add(this_run().root_id)
            self._note()
        await sleep("90m")

    async def _shaky(self) -> None:
        self._note()
        if self.broken:
            raise Fatal("told to")

    @property
    def dues(self) -> list[str]:
        """The nominal times of the runs, in the order in which they began."""
        return [due for due, _ in self.seen]


def at(text: str) -> datetime:
    """`01 09:30` or `01 09:30:15` in January 2030, in UTC."""
    shape = "%Y-%m %d %H:%M:%S" if text.count(":") == 2 else "%Y-%m %d %H:%M"
    return datetime.strptime(f"2030-01 {text}", shape).replace(tzinfo=UTC)


def shown_at(instant: int | None) -> str | None:
    """An instant in the same shape."""
    return None if instant is None else f"{moment(instant):%d %H:%M:%S}"


def line(run: Run) -> str:
    """One row of the ledger: its occurrence or range, and what became of it."""
    if run.status == "skipped" and run.output:
        part = msgspec.json.decode(run.output)
        if part["count"] > 1:
            first, last = shown_at(part["from_at"]), shown_at(part["to_at"])
            return f"{first} - {last} {run.label} x{part['count']}"
    return f"{shown_at(run.due_at)} {run.label}"


async def lines(app: Rota, name: str) -> list[str]:
    """The ledger of a schedule, oldest first."""
    return [line(run) for run in reversed(await app.schedules.history(name, limit=1000))]


async def outcomes(app: Rota, name: str) -> dict[str, int]:
    """Occurrences by outcome; ranges count with all they hold."""
    counts: dict[str, int] = {}
    for run in await app.schedules.history(name, limit=10_000):
        if run.due_at is None:
            continue
        part = msgspec.json.decode(run.output) if run.status == "skipped" and run.output else {}
        counts[run.label] = counts.get(run.label, 0) + part.get("count", 1)
    return counts


async def schedule(app: Rota, name: str) -> Schedule:
    """The stored row of a schedule."""
    return (await app.schedules.get(name)).schedule


async def due(app: Rota, name: str) -> str | None:
    """The next occurrence of a schedule."""
    return shown_at((await schedule(app, name)).due_at)


async def holes(app: Rota) -> list[LedgerFault]:
    """Occurrences that the ledgers of the app's namespace do not account for."""
    return await app.connection.database.read(
        ledger_faults, namespace=app.settings.namespace, now=app.clock.now(), keep_from=0
    )


async def sound(app: Rota) -> None:
    """Every invariant holds, and no ledger has a gap."""
    broken = await app.connection.database.read(invariants.broken)
    assert broken == [], broken
    found = [str(gap) for gap in await holes(app)]
    assert found == [], found


def outage(world: World, duration: Duration) -> None:
    """Let time pass without a worker: every machine is off, or asleep."""
    world.clock.move_to(world.clock.now() + micros(duration))


async def resume_work(world: World) -> None:
    """The machines are back: look at everything, as a worker that starts does."""
    assert world.app.runtime is not None
    world.app.runtime.scheduler.poll()
    await world.settle()


async def sql(app: Rota, text: str) -> list[tuple[Any, ...]]:
    """A plain statement, past everything."""
    return [tuple(row) for row in await app.connection.database.write(raw, text)]
