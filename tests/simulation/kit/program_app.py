"""An app with one workflow, which interprets a program, and the steps that programs call."""

from __future__ import annotations

import asyncio
import contextvars
from typing import Any

from rota import RetryPolicy, Rota, Transient, testing, this_step
from tests.simulation.kit.operations import Op
from tests.simulation.kit.process_life import ProcessLife
from tests.simulation.kit.trace import Book, Effect

AGAIN = RetryPolicy(attempts=3, delay_s=0.3, factor=1.7)
LATE_S = 2.0
spoken = contextvars.ContextVar("spoken", default="unset")
# The lease is short: the runs of a killed process are claimed again after it.
SETTINGS: dict[str, Any] = {
    "synchronous": "normal", "lease_s": 1, "recoveries_max": 1000, "threads": 4, "keep_days": 0,
}  # fmt: skip


class Oops(Exception):
    """A failure that a program raises on purpose."""


class Steps:
    """The steps of an app. Each notes its execution; its arguments depend on what was seen."""

    def __init__(self, app: Rota, book: Book) -> None:
        self.book = book
        self.life: ProcessLife | None = None
        self.step = app.step(name="step")(self._step())
        self.sync = app.step(name="sync")(self._sync())
        self.flaky = app.step(name="flaky", retries=AGAIN)(self._flaky())
        self.failing = app.step(name="failing")(self._failing())
        self.closing = app.step(name="closing")(self._closing())
        self.late = app.step(name="late", timeout=LATE_S)(self._late())
        self.hold = app.step(name="hold")(self._hold())

    def note(self, *args: int) -> int:
        """Note an execution of the step that calls this; `args` end with what its caller saw."""
        step, life = this_step(), self.life
        assert life is not None
        if life.is_over:
            return 1
        effect = Effect(step.root_id, step.key, args, life.number)
        return self.book.do(effect, args[1])

    async def nap(self, us: int) -> None:
        """Take virtual time."""
        assert self.life is not None
        await self.life.nap(us)

    def _step(self) -> Any:
        async def take(n: int, seen: int, digest: int, us: int) -> str:
            self.note(n, seen, digest, us)
            spoken.set(f"step {n}")
            await self.nap(us)
            return f"step {n}"

        return take

    def _sync(self) -> Any:
        def take(n: int, seen: int, digest: int, us: int) -> str:
            self.note(n, seen, digest, us)
            return f"sync {n}"

        return take

    def _flaky(self) -> Any:
        async def take(n: int, seen: int, digest: int, us: int, failures: int) -> str:
            tried = self.note(n, seen, digest, us, failures)
            await self.nap(us)
            if tried <= failures:
                raise Transient(f"try {tried}")
            return f"flaky {n}"

        return take

    def _failing(self) -> Any:
        async def take(n: int, seen: int, digest: int, us: int, error: int) -> str:
            self.note(n, seen, digest, us, error)
            await self.nap(us)
            try:
                raise (Oops, ValueError, LookupError, OSError)[error](f"failing {n}")
            except LookupError as cause:
                raise Oops(f"failing {n}") from cause

        return take

    def _closing(self) -> Any:
        async def take(n: int, seen: int, digest: int, us: int, close_us: int) -> str:
            self.note(n, seen, digest, us, close_us)
            try:
                await self.nap(us)
            finally:
                await self.nap(close_us)  # it closes its connection
            return f"closing {n}"

        return take

    def _late(self) -> Any:
        async def take(n: int, seen: int, digest: int, us: int) -> str:
            self.note(n, seen, digest, us)
            await self.nap(us)
            return f"late {n}"

        return take

    def _hold(self) -> Any:
        async def hold() -> None:
            with testing.held():
                await asyncio.Event().wait()

        return hold


class ProgramApp:
    """The app of one process."""

    def __init__(
        self,
        program: Op,
        book: Book,
        namespace: str,
        *,
        held: bool = False,
        by_digest: bool = True,
        **settings: Any,
    ) -> None:
        from tests.simulation.kit import blocks

        self.app = Rota(namespace=namespace, **(SETTINGS | settings))
        self.book = book
        self.held = held
        self.by_digest = by_digest  # the arguments of steps depend on what was seen
        self.steps = Steps(self.app, book)
        self.ops = {op.n: op for op in program.all()}

        @self.app.workflow(name="program")
        async def run_program(n: int) -> list[str]:
            return await blocks.Interpreter(self).run(self.ops[n])

        self.workflow = run_program

    @property
    def life(self) -> ProcessLife:
        """The process."""
        assert self.steps.life is not None
        return self.steps.life
