"""Executes a program on a database, through lives of processes that end at random."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import random
from collections.abc import Iterator
from typing import Any

import pytest

from rota import RunHandle, testing
from rota.core.runs.stored_errors import read_error
from rota.errors import WrongState
from rota.store import invariants
from rota.testing import START, World, virtual
from tests.kit.builders import raw
from tests.simulation.kit.operations import CHILDREN, INEXACT, SIGNALS, Op
from tests.simulation.kit.process_life import ProcessLife
from tests.simulation.kit.program_app import ProgramApp
from tests.simulation.kit.trace import Book

# Longer than the lease of a killed process.
PAUSE_US = 3_000_000
ROUNDS_MAX = 60
RECORDED = """
select steps.root_id, steps.key from steps where steps.kind = 'step' and steps.status = 'completed'
and exists (select 1 from runs where runs.id = steps.root_id and runs.namespace = '{}')
"""
namespaces = (f"program-{n}" for n in itertools.count())


class ProgramRun:
    """One program, from its start to its end."""

    def __init__(self, url: str, program: Op, seed: int, *, warm: bool) -> None:
        self.url = url
        self.program = program
        self.random = random.Random(seed)
        self.warm = warm
        self.book = Book()
        self.namespace = next(namespaces)
        self.at = START
        self.lives = 0
        self.run_id = ""

    async def uninterrupted(self, *, held: bool = False) -> list[str]:
        """One life. Held: the code is never thrown away, because the run is never at rest."""
        await self._live("drain", held=held)
        return await self._check()

    async def interrupted(self) -> list[str]:
        """Some lives that end by kills and stops, and one to the end."""
        for _ in range(self.random.randint(1, 4)):
            await self._live(self.random.choice(("kill", "kill", "stop")))
        await self._live("drain")
        return await self._check()

    async def _live(self, end: str, *, held: bool = False) -> None:
        self.lives += 1
        made = ProgramApp(self.program, self.book, self.namespace, held=held)
        async with virtual(made.app, url=self.url, start=self.at, warm=self.warm) as world:
            life = made.steps.life = ProcessLife(self.lives, world.clock)
            recorded = await self._recorded(world)
            began = len(self.book.effects)
            if end == "kill":
                life.kill_at(made.app, self.random.randint(1, 60))
            if await life.until_killed(self._work(made, world, end)):
                await life.leave(world)
            life.end()
            self.at = world.clock.now() + PAUSE_US
        again = [one.key for one in self.book.effects[began:] if one[:2] in recorded]
        assert not again, f"executed after they were recorded: {again}"

    async def _recorded(self, world: World) -> set[tuple[str, str]]:
        rows = await world.app.connection.database.read(raw, RECORDED.format(self.namespace))
        return {(row[0], row[1]) for row in rows}

    async def _work(self, made: ProgramApp, world: World, end: str) -> None:
        await world.beat()
        handle = await made.app.options(external_id="p").start("program", self.program.n)
        self.run_id = handle.id
        if end != "drain":
            for _ in range(self.random.randint(1, 6)):
                await self._act(made, world)
        if end == "stop":
            return
        for _ in range(ROUNDS_MAX):
            await world.beat()  # it finds runs that must be executed alone
            await world.drain()
            if (await handle.run()).is_final:
                return
            await self._signal(made, self.random.choice(SIGNALS))
        raise AssertionError(f"it does not end: {await handle.run()}")

    async def _act(self, made: ProgramApp, world: World) -> None:
        """Something that happens to a running program."""
        match self.random.randint(0, 3):
            case 0:
                await self._signal(made, self.random.choice(SIGNALS))
            case 1:
                await world.settle()
            case 2:
                await world.advance(self.random.randint(1, 5_000_000) / 1e6)
            case _:
                settling = asyncio.ensure_future(world.settle())
                for _ in range(self.random.randint(0, 60)):
                    await asyncio.sleep(0)
                settling.cancel()
                await asyncio.gather(settling, return_exceptions=True)

    async def _signal(self, made: ProgramApp, name: str) -> None:
        for run in await made.app.runs.list(limit=100):
            with contextlib.suppress(WrongState):  # it has ended
                await made.app.runs.signal(run.id, name, self.random.randint(0, 9))

    async def _check(self) -> list[str]:
        """Each run has ended as its code did, and all executions of it have seen the same."""
        self.book.check()
        app = ProgramApp(self.program, self.book, self.namespace).app
        async with virtual(app, url=self.url, start=self.at):
            for run in await app.runs.list(limit=1000):
                await self._check_end(app.runs.handle(run.id))
            assert await app.connection.database.read(invariants.broken) == []
        return [f"{one.n} {one.what}" for one in self.book.executions[self.run_id][-1].events]

    def _seen(self, run_id: str) -> list[str]:
        return [str(event) for event in self.book.executions[run_id][-1].events]

    async def _check_end(self, handle: RunHandle[Any]) -> None:
        run = await handle.run()
        raised = self.book.raised.get(run.root_id)
        if run.parent_id and not run.label.startswith(("completed", "failed")):
            return  # the code that waited for it was cancelled, and has ended
        if raised is None:
            assert run.label == "completed", f"{run.label}: {read_error(run.error)}"
            result, seen = await handle.result(timeout=10), self._seen(run.root_id)
            # Tasks that it left behind may see more.
            assert result == seen[: len(result)], f"the result is {result}; the code saw {seen}"
        else:
            assert run.label.startswith("failed:"), run
            assert read_error(run.error)["type"] == raised, f"{raised}: {run.error}"


def is_exact(program: Op) -> bool:
    """Whether two runs of a program see the same, if nothing interrupts them."""
    return not any(op.kind in INEXACT | CHILDREN for op in program.all())


@contextlib.contextmanager
def fast_and_strict() -> Iterator[None]:
    """Virtual time does not wait long for real work; an error that the engine logs is a failure."""
    errors: list[logging.LogRecord] = []
    watch = logging.Handler(logging.ERROR)
    watch.emit = errors.append  # type: ignore[method-assign,assignment]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(testing, "GRACE_S", 0.001)
        for name in ("runs", "maintenance", "journal", "worker"):  # thousands of lines
            patch.setattr(logging.getLogger(f"rota.{name}"), "disabled", True)
        patch.setattr(logging.getLogger("asyncio"), "disabled", True)
        logging.getLogger("rota.workflows").addHandler(watch)
        try:
            yield
        finally:
            logging.getLogger("rota.workflows").removeHandler(watch)
    assert not errors, [record.getMessage() for record in errors]
