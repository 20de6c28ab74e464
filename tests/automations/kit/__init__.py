"""The kit of the tests of automations: an app with one automation. Its parts can be made to fail, a
tool notes its effects, and a process can die at a named moment.

Virtual time begins on Tuesday, 2030-01-01, at midnight in UTC.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from rota import Rota, faults
from rota.app import KEPT_KINDS
from rota.automations import Automation, Change, Context, MutationResult, Prepared
from rota.core.automations.phases import shown
from rota.core.runs.recovery import runs_alone
from rota.store import invariants
from rota.store.runs.recover import reap_runs
from rota.testing import World, virtual
from rota.tools import Applied, Call, NotApplied, Safety, Tool, Unknown, Verdict
from tests.kit.builders import raw

QUIET: dict[str, Any] = {"keep_days": 0}


class Outside(Tool):
    """A counterpart that remembers every effect by its key, and can be made to misbehave."""

    name = "outside"
    settle_s = 0.0  # it shows an effect at once

    def __init__(self, safety: Safety = Safety.RECONCILABLE) -> None:
        self.safety = safety
        self.effects: list[tuple[str, Any]] = []
        self.calls = 0
        self.looks = 0
        self.before: Callable[[], Any] | None = None  # raises instead of the effect
        self.after: Callable[[], Any] | None = None  # raises after the effect
        self.verdict: Verdict | None = None
        self.result: Any = "done"

    def read(self, params: dict[str, Any]) -> Any:
        return params

    async def perform(self, params: Any, call: Call) -> Any:
        self.calls += 1
        await _hook(self.before)
        if self.safety is not Safety.IDEMPOTENT or call.key not in self.keys:
            self.effects.append((call.key, params))
        await _hook(self.after)
        return self.result

    async def look_up(self, params: Any, call: Call) -> Verdict:
        self.looks += 1
        if self.verdict is not None:
            return self.verdict
        return Applied(self.result) if call.key in self.keys else NotApplied("nothing is there")

    @property
    def keys(self) -> list[str]:
        """The keys of all effects, in order."""
        return [key for key, _ in self.effects]


UNSURE = Unknown("the line is dead")


def raising(error: BaseException, times: int = 1) -> Callable[[], None]:
    """Something that raises an error so many times, then nothing."""
    left = [times]

    def strike() -> None:
        if left[0]:
            left[0] -= 1
            raise error

    return strike


def both(first: Callable[[], Any], second: Callable[[], Any]) -> Callable[[], Any]:
    """One after the other; what the first raises keeps the second from happening."""

    async def strike() -> None:
        await _hook(first)
        await _hook(second)

    return strike


class Faulty(Tool):
    """A read tool with a bug of its own."""

    name = "faulty"
    safety = Safety.READ

    def read(self, params: dict[str, Any]) -> Any:
        return params

    async def perform(self, params: Any, call: Call) -> Any:
        raise AttributeError("a bug of the connector")


async def _hook(hook: Callable[[], Any] | None) -> None:
    if hook is not None:
        answer = hook()
        if answer is not None:
            await answer


class Line(Rota):
    """An app with one automation, `line`: external topic `work` → consumer `worker`, which takes
    `take` events at a time, calls `outside`, publishes nothing and counts in its state."""

    def __init__(
        self,
        safety: Safety = Safety.RECONCILABLE,
        *,
        approval: bool = False,
        mutates: bool = True,
        fix: Any = None,
        url: str = "sqlite://:memory:",
        migrate: bool | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(url, migrate=migrate, **(QUIET | settings))
        self.outside = Outside(safety)
        self.take = 1
        self.wake_at: Any = None
        self.in_prepare: Callable[[], Any] | None = None
        self.in_mutate: Callable[[], Any] | None = None
        self.in_next: Callable[[], Any] | None = None
        self.prepared: list[list[str]] = []
        self.reported: list[MutationResult] = []
        self.line = self.automation("line", approval=approval, timezone="UTC", fix=fix)
        self.work = self.line.topic("work", external=True)
        phases: dict[str, Any] = {"prepare": self._prepare, "next": self._next}
        if mutates:
            phases["mutate"] = self._mutate
        self.line.consumer("worker", subscribes=[self.work], **phases)

    async def _prepare(self, ctx: Context, state: Any) -> Prepared:
        events = (await ctx.peek(self.work))[: self.take]
        await _hook(self.in_prepare)
        self.prepared.append([event.id for event in events])
        return Prepared(events, [event.payload for event in events], "Work", self.wake_at)

    async def _mutate(self, ctx: Context, prepared: Prepared) -> Change:
        await _hook(self.in_mutate)
        return self.outside.change(items=prepared.data)

    async def _next(self, ctx: Context, prepared: Prepared, mutation: MutationResult) -> int:
        await _hook(self.in_next)
        self.reported.append(mutation)
        return len(self.reported)

    async def feed(self, *ids: str) -> None:
        """Publish events to the line."""
        for one in ids:
            await self.automations.publish("line", "work", one, {"id": one})

    @property
    def done(self) -> list[list[str]]:
        """The reservations that were not empty."""
        return [ids for ids in self.prepared if ids]

    @property
    def applied(self) -> list[tuple[str, Any]]:
        """Status and result of the changes that `next` was reported."""
        return [(one.status, one.result) for one in self.reported if one.status != "none"]


async def started(world: World, app: Line, *ids: str) -> None:
    """Let the deploy settle, then give it work."""
    await world.settle()
    app.prepared.clear()
    app.reported.clear()
    await app.feed(*ids)
    await world.settle()


@asynccontextmanager
async def begun(app: Line, url: str, *ids: str) -> AsyncIterator[World]:
    """The app on virtual time: deployed, at rest, then given work."""
    async with virtual(app, url=url) as world:
        await started(world, app, *ids)
        yield world


def takes_from_faulty(app: Line) -> None:
    """From now on its `prepare` reads with a tool that has a bug, and tries to hide that."""

    async def prepare(ctx: Context, state: Any) -> Prepared:
        try:
            await ctx.call(Faulty())
        except Exception:
            ctx.log("caught")  # scripts cannot catch what tools raise
        return Prepared()

    app.line.handlers["worker"].functions["prepare"] = prepare


async def statuses(app: Rota, name: str = "line") -> list[str]:
    """The handler runs as `handler phase status`, oldest first, without idle ones."""
    found = reversed(await app.automations.activity(name, limit=1000))
    return [f"{one.run.handler} {one.run.phase} {shown(one.status, one.reason)}" for one in found]


async def last(app: Rota, count: int, name: str = "line") -> list[str]:
    """The newest handler runs as `phase status`, oldest of them first."""
    return [line.split(" ", 1)[1] for line in (await statuses(app, name))[-count:]]


async def event_statuses(app: Rota, name: str = "line") -> dict[str, str]:
    """Status by message id."""
    found = await app.automations.events(name, limit=1000)
    return {one.message_id: one.status for one in found}


async def open_run_state(app: Rota, name: str = "line") -> str:
    """Status and reason of the open run."""
    open_run = (await app.automations.show(name)).open_run
    return "none" if open_run is None else open_run.label


async def sound(app: Rota) -> None:
    """Every invariant holds."""
    broken = await app.connection.database.read(invariants.broken)
    assert broken == [], broken


async def sql(app: Rota, text: str) -> list[tuple[Any, ...]]:
    """A plain statement, past everything."""
    return [tuple(row) for row in await app.connection.database.write(raw, text)]


class Killed(BaseException):
    """The process died here."""


@contextmanager
def dying_at(point: str) -> Iterator[None]:
    """Die once at a named point of the program, without any clean-up."""
    struck: list[str] = []

    def strike(reached: str) -> None:
        if reached == point and not struck:
            struck.append(reached)
            raise Killed(reached)

    faults.strike = strike
    try:
        yield
        assert struck, f"{point} was never reached"
    finally:
        faults.strike = None


async def bury(app: Rota) -> int:
    """The workers of this app are dead: what they held goes to recoveries."""
    assert app.runtime is not None
    now = app.clock.now()
    reaped = await app.connection.database.write(
        reap_runs, namespace="default", now=now, gone=[app.runtime.worker.id],
        recoveries_max=app.settings.recoveries_max, new_ids=list(app.ids.take(now, 10)),
        kept_kinds=KEPT_KINDS,
    )  # fmt: skip
    app.connection.wakeups.notify_soon("ready")
    if any(recovered and runs_alone(run.recoveries + 1) for run, recovered in reaped):
        app.runtime.worker.expect_alone(True)  # as the maintenance of a worker that reaps does
    return len(reaped)


def dying(app: Rota, times: int = 1) -> Callable[[], Any]:
    """User code during which the worker dies: nothing that it still does counts."""
    left = [times]

    async def die() -> None:
        if left[0]:
            left[0] -= 1
            assert await bury(app) == 1
            raise RuntimeError("nobody is there to hear this")

    return die


def plain(app: Rota, name: str = "plain") -> Automation:
    """An automation that is declared but for its handlers."""
    return app.automation(name, timezone="UTC")


async def payloads(app: Rota, name: str = "line") -> dict[str, str]:
    found = await app.automations.events(name, limit=1000)
    return {one.message_id: one.payload for one in found}
