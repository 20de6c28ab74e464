"""A child process that says one verb to one run and is killed on the way.

`python -m tests.crash.kit.command_life --database URL --effects FILE --verb cancel --run ID
[--kill-at N]`.
Points are counted from the moment it is connected. The verb `work` takes over what a dead
neighbour left behind, and ends once nothing is open any more.
"""

from __future__ import annotations

import argparse
import asyncio

from rota import Fatal, Rota, sleep, wait_for
from tests.crash.kit.workflow_life import QUICK, arm
from tests.kit import Effects, until


def make_app(url: str, effects: Effects) -> Rota:
    """Workflows that end up where a verb applies to them."""
    app = Rota(url, migrate=True, **QUICK)

    @app.step
    async def note(label: str) -> str:
        return effects.add(label)

    @app.workflow
    async def rests(label: str) -> None:
        await sleep("1h")

    @app.workflow
    async def family(label: str) -> None:
        first = await app.start(rests, f"{label}-1")
        second = await app.start(rests, f"{label}-2")
        await first.result()
        await second.result()

    @app.workflow
    async def fails_once(label: str) -> str:
        first = await note(f"{label}/note#0")
        if effects.count(f"{label} failed") == 0:
            effects.add(f"{label} failed")
            raise Fatal("not this time")
        await note(f"{label}/note#1")
        return first

    @app.workflow
    async def listens(label: str) -> str:
        await note(f"{label}/note#0")
        word: str = await wait_for("word")
        await note(f"{label}/note#1")
        return word

    @app.step
    async def is_at_work() -> None:
        await asyncio.sleep(60)

    @app.workflow
    async def busy(label: str) -> str:
        first = await note(f"{label}/note#0")
        if effects.count(f"{label} begun") == 0:
            effects.add(f"{label} begun")
            await is_at_work()
        await note(f"{label}/note#1")
        return first

    return app


async def say(app: Rota, effects: Effects, verb: str, run_id: str, kill_at: int) -> None:
    """Connect, then say the verb, to be killed at the nth point from there."""
    await app.connect()
    if kill_at:
        arm(kill_at)
    if verb == "cancel":
        await app.runs.cancel(run_id)
    elif verb == "retry":
        await app.runs.retry(run_id)
    elif verb == "fork":
        await app.runs.fork(run_id, from_step="note#1")
    elif verb == "signal":
        await app.runs.signal(run_id, "word", "heard")
    else:
        await app.start_worker()
        # One that is to be killed must not look: its looks would be points, without end.
        await until(lambda: all_ended(effects) if kill_at else nothing_open(app))
    await app.close()


async def all_ended(effects: Effects) -> bool:
    """Whether every run of `busy` got to its last step."""
    labels = {effect.label for effect in effects.read()}
    begun = {label.split()[0] for label in labels if label.endswith(" begun")}
    return bool(begun) and all(f"{label}/note#1" in labels for label in begun)


async def nothing_open(app: Rota) -> bool:
    """Whether every run has ended."""
    return not {"pending", "running", "sleeping", "waiting"} & (await app.runs.counts()).keys()


def main() -> None:
    """The child process."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--database", required=True)
    parser.add_argument("--effects", required=True)
    parser.add_argument("--verb", required=True)
    parser.add_argument("--run", default="")
    parser.add_argument("--kill-at", type=int, default=0)
    options = parser.parse_args()
    effects = Effects(options.effects)
    app = make_app(options.database, effects)
    asyncio.run(say(app, effects, options.verb, options.run, options.kill_at))


if __name__ == "__main__":
    main()
