"""Schedules killed at a commit: a process that forks a life, kills it and looks what is left.

`python -m tests.crash.kit.schedule_life --verb fire --report FILE [--kill-at N] URL`. Time is
virtual, so that a life that was killed and repeated must end with exactly the rows of one that was
not: without `--kill-at` it writes these to the file.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import sys
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from rota import Rota, faults
from rota.core.time.instants import HOUR, MINUTE, moment
from rota.errors import RotaError
from rota.schedules.ledger_check import ledger_faults
from rota.store import invariants
from rota.testing import START, VirtualClock
from tests.crash.kit.workflow_life import arm
from tests.kit.builders import raw

HOURLY = "0 * * * *"
ROWS = """
select runs.kind, coalesce(template.name, runs.name), runs.status, runs.reason, runs.due_at,
    runs.available_at, runs.trigger, case when runs.status = 'skipped' then runs.output end,
    runs.spec
from runs left join runs as template on template.id = runs.schedule_id
"""
Life = Callable[[], Awaitable[None]]
SPARED = 3  # the exit code if the life ended before the point at which it was to be killed


@contextlib.asynccontextmanager
async def opened(url: str, now: int) -> AsyncIterator[Rota]:
    """An app at an instant, connected. No worker runs here: a created run stays unchanged."""
    app = Rota(url, migrate=True, keep_days=0, clock=VirtualClock(now))

    @app.workflow
    async def work() -> None:
        pass

    async with app.connected():
        yield app


async def prepare(url: str) -> None:
    """Schedules of every kind; their first occurrence has fired."""
    kinds: dict[str, dict[str, Any]] = {
        "plain": {}, "allow": {"overlap": "allow"}, "skip": {"overlap": "skip"},
        "cancel": {"overlap": "cancel-running"}, "all": {"missed": "all", "overlap": "allow"},
        "counted": {"max_runs": 2, "overlap": "allow"}, "spread": {"jitter": "10m"},
        "ends": {"end": moment(START + 2 * HOUR)},
    }  # fmt: skip
    async with opened(url, START) as app:
        for name, rules in kinds.items():
            await app.schedules.create(name, "work", HOURLY, timezone="UTC", **rules)
        await app.schedules.create("rests", "work", HOURLY, timezone="UTC")
        await app.schedules.pause("rests", until=moment(START + 90 * MINUTE))
        await app.schedules.create("paused", "work", HOURLY, timezone="UTC", paused=True)
        await tick(app, START + HOUR + 11 * MINUTE)


async def tick(app: Rota, now: int, kill_at: int = 0) -> None:
    """One poll of a scheduler, at an instant."""
    assert isinstance(app.clock, VirtualClock)
    app.clock.move_to(now)
    scheduler = app._make_runtime().scheduler
    if kill_at:
        arm(kill_at)
    await scheduler.tick()
    faults.strike = None


LATER = START + 4 * HOUR + 5 * MINUTE


async def say(app: Rota, verb: str, kill_at: int = 0) -> None:
    """Say the verb, four hours later, to be killed at the nth point from there."""
    if verb == "fire":
        await tick(app, LATER, kill_at)
        return
    if kill_at:
        arm(kill_at)
    await VERBS[verb](app)
    faults.strike = None


async def _backfill(app: Rota) -> None:
    await app.schedules.backfill(
        "plain", moment(START - 20 * HOUR), moment(START - 11 * HOUR), parallel=2
    )


async def _replace(app: Rota) -> None:
    await app.schedules.create("paused", "work", "30 * * * *", timezone="UTC", replace=True)


VERBS: dict[str, Callable[[Rota], Awaitable[Any]]] = {
    "create": lambda app: app.schedules.create("new", "work", HOURLY, timezone="UTC"),
    "replace": _replace,
    "pause": lambda app: app.schedules.pause("plain", note="by a person"),
    "pause until": lambda app: app.schedules.pause(
        "plain", until=moment(LATER) + timedelta(hours=1)
    ),
    "resume": lambda app: app.schedules.resume("paused"),
    "catch up": lambda app: app.schedules.resume("paused", catch_up=True),
    "edit": lambda app: app.schedules.update("plain", when="30 * * * *", confirm=True),
    "edit paused": lambda app: app.schedules.update("paused", when="30 * * * *", confirm=True),
    "delete": lambda app: app.schedules.delete("plain"),
    "backfill": _backfill,
}


async def snapshot(app: Rota) -> list[list[Any]]:
    """Every row, without what differs from life to life (ids, and when it was written)."""
    rows = await app.connection.database.read(raw, ROWS)
    return sorted(([*row] for row in rows), key=repr)


async def sound(app: Rota, nth: int) -> None:
    """Every invariant holds, and no ledger has a gap."""
    database = app.connection.database
    broken = await database.read(invariants.broken)
    assert broken == [], f"kill {nth}: {broken}"
    found = await database.read(ledger_faults, namespace="default", now=LATER)
    assert found == [], f"kill {nth}: {[str(gap) for gap in found]}"


async def check(url: str, verb: str, nth: int, reported: dict[str, Any]) -> None:
    """After the kill all is whole; the verb said again and two more looks end as they should."""
    async with opened(url, LATER) as app:
        await sound(app, nth)
        now = await snapshot(app)
        if verb != "fire":
            assert now in (reported["before"], reported["after"]), f"kill {nth}: half done"
        if now != reported["after"]:
            try:
                await say(app, verb)
            except RotaError as error:
                raise AssertionError(f"kill {nth}: cannot be said again: {error}") from error
            assert await snapshot(app) == reported["after"], f"kill {nth}: another result"
        await finish(app)
        await sound(app, nth)
        assert await snapshot(app) == reported["end"], f"kill {nth}: another end"


async def finish(app: Rota) -> None:
    """Life continues: two more looks."""
    await tick(app, LATER + 1)
    await tick(app, LATER + 2 * HOUR)


async def report(url: str, verb: str) -> dict[str, Any]:
    """The result of an undisturbed life."""
    await prepare(url)
    async with opened(url, LATER) as app:
        reported = {"before": await snapshot(app)}
        await say(app, verb)
        reported["after"] = await snapshot(app)
        await finish(app)
        reported["end"] = await snapshot(app)
        return reported


async def live(url: str, verb: str, kill_at: int) -> None:
    """Prepare; then say the verb, to be killed at the nth point. The app that says it has done
    nothing before: no point is one of its background work."""
    await prepare(url)
    async with opened(url, LATER) as app:
        await say(app, verb, kill_at)


def in_fork(life: Life) -> int:
    """Live it in a process of its own; its exit code, negative for the signal that ended it."""
    pid = os.fork()
    if not pid:
        try:
            asyncio.run(life())  # type: ignore[arg-type]
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def main() -> None:
    """Write the report of an undisturbed life, or kill one and compare it with the report."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--verb", required=True)
    parser.add_argument("--report", type=Path, required=True)
    parser.add_argument("--kill-at", type=int, default=0)
    parser.add_argument("database")
    options = parser.parse_args()
    url, verb, nth = options.database, options.verb, options.kill_at
    if not nth:
        options.report.write_text(json.dumps(asyncio.run(report(url, verb))))
        return
    code = in_fork(lambda: live(url, verb, nth))
    assert code in (0, -signal.SIGKILL), f"kill {nth}: {code}"
    asyncio.run(check(url, verb, nth, json.loads(options.report.read_text())))
    if not code:
        raise SystemExit(SPARED)


if __name__ == "__main__":
    main()
