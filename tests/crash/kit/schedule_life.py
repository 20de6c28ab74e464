"""Schedules killed at every commit: a process that forks one life after the other and kills it.

`python -m tests.crash.kit.schedule_life --verb fire --folder DIR URL URL ...` takes a fresh
database for each kill. Time is virtual, so that a life that was killed and repeated must end with
exactly the rows of one that was not. Forks are made before any thread or connection, and cost
little.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import traceback
from collections.abc import Awaitable, Callable
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


def make_app(url: str, now: int) -> Rota:
    """An app at an instant. No worker runs here: a created run stays unchanged."""
    app = Rota(url, migrate=True, keep_days=0, clock=VirtualClock(now))

    @app.workflow
    async def work() -> None:
        pass

    return app


async def prepare(url: str) -> None:
    """Schedules of every kind; their first occurrence has fired."""
    app = make_app(url, START)
    kinds: dict[str, dict[str, Any]] = {
        "plain": {}, "allow": {"overlap": "allow"}, "skip": {"overlap": "skip"},
        "cancel": {"overlap": "cancel-running"}, "all": {"missed": "all", "overlap": "allow"},
        "counted": {"max_runs": 2, "overlap": "allow"}, "spread": {"jitter": "10m"},
        "ends": {"end": moment(START + 2 * HOUR)},
    }  # fmt: skip
    async with app.connected():
        for name, rules in kinds.items():
            await app.schedules.create(name, "work", HOURLY, timezone="UTC", **rules)
        await app.schedules.create("rests", "work", HOURLY, timezone="UTC")
        await app.schedules.pause("rests", until=moment(START + 90 * MINUTE))
        await app.schedules.create("paused", "work", HOURLY, timezone="UTC", paused=True)
    await tick(url, START + HOUR + 11 * MINUTE)


async def tick(url: str, now: int, kill_at: int = 0) -> None:
    """One poll of a scheduler."""
    app = make_app(url, now)
    async with app.connected():
        scheduler = app._make_runtime().scheduler
        if kill_at:
            arm(kill_at)
        await scheduler.tick()
        faults.strike = None


LATER = START + 4 * HOUR + 5 * MINUTE


async def say(url: str, verb: str, kill_at: int = 0) -> None:
    """Connect four hours later and say the verb, to be killed at the nth point from there."""
    if verb == "fire":
        await tick(url, LATER, kill_at)
        return
    app = make_app(url, LATER)
    async with app.connected():
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


async def snapshot(url: str) -> list[list[Any]]:
    """Every row, without what differs from life to life (ids, and when it was written)."""
    app = make_app(url, LATER)
    async with app.connected():
        rows = await app.connection.database.read(raw, ROWS)
        return sorted(([*row] for row in rows), key=repr)


async def sound(url: str, nth: int) -> None:
    """Every invariant holds, and no ledger has a gap."""
    app = make_app(url, LATER)
    async with app.connected():
        broken = await app.connection.database.read(invariants.broken)
        assert broken == [], f"kill {nth}: {broken}"
        found = await app.connection.database.read(ledger_faults, namespace="default", now=LATER)
        assert found == [], f"kill {nth}: {[str(gap) for gap in found]}"


async def check(url: str, verb: str, nth: int, reported: dict[str, Any]) -> None:
    """After the kill all is whole; the verb said again and two more looks end as they should."""
    await sound(url, nth)
    now = await snapshot(url)
    if verb != "fire":
        assert now in (reported["before"], reported["after"]), f"kill {nth}: half done"
    if now != reported["after"]:
        try:
            await say(url, verb)
        except RotaError as error:
            raise AssertionError(f"kill {nth}: cannot be said again: {error}") from error
        assert await snapshot(url) == reported["after"], f"kill {nth}: another result"
    await finish(url)
    await sound(url, nth)
    assert await snapshot(url) == reported["end"], f"kill {nth}: another end"


async def finish(url: str) -> None:
    """Life continues: two more looks."""
    await tick(url, LATER + 1)
    await tick(url, LATER + 2 * HOUR)


async def report(url: str, verb: str, path: Path) -> None:
    """The result of an undisturbed life, as JSON in a file."""
    reported = {"before": await snapshot(url)}
    await say(url, verb)
    reported["after"] = await snapshot(url)
    await finish(url)
    reported["end"] = await snapshot(url)
    path.write_text(json.dumps(reported))


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


def good(life: Life) -> None:
    """Live it, to the end."""
    if in_fork(life):
        raise SystemExit(1)


def main() -> None:
    """The runner. Says how many kills there were."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--verb", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("databases", nargs="+")
    options = parser.parse_args()
    first, *rest = options.databases
    path: Path = options.folder / "told.json"
    good(lambda: prepare(first))
    good(lambda: report(first, options.verb, path))
    reported = json.loads(path.read_text())
    for nth, url in enumerate(rest, start=1):
        good(lambda url=url: prepare(url))  # type: ignore[misc]
        code = in_fork(lambda url=url, nth=nth: say(url, options.verb, nth))  # type: ignore[misc]
        if code not in (0, -signal.SIGKILL):
            raise SystemExit(1)
        good(lambda url=url, nth=nth: check(url, options.verb, nth, reported))  # type: ignore[misc]
        if not code:
            print(nth - 1)  # noqa: T201
            return
    raise SystemExit("still struck: more databases are needed")


if __name__ == "__main__":
    main()
